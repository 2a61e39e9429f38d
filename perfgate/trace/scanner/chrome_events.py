"""Chrome trace events: reading a file block by block, the meaning of categories, and a
timeline for each device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from perfgate.document.message import Message
from perfgate.errors import DocumentError
from perfgate.locale import Activity
from perfgate.trace.model.arithmetic import IntColumn, Mask
from perfgate.trace.model.events import (
    NO_CORRELATION,
    EventKind,
    EventTable,
)
from perfgate.trace.model.launches import LAUNCHED_ELSEWHERE
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.model.recording import Timeline
from perfgate.trace.model.spans import KERNEL_LAUNCH
from perfgate.trace.model.steps import MarkedSteps
from perfgate.trace.scanner.compressed import damage, opened, unreadable

BLOCK_BYTES = 4 << 20
MAX_HEADER_BYTES = 16 << 20
MAX_EVENT_BYTES = 16 << 20
MAX_EVENTS = 50_000_000
LOOK_BYTES = 64 << 10
# torch_npu itself warns at 1 GiB; more than this is not a trace of some hundred calls.
MAX_TRACE_BYTES = 8 << 30

EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
# Editors on Windows write the mark of UTF-8 before a text (RFC 8259, 8.1: a reader may
# ignore it).
_UTF8_MARK = b"\xef\xbb\xbf"
_BARE_LIST = re.compile(rb"\s*\[")
# Before all but the first event of a file.
_SEPARATOR = lazy_pattern(rb"\A\s*,")
BORDER = lazy_pattern(rb'\}\s{0,40},\s{0,40}\{\s{0,40}"(?:ph|name)"')

# A sector of a disk, 512 bytes, contains two places of this distance, wherever it lies.
_PROBE = 256
_BETWEEN = (_PROBE // 2, _PROBE // 4, 7)

_QUOTE, _BACKSLASH = ord('"'), ord("\\")
# The change of depth by each byte outside of strings.
_BRACKETS = np.zeros(256, dtype=np.int8)
_BRACKETS[[ord("["), ord("{")]], _BRACKETS[[ord("]"), ord("}")]] = 1, -1
_NOT_EVENTS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
# Categories of today's Kineto (torch 2.x) and of 2021 (cat "Kernel", "Operator" …), in
# lower case. Seen in the recorded samples cpu-torch2.13, cuda-hta and cuda-kineto;
# privateuse1_runtime in torch-native-privateuse1.
KIND_OF_CATEGORY: dict[str, EventKind] = {
    "cpu_op": "host_op",
    "operator": "host_op",
    "kernel": "compute",
    # Device work in traces of converters, with the stream as thread; its sort is in the
    # name.
    "npu": "compute",
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
    # Of other accelerators, by libkineto's list of activity types
    # (libkineto/include/ActivityType.h).
    "mtia_ccp_events": "compute",
    "hpu_op": "compute",
    "collective_comm": "comm",
    # Known, but no work: the profiler's own overhead, and the span of the whole
    # recording.
    "overhead": "other",
    "trace": "other",
    "external_correlation": "other",
    "cuda_profiler_range": "other",
    "mtia_insight": "other",
}
# Calls into the library of any accelerator: mtia_runtime, xpu_runtime, glow_runtime,
# privateuse1_driver.
RUNTIME_CATEGORIES = ("_runtime", "_driver")
# These stand on the device's tracks, a synchronisation included (sample
# cuda-hta/a100_event_sync).
DEVICE_CATEGORIES = frozenset(
    {
        "kernel",
        "npu",
        "gpu_memcpy",
        "memcpy",
        "gpu_memset",
        "memset",
        "gpu_user_annotation",
        "cuda_sync",
    }
    | {"mtia_ccp_events", "hpu_op", "collective_comm"}
)
# torch's record_function("request#17"), with which serving code marks its work for one
# request.
_REQUEST = "request#"
# In a column of device numbers: the host, and a device without a number.
HOST, UNNAMED = -1, -2
MAX_DEVICES = 256


class ChromeEvent(msgspec.Struct, gc=False):  # of millions, none in a cycle
    """The fields common to all trace events; a reader adds the arguments it needs.

    Times stay text: as float64 a time since 1970 in microseconds has steps of 250 ns.
    So do the numbers of process and thread, which some writers put in quotes.
    """

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: msgspec.Raw = msgspec.Raw()
    tid: msgspec.Raw = msgspec.Raw()
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()


_Event = TypeVar("_Event", bound=ChromeEvent)


def event_lists(
    text: TraceText,
    kind: type[_Event],
    *,
    advice: Activity | None,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[list[_Event]]:
    """Lists that together hold every event of a trace file, decoded, in order, each
    hardly larger than a block.

    The file is an object with a list ``traceEvents``, or that list itself, compressed
    according to its suffix. ``text.around`` becomes the file without its events,
    ``{"schemaVersion": 1, "traceEvents": []}``, once all are read. Raises DocumentError
    for a file that is truncated, too large, not a trace, or contains an invalid event.
    """
    decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
    path = text.path
    read = text.blocks(block_bytes)
    header, buffer = header_and_rest(path, read)
    count = 0
    while True:
        end, is_last = _cut(buffer, path)
        members = buffer[:end]
        if count:
            members = _SEPARATOR.sub(b"", members, count=1)
        try:
            events = decoder.decode(b"[%b]" % members)
        except _NOT_EVENTS as error:
            raise DocumentError(
                "{path}: events after number {count} are not trace events: {error}; {advice}",
                path=path,
                count=count,
                error=error,
                advice=advice or Activity("record it again"),
            ) from error
        count += len(events)
        if count > MAX_EVENTS:
            raise DocumentError(
                "{path}: more than {limit} events; record fewer calls",
                path=path,
                limit=MAX_EVENTS,
            )
        yield events
        buffer = buffer[end:]
        if is_last:
            text.read_rest(header, buffer)
            return
        block = next(read, b"")
        if not block:
            raise DocumentError(
                "{path}: the list of events has no end, the file is cut off; record the trace again (a job that was killed, or "
                "a full disk, leaves such files)",
                path=path,
            )
        if len(buffer) > MAX_EVENT_BYTES + len(block):
            raise DocumentError(
                "{path}: one event is larger than {limit} bytes; this is not a profiler trace",
                path=path,
                limit=MAX_EVENT_BYTES,
            )
        buffer += block


def looks_like(path: Path, pattern: re.Pattern[bytes]) -> bool:
    """Whether a pattern is found in the first bytes of a file; true for files that
    cannot be read.

    A cheap check for readers to recognize their own files; reading then reports the
    damage of a broken one.
    """
    begin = _begin(path)
    return begin is None or pattern.search(begin) is not None


def begins_with(path: Path, pattern: re.Pattern[bytes]) -> bool:
    """As ``looks_like``, but false for files that cannot be read."""
    begin = _begin(path)
    return begin is not None and pattern.search(begin) is not None


def _begin(path: Path) -> bytes | None:
    """The first bytes of the text of a file, None if it cannot be read."""
    try:
        with opened(path) as stream:
            return stream.read(LOOK_BYTES)
    except unreadable(path):
        return None


def unquoted(raw: bytes) -> str:
    """The number of a process or thread, which some writers put in quotes."""
    return raw.strip(b'" ').decode("utf-8", errors="replace")


def request_of(argument: int | float | str | None, name: str) -> str | None:
    """The request an event served: its argument ``request_id``, else the request in its
    name.
    """
    if argument is not None:
        return str(argument)
    if not name.startswith(_REQUEST):
        return None
    return name.removeprefix(_REQUEST)


def timelines_by_device(
    path: Path, events: EventTable, device_of: IntColumn, *, rank: int | None
) -> tuple[Timeline, ...]:
    """A timeline for each device, each with all of the host, which drives them; without
    one, the host's alone.

    Raises DocumentError for more devices than there can be.
    """
    of_devices = device_of[device_of != HOST]
    # Most events of a device follow others of it, and only the first of them is looked
    # at.
    begins = np.flatnonzero(np.diff(of_devices, prepend=HOST))
    devices = sorted(set(of_devices[begins].tolist()))
    if len(devices) > MAX_DEVICES:
        raise DocumentError(
            "{path}: {count} devices, and no machine has more than {limit}; the file is damaged, record it again",
            path=path,
            count=len(devices),
            limit=MAX_DEVICES,
        )
    timelines = []
    for device in devices or [UNNAMED]:
        own = events
        if len(devices) > 1:
            own = _of_device(events, device_of, device)
        number = None if device == UNNAMED else device
        timelines.append(Timeline(rank, number, own, steps=MarkedSteps.of(own)))
    return tuple(timelines)


def _of_device(events: EventTable, device_of: IntColumn, device: int) -> EventTable:
    """The events of a device and of the host; calls that launched work of other devices
    say so.
    """
    is_other = (device_of != HOST) & (device_of != device)
    own = events.select(~is_other)
    launched = own.correlation[own.is_work]
    elsewhere = np.setdiff1d(
        events.correlation[is_other], np.append(launched, NO_CORRELATION)
    )
    correlation = np.where(
        np.isin(own.correlation, elsewhere), LAUNCHED_ELSEWHERE, own.correlation
    )
    return replace(own, correlation=correlation)


def absent_device(
    timelines: Sequence[Timeline], *, otherwise: str = "notes.nothing-on-device"
) -> Mapping[str, Message]:
    """The entry for a recording without any work of a device: that work was launched
    and not recorded, or else the code of another reason.
    """
    if any(timeline.events.is_work.any() for timeline in timelines):
        return {}
    launches = 0
    for timeline in timelines:
        calls = np.flatnonzero(timeline.events.is_kind("runtime"))
        launches += timeline.events.rows_named(calls, KERNEL_LAUNCH.search).size
    if launches:
        return {"device": Message("notes.device-unrecorded", {"launches": launches})}
    return {"device": Message(otherwise)}


class TraceText:
    """The text of a trace file, decompressed if necessary.

    ``uniform_bytes`` counts what was read in runs of one byte, which a disk or a copy
    leaves in place of a block. Raises DocumentError, with cause and remedy, for a file
    that is unreadable, truncated or too large.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.around = b""
        self.uniform_bytes = 0
        self._size = 0
        with self._worded():
            self._stream = opened(path)
            # The bytes of the file, compressed or not.
            self.stored = path.stat().st_size

    def __enter__(self) -> TraceText:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def fill(self, room: memoryview) -> int:
        """Write the next bytes into the room until it is full or the file ends, and
        return their number.
        """
        filled = 0
        with self._worded():
            while filled < len(room):
                size: int = self._stream.readinto(room[filled:])  # type: ignore[attr-defined]
                if not size:
                    break
                filled += size
        self._size += filled
        self.uniform_bytes += _uniform_bytes(np.frombuffer(room[:filled], np.uint8))
        if self._size > MAX_TRACE_BYTES:
            raise DocumentError(
                "{path}: more than {limit} bytes of JSON; record fewer calls",
                path=self.path,
                limit=MAX_TRACE_BYTES,
            )
        return filled

    def read_rest(self, header: bytes, rest: bytes) -> None:
        """Read to the end, where the sums of a compressed file are checked, and set
        ``around``; ``rest`` follows the events and was read already.
        """
        for block in self.blocks(LOOK_BYTES):
            rest += block if len(rest) < MAX_HEADER_BYTES else b""
        self.around = header + rest

    def blocks(self, block_bytes: int) -> Iterator[bytes]:
        """Yield the rest of the text."""
        while True:
            block = bytearray(block_bytes)
            size = self.fill(memoryview(block))
            if not size:
                return
            yield bytes(block[:size])

    @contextmanager
    def _worded(self) -> Iterator[None]:
        try:
            yield
        except damage(self.path) as error:
            raise DocumentError(
                "{path}: the compressed file is cut off or damaged ({error}); record the trace again",
                path=self.path,
                error=error,
            ) from error
        except OSError as error:
            raise DocumentError(
                "{path}: cannot be read: {error}; check the path and its permissions",
                path=self.path,
                error=error,
            ) from error


