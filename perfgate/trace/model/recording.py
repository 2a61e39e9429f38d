"""A profiler's recording, independent of the profiler: a timeline for each rank and
device, and its tables.

Times are integer nanoseconds of the recording's own clock. Data that was not collected
is None or left out, with the reason in ``absent``; it is never an empty table and never
zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from msgspec import field

from perfgate.document.message import Message
from perfgate.trace.model.communication import KernelKind, kernel_kind
from perfgate.trace.model.events import EventTable
from perfgate.trace.model.readings import CORE_CLOCK, Readings

if TYPE_CHECKING:
    from perfgate.trace.model.kernel_table import KernelTable

Shapes = tuple[tuple[int, ...], ...]
CollectiveKind = Literal["collective", "p2p"]


class Tensors(NamedTuple):
    """The inputs or outputs of a kernel, with one entry a tensor; an empty shape is a
    scalar.
    """

    shapes: Shapes = ()
    dtypes: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()

    @property
    def notation(self) -> str:
        """The shapes as the profiler's tables write them: ``32,1000;1000,4096``."""
        shapes = [",".join(map(str, shape)) for shape in self.shapes]
        return ";".join(shapes)


class Launch(NamedTuple):
    """How a kernel was launched; ``model_id`` is None for an eager kernel."""

    stream: int | None = None
    task: int | None = None
    model_id: int | None = None
    state: str | None = None


class Kernel(NamedTuple):
    """One run of a kernel as the profiler's table of kernels has it.

    ``type`` is the operator type (``MatMulV2``), ``core`` the unit it ran on as named
    in the file (``AI_CORE``). ``wait_ns`` is the idle time before it, ``blocks`` the
    number of cores it was split over. ``counters`` are the hardware counters that were
    asked for, by column name as written, numbers as written.
    """

    name: str
    type: str | None
    core: str | None
    start_ns: int | None
    duration_ns: int
    wait_ns: int | None = None
    step: int | None = None
    launch: Launch = Launch()
    blocks: int | None = None
    mix_blocks: int | None = None
    hf32: bool | None = None
    inputs: Tensors = Tensors()
    outputs: Tensors = Tensors()
    counters: Mapping[str, float] = {}

    @property
    def is_collective(self) -> bool:
        """Whether it is the share of a collective operation, without computing."""
        return self.kind == "comm"

    @property
    def kind(self) -> KernelKind:
        """Its kind as an event; collectives are recognized by the core, at level 0 only
        by the name.
        """
        if is_collective_core(self.core):
            return "comm"
        return kernel_kind(self.name)


def is_collective_core(core: str | None) -> bool:
    return (core or "").upper() in ("HCCL", "COMMUNICATION")


class ProfilerStep(NamedTuple):
    """The time between two calls of the profiler's ``step()``; usually one call of the
    workload.

    All parts except ``communication_ns`` and ``bubble_ns`` add up to its length. A mark
    of the host, for a step or a call, has only its number and its times. A row of the
    profiler's own table of steps has the parts as written.
    """

    number: int | None  # None for work that the profiler ascribes to no step
    start_ns: int | None = None
    end_ns: int | None = None  # of its work on the device
    computing_ns: int | None = None
    communication_ns: int | None = None  # hidden by computing or not
    exposed_communication_ns: int | None = None
    exposed_copies_ns: int | None = None  # if not recorded, they are in the next two
    preparing_ns: int | None = (
        None  # before the first kernel; in a table perhaps below zero
    )
    free_ns: int | None = None  # idle after the first kernel
    fused_ns: int = (
        0  # of kernels that compute and communicate at once, while no other computed
    )
    bubble_ns: int | None = (
        None  # the exposed communication that waited for another stage of the pipeline
    )

    @property
    def length_ns(self) -> int | None:
        """The sum of the parts; of a step without any on a device, how long the host
        was in it.
        """
        if self.computing_ns is None:
            if self.start_ns is None or self.end_ns is None:
                return None
            return self.end_ns - self.start_ns
        if (
            self.exposed_communication_ns is None
            or self.preparing_ns is None
            or self.free_ns is None
        ):
            return None
        kernels = self.computing_ns + self.fused_ns + self.exposed_communication_ns
        return (
            kernels + (self.exposed_copies_ns or 0) + self.preparing_ns + self.free_ns
        )

    @property
    def own_ns(self) -> int | None:
        """The length without the parts that may wait for other ranks: exposed
        communication and fused kernels.
        """
        length = self.length_ns
        if length is None:
            return None
        return length - (self.exposed_communication_ns or 0) - self.fused_ns


