"""Every operator of a shape once, with its counts, its test and its times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from perfgate.document.decision import DecisionDocument, Invalid
from perfgate.document.explanation import Explanation, OperatorDelta
from perfgate.document.run import OUTSIDE_OPERATORS
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.paired_times import PairedTimes
from perfgate.judging.gate.evidence.values import rounded
from perfgate.stats.signed_rank import estimate
from perfgate.stats.summary import median

# The most operators of a shape listed with their times.
MAX_OPERATORS = 100
# An operator of a shape of a workload.
_Key = tuple[str, str, str]


def joined(
    changes: Iterable[OperatorDelta], tests: Iterable[OperatorDelta], times: Iterable[OperatorDelta]
) -> list[OperatorDelta]:
    """Each operator of a shape once, in the order of the lists: its counts, its test, and its times."""
    rows: dict[_Key, OperatorDelta] = {}
    for delta in (*changes, *tests, *times):
        key = delta.workload, delta.shape, delta.op
        first = rows.get(key)
        if first is None:
            rows[key] = delta
        elif delta.outcome != "untested":
            rows[key] = replace(delta, base_count=first.base_count, head_count=first.head_count)
        else:
            rows[key] = replace(first, base=delta.base, head=delta.head, seconds=delta.seconds)
    return list(rows.values())


def mark_alone(decision: DecisionDocument) -> list[OperatorDelta]:
    """The decision's operators; one that runs more often, or that a count or an explanation names, is left to the causes."""
    explained = set()
    for comparison in decision.comparisons:
        for part in comparison.parts:
            if part.aspect is None:
                explained.add((*comparison.place, part.name))
    for explanation in decision.explained.explanations:
        for contribution in explanation.contributions:
            explained.add((*explanation.place, contribution.op))
    marked = []
    for delta in decision.explained.operators:
        is_explained = delta.base_count is not None or (*delta.place, delta.op) in explained
        marked.append(replace(delta, alone=delta.outcome == "regressed" and not is_explained))
    return marked


def operator_times(
    evidence: Evidence,
    tests: Iterable[OperatorDelta],
    explanations: Iterable[Explanation],
    *,
    invalid: Iterable[Invalid] = (),
) -> list[OperatorDelta]:
    """The time of every profiled operator on both sides, most time first, shape by shape.

    The difference comes from the explanation, which excludes the profiler's own time, else from the test, else from the paired
    estimate.
    """
    spoiled = {entry.place for entry in invalid}
    differences = {}
    for test in tests:
        differences[test.workload, test.shape, test.op] = test.seconds
    for explanation in explanations:
        for part in explanation.contributions:
            differences[(*explanation.place, part.profiled)] = part.seconds
    times: list[OperatorDelta] = []
    for place in evidence.places:
        if place in spoiled:
            continue
        pairs = evidence.paired_times(place)
        rows = []
        for operator in _heaviest(pairs):
            rows.append(_time(place, operator, pairs, differences))
        times += sorted(rows, key=lambda row: -max(row.base or 0.0, row.head or 0.0))
    return times


def _heaviest(pairs: PairedTimes) -> list[str]:
    """The operators with most time, and the time outside them."""
    total = {name: float(pairs.of(name).sum()) for name in pairs.names}
    has_outside = total.pop(OUTSIDE_OPERATORS, None) is not None
    operators = sorted(total, key=lambda operator: (-total[operator], operator))[:MAX_OPERATORS]
    if has_outside:
        operators.append(OUTSIDE_OPERATORS)
    return operators


def _time(place: ShapePlace, operator: str, pairs: PairedTimes, differences: Mapping[_Key, float]) -> OperatorDelta:
    of_base, of_head = pairs.of(operator).T
    difference = differences.get((*place, operator))
    if difference is None:
        difference = estimate(of_head - of_base)
    if any(operator in times for times in pairs.head):
        before = median(of_base)
        after = max(0.0, before + difference)
    else:
        before = max(0.0, -difference)
        after = 0.0
    base = rounded(before)
    head = rounded(after)
    return OperatorDelta(
        workload=place.workload,
        shape=place.shape,
        op=operator,
        base=base,
        head=head,
        seconds=rounded(head - base),
    )
