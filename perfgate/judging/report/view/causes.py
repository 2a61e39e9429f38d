"""The decision's causes as lists to read: those of several places joined, and that of a comparison."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perfgate.document.decision import Comparison
from perfgate.document.explanation import Cause
from perfgate.judging.report.view.summary import Summary, place


@dataclass(frozen=True)
class PlacedCause:
    """A cause and the places where it does the same."""

    cause: Cause
    places: tuple[str, ...]


def across_places(causes: Iterable[Cause]) -> list[PlacedCause]:
    """The causes with those joined that change the same count by the same line in several places.

    What an operator's own test found slower is left out: it stands among the operators that were tested.
    """
    joined: dict[tuple[object, ...], PlacedCause] = {}
    for cause in (cause for cause in causes if not cause.tested):
        key = (cause.op, cause.aspect, cause.amount, cause.base_count, cause.head_count, cause.line, cause.ranks)
        first = joined.get(key, PlacedCause(cause, ()))
        # Sorted by time, the first one has the largest.
        joined[key] = PlacedCause(first.cause, tuple(dict.fromkeys((*first.places, place(*cause.place)))))
    return list(joined.values())


def cause_of(comparison: Comparison, summary: Summary) -> Cause | None:
    return None if comparison.cause is None else summary.decision.causes[comparison.cause]
