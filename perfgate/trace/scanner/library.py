"""The compiled scanner of events and tables, if it was built; called by ctypes, which releases Python's lock meanwhile."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

FILE = Path(__file__).with_name("_scanner.so")
_VERSION = 9
MOST_ARGUMENTS = 16
_READ_ONLY = 0x100  # PyBUF_READ
STOPPED, CLOSED, WANTING, ODD, FULL = 0, 1, -1, -2, -3
# Members of an event, in the scanner's numbering, with times that it leaves as text.
START, DURATION = 5, 6
# Complete events, arrows (phases s, t and f) and all others: rows of their own.
COMPLETE, OTHERS, ARROWS = SETS = 0, 1, 2
MEMBERS: dict[str, Any] = {
    "phase": np.uint8,
    "event": np.int32,
    "category": np.int32,
    "name": np.int32,
    "track": np.int32,
    "start": np.int64,
    "duration": np.int64,
}

Column = npt.NDArray[np.int64]
Codes = npt.NDArray[np.integer[Any]]


# An array of ctypes would be a new type for each size, and a type takes longer to make than a column to copy.
_memory = ctypes.pythonapi.PyMemoryView_FromMemory
_memory.argtypes, _memory.restype = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int], ctypes.py_object


class Texts(ctypes.Structure):
    """``text_table`` in values.h: every text once."""

    _fields_ = [
        ("slots", ctypes.c_void_p),
        ("mask", ctypes.c_uint64),
        ("bytes", ctypes.c_void_p),
        ("used", ctypes.c_int64),
        ("room", ctypes.c_int64),
        ("ends", ctypes.POINTER(ctypes.c_int64)),
        ("count", ctypes.c_int32),
        ("ends_room", ctypes.c_int32),
    ]

    def all(self) -> list[bytes]:
        """The texts in the order of their numbers."""
        whole = ctypes.string_at(self.bytes, self.used) if self.used else b""
        ends = self.ends[: self.count] if self.count else []
        return [whole[begin:end] for begin, end in zip([0, *ends], ends)]


class _Sparse(ctypes.Structure):
    """``sparse_column`` in events.c."""

    _fields_ = [
        ("row", ctypes.c_void_p),
        ("value", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("room", ctypes.c_int64),
    ]


class _Odd(ctypes.Structure):
    _fields_ = [("event", ctypes.c_int32), ("member", ctypes.c_int32), ("text", ctypes.c_int32)]


class _Rows(ctypes.Structure):
    """``row_set`` in events.c."""

    _fields_ = [
        ("count", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in MEMBERS),
        ("flow", _Sparse),
        ("argument", _Sparse * MOST_ARGUMENTS),
        ("room", ctypes.c_int64),
    ]


class _Scan(ctypes.Structure):
    """The beginning of ``scan`` in events.c: the fields read by the caller."""

    _fields_ = [
        ("events", ctypes.c_int64),
        ("rows", _Rows * len(SETS)),
        ("texts", Texts),
        ("tracks", Texts),
        ("odd", ctypes.POINTER(_Odd)),
        ("odd_count", ctypes.c_int64),
        ("state", ctypes.c_int32),
    ]


class ScanMark(NamedTuple):
    """How much a scan holds: events, rows of each set, odd times."""

    events: int
    rows: tuple[int, ...]
    odd: int


class Scan:
    """One pass over some events; its columns grow with every ``take``.

    ``keys`` are the arguments to take, each with whether whole numbers are wanted of it.
    """

    def __init__(self, keys: dict[str, bool]) -> None:
        library = load()
        assert library is not None, "nobody scans without the library"
        self._library = library
        names = (ctypes.c_char_p * len(keys))(*(key.encode() for key in keys))
        numbers = (ctypes.c_uint8 * len(keys))(*keys.values())
        self._scan = library.scan_new(names, numbers, len(keys))
        if not self._scan:
            raise MemoryError("no memory for a scan")
        self._keys = keys

    def __del__(self) -> None:
        if getattr(self, "_scan", None):
            self._library.scan_free(self._scan)

    @property
    def state(self) -> int:
        """Why the last ``take`` ended."""
        return int(self._scan.contents.state)

    def take(self, address: int, size: int, at: int, stop: int, *, first: bool, wide: bool = True) -> int:
        """Take the events of a text that begin from ``at`` on and before ``stop``; return the position at which that ended."""
        return int(self._library.scan_take(self._scan, address, size, at, stop, first, wide))

    def mark(self) -> ScanMark:
        scan = self._scan.contents
        return ScanMark(int(scan.events), tuple(int(scan.rows[rows].count) for rows in SETS), int(scan.odd_count))

    def forget(self, mark: ScanMark) -> None:
        """Forget all that was taken since a mark."""
        self._library.scan_forget(self._scan, mark.events, (ctypes.c_int64 * len(SETS))(*mark.rows), mark.odd)

    def texts(self) -> list[bytes]:
        """Every text once, as the file has it."""
        texts: Texts = self._scan.contents.texts
        return texts.all()

    def tracks(self) -> npt.NDArray[np.int32]:
        """The texts of process and thread of each track, by their numbers."""
        tracks: Texts = self._scan.contents.tracks
        return np.frombuffer(ctypes.string_at(tracks.bytes, tracks.used), np.int32).reshape(-1, 2)

    def odd(self) -> list[tuple[int, int, int]]:
        """Event, member and text of each time that is no plain number."""
        odd_times = self._scan.contents.odd[: self._scan.contents.odd_count]
        return [(odd.event, odd.member, odd.text) for odd in odd_times]

    def member(self, rows: int, name: str) -> npt.NDArray[Any]:
        """The column of a member of events, as the scan holds it: it is gone once it is released."""
        columns = self._scan.contents.rows[rows]
        return view(getattr(columns, name), columns.count, MEMBERS[name])

    def flow(self, rows: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The rows that are arrows, and the number of each; gone once they are released."""
        return _views(self._scan.contents.rows[rows].flow, np.int64)

    def argument(self, rows: int, key: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The rows that have an argument, and the value of each; gone once they are released."""
        column = self._scan.contents.rows[rows].argument[list(self._keys).index(key)]
        return _views(column, np.int64 if self._keys[key] else np.int32)

    def release_member(self, rows: int, name: str) -> None:
        self._library.scan_release(self._scan, rows, list(MEMBERS).index(name))

    def release_flow(self, rows: int) -> None:
        self._library.scan_release(self._scan, rows, len(MEMBERS))

    def release_argument(self, rows: int, key: str) -> None:
        self._library.scan_release(self._scan, rows, len(MEMBERS) + 1 + list(self._keys).index(key))


def view(address: int | None, count: int, kind: Any) -> npt.NDArray[Any]:
    """So many values that the library holds, for as long as it holds them."""
    if not address or not count:
        return np.empty(0, kind)
    return np.frombuffer(_memory(address, count * np.dtype(kind).itemsize, _READ_ONLY), kind)


def _views(column: _Sparse, kind: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    return view(column.row, column.count, np.int32), view(column.value, column.count, kind)


def enclosing_calls(
    start: Column, duration: Column, kind: Codes, track: Codes, order: Codes, *, most: int, around: Codes
) -> int | None:
    """Write into ``around`` the call that each lies in, and return how many are cut off; None without the library.

    See ``perfgate.trace.analysis.stacks``.
    """
    library = load()
    if library is None:
        return None
    types = (np.int64, np.int64, np.uint8, np.int32, np.int32)
    columns = [
        np.ascontiguousarray(column, dtype=dtype) for column, dtype in zip((start, duration, kind, track, order), types)
    ]
    cut = library.enclosing_calls(*(column.ctypes.data for column in columns), order.size, most, around.ctypes.data)
    return None if cut < 0 else int(cut)


@cache
def load() -> ctypes.CDLL | None:
    """The library; None if it was not built, or is of another version."""
    try:
        library = ctypes.CDLL(str(FILE))
    except OSError:
        return None
    if library.scan_version() != _VERSION:
        return None
    library.scan_new.restype = ctypes.POINTER(_Scan)
    library.scan_free.argtypes = [ctypes.POINTER(_Scan)]
    library.scan_forget.argtypes = [ctypes.POINTER(_Scan), ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64]
    library.scan_release.argtypes = [ctypes.POINTER(_Scan), ctypes.c_int32, ctypes.c_int32]
    library.scan_take.argtypes = [
        ctypes.POINTER(_Scan),
        ctypes.c_void_p,
        *[ctypes.c_int64] * 3,
        ctypes.c_int,
        ctypes.c_int,
    ]
    library.scan_take.restype = ctypes.c_int64
    library.table_release.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    library.table_free.argtypes = [ctypes.c_void_p]
    library.enclosing_calls.argtypes = [*[ctypes.c_void_p] * 5, *[ctypes.c_int64] * 2, ctypes.c_void_p]
    library.enclosing_calls.restype = ctypes.c_int64
    return library
