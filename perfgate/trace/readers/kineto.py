"""Read what torch.profiler (Kineto) writes: Chrome trace events as JSON, times in microseconds with decimals."""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from perfgate.document.message import Message
from perfgate.trace.analysis import IntColumn
from perfgate.trace.chrome_events import (
    DEVICE_CATEGORIES,
    HOST,
    KIND_OF_CATEGORY,
    UNNAMED,
    ChromeEvent,
    absent_device,
    looks_like,
    read_events,
    request_of,
    span_duration,
    timelines_by_device,
    unquoted,
)
from perfgate.trace.events import (
    COLLECTIVE_PREFIXES,
    DEVICE_KINDS,
    MAX_NS,
    NO_CORRELATION,
    NO_TEXT,
    EventKind,
    EventTable,
    EventTableBuilder,
    nanoseconds,
)
from perfgate.trace.recording import Recording
from perfgate.trace.steps import STEP_NAME

READS = "traces of torch.profiler (Kineto), *.json and *.json.gz, or a folder of *.pt.trace.json"
PRIORITY = 0

# What args.type of a kernel on an NPU begins with (KERNEL_AICORE, KERNEL_MIX_AIV; sample torch-native-privateuse1).
_NPU_KERNEL = b'"KERNEL_'
_ALLOCATION = "[memory]"
# A launch and its kernels are joined by a flow where they have no correlation (sample torch-native-privateuse1); the flow
# stands right behind its event. This one joins operators of the forward and the backward pass.
_FLOW_OF_OPERATORS = "fwdbwd"
_LOOKS = re.compile(
    rb'"(?:schemaVersion|deviceProperties|baseTimeNanoseconds)"\s*:'
    rb'|"cat"\s*:\s*"(?:cpu_op|operator|kernel|user_annotation|cuda_runtime|cpu_instant_event|python_function)"',
    re.IGNORECASE,
)
_TRACE_FILES = ("*.pt.trace.json", "*.pt.trace.json.gz")

_Scalar = int | float | str | None


class _Arguments(msgspec.Struct, gc=False):
    correlation: _Scalar = None
    device: _Scalar = None
    external_id: _Scalar = msgspec.field(default=None, name="External id")
    external_id_2021: _Scalar = msgspec.field(default=None, name="external id")
    shapes: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input Dims")
    request_id: _Scalar = None
    type: msgspec.Raw = msgspec.Raw()


class _Event(ChromeEvent):
    id: msgspec.Raw = msgspec.Raw()
    args: _Arguments | None = None


def recognises(path: Path) -> bool:
    if path.is_dir():
        return bool(_trace_files(path))
    return path.is_file() and path.name.endswith((".json", ".json.gz")) and looks_like(path, _LOOKS)


def read(path: Path) -> Recording:
    """A timeline for each device of a Kineto trace; of a folder, those of all its files.

    Raises DocumentError as ``read_kineto`` does.
    """
    if not path.is_dir():
        return _read_file(path)
    recordings = [_read_file(file) for file in _trace_files(path)]
    timelines = [timeline for recording in recordings for timeline in recording.timelines]
    timelines.sort(key=lambda timeline: (timeline.rank is None, timeline.rank or 0, timeline.device or 0))
    first = recordings[0]
    return Recording(path, "kineto", tuple(timelines), first.software, first.settings, absent=first.absent)


def read_kineto(path: Path) -> EventTable:
    """The spans of a Kineto trace, all devices together, and its allocations as events without duration.

    Times become integer nanoseconds without passing through a float. Raises DocumentError, with what is wrong, where,
    and what to do, for a file that is missing, cut off, too large or not such a trace.
    """
    collector = _Collector()
    read_events(path, _Event, collector.add)
    return collector.table()


def _trace_files(folder: Path) -> list[Path]:
    return sorted(file for pattern in _TRACE_FILES for file in folder.glob(pattern) if file.is_file())


