"""Operators, modules and functions, tested one by one over the pairs: their losses show even if the call hardly moves.

FBDetect (SOSP 2024) watches subroutines for the same reason: 0.05 % of a whole is 5 % of one of its parts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import OPERATOR_TIME, PYTHON_TIMES
from perfgate.document.budget import judges_subroutines
from perfgate.document.comparison import Outcome, Paired
from perfgate.document.decision import DecisionDocument, Invalid, Policy
from perfgate.document.explanation import Explanation, OperatorDelta, Part
from perfgate.document.run import OUTSIDE_OPERATORS, Side
from perfgate.judging.gate.compare.rule import SHAPE, alarm_looks
from perfgate.judging.gate.evidence.index import Evidence, Kind, PairedTimes
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.tolerance import configured_tolerance
from perfgate.judging.gate.evidence.values import rounded
from perfgate.stats.error_control import false_discovery, nominal_level
from perfgate.stats.signed_rank import estimate, lower_bound, p_above, p_below, upper_bound
from perfgate.stats.summary import median

replace = msgspec.structs.replace
FALSE_DISCOVERIES = 0.05  # share of the named operators that may be named wrongly
SMALLEST_CHANGE = 0.02  # the profiler and the memory layout change an operator by less than this
EXCLUDED_CHANGE = 0.05  # an operator is unchanged if both a loss and a gain of this size are excluded
# Of the operators' time in a call. Each tested operator makes the others harder to name: eight pairs, which give no p-value
# below 1/256, can name one of twelve. A slowdown by a tenth of an operator below this share is 0.05 % of the call.
MIN_SHARE = 0.005
MIN_PAIRS = 6  # the fewest that give a two-sided interval at 95 %
MAX_OPERATORS = 100  # the most operators of a shape listed with their times
CONFIDENCE = 0.95
LARGEST = 20.0  # log ratio; a document from outside may hold any numbers
_SIDES: tuple[Side, Side] = ("base", "head")

Floats = npt.NDArray[np.float64]


class _Cell(NamedTuple):
    """One operator, module or function of a shape: the log ratios of its pairs, its median seconds and share in the base.

    ``metric`` is the name of its time in a tolerance.
    """

    place: ShapePlace
    op: str
    metric: str
    differences: Floats
    base: float
    share: float


# --- tests


def compare_operators(evidence: Evidence, *, invalid: Iterable[Invalid] = ()) -> list[OperatorDelta]:
    """Test every operator that both sides run equally often in enough pairs; those that lost most seconds come first.

    Shapes with ``invalid`` times are left out. An operator that one side runs more often is left to the exact counters,
    and its cost to the explanation. An operator is named if its change is above ``SMALLEST_CHANGE`` and its
    false-discovery-adjusted p-value, over all operators of all shapes, at most ``FALSE_DISCOVERIES``: the false-discovery rate
    is at most that among those named slower, and among those named faster.
    """
    tests = list(_tests(list(_cells(evidence, invalid, "operators")), evidence))
    return sorted(tests, key=lambda test: (-test.seconds, test.workload, test.shape, test.op))


def judge_subroutines(
    evidence: Evidence, policy: Policy, alpha: float, *, invalid: Iterable[Invalid] = ()
) -> list[Paired]:
    """Judge the operators, modules and functions that ``[gate.tolerance]`` names by their paired times, whatever the call does.

    One regressed if its change is estimated beyond its tolerance and shown beyond chance: the false-discovery rate of a
    workload is at most ``alpha`` over all looks.
    """
    if not judges_subroutines(policy.tolerances):  # asked at every look of every gate
        return []
    cells = [*_cells(evidence, invalid, "operators"), *_cells(evidence, invalid, "subroutines")]
    tolerances = [configured_tolerance(policy, cell.metric, *cell.place) for cell in cells]
    judged = [(cell, allowed) for cell, allowed in zip(cells, tolerances) if allowed is not None]
    comparisons: list[Paired] = []
    for workload in dict.fromkeys(cell.place.workload for cell, _ in judged):
        of_workload = [(cell, allowed) for cell, allowed in judged if cell.place.workload == workload]
        tests = _tests([cell for cell, _ in of_workload], evidence)
        comparisons += [_judge(cell, allowed, test, policy, alpha) for (cell, allowed), test in zip(of_workload, tests)]
    return comparisons


def _cells(evidence: Evidence, invalid: Iterable[Invalid], kind: Kind) -> Iterator[_Cell]:
    """Yield the parts that enough pairs timed on both sides, large enough in the call, of shapes with valid times.

    Operators that one side runs more often are left out.
    """
    spoiled = {entry.place for entry in invalid}
    changed = evidence.changed_counts if kind == "operators" else set()
    for place in evidence.places:
        pairs = [] if place in spoiled else evidence.paired_times(place, kind)
        if not pairs:
            continue
        operators = [sum(first.values()) - first.get(OUTSIDE_OPERATORS, 0.0) for first, _ in pairs]
        # Any part of a call runs within its longest subroutine.
        longest = [max(first.values(), default=0.0) for first, _ in pairs]
        call_seconds = median(operators if kind == "operators" else longest)
        for name in sorted(_names([first for first, _ in pairs]) - {OUTSIDE_OPERATORS}):
            timed = [pair for pair in pairs if min(pair[0].get(name, 0.0), pair[1].get(name, 0.0)) > 0]
            times = np.array([(first[name], second[name]) for first, second in timed])
            if len(times) < MIN_PAIRS or (place, name) in changed:
                continue
            typical = median(times[:, 0])
            if typical >= MIN_SHARE * call_seconds:
                ratios = (np.log(times[:, 1]) - np.log(times[:, 0])).clip(-LARGEST, LARGEST)
                full_name = OPERATOR_TIME + name if kind == "operators" else name
                part = full_name.partition(".")[2]
                yield _Cell(place, part, full_name, ratios, typical, typical / call_seconds)


def _names(times: Iterable[Mapping[str, float]]) -> set[str]:
    names: set[str] = set()
    for by_name in times:
        names |= by_name.keys()
    return names


def _tests(cells: Sequence[_Cell], evidence: Evidence) -> Iterator[OperatorDelta]:
    """Yield the test of each cell: one-sided in the direction of its effect, and adjusted for all cells."""
    slower = [p_above(cell.differences, 0.0) for cell in cells]
    faster = [p_below(cell.differences, 0.0) for cell in cells]
    adjusted = false_discovery(slower), false_discovery(faster)
    for cell, p_slower, p_faster, q_slower, q_faster in zip(cells, slower, faster, *adjusted):
        is_slower = estimate(cell.differences) > 0
        yield _test(cell, p_slower if is_slower else p_faster, q_slower if is_slower else q_faster, evidence)


def _test(cell: _Cell, p: float, q: float, evidence: Evidence) -> OperatorDelta:
    effect = estimate(cell.differences)
    tail = (1 - CONFIDENCE) / 2
    low, high = lower_bound(cell.differences, tail), upper_bound(cell.differences, tail)
    smallest, excluded = math.log1p(SMALLEST_CHANGE), math.log1p(EXCLUDED_CHANGE)
    base, head = rounded(cell.base), rounded(cell.base * math.exp(effect))
    outcome: Literal["regressed", "improved", "unchanged", "inconclusive"] = "inconclusive"
    if q <= FALSE_DISCOVERIES and abs(effect) > smallest:
        outcome = "regressed" if effect > 0 else "improved"
    elif -excluded < low and high < excluded:
        outcome = "unchanged"
    return OperatorDelta(
        workload=cell.place.workload,
        shape=cell.place.shape,
        op=cell.op,
        base=base,
        head=head,
        seconds=head - base,
        share=rounded(cell.share),
        delta=rounded(math.expm1(effect)),
        interval=(rounded(math.expm1(low)), rounded(math.expm1(high))),
        confidence=CONFIDENCE,
        p=rounded(p),
        q=rounded(q),
        outcome=outcome,
        pairs=int(cell.differences.size),
        line=evidence.head.operator_lines(cell.place).get(cell.op),
    )


def _judge(cell: _Cell, allowed: float, test: OperatorDelta, policy: Policy, alpha: float) -> Paired:
    assert test.pairs is not None
    assert test.delta is not None
    assert test.q is not None
    level = nominal_level(alpha, alarm_looks(policy.looks), test.pairs, shape=SHAPE)
    outcome: Outcome = "inconclusive"
    if test.q <= level and abs(test.delta) > allowed:
        outcome = "regressed" if test.delta > 0 else "improved"
    elif test.interval is not None and test.interval[1] < max(allowed, EXCLUDED_CHANGE):
        outcome = "unchanged"
    entry = metric(cell.metric)
    return Paired(
        workload=test.workload,
        shape=test.shape,
        metric=entry.name,
        unit=entry.unit,
        better=entry.better,
        outcome=outcome,
        gating=True,
        base=test.base,
        head=test.head,
        delta=test.delta,
        interval=test.interval,
        confidence=test.confidence,
        p=test.p,
        p_adjusted=test.q,
        tolerance=allowed,
        pairs=test.pairs,
        parts=[Part(name=cell.op, base=test.base or 0.0, head=test.head or 0.0, line=test.line)]
        if outcome == "regressed"
        else [],
    )


# --- missing times


def untimed_subroutines(evidence: Evidence, policy: Policy, place: ShapePlace) -> list[tuple[str, Side]]:
    """The times that ``[gate.tolerance]`` names and one side lacks in a pair although the other has them, by metric.

    If a side timed none in a pair at all, "operators" or "subroutines" stands for them. Different counts of calls are not a
    missing time, and a module or function that one side never ran was added or removed by the change.
    """
    untimed: set[tuple[str, Side]] = set()
    if judges_subroutines(policy.tolerances, (OPERATOR_TIME,)):
        for op, side in _absent(evidence, place, "operators"):
            if (place, op) not in evidence.changed_counts:
                untimed.add((OPERATOR_TIME + op if op else "operators", side))
    if judges_subroutines(policy.tolerances, PYTHON_TIMES):
        untimed |= {(name or "subroutines", side) for name, side in _absent(evidence, place, "subroutines")}
    return sorted(
        (name, side)
        for name, side in untimed
        if "." not in name or configured_tolerance(policy, name, *place) is not None
    )


def _absent(evidence: Evidence, place: ShapePlace, kind: Kind) -> set[tuple[str, Side]]:
    """The names that one side did not time in a pair and the other did; an empty name if a side timed nothing in a pair."""
    times = evidence.profiled(place, kind)
    names = [_names(side.values()) for side in times]
    absent: set[tuple[str, Side]] = set()
    for replicate in evidence.head.run.replicates:
        if (replicate.workload, replicate.arm) != (place.workload, "ab"):
            continue
        for index, side in enumerate(_SIDES):
            of_side, of_opposite = times[index].get(replicate.pair), times[1 - index].get(replicate.pair, {})
            if of_side is None or (names[1 - index] and not names[index]):
                absent.add(("", side))
                continue
            lacking = of_opposite.keys() - of_side.keys() - {OUTSIDE_OPERATORS}
            if kind == "subroutines":
                lacking &= names[index]
            absent |= {(name, side) for name in lacking}
    return absent


# --- all operators


def joined(
    changes: Iterable[OperatorDelta], tests: Iterable[OperatorDelta], times: Iterable[OperatorDelta]
) -> list[OperatorDelta]:
    """Each operator of a shape once, in the order of the lists: its counts, its test, and its times."""
    known: dict[tuple[str, str, str], OperatorDelta] = {}
    for delta in (*changes, *tests, *times):
        key = delta.workload, delta.shape, delta.op
        first = known.setdefault(key, delta)
        if first is not delta and delta.outcome != "untested":
            known[key] = replace(delta, base_count=first.base_count, head_count=first.head_count)
        elif first is not delta:
            known[key] = replace(first, base=delta.base, head=delta.head, seconds=delta.seconds)
    return list(known.values())


def mark_alone(decision: DecisionDocument) -> list[OperatorDelta]:
    """The decision's operators; one that runs more often, or that a count or an explanation names, is left to the causes."""
    named: set[tuple[str, str, str]] = set()
    for comparison in decision.comparisons:
        named |= {(*comparison.place, part.name) for part in comparison.parts if part.aspect is None}
    for explanation in decision.explanations:
        named |= {(*explanation.place, part.op) for part in explanation.contributions}
    marked = []
    for delta in decision.operators:
        is_named = delta.base_count is not None or (*delta.place, delta.op) in named
        marked.append(replace(delta, alone=delta.outcome == "regressed" and not is_named))
    return marked


