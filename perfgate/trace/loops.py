"""Loops over columns of numbers: compiled if the scanner was built, else in several
passes of numpy.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

# The library of the scanner; its ``packing.c`` has these loops.
FILE = Path(__file__).with_name("scanner") / "_scanner.so"
_VERSION = 15
_MOST_PLACES = 2**31 - 1
_DIRECT = (
    np.bool_,
    np.uint8,
    np.int32,
    np.int64,
)  # columns whose rows are grouped as they are

Column = npt.NDArray[np.int64]
Codes = npt.NDArray[np.integer[Any]]


def look_up(table: npt.NDArray[Any], codes: Codes) -> npt.NDArray[Any]:
    """``table[codes]``; numpy would first make eight bytes of each code."""
    library = load()
    plain = codes.flags.c_contiguous and table.flags.c_contiguous
    if (
        library is None
        or codes.dtype != np.int32
        or table.itemsize not in (1, 4, 8)
        or not plain
    ):
        return table.take(codes)
    looked_up = np.empty(codes.size, dtype=table.dtype)
    library.look_up(
        table.ctypes.data,
        table.size,
        table.itemsize,
        codes.ctypes.data,
        codes.size,
        looked_up.ctypes.data,
    )
    return looked_up


def first_places(codes: Codes, size: int) -> Column:
    """The first position of each code from -1 to ``size - 1``, -1 for one that does not
    occur.
    """
    first = np.full(size + 1, -1)
    library = load()
    if library is None or codes.dtype != np.int32 or not codes.flags.c_contiguous:
        first[codes[::-1] + 1] = np.arange(codes.size - 1, -1, -1)
    else:
        library.first_places(codes.ctypes.data, codes.size, first.ctypes.data)
    return first


def earliest_calls(
    work: Codes, calls: Codes, begun: Column, least: int, width: int
) -> Column | None:
    """For each number of ``work`` the place of the call with it that begins first, -1
    for none; None without the library.

    The numbers of calls, -1 for none, lie from ``least`` on in ``width`` places.
    """
    library = load()
    if library is None:
        return None
    columns = [
        np.ascontiguousarray(column, dtype=np.int64) for column in (work, calls, begun)
    ]
    places = np.empty(work.size, dtype=np.int64)
    place_of = np.full(width, -1, dtype=np.int32)
    work_column, numbers, times = (column.ctypes.data for column in columns)
    table, answers = place_of.ctypes.data, places.ctypes.data
    library.earliest_calls(
        work_column, work.size, numbers, times, calls.size, least, width, table, answers
    )
    return places


def grouped(
    columns: Sequence[Codes], lows: Sequence[int], widths: Sequence[int]
) -> tuple[Column, npt.NDArray[np.int32]] | None:
    """The first row of each group of rows that agree in all columns, and the group of
    every row.

    None without the library, or for too many combinations of values. Column k has
    ``widths[k]`` values from ``lows[k]`` on. Groups are in the order of their values.
    """
    library = load()
    rows = columns[0].size
    places = math.prod(widths)
    if library is None or places > _MOST_PLACES:
        return None
    whole = [
        np.ascontiguousarray(
            column, column.dtype if column.dtype in _DIRECT else np.int64
        )
        for column in columns
    ]
    addresses = (ctypes.c_void_p * len(whole))(
        *(column.ctypes.data for column in whole)
    )
    sizes = np.array([column.itemsize for column in whole], dtype=np.int32)
    lowest, spans = np.array(lows, dtype=np.int64), np.array(widths, dtype=np.int64)
    number_of, group = np.zeros(places, dtype=np.int32), np.empty(rows, dtype=np.int32)
    first = np.empty(min(rows, places), dtype=np.intp)
    numbers = library.group_rows(
        *(
            addresses,
            sizes.ctypes.data,
            lowest.ctypes.data,
            spans.ctypes.data,
            len(whole),
            rows,
        ),
        *(number_of.ctypes.data, places, group.ctypes.data, first.ctypes.data),
    )
    return first[:numbers], group


@cache
def load() -> ctypes.CDLL | None:
    """The library; None if it was not built, or is of another version."""
    try:
        library = ctypes.CDLL(str(FILE))
    except OSError:
        return None
    if library.scan_version() != _VERSION:
        return None
    library.look_up.argtypes = [
        *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32),
        *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p),
    ]
    library.look_up.restype = None
    library.first_places.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    library.first_places.restype = None
    library.earliest_calls.argtypes = [
        *(ctypes.c_void_p, ctypes.c_int64),
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64),
        *(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p),
    ]
    library.earliest_calls.restype = None
    library.group_rows.argtypes = [
        *[ctypes.c_void_p] * 4,
        *(ctypes.c_int32, ctypes.c_int64),
        *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p),
    ]
    library.group_rows.restype = ctypes.c_int64
    return library
