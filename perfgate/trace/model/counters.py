"""The hardware counters of kernels: columns that are read on demand, since they are
most of a table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from perfgate.trace.model.arithmetic import FloatColumn, Rows
from perfgate.trace.model.numbering import Numbering


class CounterSource(Protocol):
    """The source of the counters of a table of kernels."""

    @property
    def names(self) -> Sequence[str]:
        """As the file words them, in its order."""

    def read(self, names: Sequence[str]) -> list[FloatColumn]:
        """The columns of some of the names, NaN for kernels without a number.

        Raises DocumentError.
        """


class CounterColumns:
    """The counters of all kernels of a source, or of its ``rows``."""

    def __init__(
        self, source: CounterSource | None = None, rows: npt.NDArray[Any] | None = None
    ) -> None:
        self._source = source
        self._rows = rows

    @property
    def names(self) -> Sequence[str]:
        return () if self._source is None else self._source.names

    def columns(self, *names: str) -> dict[str, FloatColumn]:
        """The given counters, if they exist, NaN for kernels without a number.

        Raises DocumentError.
        """
        present = [name for name in names if name in self.names]
        if self._source is None or not present:
            return {}
        columns = dict(zip(present, self._source.read(present)))
        if self._rows is None:
            return columns
        return {name: column[self._rows] for name, column in columns.items()}

    def of(self, row: int) -> Counters:
        """The counters of one kernel; the first lookup reads the counters of all
        kernels.
        """
        return Counters(self, row)

    def select(self, rows: Rows) -> CounterColumns:
        if self._source is None:
            return self
        chosen = np.flatnonzero(rows) if rows.dtype == bool else rows
        if self._rows is None:
            return CounterColumns(self._source, chosen.astype(np.int32))
        return CounterColumns(self._source, self._rows[chosen])

    def kept(self) -> CounterColumns:
        """The same, read now: for a file that will be removed."""
        return CounterColumns(KeptCounters(self.columns(*self.names)))

    @cached_property
    def every(self) -> tuple[dict[str, int], FloatColumn]:
        """The position of each counter in a row, and all rows."""
        columns = self.columns(*self.names)
        if not columns:
            return {}, np.empty((0, 0))
        return dict(Numbering(columns)), np.stack(list(columns.values()), axis=1)


class KeptCounters:
    """Counters in memory."""

    def __init__(self, columns: Mapping[str, FloatColumn]) -> None:
        self._columns = columns
        self.names = tuple(columns)

    def read(self, names: Sequence[str]) -> list[FloatColumn]:
        return [self._columns[name] for name in names]


class Counters(Mapping[str, float]):
    """A kernel's hardware counters by column name; columns without a number are absent."""

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: CounterColumns, row: int) -> None:
        self._columns = columns
        self._row = row

    def __getitem__(self, name: str) -> float:
        positions, values = self._columns.every
        value = float(values[self._row, positions[name]])
        if math.isnan(value):
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        positions, values = self._columns.every
        return (
            name
            for name, position in positions.items()
            if not math.isnan(values[self._row, position])
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))