def _read_file(path: Path) -> Recording:
    around = bytearray()
    collector = _Collector()
    read_events(path, _Event, collector.add, around=around)
    header = KinetoHeader(bytes(around), path)
    timelines = timelines_by_device(path, collector.table(), collector.devices(), rank=header.rank)
    absent = dict(absent_device(timelines))
    if all(timeline.steps is None for timeline in timelines):
        absent["steps"] = Message("notes.no-steps-marked")
    devices = {timeline.device for timeline in timelines if timeline.device is not None}
    return Recording(path, "kineto", timelines, header.software, header.settings(devices), absent=absent)


class _Category(NamedTuple):
    """What a category says of an event."""

    kind: EventKind
    on_device: bool
    launches: bool  # or was launched: joined by correlation or flow


class _Collector:
    """Takes the events of one file, in order, and makes the table of them."""

    def __init__(self) -> None:
        self._builder = EventTableBuilder()
        self._devices = array("q")
        self._externals = array("q")
        self._categories: dict[str | None, _Category] = {}
        self._tracks: dict[tuple[bytes, bytes], tuple[str, str]] = {}
        self._unjoined: dict[tuple[bytes, bytes, int], int] = {}
        self._flows: dict[int, int] = {}

    def add(self, event: _Event) -> None:
        """Raises ValueError for a span whose times are none."""
        if event.ph == "X":
            self._add_span(event, span_duration(event))
        elif event.ph == "i" and event.name == _ALLOCATION:
            self._add_span(event, 0)
        elif self._unjoined and event.ph in ("s", "f") and event.cat != _FLOW_OF_OPERATORS:
            self._join(event)

    def devices(self) -> IntColumn:
        """The device of each event: its number, HOST, or UNNAMED."""
        return np.frombuffer(self._devices, np.int64)

    def table(self) -> EventTable:
        """The events, kernels with the shapes of the operator that launched them."""
        table = self._builder.table()
        for position, flow in self._flows.items():
            table.correlation[position] = flow
        _give_shapes(table, np.frombuffer(self._externals, np.int64))
        return table

    def _add_span(self, event: _Event, duration: int) -> None:
        start, name, arguments = nanoseconds(bytes(event.ts)), event.name or "", event.args or _NO_ARGUMENTS
        category = self._categories.get(event.cat) or self._category(event.cat)
        kind, correlation = _kind(category.kind, name), _number(arguments.correlation)
        pid, tid = bytes(event.pid), bytes(event.tid)
        if category.launches and correlation == NO_CORRELATION:
            self._unjoined[pid, tid, start] = len(self._builder)
        self._devices.append(_device(arguments.device, pid) if category.on_device else HOST)
        external = arguments.external_id
        self._externals.append(_number(arguments.external_id_2021 if external is None else external))
        track = self._tracks.get((pid, tid))
        if track is None:
            track = self._tracks[pid, tid] = unquoted(pid), unquoted(tid)
        self._builder.add(
            start,
            duration,
            track=track,
            name=name,
            kind=kind,
            correlation=correlation,
            group=_operator_type(name) if bytes(arguments.type).startswith(_NPU_KERNEL) else None,
            request=request_of(arguments.request_id, name if kind == "annotation" else ""),
            shape=bytes(arguments.shapes).decode("utf-8", "replace") if arguments.shapes else None,
        )

    def _join(self, flow: _Event) -> None:
        position = self._unjoined.get((bytes(flow.pid), bytes(flow.tid), nanoseconds(bytes(flow.ts))))
        number = bytes(flow.id).strip(b'"')
        if position is not None and number.isdigit() and len(number) < 19:
            self._flows[position] = int(number)

    def _category(self, text: str | None) -> _Category:
        word = (text or "").lower()
        kind = KIND_OF_CATEGORY.get(word, "other")
        category = _Category(kind, word in DEVICE_CATEGORIES, kind == "runtime" or kind in DEVICE_KINDS)
        self._categories[text] = category
        return category


_NO_ARGUMENTS = _Arguments()


def _kind(kind: EventKind, name: str) -> EventKind:
    if kind == "compute" and name[:5].lower().startswith(COLLECTIVE_PREFIXES):
        return "comm"
    # In 2021 the steps were operators, and allocations had no category.
    if kind == "host_op" and STEP_NAME.fullmatch(name):
        return "annotation"
    return "memory" if name == _ALLOCATION else kind


