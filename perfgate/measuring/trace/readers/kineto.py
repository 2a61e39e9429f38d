"""Read what torch.profiler (Kineto) writes: Chrome trace events as JSON, times in microseconds with decimals."""

from __future__ import annotations

from pathlib import Path
from typing import Optional, Union

import msgspec

from perfgate.errors import DocumentError
from perfgate.measuring.trace.events import MAX_NS, NO_CORRELATION, EventKind, EventTable, EventTableBuilder
from perfgate.measuring.trace.readers._json_events import event_batches
from perfgate.measuring.trace.readers._times import nanoseconds
from perfgate.measuring.trace.recording import Recording, Timeline

READS = "traces of torch.profiler (Kineto), *.json and *.json.gz"
PRIORITY = 0
MAX_EVENTS = 50_000_000

# Categories of today's Kineto (torch 2.x) and of 2021 (cat "Kernel", "Operator" …), in lower case. Seen in the recorded
# samples cpu-torch2.13, cuda-hta and cuda-kineto; privateuse1_runtime in torch-native-privateuse1.
_KIND_OF_CATEGORY: dict[str, EventKind] = {
    "cpu_op": "host_op",
    "operator": "host_op",
    "kernel": "compute",
    "gpu_memcpy": "copy",
    "memcpy": "copy",
    "gpu_memset": "copy",
    "memset": "copy",
    "user_annotation": "annotation",
    "gpu_user_annotation": "device_annotation",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "cuda_sync": "runtime",
    "privateuse1_runtime": "runtime",
    "runtime": "runtime",
    "python_function": "python",
    "cpu_instant_event": "memory",
}
# Kernels of collectives by how their names begin: NCCL and RCCL (sample cuda-hta/nccl_data), HCCL (hcom_allReduce_).
_COLLECTIVES = ("nccl", "rccl", "hccl", "hcom_")


class _Arguments(msgspec.Struct):
    correlation: Union[int, float, str, None] = None


class _Event(msgspec.Struct):
    # Times stay text: as float64 a time since 1970 in microseconds has steps of 250 ns.
    ph: str = ""
    cat: Optional[str] = None
    name: Optional[str] = None
    pid: msgspec.Raw = msgspec.Raw()
    tid: msgspec.Raw = msgspec.Raw()
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    args: Optional[_Arguments] = None


def recognises(path: Path) -> bool:
    """Return whether a path may be such a trace."""
    return path.is_file() and path.name.endswith((".json", ".json.gz"))


def read(path: Path) -> Recording:
    """Return the recording of a Kineto trace. Raises DocumentError as ``read_kineto`` does."""
    return Recording(
        path=path, format="kineto", timelines=(Timeline(rank=None, device=None, events=read_kineto(path)),)
    )


def read_kineto(path: Path) -> EventTable:
    """Return the spans of a Kineto trace, and its allocations as events without duration.

    Times become integer nanoseconds without passing through a float. Raises DocumentError, with what is wrong, where,
    and what to do, for a file that is missing, cut off, too large or not such a trace.
    """
    builder = EventTableBuilder()
    decoder = msgspec.json.Decoder(list[_Event])
    seen = 0
    for batch in event_batches(path):
        try:
            events = decoder.decode(batch)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DocumentError(
                f"{path}: events after number {seen} are not trace events: {error}; record it again"
            ) from error
        _add_all(builder, events, seen, path)
        seen += len(events)
        if seen > MAX_EVENTS:
            raise DocumentError(f"{path}: more than {MAX_EVENTS} events; record fewer calls")
    return builder.table()


def _add_all(builder: EventTableBuilder, events: list[_Event], first: int, path: Path) -> None:
    number, event = first - 1, _Event()
    try:
        for event in events:
            number += 1
            _add(builder, event)
    except ValueError as error:
        raise DocumentError(f"{path}: event {number} ({event.name!r}): {error}; record it again") from error


def _add(builder: EventTableBuilder, event: _Event) -> None:
    kind = _kind(event)
    if event.ph == "X":
        duration = nanoseconds(bytes(event.dur)) if event.dur else 0
    elif event.ph == "i" and kind == "memory":
        duration = 0
    else:
        return
    if duration < 0:
        raise ValueError(f"its duration {bytes(event.dur).decode('ascii', 'replace')} is negative")
    builder.add(
        nanoseconds(bytes(event.ts)),
        duration,
        track=(_word(event.pid), _word(event.tid)),
        name=event.name or "",
        kind=kind,
        correlation=_correlation(event.args),
    )


def _kind(event: _Event) -> EventKind:
    kind = _KIND_OF_CATEGORY.get((event.cat or "").lower(), "other")
    if kind == "compute" and (event.name or "").lower().startswith(_COLLECTIVES):
        return "comm"
    return kind


def _word(raw: msgspec.Raw) -> str:
    return bytes(raw).strip(b'" ').decode("utf-8", errors="replace")


def _correlation(arguments: Optional[_Arguments]) -> int:
    number = arguments.correlation if arguments else None
    return number if isinstance(number, int) and 0 <= number < MAX_NS else NO_CORRELATION
