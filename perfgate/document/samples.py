"""Raw samples inside a JSON document, and the blocks and pairs that they come from.

Samples are unsigned integers, byte-shuffled, zlib, base64; about 4 bytes a sample.
Shuffling stores all lowest bytes first, then all second bytes, and so on: the high
bytes of nearby durations are equal and compress to almost no bytes (the idea of the
HDF5 shuffle filter).
"""

from __future__ import annotations

import base64
import zlib
from typing import Annotated, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.document.records import FrozenStruct
from perfgate.document.telemetry import TelemetryReading
from perfgate.errors import DocumentError

MAX_SAMPLES = 50_000_000
# A call of a function, or a gap between two tokens of a server, is a stall if it is
# longer than this number of medians.
STALL_FACTOR = 3.0

# Pairs of base and head, pairs of base and base, and stretches: long turns of base and
# head, calls as a server makes them.
Arm = Literal["ab", "aa", "stretch"]
# A pair, a start or a round, counted from 0.
PairNumber = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
# The most pairs of base against base on an accelerator: they share one start, so more
# of them show no more.
AA_PAIRS_OF_A_START = 4


class PackedArray(FrozenStruct, kw_only=True):
    """An array of unsigned integers: nanoseconds, or bytes if its metric counts bytes."""

    count: int
    width: Literal[4, 8]
    data: str


def pack(values: npt.NDArray[np.integer] | list[int]) -> PackedArray:
    """Pack non-negative integers; 4 bytes each if the largest fits, else 8."""
    array = np.asarray(values, dtype=np.uint64)
    width: Literal[4, 8] = 8 if array.size and int(array.max()) > 0xFFFFFFFF else 4
    raw = array.astype(f"<u{width}").view(np.uint8).reshape(-1, width).T.tobytes()
    return PackedArray(
        count=int(array.size),
        width=width,
        data=base64.b64encode(zlib.compress(raw, 6)).decode(),
    )


def unpack(packed: PackedArray) -> npt.NDArray[np.int64]:
    """The integers of a packed array.

    Raises DocumentError if the data does not match its header (a truncated or hostile
    document); memory stays within the announced count, which itself is limited to
    MAX_SAMPLES.
    """
    if not 0 <= packed.count <= MAX_SAMPLES:
        raise DocumentError(
            "packed samples announce {count} values; at most {most} are accepted",
            count=packed.count,
            most=MAX_SAMPLES,
        )
    size = packed.count * packed.width
    try:
        decompressor = zlib.decompressobj()
        raw = decompressor.decompress(
            base64.b64decode(packed.data, validate=True), size + 1
        )
    except (ValueError, zlib.error) as error:
        raise DocumentError(
            "packed samples cannot be unpacked ({error}); the document is damaged",
            error=error,
        ) from error
    if len(raw) != size:
        raise DocumentError(
            "packed samples hold {count} bytes instead of the announced {size}; the document is damaged",
            count=len(raw),
            size=size,
        )
    planes = np.frombuffer(raw, dtype=np.uint8).reshape(packed.width, packed.count)
    values = np.ascontiguousarray(planes.T).view(f"<u{packed.width}").reshape(-1)
    if packed.width == 8 and values.size and int(values.max()) > np.iinfo(np.int64).max:
        raise DocumentError(
            "packed samples hold a value above 2^63 - 1; the document is damaged"
        )
    return values.astype(np.int64)


class SampleSet(FrozenStruct, kw_only=True):
    """All samples of one metric in call order, packed."""

    metric: str
    samples: PackedArray
    labels: dict[str, str] = {}


class StageTimes(FrozenStruct, kw_only=True):
    """The times of one preprocessing stage in every call, in call order; ``line`` is
    the start of its function.
    """

    name: str
    wall: PackedArray
    line: str | None = None


class PackedTimes(FrozenStruct, kw_only=True):
    """The time of every call of all blocks in nanoseconds, one block after another, by
    each clock.
    """

    wall: PackedArray
    # Thread CPU time, or device time from before the call to after it (``cpu_source``).
    cpu: PackedArray
    cpu_source: Literal["thread_cpu", "device"] = "thread_cpu"
    # On a device with its own clock: the time until each call returned, without the
    # wait for the device.
    host: PackedArray | None = None
    # Of calls of the preprocessing: their times add up to ``wall``.
    stages: list[StageTimes] = []

    @property
    def arrays(self) -> list[PackedArray]:
        """The times by every clock that was read, and of every stage."""
        arrays = [self.wall, self.cpu, *(stage.wall for stage in self.stages)]
        return arrays if self.host is None else [*arrays, self.host]


class WorkerColumns(FrozenStruct, kw_only=True):
    """What the worker reports about its blocks.

    From ``took_ns`` on, a block includes its unrecorded call.
    """

    start_ns: list[int]
    end_ns: list[int]
    involuntary_switches: list[int]
    minor_faults: list[int]
    # From the request to the reply.
    took_ns: list[int] = []
    # The part of it in which the worker was ready to run without a CPU.
    took_delay_ns: list[int] = []
    # Counts in user space, of all threads.
    instructions: list[int] = []
    cycles: list[int] = []
    cache_misses: list[int] = []

    @property
    def counts(self) -> list[list[int]]:
        """The columns of the processor's counters."""
        return [self.instructions, self.cycles, self.cache_misses]


