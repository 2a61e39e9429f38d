"""Numbers for distinct values: the texts behind the columns of a table."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import count
from typing import TypeVar

import numpy as np

from perfgate.trace.model.arithmetic import CodeColumn

NO_VALUE = -1
_Value = TypeVar("_Value", bound=Hashable)


class Numbering(dict[_Value, int]):
    """Distinct values with their numbers; looking up a new value gives it the next
    number.
    """

    def __init__(self, values: Iterable[_Value] = ()) -> None:
        super().__init__(zip(values, count()))

    def __missing__(self, value: _Value) -> int:
        number = len(self)
        self[value] = number
        return number

    def code(self, value: _Value | None) -> int:
        """The number of a value, NO_VALUE for None."""
        return NO_VALUE if value is None else self[value]

    def codes(self, values: Iterable[_Value | None]) -> CodeColumn:
        return np.array([self.code(value) for value in values], dtype=np.int32)
