"""A kernel's hardware counters in eight bytes each: the columns of a table are kept once, the numbers row by row."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping


class Counters(Mapping[str, float]):
    """Numbers by the name of their column; a column without a number is not there."""

    __slots__ = ("_names", "_values")

    def __init__(self, names: Mapping[str, int], values: array[float]) -> None:
        """Take the position of every name, and the numbers, NaN where there is none."""
        self._names, self._values = names, values

    def __getitem__(self, name: str) -> float:
        value = self._values[self._names[name]]
        if math.isnan(value):
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name, index in self._names.items() if not math.isnan(self._values[index]))

    def __len__(self) -> int:
        return sum(not math.isnan(value) for value in self._values)

    def __repr__(self) -> str:
        return repr(dict(self))
