"""Comparisons of a decision, made of counts, numbers that inform, and checks of the
output.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from perfgate.catalogue.lookup import metric
from perfgate.document.comparison import (
    Checked,
    Exact,
    NumberComparison,
    Outcome,
    Paired,
    Recorded,
)
from perfgate.document.decision import NoiseFloor
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.rule import Errors
from perfgate.judging.gate.evidence.numbers import Levels, Number
from perfgate.judging.gate.evidence.values import relative_change, rounded

_OfBothSides = TypeVar("_OfBothSides", Checked, Exact, Paired, Recorded)


def compared(
    kind: type[_OfBothSides],
    place: ShapePlace,
    name: str,
    outcome: Outcome = "inconclusive",
    *,
    base: float | None = None,
    head: float | None = None,
    reason: Message | None = None,
) -> _OfBothSides:
    """A comparison of both sides that gates, with the unit and direction of its
    catalogue entry.
    """
    entry = metric(name)
    row = kind(
        workload=place.workload,
        shape=place.shape,
        metric=name,
        unit=entry.unit,
        better=entry.better,
        outcome=outcome,
        gating=True,
        base=base,
        head=head,
        reason=reason,
    )
    if isinstance(row, NumberComparison):
        return replace(row, delta=relative_change(base, head))
    return row


def paired(
    number: Number,
    *,
    base: float | None = None,
    head: float | None = None,
    reason: Message | None = None,
) -> Paired:
    """A number of both sides on its own terms."""
    return replace(
        compared(
            Paired, number.place, number.metric, base=base, head=head, reason=reason
        ),
        gating=number.gating,
        tolerance=number.terms.tolerance,
        unit=number.unit,
        better=number.better,
    )


def informing(number: Number, levels: Levels) -> Paired:
    """A number of a job on both sides that no test compares."""
    row = compared(Paired, number.place, number.metric, "informs")
    base = rounded(levels.base)
    head = rounded(levels.head)
    return replace(row, gating=False, evidence="quad", base=base, head=head)


def differing_output(place: ShapePlace, name: str, reason: Message) -> Checked:
    """A check that fails because head's output, or work, differs from base's."""
    return compared(
        Checked, place, name, "regressed", base=1.0, head=0.0, reason=reason
    )


class JudgedNumber(NamedTuple):
    """A number, the errors that ``tests`` numbers of its family share, its corrected
    p-value, and its noise floor.

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


# --- counts: the rule by which all of them are compared. Less is always better.


class Range(NamedTuple):
    """The least and the most of a count in all calls, processes, starts or runs of a
    side; equal if it is exact.
    """

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

    Growth by the share ``allowed``, or by the number ``allowed_more``, is tolerated. It
    improved if it fell by more than the share ``fewer`` and by more than that number.
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
        """The difference between the closest counts."""
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
    def comparison(self) -> Exact:
        """The comparison of the closest counts, with the tolerated growth as a share."""
        base, head = self.closest
        tolerance = max(self.allowed, self.allowed_more / max(self.base.most, 1))
        row = compared(
            Exact, self.place, self.metric, self.outcome, base=base, head=head
        )
        return replace(row, tolerance=tolerance)
