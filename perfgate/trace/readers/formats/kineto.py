"""Read traces of torch.profiler (Kineto): Chrome trace events as JSON, times in microseconds with decimals."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from perfgate.document.message import Message
from perfgate.trace.loops import look_up
from perfgate.trace.model.arithmetic import CodeColumn, Codes, IntColumn, Mask, Positions, one_of
from perfgate.trace.model.communication import kernel_kind
from perfgate.trace.model.events import (
    DEVICE_KINDS,
    KIND_CODES,
    MAX_NS,
    NO_CORRELATION,
    NO_TEXT,
    EventKind,
    EventTable,
)
from perfgate.trace.model.launches import NOT_RECORDED, first_positions
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.model.readings import MEMORY_ALLOCATED, MEMORY_RESERVED, Readings
from perfgate.trace.model.recording import CollectiveKernel, Recording, Timeline
from perfgate.trace.model.steps import STEP_NAME
from perfgate.trace.readers.rank_names import process_label, rank_in_name, ranks_of_labels
from perfgate.trace.scanner.chrome_events import (
    DEVICE_CATEGORIES,
    HOST,
    KIND_OF_CATEGORY,
    RUNTIME_CATEGORIES,
    UNNAMED,
    absent_device,
    begins_with,
    looks_like,
    timelines_by_device,
)
from perfgate.trace.scanner.compressed import is_json, named
from perfgate.trace.scanner.counters import CounterSeries, read_counters
from perfgate.trace.scanner.library import COUNTER_ARGUMENTS
from perfgate.trace.scanner.scan import scan
from perfgate.trace.scanner.scanned import NO_NUMBER, Names, ScannedEvents, ScannedTexts, requests_named

READS = "traces of torch.profiler (Kineto), *.json, *.json.gz and *.json.zst, or a folder of them"
PRIORITY = 0

# Prefix of args.type of a kernel on an NPU (KERNEL_AICORE, KERNEL_MIX_AIV; sample torch-native-privateuse1).
_NPU_KERNEL = b'"KERNEL_'
_ALLOCATION = "[memory]"
# The arguments of an allocation: what the allocator of a device had handed out and held after it. Device type 0 is the host
# (c10/core/DeviceType.h).
_DEVICE_TYPE, _DEVICE_ID = "Device Type", "Device Id"
_HELD = {MEMORY_ALLOCATED: "Total Allocated", MEMORY_RESERVED: "Total Reserved"}
# A launch and its kernels without a correlation are joined by a flow (sample torch-native-privateuse1); the flow follows its
# event directly. This one joins operators of the forward and the backward pass.
_FLOW_OF_OPERATORS = "fwdbwd"
_LOOKS = re.compile(
    rb'"(?:schemaVersion|deviceProperties|baseTimeNanoseconds)"\s*:'
    rb'|"cat"\s*:\s*"(?:cpu_op|operator|kernel|user_annotation|cuda_runtime|cpu_instant_event|python_function)"',
    re.IGNORECASE,
)
_EVENTS = re.compile(rb'\A\s*\[|"traceEvents"\s*:')
_TRACE_FILES, _JSON_FILES = named("*.pt.trace.json"), named("*.json")


_CORRELATION, _DEVICE, _SHAPES, _REQUEST, _TYPE = "correlation", "device", "Input Dims", "request_id", "type"
_STREAM = "stream"
# torch's arguments for a kernel of a collective (torch/csrc/distributed/c10d/ParamCommsUtils.hpp).
_GROUP, _GROUP_RANKS, _GROUP_SIZE = "Process Group Name", "Process Group Ranks", "Group size"
_OPERATION, _DTYPE, _ELEMENTS = "Collective name", "dtype", "In msg nelems"
_EXTERNALS = ("External id", "external id")  # the current key, and that of 2021
# Engines of MTIA also record that they wait for each other (libkineto: mtia_ccp_events).
_MTIA_WORK, _WAITING = "mtia_ccp_events", lazy_pattern(r"(?:^|_)wait(?:$|_)", re.IGNORECASE)
_PROCESS_DIGITS = 10  # of a process id that may be the number of a device, fewer
_LAUNCHING = tuple(KIND_CODES[kind] for kind in ("runtime", *DEVICE_KINDS))


def recognises(path: Path) -> bool:
    if path.is_dir():
        return bool(trace_files(path))
    return path.is_file() and is_json(path) and looks_like(path, _LOOKS)


def read(path: Path) -> Recording:
    """A timeline for each device of a Kineto trace; of a folder, those of all its files.

    Raises DocumentError as ``read_kineto`` does.
    """
    if not path.is_dir():
        return _read_file(path)
    recordings = [_read_file(file) for file in trace_files(path)]
    timelines = [timeline for recording in recordings for timeline in recording.timelines]
    timelines.sort(key=lambda timeline: (timeline.rank is None, timeline.rank or 0, timeline.device or 0))
    first, notes = recordings[0], tuple(note for recording in recordings for note in recording.notes)
    return Recording(path, "kineto", tuple(timelines), first.software, first.settings, absent=first.absent, notes=notes)


def read_kineto(path: Path) -> EventTable:
    """The spans of a Kineto trace, all devices together, and its allocations as events without duration.

    Times become integer nanoseconds without passing through a float. Raises DocumentError, which names the fault, its place
    and the next step, for a file that is missing, cut off, too large or not such a trace.
    """
    return _spans(path).events


def trace_files(folder: Path, *, below: bool = False) -> list[Path]:
    """The traces in a folder, or anywhere below it: those of torch's own name, else all JSON files that look like traces."""
    search = folder.rglob if below else folder.glob
    named_so = sorted(file for pattern in _TRACE_FILES for file in search(pattern) if file.is_file())
    if named_so:
        return named_so
    others = sorted({file for pattern in _JSON_FILES for file in search(pattern) if file.is_file()})
    return [file for file in others if begins_with(file, _LOOKS) and begins_with(file, _EVENTS)]