def _uniform_bytes(text: npt.NDArray[np.uint8]) -> int:
    """The bytes of a text that lie in sectors of one byte, whole ones of the text."""
    sampled = text[::_PROBE]
    places = _PROBE * np.flatnonzero(sampled[1:] == sampled[:-1])
    # Few of these are left by the bytes between, which are looked at one after another.
    for distance in _BETWEEN:
        places = places[text[places] == text[places + distance]]
    spans = text[places[:, None] + np.arange(_PROBE)]
    return _PROBE * int((spans == spans[:, :1]).all(axis=1).sum())


def blocks(path: Path, block_bytes: int) -> Iterator[bytes]:
    with TraceText(path) as text:
        yield from text.blocks(block_bytes)


def header_and_rest(path: Path, blocks: Iterator[bytes]) -> tuple[bytes, bytes]:
    """The file so far, cut behind the bracket that opens the list of events."""
    buffer = b""
    for block in blocks:
        buffer = (buffer + block).removeprefix(_UTF8_MARK)
        match = _BARE_LIST.match(buffer) or EVENTS_KEY.search(buffer)
        if match:
            return buffer[: match.end()], buffer[match.end() :]
        if len(buffer) > MAX_HEADER_BYTES:
            break
    raise DocumentError(
        "{path}: no list of trace events; a Kineto trace is a JSON object with traceEvents, as torch.profiler's "
        "export_chrome_trace writes it",
        path=path,
    )


