"""Counts of both sides: the rule by which all of them are compared. Less is always better."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from perfgate.document.comparison import Exact, Outcome
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.comparison import compared


class Range(NamedTuple):
    """The least and the most of a count in all calls, processes, starts or runs of a side; equal if it is exact."""

    least: float
    most: float

    @classmethod
    def of(cls, counts: Iterable[float]) -> Range:
        listed = list(counts)
        return cls(min(listed), max(listed))

    @property
    def width(self) -> float:
        return self.most - self.least


@dataclass(frozen=True)
class Count:
    """A count of a place on both sides.

    Growth by the share ``allowed``, or by the number ``allowed_more``, is tolerated. It improved if it fell by more than the
    share ``fewer`` and by more than that number.
    """

    place: ShapePlace
    metric: str
    base: Range
    head: Range
    allowed: float = 0.0
    allowed_more: float = 0.0
    fewer: float = 0.0

    @property
    def closest(self) -> tuple[float, float]:
        """The counts of base and head that differ least; equal if their ranges overlap."""
        if self.head.least > self.base.most:
            return self.base.most, self.head.least
        if self.head.most < self.base.least:
            return self.base.least, self.head.most
        return self.base.most, self.base.most

    @property
    def gap(self) -> float:
        base, head = self.closest
        return abs(head - base)

    @property
    def outcome(self) -> Outcome:
        base, head = self.closest
        if head > base * (1 + self.allowed) and head > base + self.allowed_more:
            return "regressed"
        if head < base * (1 - self.fewer) and head < base - self.allowed_more:
            return "improved"
        return "unchanged"

    @property
    def tolerance(self) -> float:
        """The tolerated growth as a share."""
        return max(self.allowed, self.allowed_more / max(self.base.most, 1))

    @property
    def comparison(self) -> Exact:
        """The comparison of the closest counts."""
        base, head = self.closest
        row = compared(
            Exact, self.place, self.metric, self.outcome, base=base, head=head
        )
        return replace(row, tolerance=self.tolerance)
