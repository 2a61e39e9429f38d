"""Every operator of a shape once, with its counts, its test and its times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from msgspec.structs import replace

from perfgate.document.decision import DecisionDocument, Invalid
from perfgate.document.explanation import Explanation, OperatorDelta
from perfgate.document.run import OUTSIDE_OPERATORS
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.index import Evidence, PairedTimes
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
    explained: set[_Key] = set()
    for comparison in decision.comparisons:
        explained |= {(*comparison.place, part.name) for part in comparison.parts if part.aspect is None}
    for explanation in decision.explained.explanations:
        explained |= {(*explanation.place, part.op) for part in explanation.contributions}
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
    differences = {(test.workload, test.shape, test.op): test.seconds for test in tests}
    for explanation in explanations:
        differences |= {(*explanation.place, part.profiled): part.seconds for part in explanation.contributions}
    times: list[OperatorDelta] = []
    for place in evidence.places:
        if place not in spoiled:
            pairs = evidence.paired_times(place)
            rows = [_time(place, operator, pairs, differences) for operator in _heaviest(pairs)]
            times += sorted(rows, key=lambda row: -max(row.base or 0.0, row.head or 0.0))
    return times


def _heaviest(pairs: PairedTimes) -> list[str]:
    """The operators with most time, and the time outside them."""
    total: dict[str, float] = defaultdict(float)
    for pair in pairs:
        for side in pair:
            for operator, seconds in side.items():
                total[operator] += seconds
    outside = [OUTSIDE_OPERATORS] if OUTSIDE_OPERATORS in total else []
    operators = sorted(total.keys() - {OUTSIDE_OPERATORS}, key=lambda operator: (-total[operator], operator))
    return operators[:MAX_OPERATORS] + outside


def _time(place: ShapePlace, operator: str, pairs: PairedTimes, differences: Mapping[_Key, float]) -> OperatorDelta:
    times = np.array([(base.get(operator, 0.0), head.get(operator, 0.0)) for base, head in pairs])
    difference = differences.get((*place, operator))
    if difference is None:
        difference = estimate(times[:, 1] - times[:, 0])
    if any(operator in head for _, head in pairs):
        before = median(times[:, 0])
        after = max(0.0, before + difference)
    else:
        before, after = max(0.0, -difference), 0.0
    base, head = rounded(before), rounded(after)
    return OperatorDelta(
        workload=place.workload,
        shape=place.shape,
        op=operator,
        base=base,
        head=head,
        seconds=rounded(head - base),
    )
