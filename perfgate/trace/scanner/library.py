"""The compiled scanner of events and tables, if it was built; called by ctypes, which
releases Python's lock meanwhile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from perfgate.trace import loops

MOST_ARGUMENTS = 20
# Instead of the key of an argument: all arguments of a counter (phase C), as one text:
# its keys may be anything.
COUNTER_ARGUMENTS = ""
_READ_ONLY = 0x100  # PyBUF_READ
_WIDE = True  # with vectors of 256 bits, if the processor has them
STOPPED = 0
CLOSED = 1
WANTING = -1
ODD = -2
FULL = -3
# Members of an event, in the scanner's numbering, with times that it leaves as text.
START, DURATION = 5, 6
# Separate rows for complete events, arrows (phases s, t and f) and all others.
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


def argument_type(is_number: bool) -> Any:
    """Of the values of an argument: whole numbers, or numbers of texts."""
    return np.int64 if is_number else np.int32


# ``odd_time`` in events.c: event, member and text of a time that is not a plain number.
_ODD_TIME = np.dtype((np.int32, 3))


# An array of ctypes would be a new type for each size, and a type takes longer to make
# than a column to copy.
_memory = ctypes.pythonapi.PyMemoryView_FromMemory
_memory.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_memory.restype = ctypes.py_object


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
        if not self.count:
            return []
        whole = ctypes.string_at(self.bytes, self.used) if self.used else b""
        ends = self.ends[: self.count]
        return [whole[begin:end] for begin, end in zip([0, *ends], ends)]


class _Sparse(ctypes.Structure):
    """``sparse_column`` in events.c."""

    _fields_ = [
        ("row", ctypes.c_void_p),
        ("value", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("room", ctypes.c_int64),
    ]


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
        ("odd", ctypes.c_void_p),
        ("odd_count", ctypes.c_int64),
        ("state", ctypes.c_int32),
    ]


class Scan:
    """One pass over some events; its columns grow with every ``take``.

    ``keys`` are the arguments to take, each with whether whole numbers are wanted of
    it.
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

    def take(self, address: int, size: int, *, first: bool) -> int:
        """Take the events of a text; return the position at which that ended."""
        return int(
            self._library.scan_take(self._scan, address, size, 0, size, first, _WIDE)
        )

    def begin(self, sets: Iterable[int]) -> None:
        """Begin anew, and keep the events of these sets alone; the others are counted.

        Texts and tracks keep their numbers.
        """
        bits = 0
        for number in sets:
            bits |= 1 << number
        self._library.scan_begin(self._scan, bits)

    @property
    def events(self) -> int:
        """The number of events that the scan holds."""
        return int(self._scan.contents.events)

    def texts(self) -> list[bytes]:
        """Every text once, as the file has it."""
        texts: Texts = self._scan.contents.texts
        return texts.all()

    def tracks(self) -> npt.NDArray[np.int32]:
        """The texts of process and thread of each track, by their numbers."""
        tracks: Texts = self._scan.contents.tracks
        return np.frombuffer(
            ctypes.string_at(tracks.bytes, tracks.used), np.int32
        ).reshape(-1, 2)

    def odd(self) -> list[tuple[int, int, int]]:
        """Event, member and text of each time that is not a plain number."""
        scan = self._scan.contents
        return [
            (event, member, text)
            for event, member, text in view(
                scan.odd, scan.odd_count, _ODD_TIME
            ).tolist()
        ]

    def member(self, rows: int, name: str) -> npt.NDArray[Any]:
        """The column of a member of events, which the scan has no more."""
        columns = self._scan.contents.rows[rows]
        return self._handed_over(columns, name, columns.count, MEMBERS[name])

    def flow(self, rows: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The rows that are arrows, and the number of each, which the scan has no more."""
        return self._sparse(self._scan.contents.rows[rows].flow, np.int64)

    def argument(
        self, rows: int, key: str
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The rows that have an argument, and the value of each, which the scan has no
        more.
        """
        column = self._scan.contents.rows[rows].argument[list(self._keys).index(key)]
        return self._sparse(column, argument_type(self._keys[key]))

    def _sparse(
        self, column: _Sparse, kind: Any
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        count = column.count
        return self._handed_over(column, "row", count, np.int32), self._handed_over(
            column, "value", count, kind
        )

    def _handed_over(
        self, columns: ctypes.Structure, name: str, count: int, kind: Any
    ) -> npt.NDArray[Any]:
        """A column as an array that owns it."""
        address = getattr(columns, name)
        if not address:
            return np.empty(0, kind)
        setattr(columns, name, None)
        return np.asarray(_Column(self._library, address, count, kind))


class _Column:
    """A column of the library's, freed when no array needs it any more."""

    def __init__(
        self, library: ctypes.CDLL, address: int, count: int, kind: Any
    ) -> None:
        self._library = library
        self._address = address
        self.__array_interface__ = {
            "version": 3,
            "shape": (count,),
            "typestr": np.dtype(kind).str,
            "data": (address, False),
        }

    def __del__(self) -> None:
        self._library.column_release(self._address)


def view(address: int | None, count: int, kind: Any) -> npt.NDArray[Any]:
    """Values that the library holds, for as long as it holds them."""
    if not address or not count:
        return np.empty(0, kind)
    return np.frombuffer(
        _memory(address, count * np.dtype(kind).itemsize, _READ_ONLY), kind
    )


@cache
def load() -> ctypes.CDLL | None:
    """The library; None if it was not built, or is of another version."""
    library = loops.load()
    if library is None:
        return None
    library.scan_new.restype = ctypes.POINTER(_Scan)
    library.scan_free.argtypes = [ctypes.POINTER(_Scan)]
    library.scan_begin.argtypes = [ctypes.POINTER(_Scan), ctypes.c_int32]
    library.column_release.argtypes = [ctypes.c_void_p]
    library.scan_take.argtypes = [
        ctypes.POINTER(_Scan),
        ctypes.c_void_p,
        *[ctypes.c_int64] * 3,
        *[ctypes.c_int] * 2,
    ]
    library.scan_take.restype = ctypes.c_int64
    library.table_release.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    library.table_free.argtypes = [ctypes.c_void_p]
    library.enclosing_calls.argtypes = [
        *[ctypes.c_void_p] * 5,
        *[ctypes.c_int64] * 2,
        ctypes.c_void_p,
    ]
    library.enclosing_calls.restype = ctypes.c_int64
    return library