class ConductorColumns(FrozenStruct, kw_only=True):
    """What the conductor observes of the blocks from outside, by its own clock; user
    code cannot influence it.
    """

    # When the conductor sent the request.
    asked_ns: list[int] = []
    # From the request to the reply.
    seen_ns: list[int] = []
    # In which the worker was ready to run and another process had the CPU.
    run_delay_ns: list[int] = []
    # CPU time of the worker and its descendants.
    used_ns: list[int] = []
    # CPU time that they used since the last block, while it was not their turn for
    # ``waited_ns``.
    out_of_turn_ns: list[int] = []
    waited_ns: list[int] = []
    # In which the conductor itself was ready to run without a CPU.
    conductor_delay_ns: list[int] = []


class DeviceColumns(FrozenStruct, kw_only=True):
    """The state of the device during the blocks, as it reports it."""

    throttled: list[bool | None] = []
    power_capped: list[bool | None] = []
    # Clock over rated clock.
    clock_share: list[float | None] = []
    # Other processes on the device.
    foreign_processes: list[int | None] = []


class BlockColumns(FrozenStruct, kw_only=True):
    """The blocks of one worker for one shape, column by column, in the order they ran.

    Each column has one entry per block. A column that is empty, or a None in it, was
    not available.
    """

    quad: list[int]
    sequence: list[int]
    # Calls per block.
    calls: list[int]
    times: PackedTimes
    worker: WorkerColumns
    conductor: ConductorColumns = msgspec.field(default_factory=ConductorColumns)
    device: DeviceColumns = msgspec.field(default_factory=DeviceColumns)


class KernelRow(FrozenStruct, kw_only=True):
    """The launches of one kernel of one size: how many in a call, and the nanoseconds
    that they take in a typical call.
    """

    name: str
    launch: str = ""
    count: float
    ns: float


class KernelBlocks(FrozenStruct, kw_only=True):
    """The profiled blocks of one worker for one shape, at most one in each quad; both
    sides make equally many calls.

    ``busy_ns`` is the sum of the durations of all kernels of a block, copies left out,
    and ``cycles`` those that the device counted for them; empty if it counts none.
    ``work`` is a hash of the names, launch sizes and order of the kernels of each
    block. ``rows`` are the kernels, the longest first: the last row holds the rest of
    many.
    """

    quad: list[int]
    calls: list[int]
    busy_ns: list[int]
    cycles: list[int] = []
    work: list[str]
    rows: list[KernelRow] = []


# The setting that counts how often a signal stopped a worker.
STOPPED = "stopped"


class WorkerState(FrozenStruct, kw_only=True):
    """How the process of a replicate was started, where it ran, and whether it was
    warm.
    """

    # Weights and inputs of a quad lie at addresses drawn from it and the number of the
    # quad.
    layout_seed: int
    # Whether weights and inputs lay elsewhere in every quad; None, unknown, is held to
    # the stricter rules.
    moved: bool | None = None
    cpus: list[int]
    # The number of the warm process that it was forked from; None if it loaded and
    # warmed up by itself.
    forked_from: int | None = None
    # Of the warm process.
    start_up: float
    steady: bool
    # Of torch, the garbage collector and the threads (as the kernel reports them) after
    # the last block. They must be equal on both sides.
    settings: dict[str, str] = {}


class ProfiledParts(FrozenStruct, kw_only=True):
    """Typical seconds of the parts of one call, from profiled calls of a process of a
    pair, by shape and name.
    """

    # Self times of operators. OUTSIDE_OPERATORS is the rest of the call.
    operators: dict[str, dict[str, float]] = {}
    # ``module.NAME`` or ``function.FILE:NAME``: host time with all that it calls.
    subroutines: dict[str, dict[str, float]] = {}


class Replicate(FrozenStruct, kw_only=True):
    """One worker process of a pair.

    In arm ``aa`` both members of the pair run the base. In arm ``stretch`` the process
    makes hundreds of calls a turn without moving in memory and collects its garbage
    inside them; ``wall`` leaves out the waits of each call for a CPU.
    """

    # In arm ``stretch`` the number of the start.
    pair: PairNumber
    arm: Arm
    member: Literal["first", "second"]
    workload: str
    # On an accelerator processes stay loaded for the pairs of a start, which has the
    # number of its first pair.
    start: PairNumber | None = None
    # The job that measured the pair: 0 is the first, and each job that added pairs is
    # one more.
    round: PairNumber = 0
    worker: WorkerState
    shapes: dict[str, BlockColumns]
    # The preprocessing alone, by shape; a call takes a raw batch made beforehand.
    preprocess: dict[str, BlockColumns] = {}
    # The profiled blocks of a device, by shape.
    kernels: dict[str, KernelBlocks] = {}
    profile: ProfiledParts = msgspec.field(default_factory=ProfiledParts)
    # Shape, line of the project (``file:line``): how often a slow call was sampled
    # there, after a stretch.
    stalled_at: dict[str, dict[str, int]] = {}
    # The device's sensors while the blocks ran, by the clock of ``asked_ns``.
    readings: list[TelemetryReading] = []

    @property
    def lanes(self) -> list[tuple[str, BlockColumns]]:
        """The blocks of calls and of the preprocessing, each with its shape."""
        return [*self.shapes.items(), *self.preprocess.items()]