def _read_file(path: Path) -> Recording:
    spans = _spans(path)
    header = KinetoHeader(spans.around, path)
    timelines = _timelines(path, spans, header.rank)
    devices = {timeline.device for timeline in timelines if timeline.device is not None}
    timelines = tuple(
        replace(
            timeline,
            groups=header.groups,
            collective_kernels=spans.collective_kernels.get(timeline.device),
            # Those of the device, and all that belong to none: a process of the host has a number too.
            readings={
                name: recorded
                for owner, own in spans.readings.items()
                if owner == timeline.device or owner not in devices
                for name, recorded in own.items()
            },
        )
        for timeline in timelines
    )
    absent = dict(absent_device(timelines))
    if all(timeline.steps is None for timeline in timelines):
        absent["steps"] = Message("notes.no-steps-marked")
    return Recording(
        path, "kineto", timelines, header.software, header.settings(devices), absent=absent, notes=spans.notes
    )


def _timelines(path: Path, spans: _Spans, rank: int | None) -> tuple[Timeline, ...]:
    """A timeline for each device, of each rank if several were merged into the file."""
    events, labels = spans.events, _labels(spans.events.tracks)
    if not labels.any():
        return timelines_by_device(path, events, spans.devices, rank=rank)
    names = [process_label(process) for process, _ in events.tracks]
    timelines: list[Timeline] = []
    for label, number in sorted(ranks_of_labels(filter(None, names)).items(), key=lambda label: label[1]):
        # Events without a label belong to none of the ranks.
        own = np.array([name == label for name in names], dtype=bool)[events.track]
        timelines += timelines_by_device(path, events.select(own), spans.devices[own], rank=number)
    return tuple(timelines)


def _labels(tracks: Sequence[tuple[str, str]]) -> CodeColumn:
    """For each track the number of its process's label in a file of merged ranks, 0 for none."""
    numbers: dict[str, int] = {"": 0}
    return np.array(
        [numbers.setdefault(process_label(process), len(numbers)) for process, _ in tracks] or [0], dtype=np.int32
    )


class _Spans(NamedTuple):
    """The spans of a file, kernels with the shapes of the operator that launched them; the device of each: its number, HOST,
    or UNNAMED; the collectives that it describes, by device; its counters, by device or HOST; the file without its events; and
    notes on the parts that were skipped.
    """

    events: EventTable
    devices: IntColumn
    collective_kernels: dict[int | None, tuple[CollectiveKernel, ...]]
    readings: dict[int, dict[str, Readings]]
    around: bytes
    notes: tuple[Message, ...]


