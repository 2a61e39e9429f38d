"""Read the SQLite export of Nsight Systems (``nsys export --type sqlite``): kernels,
copies, calls of CUDA, and NVTX ranges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from perfgate.document.message import Message
from perfgate.errors import DocumentError
from perfgate.locale import Activity
from perfgate.trace.model.arithmetic import Mask
from perfgate.trace.model.communication import kernel_kind
from perfgate.trace.model.events import (
    NO_CORRELATION,
    SHORTEST_WORK_NS,
    EventKind,
    EventTableBuilder,
)
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.model.recording import Recording, Timeline
from perfgate.trace.model.steps import STEP_NAME, MarkedSteps
from perfgate.trace.readers.rank_names import rank_in_name
from perfgate.trace.scanner.chrome_events import (
    HOST,
    absent_device,
    timelines_by_device,
)

if TYPE_CHECKING:
    from perfgate.trace.readers.ascend.database import Database

READS = (
    "SQLite exports of Nsight Systems (nsys export --type sqlite), or a folder of them"
)
# Before the reader of every other SQLite database.
PRIORITY = 22

_MAGIC = b"SQLite format 3\0"
_KERNELS, _RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
_OF_WORK = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
# Tables of copies and fills, which have no names.
_COPIES = {
    "CUPTI_ACTIVITY_KIND_MEMCPY": "Memcpy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "Memset",
}
# A launch of a CUDA graph as one event, without the kernels in it: what nsys records
# unless told otherwise (--cuda-graph-trace=graph).
_GRAPHS, _GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUDA graph"
# CUpti_ActivityMemcpyKind, as ENUM_CUDA_MEMCPY_OPER of an export lists it; from 11 on
# the driver moves pages of unified memory.
_WAYS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "Unified HtoD",
    12: "Unified DtoH",
    13: "Unified DtoD",
}
# NVTX_EVENTS.eventType: ranges that were pushed and popped, and those that were started
# and ended.
_RANGES = (59, 60)
_PROCESS_BITS, _THREAD_MASK = 24, (1 << 24) - 1
_MOST_CORRELATIONS = 1 << 32
_VERSION = lazy_pattern(r"_v\d+$")
# What torch's emit_nvtx adds to the name of an operator (getNvtxStr): aten::mm, seq = 3,
# op_id = 12, sizes = [[4, 8], [8, 16]].
_OF_EMIT_NVTX = lazy_pattern(r", (?:seq|op_id|sizes|input_op_ids) = .*")
# What nsys writes itself about a process, such as one that was killed, or recorded
# until a range ended.
_DIAGNOSTICS = "DIAGNOSTIC_EVENT"
_INCOMPLETE = "Not all CUDA events might have been collected."
_HOST = None


# A process, and the number of a device in it.
_Owner = tuple[int, int]


class _Span(NamedTuple):
    """One event, and its device, or None for the host."""

    device: int | None
    start: int
    duration: int
    track: tuple[str, str]
    name: str
    kind: EventKind
    correlation: int
    process: int


def recognises(path: Path) -> bool:
    """Whether a file is an export, or a folder holds any."""
    if path.is_dir():
        return bool(_exports(path))
    return path.is_file() and _is_export(path)


def _exports(folder: Path) -> list[Path]:
    return [
        file
        for file in sorted(folder.glob("*.sqlite"))
        if file.is_file() and _is_export(file)
    ]


def _is_export(path: Path) -> bool:
    """Whether a file is a SQLite database with tables of CUPTI or NVTX."""
    with suppress(OSError), path.open("rb") as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            return False
    from perfgate.trace.readers.ascend.database import open_database

    with suppress(DocumentError), open_database(path) as database:
        return database.has("NVTX_EVENTS") or any(
            map(database.has, (_KERNELS, _GRAPHS, _RUNTIME, *_COPIES))
        )
    return False


def read(path: Path) -> Recording:
    """A timeline for each device of an export, or of all in a folder.

    Raises DocumentError, which names the fault and the next step.
    """
    if path.is_dir():
        return Recording.of_files(path, [_read_export(file) for file in _exports(path)])
    return _read_export(path)


def _read_export(path: Path) -> Recording:
    # Imported here because recognising a trace imports every reader.
    from perfgate.trace.readers.ascend.database import open_database

    with open_database(path) as database:
        names = _names(database)
        spans = [*_of_host(database, names), *_of_device(database, names)]
        incomplete = _incomplete_processes(database)
        gpus = _gpus(database)
        names_of_gpus = _names_of_gpus(database)
    owners = {(span.process, span.device) for span in spans if span.device is not _HOST}
    gpu_of = {owner: gpus.get(owner, owner[1]) for owner in owners}
    numbers = _numbers(gpu_of)
    settings = {}
    for owner, gpu in gpu_of.items():
        if gpu in names_of_gpus:
            settings[f"device.{numbers[owner]}"] = names_of_gpus[gpu]
    if len({process for process, _ in owners}) > 1:
        spans = [_of_process(span, numbers) for span in spans]
    timelines = []
    for timeline in _timelines(path, spans):
        own = _of_its_processes(timeline, spans)
        losses = _losses(spans, timeline.device, incomplete)
        timelines.append(replace(own, losses=losses))
    absent = dict(absent_device(timelines))
    if all(timeline.steps is None for timeline in timelines):
        absent["steps"] = Message("notes.no-steps-marked")
    return Recording(path, "nsys", tuple(timelines), settings=settings, absent=absent)


def _numbers(gpu_of: Mapping[_Owner, int]) -> Mapping[_Owner, int]:
    """The number of each device: as its process counts, or the number of its GPU if
    processes count different GPUs alike.
    """
    distinct = {(number, gpu) for (_, number), gpu in gpu_of.items()}
    if len({number for number, _ in distinct}) < len(distinct):
        return gpu_of
    return {owner: owner[1] for owner in gpu_of}


def _of_process(span: _Span, numbers: Mapping[_Owner, int]) -> _Span:
    """Work of a device with its process in the name of its stream: every process counts
    its streams, and the devices that it sees, for itself.
    """
    if span.device is _HOST:
        return span
    device = numbers[span.process, span.device]
    _, stream = span.track
    track = (f"device {device}", f"process {span.process}, {stream}")
    return span._replace(device=device, track=track)


def _timelines(path: Path, spans: Sequence[_Span]) -> tuple[Timeline, ...]:
    builder = EventTableBuilder()
    for span in spans:
        builder.add(
            span.start,
            span.duration,
            track=span.track,
            name=span.name,
            kind=span.kind,
            correlation=span.correlation,
        )
    events = replace(builder.table(), shortest_ns=SHORTEST_WORK_NS)
    devices = [HOST if span.device is _HOST else span.device for span in spans]
    return timelines_by_device(
        path, events, np.array(devices, dtype=np.int64), rank=rank_in_name(path)
    )


def _of_its_processes(timeline: Timeline, spans: Sequence[_Span]) -> Timeline:
    """The timeline without the host of processes that only drive other devices: each
    rank of a job has steps of its own.
    """
    own: set[str] = set()
    others: set[str] = set()
    for span in spans:
        if span.device is not _HOST:
            drivers = own if span.device == timeline.device else others
            drivers.add(str(span.process))
    events = timeline.events
    foreign = others - own
    is_foreign: Mask = np.array(
        [process in foreign for process, _ in events.tracks], dtype=bool
    )
    if not is_foreign.any():
        return timeline
    events = events.select(~is_foreign[events.track])
    return replace(timeline, events=events, steps=MarkedSteps.of(events))


def _losses(
    spans: Sequence[_Span], device: int | None, incomplete: Collection[int]
) -> tuple[Message, ...]:
    own = [span for span in spans if span.device == device]
    losses = []
    if graphs := sum(span.name == _GRAPH for span in own):
        losses.append(Message("notes.graphs-whole", {"count": graphs}))
    if any(span.process in incomplete for span in own):
        losses.append(Message("notes.nsys-incomplete"))
    return tuple(losses)


def _incomplete_processes(database: Database) -> set[int]:
    """The processes of which nsys says that events of CUDA may be missing."""
    processes = set()
    for text, process in database.rows(_DIAGNOSTICS, ("text", "globalPid")):
        if text == _INCOMPLETE:
            processes.add(_process(database.whole(process)))
    return processes


def _of_device(database: Database, names: dict[int, str]) -> Iterator[_Span]:
    for row in _rows(database, _KERNELS, (*_OF_WORK, "shortName", "demangledName")):
        start, end, device, stream, correlation, process, short, demangled = row
        name = names.get(demangled or short or -1) or names.get(short or -1) or "kernel"
        number = _number(correlation, process)
        yield _Span(
            device or 0,
            start,
            end - start,
            _stream(device, stream),
            name,
            kernel_kind(name),
            number,
            _process(process),
        )
    for row in _rows(database, _GRAPHS, _OF_WORK):
        start, end, device, stream, correlation, process = row
        yield _Span(
            device or 0,
            start,
            end - start,
            _stream(device, stream),
            _GRAPH,
            "compute",
            _number(correlation, process),
            _process(process),
        )
    for table, name in _COPIES.items():
        for row in _rows(database, table, (*_OF_WORK, "copyKind")):
            start, end, device, stream, correlation, process, way = row
            full_name = f"{name} {_WAYS[way]}" if way in _WAYS else name
            number = _number(correlation, process)
            yield _Span(
                device or 0,
                start,
                end - start,
                _stream(device, stream),
                full_name,
                "copy",
                number,
                _process(process),
            )


def _of_host(database: Database, names: dict[int, str]) -> Iterator[_Span]:
    for row in _rows(
        database, _RUNTIME, ("start", "end", "globalTid", "correlationId", "nameId")
    ):
        start, end, thread, correlation, text = row
        # cudaLaunchKernel_v7000 is a version of the call.
        call = _VERSION.sub("", names.get(text or -1, "call"))
        number = _number(correlation, thread)
        yield _Span(
            _HOST,
            start,
            end - start,
            _thread(thread),
            call,
            "runtime",
            number,
            _process(thread),
        )
    for row in database.rows(
        "NVTX_EVENTS", ("start", "end", "globalTid", "textId", "eventType", "text")
    ):
        start, end, thread, text_id, event_type = (
            database.whole(cell) for cell in row[:5]
        )
        if event_type not in _RANGES or start is None or end is None or end < start:
            continue
        name = str(row[5] or "")
        if text_id is not None:
            name = names.get(text_id, "")
        name = _OF_EMIT_NVTX.sub("", name)
        # torch's emit_nvtx names operators aten::mm; PyTorch's steps have other names.
        is_operator = "::" in name and not STEP_NAME.fullmatch(name)
        kind: EventKind = "host_op" if is_operator else "annotation"
        yield _Span(
            _HOST,
            start,
            end - start,
            _thread(thread),
            name,
            kind,
            NO_CORRELATION,
            _process(thread),
        )


def _rows(
    database: Database, table: str, columns: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """The rows of a table, all of whole numbers.

    Raises DocumentError for one without its times.
    """
    for row in database.rows(table, columns):
        numbers = tuple(map(database.whole, row))
        if numbers[0] is None or numbers[1] is None or numbers[1] < numbers[0]:
            raise database.wrong(
                Activity(
                    "a row of {table} has no time, or ends before it begins; export the report again",
                    table=table,
                )
            )
        yield numbers


def _number(correlation: int | None, process: int | None) -> int:
    """A number for a correlation that every process counts for itself."""
    if correlation is None or not 0 <= correlation < _MOST_CORRELATIONS:
        return NO_CORRELATION
    return correlation | _process(process) << 32


def _process(number: int | None) -> int:
    """The id of a process in the number of one of its threads (nsys: "Common SQLite
    Examples").
    """
    return (number or 0) >> _PROCESS_BITS & _THREAD_MASK


def _thread(number: int | None) -> tuple[str, str]:
    return str(_process(number)), str((number or 0) & _THREAD_MASK)


def _stream(device: int | None, stream: int | None) -> tuple[str, str]:
    return f"device {device or 0}", f"stream {stream or 0}"


def _names(database: Database) -> dict[int, str]:
    names = {}
    for cell, text in database.rows("StringIds", ("id", "value")):
        number = database.whole(cell)
        if number is not None:
            names[number] = str(text or "")
    return names


def _gpus(database: Database) -> dict[_Owner, int]:
    """The GPU by process and the number that CUDA gave it there, which counts only the
    GPUs that the process sees (CUDA_VISIBLE_DEVICES).
    """
    gpus = {}
    for row in database.rows("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId")):
        process, number, gpu = map(database.whole, row)
        if process is not None and number is not None and gpu is not None:
            gpus[process, number] = gpu
    return gpus


def _names_of_gpus(database: Database) -> dict[int, str]:
    names = {}
    # Exports of early versions have no such table, or other columns.
    with suppress(DocumentError):
        for cell, name in database.rows("TARGET_INFO_GPU", ("id", "name")):
            number = database.whole(cell)
            if number is not None:
                names[number] = str(name)
    return names