class Packets(NamedTuple):
    """Packets of one size: bytes of one of them, and the nanoseconds that all took."""

    size_bytes: float
    number: int
    time_ns: int


class LinkUse(NamedTuple):
    """The traffic of a collective over one kind of link (``HCCS``, ``SDMA``, ``RDMA``
    …): bytes, nanoseconds, bytes a second.

    SDMA repeats the traffic of HCCS, PCIE and SIO, without its packets.
    """

    link: str
    size_bytes: float
    transit_ns: int
    bandwidth: float | None
    packets: tuple[Packets, ...] = ()


class Collective(NamedTuple):
    """One collective or point-to-point operation of one rank; ``group`` is the
    communicator's name.
    """

    name: str
    kind: CollectiveKind
    group: str | None
    step: int | None
    start_ns: int | None
    elapsed_ns: int | None
    transit_ns: int | None
    wait_ns: int | None
    idle_ns: int | None
    links: tuple[LinkUse, ...] = ()


class CollectiveKernel(NamedTuple):
    """A kernel of a collective as torch's profiler describes it: which ``operation``
    (``allreduce``), in which group.

    ``ranks`` are the group's global ranks, empty if the recording does not list them;
    ``size`` is how many there are, and ``sent`` the bytes that the rank put in, None if
    unknown.
    """

    name: str
    operation: str
    group: str
    ranks: tuple[int, ...]
    size: int | None
    start_ns: int
    elapsed_ns: int
    sent: int | None


class RankLink(NamedTuple):
    """The transfers of a rank to another in collectives of one sort
    (``allreduce-total``): bytes, nanoseconds, bytes a second.

    ``source`` and ``target`` are positions in the group, which older versions of CANN
    number as all ranks are; global ranks if the group is None. The source is the rank
    that was recorded. ``step`` is None for all steps together.
    """

    operation: str
    kind: CollectiveKind
    group: str | None
    step: int | None
    source: int
    target: int
    link: str
    size_bytes: float
    transit_ns: int
    bandwidth: float | None


class NamedTotal(msgspec.Struct, frozen=True):
    """Everything of one name in a table that the profiler itself adds up: how often it
    ran, and its nanoseconds.

    ``level`` is the level of a function of the host's libraries: acl, node, hccl,
    runtime or model; ``aicpu`` for a node on the device's own CPU.
    """

    name: str
    count: int
    total_ns: int
    level: str = ""


class AllocationTotal(msgspec.Struct, frozen=True):
    """Everything one operator allocated on the device, in bytes; ``held_bytes`` when
    all operators together held most.
    """

    name: str
    count: int
    total_bytes: float
    largest_bytes: float
    held_bytes: float


class Totals(msgspec.Struct, frozen=True):
    """The tables that the profiler itself adds up; None if not collected."""

    types: tuple[NamedTotal, ...] | None = None  # kernels by type
    calls: tuple[NamedTotal, ...] | None = None  # of the host's libraries
    operators: tuple[NamedTotal, ...] | None = (
        None  # the host's self time in operators of the framework
    )


class Memory(msgspec.Struct, frozen=True):
    """The memory of a device."""

    peaks: Mapping[str, float] = field(
        default_factory=dict
    )  # bytes by component, e.g. PTA.allocated
    allocations: tuple[AllocationTotal, ...] | None = None


class Timeline(msgspec.Struct, frozen=True, dict=True):
    """One device of one rank, and its host; ``rank`` and ``device`` are None if the
    recording names none.

    A table that was not collected is None.
    """

    rank: int | None
    device: int | None
    events: EventTable  # of the host and of this device alone
    kernels: Sequence[Kernel] | None = None
    steps: Sequence[ProfilerStep] | None = None  # derived from the available data
    step_table: tuple[ProfilerStep, ...] | None = None  # the profiler's own
    collectives: tuple[Collective, ...] | None = None
    collective_kernels: tuple[CollectiveKernel, ...] | None = None
    memory: Memory = field(default_factory=Memory)
    rank_links: tuple[RankLink, ...] | None = None
    totals: Totals = field(default_factory=Totals)
    groups: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict
    )  # ranks by the framework's name: tp, pp, dp
    readings: Mapping[str, Readings] = field(
        default_factory=dict
    )  # the device's counters over time
    losses: tuple[Message, ...] = ()  # signs in the file that events are missing

    @cached_property
    def kernel_columns(self) -> KernelTable:
        """The table of kernels column by column; empty if it was not collected."""
        from perfgate.trace.model.kernel_table import (
            KernelTable,
        )  # which needs the records here

        return KernelTable.of(self.kernels or ())

    @property
    def core_frequency(self) -> tuple[float, float] | None:
        """Hertz of the AI core, lowest and highest seen."""
        clock = self.readings.get(CORE_CLOCK)
        if clock is None:
            return None
        return float(clock.value.min()), float(clock.value.max())

    @property
    def label(self) -> str:
        """E.g. ``rank 0, device 4``."""
        parts = []
        if self.rank is not None:
            parts.append(f"rank {self.rank}")
        if self.device is not None:
            parts.append(f"device {self.device}")
        return ", ".join(parts) or "all"

    @property
    def tells_of_device(self) -> bool:
        """Whether a table describes a device, even one without recorded events."""
        computed = any(step.computing_ns is not None for step in self.steps or ())
        return bool(self.kernels or self.totals.types or self.collectives) or computed