def _spans(path: Path) -> _Spans:
    texts, spans, others, read_arrows, around = scan(
        path,
        numbers=(_CORRELATION, *_EXTERNALS, _GROUP_SIZE, _ELEMENTS, _DEVICE_TYPE, _DEVICE_ID, *_HELD.values()),
        texts=(_DEVICE, _STREAM, _SHAPES, _REQUEST, _TYPE, _GROUP, _GROUP_RANKS, _OPERATION, _DTYPE, COUNTER_ARGUMENTS),
    )
    is_allocation = others.is_phase("i")
    is_allocation[is_allocation] = others.of.flagged(others.name[is_allocation], _ALLOCATION.__eq__)
    allocations = others.select(is_allocation)
    allocations = replace(allocations, duration=np.zeros(len(allocations), dtype=np.int64))
    spans = spans.with_others(allocations)
    by_category = texts.judged(
        spans.category,
        lambda code: KIND_CODES[_kind_of_category(texts.words[code]) or "other"],
        otherwise=_OTHER,
        dtype=np.uint8,
    )
    unknown = texts.flagged(spans.category, lambda word: word != "" and _kind_of_category(word) is None)
    on_device = _told_to_run_on_a_device(spans, unknown)
    by_category[on_device] = KIND_CODES["compute"]
    waits = texts.flagged(spans.category, _MTIA_WORK.__eq__) & texts.flagged(spans.name, _WAITING.search)
    by_category[waits] = _OTHER
    correlation = _correlations(spans, read_arrows, np.flatnonzero(one_of(by_category, _LAUNCHING)))
    is_counter = others.is_phase("C")
    counters, unread = read_counters(others.select(is_counter))
    is_counter[is_counter] = ~unread
    ignored = others.select(~is_counter) if is_counter.any() else others
    notes = (*ignored.ignored("BEbenC"), *_not_understood(path, spans, unknown & ~on_device))
    readings = _readings(allocations, counters)
    del others, ignored, allocations, read_arrows  # there may be millions: free their memory first
    devices = _devices(spans, on_device)
    start, duration = spans.times()
    kind = _kinds(texts, by_category, spans.name)
    names = Names(texts)
    name = names.column(spans.name, absent="")
    (track,), tracks = texts.number_tracks(spans)
    label = _labels(tracks)[track]
    if label.any():
        correlation = _of_label(correlation, label)
    elif several := _processes_that_count_alike(correlation, track, tracks, kind):
        notes += (Message("notes.correlations-repeat", {"path": str(path), "count": several}),)
    events = EventTable(
        start=start,
        duration=duration,
        track=track,
        name=name,
        kind=kind,
        correlation=correlation,
        group=_groups(spans, names, name),
        request=requests_named(spans, names, _REQUEST, np.flatnonzero(kind == KIND_CODES["annotation"])),
        shape=names.sparse(
            spans.arguments[_SHAPES], len(spans), lambda code: texts.texts[code].decode("utf-8", "replace")
        ),
        names=names.all(),
        tracks=tuple(tracks),
    )
    _give_shapes(events, spans, label)
    return _Spans(events, devices, _collective_kernels(events, spans, devices), readings, around, notes)


def _readings(allocations: ScannedEvents, counters: Sequence[CounterSeries]) -> dict[int, dict[str, Readings]]:
    """The memory that allocators held, and the counters as recorded, by the device that they belong to, else by HOST."""
    time, _ = allocations.times(durations=False)
    kind, number = allocations.argument(_DEVICE_TYPE), allocations.argument(_DEVICE_ID)
    owner = np.where(kind == 0, HOST, number)
    readings: dict[int, dict[str, Readings]] = {}
    for device in sorted(set(owner[(kind == 0) | ((kind > 0) & (number != NO_NUMBER))].tolist())):
        for name, key in _HELD.items():
            held = allocations.argument(key)
            own = (owner == device) & (held != NO_NUMBER)
            if held[own].any():
                named = f"host {name}" if device == HOST else name
                readings.setdefault(device, {})[named] = Readings.of(time[own], held[own], "B")
    for process, name, recorded in counters:
        is_number = process.isdigit() and len(process) < _PROCESS_DIGITS
        readings.setdefault(int(process) if is_number else HOST, {}).setdefault(name, recorded)
    return readings


