"""Comparisons of a decision: counts, numbers that inform, checks of the output, and accepted regressions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import LATENCY
from perfgate.document.comparison import (
    Checked,
    Comparison,
    Exact,
    Outcome,
    Paired,
    Recorded,
)
from perfgate.document.decision import (
    HarnessChange,
    NoiseFloor,
    SideSummary,
    UnfitHarness,
)
from perfgate.document.history import Acceptance
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.rule import Errors
from perfgate.judging.gate.evidence.numbers import Levels, Number
from perfgate.judging.gate.evidence.tolerance import key_matches
from perfgate.judging.gate.evidence.values import relative_change, rounded


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


_Number = TypeVar("_Number", Exact, Paired, Recorded)


def compared(
    kind: type[_Number],
    place: ShapePlace,
    name: str,
    outcome: Outcome = "inconclusive",
    *,
    base: float | None = None,
    head: float | None = None,
    reason: Message | None = None,
) -> _Number:
    """A number of both sides that gates, with the unit and direction of its catalogue entry."""
    entry = metric(name)
    return kind(
        workload=place.workload,
        shape=place.shape,
        metric=name,
        unit=entry.unit,
        better=entry.better,
        outcome=outcome,
        gating=True,
        base=base,
        head=head,
        delta=relative_change(base, head),
        reason=reason,
    )


def checked(
    place: ShapePlace,
    name: str,
    outcome: Outcome,
    *,
    base: float | None,
    head: float,
    reason: Message | None = None,
) -> Checked:
    """A check of the output, or a count that only such a check can excuse; it gates."""
    entry = metric(name)
    return Checked(
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
    return checked(place, name, "regressed", base=1.0, head=0.0, reason=reason)


def not_compared(
    places: Iterable[ShapePlace], changes: Iterable[HarnessChange]
) -> list[Comparison]:
    """A comparison for every shape that has none because the base does not run under the head's file."""
    reasons = {
        change.workload: change.message
        for change in changes
        if isinstance(change, UnfitHarness)
    }
    comparisons: list[Comparison] = []
    for place in places:
        reason = reasons.get(place.workload)
        if reason is not None:
            row = compared(Paired, place, LATENCY, "not_comparable", reason=reason)
            comparisons.append(replace(row, gating=False))
    return comparisons


def with_accepted(
    comparisons: Iterable[Comparison],
    head: SideSummary,
    acceptances: Iterable[Acceptance],
) -> list[Comparison]:
    """The comparisons, with those accepted for this very commit no longer gating.

    A wrong output cannot be an intended regression, and an acceptance does not cover uncommitted changes.
    """
    of_commit: list[Acceptance] = []
    if not head.dirty:
        of_commit += [
            acceptance for acceptance in acceptances if acceptance.commit == head.commit
        ]
    return [_accepted(comparison, of_commit) for comparison in comparisons]


def _accepted(comparison: Comparison, acceptances: Iterable[Acceptance]) -> Comparison:
    if comparison.outcome != "regressed" or isinstance(comparison, Checked):
        return comparison
    if not comparison.gating and not (
        isinstance(comparison, Exact) and comparison.costless
    ):
        return comparison
    for acceptance in acceptances:
        if key_matches(acceptance.metric, comparison.metric, comparison.place):
            accepted = f"{acceptance.accepted_by}: {acceptance.reason}"
            if isinstance(comparison, Exact):
                return replace(
                    comparison, gating=False, costless=False, accepted=accepted
                )
            return replace(comparison, gating=False, accepted=accepted)
    return comparison