class Loss(NamedTuple):
    """The loss of a damaged file in bytes of its text: ``lost`` of all ``size`` bytes.

    ``pieces`` of its list of events are lost, the first at ``offset``, in the ``span``
    of nanoseconds that they name; of the text ``around`` the list that many bytes.
    ``numbers`` are values that are neither JSON nor times. If it ``is_cut``, what
    followed is unknown and counts nowhere.
    """

    size: int
    lost: int
    pieces: int
    offset: int
    around: int
    numbers: int
    is_cut: bool
    wrong_checksum: bool
    has_more: bool  # behind the end of what is compressed
    span: tuple[int, int] | None

    @property
    def is_of_events(self) -> bool:
        """Whether events, or values of theirs, are missing, so that counts and totals
        may be too low.
        """
        return self.is_cut or self.lost > 0 or self.numbers > 0


# Prefix of the part of a recording's ``absent`` for kernels that its tables lack.
SOME_KERNELS = "kernels, some"


class Recording(msgspec.Struct, frozen=True):
    """The whole content of a profiler's file or folder.

    ``format`` is its reader's name for it: ascend-pytorch, ascend-db,
    ascend-trace-view, msprof, kineto, chrome or another's. ``software`` are versions by
    name (``torch_npu``, ``cann``), ``settings`` the profiler's options (``level``,
    ``aic_metrics``), ``environment`` the variables it wrote down. ``absent`` maps data
    that was not collected to the reason; ``notes`` are caveats for readers of the
    numbers. ``loss`` describes the unreadable part of a damaged file, None for an
    intact file.
    """

    path: Path
    format: str
    timelines: tuple[Timeline, ...]
    software: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, Message] = field(default_factory=dict)
    notes: tuple[Message, ...] = ()
    loss: Loss | None = None

    @staticmethod
    def of_files(path: Path, recordings: Sequence[Recording]) -> Recording:
        """The recordings of the files in a folder as one."""
        names = [recording.path.name for recording in recordings]
        return Recording.of_parts(path, names, recordings)

    @staticmethod
    def of_parts(
        path: Path, names: Sequence[str], parts: Sequence[Recording]
    ) -> Recording:
        """The parts of a recording as one: all timelines, by rank and device; repeats
        of a rank keep their order. ``names`` are those of the files or folders.
        """
        timelines: list[Timeline] = []
        notes: list[Message] = []
        absent = {}
        for name, part in zip(names, parts):
            timelines += part.timelines
            notes += part.notes
            for missing, reason in part.absent.items():
                if all(missing in other.absent for other in parts):
                    absent[missing] = reason
                else:
                    absent[f"{missing} of {name}"] = reason  # only some parts lack it
        timelines.sort(
            key=lambda timeline: (
                timeline.rank is None,
                timeline.rank or 0,
                timeline.device or 0,
            )
        )
        return Recording(
            path,
            parts[0].format,
            tuple(timelines),
            software=_merged(part.software for part in parts),
            settings=_merged(part.settings for part in parts),
            environment=_merged(part.environment for part in parts),
            absent=absent,
            notes=tuple(notes),
        )

    @property
    def incomplete(self) -> list[Message]:
        """For each table of kernels with rows that were cut off or lack cells, the
        reason.
        """
        return [
            reason
            for part, reason in self.absent.items()
            if part.startswith(SOME_KERNELS)
        ]


def _merged(parts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """One value per key if the parts that have it agree, else all their values."""
    values: dict[str, dict[str, None]] = defaultdict(dict)
    for part in parts:
        for name, value in part.items():
            values[name][value] = None
    return {name: " | ".join(distinct) for name, distinct in values.items()}
