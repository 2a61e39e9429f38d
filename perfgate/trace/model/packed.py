"""Columns of whole numbers in as few bytes as their values take: a table of a million rows has some twenty of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from perfgate.trace.model.arithmetic import (
    CodeColumn,
    Codes,
    FloatColumn,
    Groups,
    IntColumn,
    Mask,
    Positions,
    group_rows,
)

# Stands for an unknown number.
NO_NUMBER = -(1 << 63)
# Each with the most that it holds.
_NARROW = ((np.uint8, (1 << 8) - 1), (np.uint16, (1 << 16) - 1), (np.uint32, (1 << 32) - 1))
_AT_ONCE = 1 << 16
_FEW = 64
_THOUSAND = 1000
_EXACT = 1 << 53

Rows = Mask | Positions


@dataclass(frozen=True, eq=False)
class Packed:
    """Whole numbers from ``low`` to ``high``, NO_NUMBER among them.

    ``values`` are the numbers themselves in int64; or in fewer bytes their distance from ``low`` - 1, 0 for NO_NUMBER.
    """

    values: npt.NDArray[Any]
    low: int = 0
    high: int = 0

    @staticmethod
    def of(column: npt.NDArray[Any]) -> Packed:
        low = int(column.min()) if column.size else NO_NUMBER
        if low != NO_NUMBER:
            return _packed(column, None, low, int(column.max()))
        known = column != NO_NUMBER
        if not known.any():
            return Packed(np.zeros(column.size, dtype=np.uint8), 0, -1)
        low = int(column.min(where=known, initial=np.iinfo(column.dtype).max))
        return _packed(column, known, low, int(column.max()))

    @staticmethod
    def same(number: int, rows: int) -> Packed:
        """A column of one number."""
        if number == NO_NUMBER:
            return Packed(_repeated(b"\0", rows), 0, -1)
        return Packed(_repeated(b"\1", rows), number, number)

    def __len__(self) -> int:
        return int(self.values.size)

    def unpacked(self) -> IntColumn:
        """The numbers in int64; read-only if they are stored as such."""
        return self._numbers(self.values)

    def codes(self) -> CodeColumn:
        """Positions in a list, or -1, in int32."""
        numbers = self.values.astype(np.int32)
        if self.values.dtype != np.int64:
            numbers += self.low - 1
        return numbers

    def changed(self, change: Callable[[IntColumn], IntColumn]) -> Packed:
        """The results of a function for the numbers, applied to a chunk of rows at a time."""
        parts = []
        for at in range(0, max(len(self), 1), _AT_ONCE):
            numbers = self._numbers(self.values[at : at + _AT_ONCE])
            parts.append(Packed.of(change(numbers)))
        return joined_columns(parts)

    def distinct(self) -> list[int]:
        """Every number once, in the order of the rows."""
        if len(self) <= _FEW:
            return list(dict.fromkeys(self.unpacked().tolist()))
        if self.high - self.low >= max(_AT_ONCE, len(self)):
            _, first = np.unique(self.values, return_index=True)
            return list(self._numbers(self.values[np.sort(first)]).tolist())
        numbers = {}
        seen = np.zeros(self.high - self.low + 2, dtype=bool)
        for at in range(0, len(self), _AT_ONCE):
            values = self.values[at : at + _AT_ONCE]
            if not seen[values].all():
                seen[values] = True
                _, first = np.unique(values, return_index=True)
                numbers.update(dict.fromkeys(self._numbers(values[np.sort(first)]).tolist()))
        return list(numbers)

    def ranks(self) -> Codes:
        """Whole numbers near one another, in the order of these."""
        if self.values.dtype != np.int64:
            return self.values
        return np.unique(self.values, return_inverse=True)[1].reshape(-1)

    def select(self, rows: Rows) -> Packed:
        return replace(self, values=self.values[rows])

    def write(self, room: npt.NDArray[Any], low: int) -> None:
        """Write the numbers into ``room``: as distances from another ``low``, or unchanged into int64."""
        if np.int64 in (room.dtype, self.values.dtype):
            column = self.unpacked()
            if room.dtype != np.int64:
                column = _packed(column, column != NO_NUMBER, low, self.high).values
            room[:] = column
            return
        room[:] = self.values
        if self.low > low and self.low <= self.high:
            room += self.low - low
            room[self.values == 0] = 0

    def _numbers(self, values: npt.NDArray[Any]) -> IntColumn:
        if values.dtype == np.int64:
            kept: IntColumn = values.view()
            kept.flags.writeable = False
            return kept
        numbers = values.astype(np.int64)
        numbers += self.low - 1
        numbers[values == 0] = NO_NUMBER
        return numbers


def joined_columns(parts: Sequence[Packed]) -> Packed:
    """The numbers of all parts, one behind the other."""
    if len(parts) == 1:
        return parts[0]
    known = [part for part in parts if part.low <= part.high]
    low = min((part.low for part in known), default=0)
    high = max((part.high for part in known), default=-1)
    values = np.empty(sum(map(len, parts)), dtype=_dtype(low, high))
    at = 0
    for part in parts:
        part.write(values[at : at + len(part)], low)
        at += len(part)
    return Packed(values, low, high)


class PackedReals:
    """Real numbers, NaN for none. If all have at most three decimals they are stored as thousandths, exactly."""

    def __init__(self, *parts: FloatColumn) -> None:
        self._parts = [_thousandths(part) for part in parts]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def append(self, part: FloatColumn) -> None:
        """Add more rows."""
        self._parts.append(_thousandths(part))

    def unpacked(self) -> FloatColumn:
        return np.concatenate([np.empty(0), *map(_reals, self._parts)])

    def select(self, rows: Rows) -> PackedReals:
        if len(self._parts) != 1 or not isinstance(self._parts[0], Packed):
            return PackedReals(self.unpacked()[rows])
        selected = PackedReals()
        selected._parts = [self._parts[0].select(rows)]
        return selected


def _thousandths(column: FloatColumn) -> Packed | FloatColumn:
    """The nearest number to a text of three decimals is the quotient of its thousandths, rounded once (Clinger 1990)."""
    with np.errstate(over="ignore", invalid="ignore"):
        whole = np.rint(column * _THOUSAND)
    absent = np.isnan(column)
    exact = (whole / _THOUSAND == column) & (np.abs(whole) < _EXACT)
    if not (absent | exact).all():
        return column.copy()
    whole[absent] = 0
    numbers = whole.astype(np.int64)
    numbers[absent] = NO_NUMBER
    return Packed.of(numbers)


def _reals(part: Packed | FloatColumn) -> FloatColumn:
    if not isinstance(part, Packed):
        return part
    whole = part.unpacked()
    return np.where(whole == NO_NUMBER, np.nan, whole / _THOUSAND)


_Column = TypeVar("_Column")


class Columns(Mapping[str, _Column]):
    """Columns by their names; each is unpacked anew on every access."""

    def __init__(self, packed: Mapping[str, Packed], unpack: Callable[[Packed], _Column]) -> None:
        self.packed = packed
        self._unpack = unpack

    def __getitem__(self, name: str) -> _Column:
        return self._unpack(self.packed[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.packed)

    def __len__(self) -> int:
        return len(self.packed)

    def select(self, rows: Rows) -> Columns[_Column]:
        return Columns({name: column.select(rows) for name, column in self.packed.items()}, self._unpack)


def distinct_rows(columns: Sequence[Packed]) -> Groups:
    """The rows that agree in all columns; groups are in the order of their first rows."""
    first, group = group_rows(*(column.ranks() for column in columns))
    order = np.argsort(first)
    number = np.empty(order.size, dtype=np.int32)
    number[order] = np.arange(order.size)
    return first[order], number[group]


def alike_rows(chosen: Mask, *columns: Packed) -> list[Positions]:
    """The chosen rows with equal values in some columns, together; in the order of the first of them."""
    rows = np.flatnonzero(chosen)
    if not rows.size:
        return []
    _, number = distinct_rows([column.select(rows) for column in columns])
    in_order = rows[np.argsort(number, kind="stable")]
    ends = np.cumsum(np.bincount(number))
    return np.split(in_order, ends[:-1])


def _repeated(byte: bytes, rows: int) -> npt.NDArray[np.uint8]:
    """One byte as a column; np.broadcast_to takes ten times as long, and a database lacks dozens of columns."""
    return np.ndarray((rows,), np.uint8, byte, strides=(0,))


def _dtype(low: int, high: int) -> Any:
    for dtype, most in _NARROW:
        if high - low < most:
            return dtype
    return np.int64


def _packed(column: npt.NDArray[Any], known: Mask | None, low: int, high: int) -> Packed:
    """The numbers in the narrowest bytes that hold them; ``known`` is None if all are known."""
    dtype = _dtype(low, high)
    if dtype == np.int64:
        return Packed(column.astype(np.int64), low, high)
    above = np.subtract(column, low - 1, dtype=np.int64)
    if known is not None:
        above[~known] = 0
    return Packed(above.astype(dtype), low, high)