def _collective_kernels(
    events: EventTable, spans: ScannedEvents, devices: IntColumn
) -> dict[int | None, tuple[CollectiveKernel, ...]]:
    """The collectives described by their kernels, by device; no entry for a device if its kernels name no group."""
    described = np.zeros(len(events), dtype=bool)
    described[spans.arguments[_GROUP].rows] = True
    rows = np.flatnonzero(described & events.is_kind("comm"))
    groups, ranks, operations, dtypes = (
        spans.argument(key)[rows].tolist() for key in (_GROUP, _GROUP_RANKS, _OPERATION, _DTYPE)
    )
    sizes, elements = (spans.argument(key)[rows].tolist() for key in (_GROUP_SIZE, _ELEMENTS))
    word = spans.of.word
    found: dict[int | None, list[CollectiveKernel]] = {}
    for place, row in enumerate(rows.tolist()):
        number = int(devices[row])
        width = _BYTES.get(word(dtypes[place]).lower())
        found.setdefault(None if number == UNNAMED else number, []).append(
            CollectiveKernel(
                name=events.names[events.name[row]],
                operation=word(operations[place]),
                group=word(groups[place]),
                ranks=_rank_list(word(ranks[place])),
                size=None if sizes[place] < 0 else sizes[place],
                start_ns=int(events.start[row]),
                elapsed_ns=int(events.duration[row]),
                sent=None if width is None or elements[place] < 0 else width * elements[place],
            )
        )
    return {device: tuple(collective_kernels) for device, collective_kernels in found.items()}


