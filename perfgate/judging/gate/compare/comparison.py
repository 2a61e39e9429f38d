"""Comparisons of a decision: counts, numbers that inform, checks of the output, and accepted regressions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from perfgate.catalogue.lookup import metric
from perfgate.document.comparison import Checked, Comparison, Exact, Outcome, Paired
from perfgate.document.explanation import Part
from perfgate.document.history import Acceptance
from perfgate.document.message import Message
from perfgate.document.run import Source
from perfgate.judging.gate.evidence.numbers import Levels, Number
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.tolerance import key_matches
from perfgate.judging.gate.evidence.values import relative_change, rounded


def exact(
    place: ShapePlace,
    name: str,
    outcome: Outcome,
    *,
    gating: bool,
    base: float | None = None,
    head: float | None = None,
    allowed: float | None = None,
    reason: Message | None = None,
    parts: Sequence[Part] = (),
) -> Exact:
    """The comparison of a count, of which a growth by the share ``allowed`` is tolerated."""
    entry = metric(name)
    return Exact(
        workload=place.workload,
        shape=place.shape,
        metric=name,
        unit=entry.unit,
        better=entry.better,
        outcome=outcome,
        gating=gating,
        base=base,
        head=head,
        delta=relative_change(base, head),
        tolerance=allowed,
        reason=reason,
        parts=list(parts),
    )


def paired(place: ShapePlace, name: str) -> Paired:
    """An undecided number of both sides, with unit and direction of its catalogue entry."""
    entry = metric(name)
    return Paired(
        workload=place.workload,
        shape=place.shape,
        metric=name,
        unit=entry.unit,
        better=entry.better,
        outcome="inconclusive",
        gating=True,
    )


def informing(number: Number, levels: Levels) -> Paired:
    """A number of a job on both sides that no test compares."""
    return msgspec.structs.replace(
        paired(number.place, number.metric),
        evidence="quad",
        outcome="informs",
        gating=False,
        base=rounded(levels.base),
        head=rounded(levels.head),
    )


def differing_output(place: ShapePlace, name: str, reason: Message) -> Checked:
    """A check that fails because head's output, or work, differs from base's."""
    entry = metric(name)
    return Checked(
        workload=place.workload,
        shape=place.shape,
        metric=name,
        unit=entry.unit,
        better=entry.better,
        outcome="regressed",
        gating=True,
        base=1.0,
        head=0.0,
        reason=reason,
    )


def with_accepted(
    comparisons: Iterable[Comparison], head: Source, acceptances: Sequence[Acceptance]
) -> list[Comparison]:
    """The comparisons, with those accepted for this very commit no longer gating.

    A wrong output cannot be an intended regression, and an acceptance does not cover uncommitted changes.
    """
    of_commit = [] if head.dirty else [acceptance for acceptance in acceptances if acceptance.commit == head.commit]
    return [_accepted(comparison, of_commit) for comparison in comparisons]


def _accepted(comparison: Comparison, acceptances: Iterable[Acceptance]) -> Comparison:
    is_costless = isinstance(comparison, Exact) and comparison.costless
    judged = comparison.gating or is_costless
    if not judged or comparison.outcome != "regressed" or isinstance(comparison, Checked):
        return comparison
    for acceptance in acceptances:
        if not key_matches(acceptance.metric, comparison.metric, comparison.workload, comparison.shape):
            continue
        accepted = f"{acceptance.accepted_by}: {acceptance.reason}"
        if isinstance(comparison, Exact):
            return msgspec.structs.replace(comparison, gating=False, costless=False, accepted=accepted)
        return msgspec.structs.replace(comparison, gating=False, accepted=accepted)
    return comparison