def _cut(buffer: bytes, path: Path) -> tuple[int, bool]:
    """The end of the last whole member, and whether the list ends there: brackets
    outside strings, counted with numpy.
    """
    text = np.frombuffer(buffer, dtype=np.uint8)
    steps = _BRACKETS[text]
    steps[_in_string(text)] = 0
    closes = steps < 0
    depth = np.cumsum(steps, dtype=np.int32)
    ends_list = closes & (depth < 0)
    if ends_list.any():
        list_ends = int(np.argmax(ends_list))
        if buffer[list_ends : list_ends + 1] != b"]":
            raise DocumentError(
                "{path}: the list of events ends with a brace; the file is damaged, record it again",
                path=path,
            )
        return list_ends, True
    member_ends = np.flatnonzero(closes & (depth == 0))
    if not member_ends.size:
        return 0, False
    return int(member_ends[-1]) + 1, False


def _in_string(text: npt.NDArray[np.uint8]) -> Mask:
    """Whether each byte lies in a string: an odd number of quotes before it that no
    backslash escapes.
    """
    quotes = text == _QUOTE
    escapes = np.flatnonzero(text == _BACKSLASH)
    if escapes.size:
        # A run of backslashes escapes the next character if its length is odd.
        apart = np.diff(escapes) > 1
        run_ends = escapes[np.concatenate((apart, [True]))]
        run_starts = escapes[np.concatenate(([True], apart))]
        odd = run_ends[(run_ends - run_starts) % 2 == 0] + 1
        quotes[odd[odd < text.size]] = False
    inside: Mask = np.cumsum(quotes, dtype=np.uint8) & 1 == 1
    return inside
