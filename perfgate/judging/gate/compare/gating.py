"""The comparisons that gate: without those that are not evidence, that are harmless, or
that a person accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import LATENCY, LOW_PRECISION_OPS
from perfgate.document.comparison import Bound, Checked, Comparison, Exact, Paired
from perfgate.document.decision import ComparedSides, Policy, SideSummary, UnfitHarness
from perfgate.document.history import Acceptance
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.comparison import compared
from perfgate.judging.gate.evidence.tolerance import configured_tolerance, key_matches


def without_invalid(
    comparisons: Iterable[Comparison], reasons: Mapping[ShapePlace, Message]
) -> list[Comparison]:
    """The comparisons, set aside if there is a reason why the times of their place are
    invalid.
    """
    valid = list(comparisons)
    for index, comparison in enumerate(valid):
        reason = reasons.get(comparison.place)
        if reason is not None:
            valid[index] = _set_aside(comparison, reason)
    return valid


def of_comparable_sides(
    comparisons: Iterable[Comparison],
    sides: ComparedSides,
    places: Iterable[ShapePlace],
) -> list[Comparison]:
    """The comparisons that both sides permit.

    On different testbeds only the head's own rules hold. A shape has no comparison if
    the base does not run under the head's file.
    """
    comparable = list(comparisons)
    if not sides.are_comparable:
        reason = Message("gate.testbeds-differ")
        for index, comparison in enumerate(comparable):
            if not isinstance(comparison, (Bound, Checked)):
                comparable[index] = _set_aside(comparison, reason)
    reasons = {
        change.workload: change.message
        for change in sides.harness_changes
        if isinstance(change, UnfitHarness)
    }
    for place in places:
        if place.workload in reasons:
            comparison = compared(Paired, place, LATENCY)
            comparable.append(_set_aside(comparison, reasons[place.workload]))
    return comparable


def _set_aside(comparison: Comparison, reason: Message) -> Comparison:
    """The comparison without its evidence."""
    return replace(comparison, outcome="not_comparable", gating=False, reason=reason)


# --- counts that grew although calls are shown not to be slower: they warn, unless the
# count is a fault by itself


def fails_alone(comparison: Comparison, policy: Policy) -> bool:
    """Whether a regression fails the gate regardless of all other results: no time can
    excuse it.
    """
    return (
        not isinstance(comparison, Exact)
        or policy.strict
        or comparison.metric not in METRICS
        or METRICS[comparison.metric].gate.fails_alone
        or configured_tolerance(policy, comparison.metric, comparison.place) is not None
    )


def with_costless(
    comparisons: Iterable[Comparison], policy: Policy
) -> list[Comparison]:
    """The comparisons; counts no longer gate if every time that must decide is shown
    not to be worse.

    Full precision instead of low may be the reason that calls are faster: it gates
    unless one of these times is shown to be better.
    """
    excused = list(comparisons)
    faster = set()
    not_slower = set()
    undecided = set()
    for time in excused:
        if not isinstance(time, Paired) or time.evidence == "turn":
            continue
        if time.must_decide and time.outcome in ("unchanged", "improved"):
            not_slower.add(time.place)
            if time.outcome == "improved":
                faster.add(time.place)
        elif time.must_decide:
            undecided.add(time.place)
    for index, row in enumerate(excused):
        if not row.gating or row.outcome != "regressed":
            continue
        if row.metric == LOW_PRECISION_OPS and row.place in faster:
            excused[index] = replace(row, gating=False)
        elif (
            isinstance(row, Exact)
            and row.place in not_slower - undecided
            and not fails_alone(row, policy)
        ):
            excused[index] = replace(row, gating=False, costless=True)
    return excused


# --- accepted regressions


def with_accepted(
    comparisons: Iterable[Comparison],
    head: SideSummary,
    acceptances: Iterable[Acceptance],
) -> list[Comparison]:
    """The comparisons, with those accepted for this very commit no longer gating.

    A wrong output cannot be an intended regression, and an acceptance does not cover
    uncommitted changes.
    """
    of_commit = []
    for acceptance in acceptances:
        if acceptance.commit == head.commit and not head.dirty:
            of_commit.append(acceptance)
    return [_accepted(comparison, of_commit) for comparison in comparisons]


def _accepted(comparison: Comparison, acceptances: Iterable[Acceptance]) -> Comparison:
    is_costless = isinstance(comparison, Exact) and comparison.costless
    if comparison.outcome != "regressed" or not (comparison.gating or is_costless):
        return comparison
    if isinstance(comparison, Checked):
        return comparison
    for acceptance in acceptances:
        if key_matches(acceptance.metric, comparison.metric, comparison.place):
            by = f"{acceptance.accepted_by}: {acceptance.reason}"
            accepted = replace(comparison, gating=False, accepted=by)
            if isinstance(accepted, Exact):
                return replace(accepted, costless=False)
            return accepted
    return comparison
