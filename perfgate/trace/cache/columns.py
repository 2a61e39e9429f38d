"""A file of columns that is mapped into memory: a header, then each column as it lies in memory."""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

_MAGIC = b"perfgate columns"
# Every column begins at a multiple of a cache line, and a sum of 64 bit words is over whole words.
_ALIGNED = 64
_NUMBER = 8
_TYPES = ("|b1", "|u1", "<u2", "<u4", "<i4", "<i8", "<f8")

AnyColumn = npt.NDArray[Any]


class DamagedColumnsError(Exception):
    """A file of columns is cut off, or does not have the bytes that were written."""


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """The begin of a column behind the header. A ``constant`` one has a single value for all its rows."""

    dtype: str
    rows: int
    begin: int
    constant: bool


class _Header(msgspec.Struct, frozen=True, array_like=True):
    """``total`` is the sum of all words of the columns, modulo 2 to the power of 64; ``content`` is the caller's."""

    places: list[_Place]
    size: int
    total: int
    content: bytes


class ColumnWriter:
    """Collects columns; one that is added twice is stored once."""

    def __init__(self) -> None:
        self._columns: dict[int, tuple[int, AnyColumn]] = {}

    def add(self, column: AnyColumn) -> int:
        """The number of the column in the file. Raises ValueError for a type that no file has."""
        if column.dtype.newbyteorder("<").str not in _TYPES:
            raise ValueError(f"columns of {column.dtype} are not stored")
        return self._columns.setdefault(id(column), (len(self._columns), column))[0]

    def pieces(self, content: bytes) -> Iterator[memoryview | bytes]:
        """The file with this content in its header, piece by piece."""
        places, columns, end, total = [], [], 0, 0
        for _, column in self._columns.values():
            constant = column.size > 0 and column.strides == (0,)
            values = column[:1] if constant else column
            values = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
            places.append(_Place(values.dtype.str, column.size, end, constant))
            end += _aligned(values.nbytes)
            total += _sum(values)
            columns.append(values)
        header = msgspec.msgpack.encode(_Header(places, end, total % (1 << 64), content))
        begin = (
            _MAGIC + len(header).to_bytes(_NUMBER, "little") + zlib.crc32(header).to_bytes(_NUMBER, "little") + header
        )
        yield begin.ljust(_aligned(len(begin)), b"\0")
        for values in columns:
            yield values.view(np.uint8).data
            yield bytes(_aligned(values.nbytes) - values.nbytes)


class ColumnFile:
    """A file of columns, checked when opened. Raises OSError, and DamagedColumnsError unless every byte is as written."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self.owner = os.fstat(file.fileno()).st_uid
            try:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:
                raise DamagedColumnsError("empty") from error
        header, self._begin = _read_header(self._bytes)
        self.content = header.content
        self._columns: dict[int, AnyColumn] = {}
        self._places = header.places
        if len(self._bytes) != self._begin + header.size:
            raise DamagedColumnsError("cut off")
        words = np.frombuffer(self._bytes, dtype="<u8", offset=self._begin)
        if int(words.sum(dtype=np.uint64)) != header.total:
            raise DamagedColumnsError("other bytes than were written")

    def column(self, number: int) -> AnyColumn:
        """A read-only column; the file stays mapped as long as the column is used, even after the file was removed."""
        if number not in self._columns:
            place = self._places[number]
            rows = min(place.rows, 1) if place.constant else place.rows
            values = np.frombuffer(self._bytes, dtype=place.dtype, count=rows, offset=self._begin + place.begin)
            self._columns[number] = np.broadcast_to(values[0], place.rows) if place.constant else values
        return self._columns[number]


def content_of(path: Path) -> bytes:
    """The content of a file of columns; the columns themselves are not checked. Raises OSError, and DamagedColumnsError."""
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as written:
                return _read_header(written)[0].content
        except ValueError as error:
            raise DamagedColumnsError("empty") from error


def _read_header(written: mmap.mmap) -> tuple[_Header, int]:
    at = len(_MAGIC)
    begin = at + 2 * _NUMBER
    length, check = (int.from_bytes(written[place : place + _NUMBER], "little") for place in (at, at + _NUMBER))
    text = written[begin : begin + length]
    end = _aligned(begin + length)
    is_whole = written[:at] == _MAGIC and len(text) == length and zlib.crc32(text) == check
    if not is_whole or any(written[begin + length : end]):
        raise DamagedColumnsError("another header than was written")
    return msgspec.msgpack.decode(text, type=_Header), end


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _sum(column: AnyColumn) -> int:
    """The sum of the words of a column, the last of which is filled up with zeros."""
    values = column.reshape(-1).view(np.uint8)
    whole = values.size // 8 * 8
    total = int(values[:whole].view("<u8").sum(dtype=np.uint64))
    return total + int.from_bytes(values[whole:].tobytes(), "little")
