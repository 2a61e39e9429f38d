"""Read traces of torch.profiler (Kineto): Chrome trace events as JSON, times in
microseconds with decimals.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from perfgate.document.message import Message
from perfgate.trace.loops import look_up
from perfgate.trace.model.arithmetic import CodeColumn, Codes, IntColumn, Mask, one_of
from perfgate.trace.model.communication import kernel_kind
from perfgate.trace.model.events import (
    DEVICE_KINDS,
    KIND_CODES,
    MAX_NS,
    NO_TEXT,
    SHORTEST_WORK_NS,
    EventKind,
    EventTable,
)
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.model.readings import Readings
from perfgate.trace.model.recording import Recording, Timeline
from perfgate.trace.model.steps import STEP_NAME
from perfgate.trace.readers.foreign import refuse_foreign
from perfgate.trace.readers.kineto.arguments import (
    DEVICE,
    DEVICE_ID,
    DEVICE_TYPE,
    EVENT_INDEX,
    EXTERNAL,
    HELD,
    NUMBERS,
    REQUEST,
    SHAPES,
    STREAM,
    TEXTS,
    TYPE,
    KernelsByDevice,
    collective_kernels,
)
from perfgate.trace.readers.kineto.correlations import (
    correlations,
    give_shapes,
    merged_processes,
    unique_by_label,
)
from perfgate.trace.readers.kineto.header import KinetoHeader
from perfgate.trace.readers.kineto.losses import (
    arrows_behind,
    losses_of,
    marks_of,
    nameless,
)
from perfgate.trace.readers.rank_names import process_label, ranks_of_labels
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
from perfgate.trace.scanner.compressed import (
    files_named,
    is_json,
    named,
    refuse_several_folders,
)
from perfgate.trace.scanner.counters import CounterSeries, read_counters
from perfgate.trace.scanner.scan import scan
from perfgate.trace.scanner.scanned import (
    NO_NUMBER,
    Names,
    ScannedEvents,
    ScannedTexts,
    requests_named,
)

READS = "traces of torch.profiler (Kineto), *.json, *.json.gz and *.json.zst, or a folder of them"
PRIORITY = 0

# Prefix of args.type of a kernel on an NPU (KERNEL_AICORE, KERNEL_MIX_AIV; sample
# torch-native-privateuse1).
_NPU_KERNEL = b'"KERNEL_'
_ALLOCATION = "[memory]"
_PHASES = "BEbenCiIM"  # of events that are neither complete nor arrows
_LOOKS = re.compile(
    rb'"(?:schemaVersion|deviceProperties|baseTimeNanoseconds)"\s*:'
    rb'|"cat"\s*:\s*"(?:cpu_op|operator|kernel|user_annotation|cuda_runtime|cpu_instant_event|python_function)"',
    re.IGNORECASE,
)
_EVENTS = re.compile(rb'\A\s*\[|"traceEvents"\s*:')
_SMALL_BYTES = 1 << 20
_TRACE_FILES, _JSON_FILES = named("*.pt.trace.json"), named("*.json")
# Engines of MTIA also record that they wait for each other and signal it (libkineto:
# mtia_ccp_events).
_MTIA_WORK = "mtia_ccp_events"
_WAITING = lazy_pattern(r"(?:^|_)wait(?:$|_)|^event_record$", re.IGNORECASE)
_PROCESS_DIGITS = 10  # a process id that may be the number of a device has fewer
_NUMBER_DIGITS = 19  # a number of 64 bits may have as many
_LAUNCHING = tuple(KIND_CODES[kind] for kind in ("runtime", *DEVICE_KINDS))
_OTHER = KIND_CODES["other"]
# Kinds recognised by name, and the kind that the event must have by its category; None
# for any. In 2021 the steps were operators, and allocations had no category.
_ADDED_BY_NAME: tuple[tuple[EventKind, EventKind | None], ...] = (
    ("memory", None),
    ("annotation", "host_op"),
    ("comm", "compute"),
    ("fused", "compute"),
)


def recognises(path: Path) -> bool:
    if path.is_dir():
        return bool(trace_files(path) or trace_files(path, below=True))
    return path.is_file() and is_json(path) and looks_like(path, _LOOKS)


def read(path: Path) -> Recording:
    """A timeline for each device of a Kineto trace, or of all traces in a folder, or in
    the only folder below it with traces.

    Raises DocumentError as ``read_kineto`` does, and if several folders below have
    traces.
    """
    if not path.is_dir():
        return _read_file(path)
    files = trace_files(path) or trace_files(path, below=True)
    refuse_several_folders(path, files)
    for file in files:
        refuse_foreign(file)
    return Recording.of_files(path, [_read_file(file) for file in files])


def read_kineto(path: Path) -> EventTable:
    """The spans of a Kineto trace, all devices together, and its allocations as events
    without duration.

    Times become integer nanoseconds without passing through a float. Raises
    DocumentError, which names the fault, its place and the next step, for a file that
    is missing, cut off, too large or not such a trace.
    """
    return _spans(path).events


def trace_files(folder: Path, *, below: bool = False) -> list[Path]:
    """The traces in a folder, or anywhere below it: files with torch's own names, else
    all JSON files that look like traces.
    """
    by_name = files_named(folder, _TRACE_FILES, below=below)
    if by_name:
        return by_name
    candidates = files_named(folder, _JSON_FILES, below=below)
    return [
        file
        for file in candidates
        if begins_with(file, _LOOKS) and begins_with(file, _EVENTS)
    ]


def _read_file(path: Path) -> Recording:
    spans = _spans(path)
    header = KinetoHeader(spans.around, path)
    timelines = _timelines(path, spans, header.rank)
    devices = {timeline.device for timeline in timelines if timeline.device is not None}
    complete = []
    for timeline in timelines:
        own = replace(
            timeline,
            groups=header.groups,
            collective_kernels=spans.collective_kernels.get(timeline.device),
            readings=_readings_of(timeline, spans.readings, devices),
            losses=spans.losses,
        )
        complete.append(own)
    absent = dict(absent_device(complete))
    if all(timeline.steps is None for timeline in complete):
        absent["steps"] = Message("notes.no-steps-marked")
    return Recording(
        path,
        "kineto",
        tuple(complete),
        software=header.software,
        settings=header.settings(devices),
        absent=absent,
        notes=spans.notes,
    )


def _readings_of(
    timeline: Timeline, readings: _ReadingsByDevice, devices: set[int]
) -> dict[str, Readings]:
    """The readings of a timeline's device, and all that belong to none: a process of
    the host has a number too.
    """
    own: dict[str, Readings] = {}
    for owner, by_name in readings.items():
        if owner == timeline.device or owner not in devices:
            own.update(by_name)
    return own


def _timelines(path: Path, spans: _Spans, rank: int | None) -> list[Timeline]:
    """A timeline for each device, of each rank if several were merged into the file."""
    events = spans.events
    labels = [process_label(process) for process, _ in events.tracks]
    if not any(labels):
        return list(timelines_by_device(path, events, spans.devices, rank=rank))
    timelines: list[Timeline] = []
    ranks = ranks_of_labels(filter(None, labels))
    for label in sorted(ranks, key=lambda label: ranks[label]):
        # Events without a label belong to none of the ranks.
        of_label = np.array([name == label for name in labels], dtype=bool)
        own = of_label[events.track]
        timelines += timelines_by_device(
            path, events.select(own), spans.devices[own], rank=ranks[label]
        )
    return timelines


# By name, of each device or HOST.
_ReadingsByDevice = Mapping[int, Mapping[str, Readings]]


class _Spans(NamedTuple):
    """The spans of a file, kernels with the shapes of the operator that launched them.

    ``devices`` is the device of each: its number, HOST, or UNNAMED; ``around`` the file
    without its events. The notes are on parts that were skipped.
    """

    events: EventTable
    devices: IntColumn
    collective_kernels: KernelsByDevice
    readings: _ReadingsByDevice
    around: bytes
    notes: tuple[Message, ...]
    losses: tuple[Message, ...]


def _spans(path: Path) -> _Spans:
    is_small = _is_small(path)
    texts, spans, others, read_arrows, around = scan(
        path, numbers=NUMBERS, texts=TEXTS, arrows=is_small
    )
    indices = np.concatenate(
        (spans.arguments[EVENT_INDEX].values, others.arguments[EVENT_INDEX].values)
    )
    allocations = _allocations(others)
    marks = marks_of(others)
    spans = spans.with_others(allocations)
    by_category, on_device, unknown = _by_category(texts, spans)
    correlation = correlations(
        spans, read_arrows, np.flatnonzero(one_of(by_category, _LAUNCHING))
    )
    all_arrows = read_arrows() if is_small else None
    arrows = arrows_behind(spans, others, correlation, all_arrows)
    is_counter = others.is_phase("C")
    counters, unread = read_counters(others.select(is_counter))
    is_counter[is_counter] = ~unread
    ignored = others
    if is_counter.any():
        ignored = others.select(~is_counter)
    notes = (*ignored.ignored("BEbenC"), *_not_understood(path, spans, unknown))
    losses = [
        *texts.overwritten(),
        *others.of_unknown_phase(_PHASES),
        *nameless(spans, others, all_arrows),
    ]
    readings = _readings(allocations, counters)
    del (
        others,
        ignored,
        allocations,
        read_arrows,
        all_arrows,
    )  # there may be millions: free their memory first
    devices = _devices(spans, on_device)
    start, duration = spans.times()
    kind = _kinds(texts, by_category, spans.name)
    names = Names(texts)
    name = names.column(spans.name, absent="")
    (track,), tracks = texts.number_tracks(spans)
    # The number of the process's label in a file of merged ranks, 0 for none.
    label: CodeColumn | None = None
    labels = Numbering([""]).codes(process_label(process) for process, _ in tracks)
    if labels.any():
        label = look_up(labels, track)
        correlation = unique_by_label(correlation, label)
    else:
        notes += merged_processes(path, correlation, track, tracks, kind)
    events = EventTable(
        start=start,
        duration=duration,
        track=track,
        name=name,
        kind=kind,
        correlation=correlation,
        group=_groups(spans, names, name),
        request=requests_named(
            spans, names, REQUEST, np.flatnonzero(kind == KIND_CODES["annotation"])
        ),
        shape=_shapes(spans, names),
        names=names.all(),
        tracks=tuple(tracks),
        shortest_ns=SHORTEST_WORK_NS,
    )
    external = spans.numbers(EXTERNAL)
    give_shapes(events, spans, external, label)
    if label is None:
        losses += losses_of(events, spans, indices, marks, arrows, external)
    return _Spans(
        events,
        devices,
        collective_kernels(events, spans, devices),
        readings,
        around,
        notes,
        tuple(losses),
    )


def _is_small(path: Path) -> bool:
    """Whether arrows are read too: in a large file the few events that only their
    numbers miss are no loss to speak of.
    """
    try:
        return path.stat().st_size < _SMALL_BYTES
    except OSError:
        return False  # the scan names the fault


def _allocations(others: ScannedEvents) -> ScannedEvents:
    """The allocations as spans without a length."""
    chosen = others.is_phase("i")
    chosen[chosen] = others.of.flagged(others.name[chosen], _ALLOCATION.__eq__)
    allocations = others.select(chosen)
    return replace(allocations, duration=np.zeros(len(allocations), dtype=np.int64))


class _Categories(NamedTuple):
    """The kind of each span by its category, the spans of unknown categories on a
    device, and all other unknown spans.
    """

    kind: Codes
    on_device: Mask
    unknown: Mask


def _by_category(texts: ScannedTexts, spans: ScannedEvents) -> _Categories:
    def kind_code(code: int) -> int:
        return KIND_CODES[_kind_of_category(texts.words[code]) or "other"]

    kind = texts.judged(spans.category, kind_code, otherwise=_OTHER, dtype=np.uint8)
    unknown = texts.flagged(
        spans.category, lambda word: word != "" and _kind_of_category(word) is None
    )
    # Allocations are instants without a category.
    unknown |= (spans.category == NO_TEXT) & spans.is_phase("X")
    on_device = unknown
    if unknown.any():
        on_device = unknown & _names_a_stream(spans)
    kind[on_device] = KIND_CODES["compute"]
    of_mtia = np.flatnonzero(texts.flagged(spans.category, _MTIA_WORK.__eq__))
    kind[of_mtia[texts.flagged(spans.name[of_mtia], _WAITING.search)]] = _OTHER
    return _Categories(kind, on_device, unknown & ~on_device)


def _kind_of_category(word: str) -> EventKind | None:
    """None for a category that is not known."""
    category = word.lower()
    if category.endswith(RUNTIME_CATEGORIES):
        return "runtime"
    return KIND_OF_CATEGORY.get(category)


def _names_a_stream(spans: ScannedEvents) -> Mask:
    """The spans that name a device and a stream, as only work on a device does."""
    names_device = np.zeros(len(spans), dtype=bool)
    names_device[spans.arguments[DEVICE].rows] = True
    names_stream = np.zeros(len(spans), dtype=bool)
    names_stream[spans.arguments[STREAM].rows] = True
    return names_device & names_stream


def _not_understood(
    path: Path, spans: ScannedEvents, unknown: Mask
) -> tuple[Message, ...]:
    """A note on spans of unknown categories; empty if there are none."""
    if not unknown.any():
        return ()
    codes, counts = np.unique(spans.category[unknown], return_counts=True)
    categories = [
        f"{spans.of.word(code) or 'none'} ({count})"
        for code, count in zip(codes.tolist(), counts.tolist())
    ]
    counted = ", ".join(categories)
    count = int(counts.sum())
    return (
        Message(
            "notes.unknown-categories",
            {"path": str(path), "count": count, "what": counted},
        ),
    )


def _readings(
    allocations: ScannedEvents, counters: Sequence[CounterSeries]
) -> _ReadingsByDevice:
    """The memory that allocators held, and the counters as recorded, by the device that
    they belong to, else by HOST.
    """
    readings: dict[int, dict[str, Readings]] = defaultdict(dict)
    time, _ = allocations.times(durations=False)
    device_type = allocations.argument(DEVICE_TYPE)
    number = allocations.argument(DEVICE_ID)
    of_host = device_type == 0
    owner = np.where(of_host, HOST, number)
    owned = of_host | ((device_type > 0) & (number != NO_NUMBER))
    for device in sorted(set(owner[owned].tolist())):
        for name, key in HELD.items():
            memory = allocations.argument(key)
            own = (owner == device) & (memory != NO_NUMBER)
            if memory[own].any():
                counter = f"host {name}" if device == HOST else name
                readings[device][counter] = Readings.of(time[own], memory[own], "B")
    for process, name, recorded in counters:
        is_device = process.isdigit() and len(process) < _PROCESS_DIGITS
        readings[int(process) if is_device else HOST].setdefault(name, recorded)
    return readings


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
    by_name = texts.judged(
        name,
        lambda code: _kind_by_name(texts.words[code]),
        otherwise=_OTHER,
        dtype=np.uint8,
    )
    for added, required in _ADDED_BY_NAME:
        rows = np.flatnonzero(by_name == KIND_CODES[added])
        if required is not None:
            rows = rows[by_category[rows] == KIND_CODES[required]]
        kind[rows] = KIND_CODES[added]
    return kind


def _groups(spans: ScannedEvents, names: Names, name: CodeColumn) -> CodeColumn:
    """The text each span is counted under in tables: the type of a kernel on an NPU,
    the name of any other span.
    """
    texts = spans.of.texts
    words = spans.of.words
    types = spans.arguments[TYPE]
    on_npu = spans.of.judged(
        types.values,
        lambda code: texts[code].startswith(_NPU_KERNEL),
        otherwise=0,
        dtype=np.bool_,
    )
    npu = types.rows[on_npu]
    if not npu.size:
        return name

    def type_in_name(code: int) -> str:
        # A kernel has the name of its binary:
        # MatMulV2_ND_ND_FP32_FP32_false_false_all_65537, Cast_39a266ce9a8d…_210000000.
        return words[code].partition("_")[0] or words[code]

    group = name.copy()
    group[npu] = names.column(spans.name[npu], type_in_name, absent="")
    return group


def _shapes(spans: ScannedEvents, names: Names) -> CodeColumn:
    """The shapes of each span as written."""
    texts = spans.of.texts
    return names.sparse(
        spans.arguments[SHAPES],
        len(spans),
        lambda code: texts[code].decode("utf-8", "replace"),
    )


_UNKNOWN = -3


def _devices(spans: ScannedEvents, on_device: Mask) -> IntColumn:
    """The device by the arguments, else by the process id, which for a device is its
    number; HOST for spans of the host.
    """
    texts = spans.of.texts
    of_place = [
        _device_of_process(texts[code]) if code >= 0 else UNNAMED
        for code in spans.of.places[:, 0].tolist()
    ]
    devices = look_up(np.array(of_place, dtype=np.int64), spans.track)
    argument = spans.arguments[DEVICE]
    number = spans.of.judged(
        argument.values, lambda code: _device_number(texts[code]), otherwise=_UNKNOWN
    )
    is_named = number != _UNKNOWN
    devices[argument.rows[is_named]] = number[is_named]
    of_device = spans.of.flagged(
        spans.category, lambda word: word.lower() in DEVICE_CATEGORIES
    )
    devices[~of_device & ~on_device] = HOST
    return devices


def _device_number(text: bytes) -> int:
    if not text.isdigit() or len(text) >= _NUMBER_DIGITS:
        return _UNKNOWN
    number = int(text)
    return number if number < MAX_NS else _UNKNOWN


def _device_of_process(text: bytes) -> int:
    number = text.strip(b'" ')
    if not number.isdigit() or len(number) >= _PROCESS_DIGITS:
        return UNNAMED
    return int(number)
