"""A number as the judge tests it."""

from __future__ import annotations

from typing import NamedTuple

from perfgate.document.decision import NoiseFloor
from perfgate.judging.gate.compare.rule import Errors
from perfgate.judging.gate.evidence.numbers import Number


class JudgedNumber(NamedTuple):
    """A number, the errors that ``tests`` numbers of its family share, its corrected p-value, and its noise floor.

    Without ``p_adjusted`` it is tested alone. The floor is of base against base.
    """

    number: Number
    errors: Errors
    p_adjusted: float | None
    tests: int
    floor: NoiseFloor | None

    @property
    def is_alarm(self) -> bool:
        """Whether the corrected p-value shows a worsening."""
        return self.p_adjusted is not None and self.p_adjusted <= self.errors.alarm