def _operator_type(name: str) -> str:
    # MatMulV2_ND_ND_FP32_FP32_false_false_all_65537, Cast_39a266ce9a8d…_high_performance_210000000: the binary's name.
    return name.partition("_")[0] or name


def _number(value: _Scalar) -> int:
    return value if isinstance(value, int) and 0 <= value < MAX_NS else NO_CORRELATION


def _device(argument: _Scalar, process: bytes) -> int:
    """What the arguments say, else the process, which for a device is its number."""
    if isinstance(argument, int) and 0 <= argument < MAX_NS:
        return argument
    number = process.strip(b'" ')
    return int(number) if number.isdigit() and len(number) < 10 else UNNAMED


def _give_shapes(table: EventTable, externals: IntColumn) -> None:
    """Give what an operator launched the operator's shapes; both carry the operator's external id."""
    operators = np.flatnonzero((table.shape != NO_TEXT) & (externals != NO_CORRELATION))
    work = table.is_kind(*DEVICE_KINDS)
    bare = np.flatnonzero(work & (table.shape == NO_TEXT) & (externals != NO_CORRELATION))
    if not operators.size or not bare.size:
        return
    numbers, first = np.unique(externals[operators], return_index=True)
    place = np.minimum(np.searchsorted(numbers, externals[bare]), numbers.size - 1)
    launched = numbers[place] == externals[bare]
    table.shape[bare[launched]] = table.shape[operators[first][place[launched]]]


# The file's name has it where the header has not (sampled_rank-0.json.gz, rank3_trace.json).
_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])rank[-_]?(\d{1,9})(?!\d)", re.IGNORECASE)
_SETTINGS = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_VERSION = "_version"
_MAX_RANK = 1 << 31


class _Distributed(msgspec.Struct):
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    nccl_version: str | None = None


class _Properties(msgspec.Struct):
    id: int | None = None
    name: str | None = None


class KinetoHeader:
    """The members of a trace's object other than its events; one that is not as expected counts as not there."""

    def __init__(self, text: bytes, path: Path) -> None:
        self._path = path
        try:
            members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            members = {}  # a bare list, or a damaged end: the events themselves were read
        self._members = members
        self._distributed = self._member("distributedInfo", _Distributed) or _Distributed()

    @property
    def rank(self) -> int | None:
        """The rank of the process, by the header, else by the file's name, None where neither says."""
        if self._distributed.rank is not None and 0 <= self._distributed.rank < _MAX_RANK:
            return self._distributed.rank
        match = _RANK_IN_NAME.search(self._path.name)
        return int(match[1]) if match else None

    @property
    def software(self) -> dict[str, str]:
        """Versions by name: ``kineto.schema``, ``nccl``, ``cuda_runtime`` and what else ends in ``_version``."""
        versions = {"kineto.schema": self._scalar("schemaVersion"), "nccl": self._distributed.nccl_version}
        for name in self._members:
            if name.endswith(_VERSION):
                versions[name[: -len(_VERSION)]] = _version(name, self._scalar(name))
        return {name: version for name, version in versions.items() if version}

    def settings(self, devices: Collection[int]) -> dict[str, str]:
        """What the profiler was told and on what: shapes, stacks, world size, the names of these devices."""
        settings = {name: self._scalar(name) for name in _SETTINGS}
        settings["backend"] = self._distributed.backend
        if self._distributed.world_size is not None:
            settings["world_size"] = str(self._distributed.world_size)
        for properties in self._member("deviceProperties", list[_Properties]) or []:
            if properties.id in devices:
                settings[f"device.{properties.id}"] = properties.name
        return {name: value for name, value in settings.items() if value}

    def _member(self, name: str, kind: Any) -> Any:
        try:
            return msgspec.json.decode(self._members[name], type=kind)
        except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _scalar(self, name: str) -> str | None:
        value = self._member(name, int | str)
        return None if value is None else str(value)


def _version(name: str, text: str | None) -> str | None:
    """``12.4`` for CUDA's 12040 (cuda.h: 1000 x major + 10 x minor)."""
    if text is None or not name.startswith("cuda_") or not re.fullmatch(r"\d{4,6}", text):
        return text
    return f"{int(text) // 1000}.{int(text) % 1000 // 10}"