def operator_times(
    evidence: Evidence,
    tests: Iterable[OperatorDelta],
    explanations: Iterable[Explanation],
    *,
    invalid: Iterable[Invalid] = (),
) -> list[OperatorDelta]:
    """The time of every profiled operator on both sides, most time first, shape by shape.

    The difference is that of its explanation, which excludes the profiler's own time, else that of its test, else the paired
    estimate.
    """
    spoiled = {entry.place for entry in invalid}
    differences = {(test.workload, test.shape, test.op): test.seconds for test in tests}
    for explanation in explanations:
        differences |= {(*explanation.place, part.profiled): part.seconds for part in explanation.contributions}
    times: list[OperatorDelta] = []
    for place in evidence.places:
        pairs = [] if place in spoiled else evidence.paired_times(place)
        rows = [_time(place, op, pairs, differences) for op in _heaviest(pairs)]
        times += sorted(rows, key=lambda row: -max(row.base or 0.0, row.head or 0.0))
    return times


def _heaviest(pairs: PairedTimes) -> list[str]:
    total: dict[str, float] = defaultdict(float)
    for side in chain.from_iterable(pairs):
        for op, seconds in side.items():
            total[op] += seconds
    operators = sorted(total.keys() - {OUTSIDE_OPERATORS}, key=lambda op: (-total[op], op))
    return [*operators[:MAX_OPERATORS], *(total.keys() & {OUTSIDE_OPERATORS})]


def _time(
    place: ShapePlace, op: str, pairs: PairedTimes, differences: Mapping[tuple[str, str, str], float]
) -> OperatorDelta:
    before = median([first.get(op, 0.0) for first, _ in pairs])
    difference = differences.get((*place, op))
    if difference is None:
        difference = estimate(np.array([second.get(op, 0.0) - first.get(op, 0.0) for first, second in pairs]))
    gone = not any(op in second for _, second in pairs)
    before, after = (max(0.0, -difference), 0.0) if gone else (before, max(0.0, before + difference))
    base, head = rounded(before), rounded(after)
    return OperatorDelta(
        workload=place.workload, shape=place.shape, op=op, base=base, head=head, seconds=rounded(head - base)
    )