# Bytes per element by c10::ScalarType's names (c10/core/ScalarType.h).
_BYTES = {
    **dict.fromkeys(("byte", "char", "bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16", "short"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long", "complexfloat"), 8),
}


def _rank_list(text: str) -> tuple[int, ...]:
    """The ranks in ``[0, 1]``; empty for a long list, because torch truncates it."""
    try:
        return tuple(msgspec.json.decode(text, type=list[int]))
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return ()


_OTHER = KIND_CODES["other"]
# Kinds recognised by name, and the kind that the event must have by its category; None for any. In 2021 the steps were
# operators, and allocations had no category.
_ADDED_BY_NAME: tuple[tuple[EventKind, EventKind | None], ...] = (
    ("memory", None),
    ("annotation", "host_op"),
    ("comm", "compute"),
    ("fused", "compute"),
)


def _kind_of_category(word: str) -> EventKind | None:
    """None for a category that is not known."""
    category = word.lower()
    return "runtime" if category.endswith(RUNTIME_CATEGORIES) else KIND_OF_CATEGORY.get(category)


def _told_to_run_on_a_device(spans: ScannedEvents, unknown: Mask) -> Mask:
    """The spans of unknown categories that name a device and a stream, as only work on a device does."""
    if not unknown.any():
        return unknown
    named = np.zeros((2, len(spans)), dtype=bool)
    for place, key in enumerate((_DEVICE, _STREAM)):
        named[place, spans.arguments[key].rows] = True
    return named.all(axis=0) & unknown


def _not_understood(path: Path, spans: ScannedEvents, chosen: Mask) -> tuple[Message, ...]:
    """A note on spans of unknown categories; empty if there are none."""
    if not chosen.any():
        return ()
    codes, counts = np.unique(spans.category[chosen], return_counts=True)
    what = ", ".join(f"{spans.of.word(code)} ({count})" for code, count in zip(codes.tolist(), counts.tolist()))
    return (Message("notes.unknown-categories", {"path": str(path), "count": int(counts.sum()), "what": what}),)


def _kind_by_name(word: str) -> int:
    if word == _ALLOCATION:
        return KIND_CODES["memory"]
    if STEP_NAME.fullmatch(word):
        return KIND_CODES["annotation"]
    kind = kernel_kind(word)
    return _OTHER if kind == "compute" else KIND_CODES[kind]


def _kinds(texts: ScannedTexts, by_category: Codes, name: CodeColumn) -> Codes:
    """The kind of each span by its category, refined by its name."""
    kind = by_category.copy()
    by_name = texts.judged(name, lambda code: _kind_by_name(texts.words[code]), otherwise=_OTHER, dtype=np.uint8)
    for by, of in _ADDED_BY_NAME:
        rows = np.flatnonzero(by_name == KIND_CODES[by])
        if of is not None:
            rows = rows[by_category[rows] == KIND_CODES[of]]
        kind[rows] = KIND_CODES[by]
    return kind


def _limited(column: Codes) -> Codes:
    column[column >= MAX_NS] = NO_CORRELATION
    return column


def _groups(spans: ScannedEvents, names: Names, name: CodeColumn) -> CodeColumn:
    """The text each span is counted under in tables: the type of a kernel on an NPU, the name of any other span."""
    texts, words, types = spans.of.texts, spans.of.words, spans.arguments[_TYPE]
    on_npu = spans.of.judged(
        types.values, lambda code: texts[code].startswith(_NPU_KERNEL), otherwise=0, dtype=np.bool_
    )
    npu = types.rows[on_npu]
    if not npu.size:
        return name
    group = name.copy()
    # A kernel has the name of its binary: MatMulV2_ND_ND_FP32_FP32_false_false_all_65537, Cast_39a266ce9a8d…_210000000.
    group[npu] = names.column(spans.name[npu], lambda code: words[code].partition("_")[0] or words[code], absent="")
    return group


def _correlations(spans: ScannedEvents, read_arrows: Callable[[], ScannedEvents], launching: Positions) -> Codes:
    """The number that joins each launch with its kernels; ``launching`` are the spans that may have one."""
    correlation = _limited(spans.numbers(_CORRELATION))
    bare = launching[correlation[launching] == NO_CORRELATION]
    if not bare.size:
        return correlation
    wide = correlation.astype(np.int64)
    _join_by_flows(spans, read_arrows(), bare, wide)
    return wide


def _join_by_flows(spans: ScannedEvents, arrows: ScannedEvents, bare: Positions, correlation: IntColumn) -> None:
    """Give launches and kernels without a correlation the number of the flow that follows them at their start time.

    Each flow belongs to the last such span before it with the same start and track.
    """
    of_operators = arrows.of.flagged(arrows.category, _FLOW_OF_OPERATORS.__eq__)
    flows = arrows.select(arrows.is_phase("s", "f") & ~of_operators & (arrows.event > spans.event[bare[0]]))
    times, _ = flows.times(durations=False)
    event = np.concatenate((spans.event[bare], flows.event))
    place = np.concatenate((spans.track[bare], flows.track))
    time = np.concatenate((spans.times()[0][bare], times))
    order = np.lexsort((event, time, place))
    is_span = order < bare.size
    begins = np.concatenate(([True], (np.diff(place[order]) != 0) | (np.diff(time[order]) != 0)))
    position = np.arange(order.size)
    last_span = np.maximum.accumulate(np.where(is_span, position, -1))
    joined = ~is_span & (last_span >= np.maximum.accumulate(np.where(begins, position, 0)))
    flow, span = order[joined] - bare.size, bare[order[last_span[joined]]]
    number = flows.flow()[flow]
    numbered = np.flatnonzero(number >= 0)
    in_order = numbered[np.argsort(flow[numbered], kind="stable")]
    correlation[span[in_order]] = number[in_order]


def _devices(spans: ScannedEvents, on_device: Mask) -> IntColumn:
    """The device by the arguments, else by the process id, which for a device is its number; HOST for spans of the host."""
    unsaid, texts = -3, spans.of.texts

    def by_argument(code: int) -> int:
        text = texts[code]
        return int(text) if text.isdigit() and len(text) < 19 and int(text) < MAX_NS else unsaid

    def by_process(code: int) -> int:
        number = texts[code].strip(b'" ') if code >= 0 else b""
        return int(number) if number.isdigit() and len(number) < _PROCESS_DIGITS else UNNAMED

    of_place = np.array([by_process(code) for code in spans.of.places[:, 0].tolist()], dtype=np.int64)
    devices = look_up(of_place, spans.track)
    argument = spans.arguments[_DEVICE]
    said = spans.of.judged(argument.values, by_argument, otherwise=unsaid)
    devices[argument.rows[said != unsaid]] = said[said != unsaid]
    devices[~spans.of.flagged(spans.category, lambda word: word.lower() in DEVICE_CATEGORIES) & ~on_device] = HOST
    return devices


def _processes_that_count_alike(
    correlation: Codes, track: CodeColumn, tracks: Sequence[tuple[str, str]], kind: Codes
) -> int:
    """How many processes launch work, if several use the same numbers for it; else 0."""
    process = np.unique([name for name, _ in tracks] or [""], return_inverse=True)[1]
    launches = np.flatnonzero((kind == KIND_CODES["runtime"]) & (correlation != NO_CORRELATION))
    owner = process[track[launches]]
    launching = np.flatnonzero(np.bincount(owner))
    if launching.size < 2:
        return 0
    numbers = [np.unique(correlation[launches[owner == one]]) for one in launching.tolist()]
    is_alike = np.unique(np.concatenate(numbers)).size < sum(own.size for own in numbers)
    return launching.size if is_alike else 0


def _of_label(number: Codes, label: CodeColumn) -> IntColumn:
    """Numbers that every rank counts for itself, made unique in a file of several."""
    own = number.astype(np.int64)
    unique: IntColumn = np.where(own == NO_CORRELATION, own, own * (int(label.max()) + 1) + label)
    return unique


def _give_shapes(table: EventTable, spans: ScannedEvents, label: CodeColumn) -> None:
    """Copy an operator's shapes to the work it launched; both carry the operator's external id."""
    shaped = table.shape != NO_TEXT
    bare = np.flatnonzero(table.is_kind(*DEVICE_KINDS) & ~shaped)
    operators = np.flatnonzero(shaped)
    if not operators.size or not bare.size:
        return
    today, former = _EXTERNALS
    external = _limited(spans.numbers(today))
    if spans.arguments[former].rows.size:
        external = np.where(external == NO_CORRELATION, _limited(spans.numbers(former)), external)
    if label.any():
        external = _of_label(external, label)
    operators = operators[external[operators] != NO_CORRELATION]
    launching = first_positions(external[bare], external[operators])
    launched = launching != NOT_RECORDED
    table.shape[bare[launched]] = table.shape[operators[launching[launched]]]


_SETTINGS = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_VERSION = "_version"
_DISTRIBUTED = "distributedInfo"
_MAX_RANK = 1 << 31


class _ProcessGroup(msgspec.Struct):
    pg_name: str = ""
    pg_desc: str = ""
    ranks: list[int] = []


# mesh_pp of a DeviceMesh, PIPELINE_MODEL_PARALLEL_GROUP of Megatron.
_PIPELINE = lazy_pattern(r"(?:^|_)pp(?:_|$)|pipeline", re.IGNORECASE)


class _Properties(msgspec.Struct):
    id: int | None = None
    name: str | None = None


class KinetoHeader:
    """The members of a trace's object other than its events; a malformed member counts as absent."""

    def __init__(self, text: bytes, path: Path) -> None:
        self._path = path
        try:
            members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            members = {}  # a bare list, or a damaged end: the events themselves were read
        self._members = members

    @property
    def rank(self) -> int | None:
        """The rank of the process, by the header, else by the file's name, else None."""
        rank: int | None = self._member(_DISTRIBUTED, int, field="rank")
        if rank is not None and 0 <= rank < _MAX_RANK:
            return rank
        return rank_in_name(self._path)

    @property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """The ranks of each process group by name; the pipeline's group is also under ``pp``."""
        groups: list[_ProcessGroup] = self._member(_DISTRIBUTED, list[_ProcessGroup], field="pg_config") or []
        named = {group.pg_name: tuple(group.ranks) for group in groups if group.ranks}
        own = [group for group in groups if self.rank in group.ranks and _PIPELINE.search(group.pg_desc)]
        return {**named, **({"pp": tuple(own[0].ranks)} if own else {})}

    @property
    def software(self) -> dict[str, str]:
        """Versions by name: ``kineto.schema``, ``nccl``, ``cuda_runtime`` and any other key that ends in ``_version``."""
        nccl: str | None = self._member(_DISTRIBUTED, str, field="nccl_version")
        versions = {"kineto.schema": self._scalar("schemaVersion"), "nccl": nccl}
        for name in self._members:
            if name.endswith(_VERSION):
                version = self._scalar(name)
                if version and name.startswith("cuda_") and re.fullmatch(r"\d{4,6}", version):
                    # 12.4 for CUDA's 12040 (cuda.h: 1000 x major + 10 x minor).
                    version = f"{int(version) // 1000}.{int(version) % 1000 // 10}"
                versions[name[: -len(_VERSION)]] = version
        return {name: version for name, version in versions.items() if version}

    def settings(self, devices: Collection[int]) -> dict[str, str]:
        """The profiler's settings and hardware: shapes, stacks, world size, the names of these devices."""
        settings = {name: self._scalar(name) for name in _SETTINGS}
        settings["backend"] = self._member(_DISTRIBUTED, str, field="backend")
        if (world_size := self._member(_DISTRIBUTED, int, field="world_size")) is not None:
            settings["world_size"] = str(world_size)
        for properties in self._member("deviceProperties", list[_Properties]) or []:
            if properties.id in devices:
                settings[f"device.{properties.id}"] = properties.name
        return {name: value for name, value in settings.items() if value}

    def _member(self, name: str, kind: Any, *, field: str | None = None) -> Any:
        try:
            text = self._members[name]
            if field is not None:
                text = msgspec.json.decode(text, type=dict[str, msgspec.Raw])[field]
            return msgspec.json.decode(text, type=kind)
        except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _scalar(self, name: str) -> str | None:
        value = self._member(name, int | str)
        return None if value is None else str(value)
