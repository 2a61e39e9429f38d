"""Operators, modules and functions, tested one by one over the pairs: a loss of one shows here when the call hardly moves.

FBDetect (SOSP 2024) watches subroutines for the same reason: 0.05 % of a whole is 5 % of one of its parts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import OPERATOR_TIME, PYTHON_TIMES
from perfgate.document.decision import (
    Comparison,
    Explanation,
    Invalid,
    OperatorTest,
    OperatorTime,
    Outcome,
    Part,
    Policy,
)
from perfgate.document.run import OUTSIDE_OPERATORS, Replicate, RunDocument, Side
from perfgate.document.tolerances import judges_subroutines
from perfgate.judging.gate.explain import changed_counts, operator_lines
from perfgate.judging.gate.policy import given_tolerance
from perfgate.judging.gate.rounding import rounded
from perfgate.judging.gate.rule import SHAPE, alarm_looks
from perfgate.stats.multiple import false_discovery
from perfgate.stats.sequential import nominal_level
from perfgate.stats.signed_rank import estimate, lower_bound, p_above, p_below, upper_bound

FALSE_DISCOVERIES = 0.05  # share of the named operators that may be named wrongly
FALSE_ALARMS = 0.01  # and of those that fail the gate
SMALLEST_CHANGE = 0.02  # smaller ones are what the profiler and the memory layout do to an operator
EXCLUDED_CHANGE = 0.05  # an operator is unchanged where both a loss and a gain of this size are excluded
# Of the operators' time in a call. Each tested operator makes the others harder to name: eight pairs, which give no p-value
# below 1/256, can name one of twelve. A tenth of what is left out is a twentieth of a percent of the call.
MIN_SHARE = 0.005
MIN_PAIRS = 6  # the fewest that give a two-sided interval at 95 %
MAX_OPERATORS = 100  # of a shape whose times are listed
CONFIDENCE = 0.95
_SIDES: tuple[Side, Side] = ("base", "head")
LARGEST = 20.0  # log ratio; a document from outside may hold any numbers

Floats = npt.NDArray[np.float64]
_Outcome = Literal["regressed", "improved", "unchanged", "inconclusive"]
_Kind = Literal["operators", "subroutines"]
_Pairs = list[tuple[dict[str, float], dict[str, float]]]


class _Cell(NamedTuple):
    """A part of the calls of a shape, an operator or so: the log ratios of its pairs, its median seconds and share in the base.

    ``metric`` is what a tolerance calls its time.
    """

    workload: str
    shape: str
    op: str
    metric: str
    differences: Floats
    base: float
    share: float


class _Evidence(NamedTuple):
    """One-sided p-value in the direction of the effect, and the same adjusted for all operators."""

    p: float
    q: float


def compare_operators(base: RunDocument, head: RunDocument, *, invalid: Iterable[Invalid] = ()) -> list[OperatorTest]:
    """Test every operator that both sides run equally often in enough pairs; those that lost most seconds come first.

    Shapes whose times are ``invalid`` are left out. An operator that one side runs more often is a matter of the exact
    counters, and what that costs one of the explanation.
    An operator is named where its change is above ``SMALLEST_CHANGE`` and its false-discovery-adjusted p-value, over all
    operators of all shapes, at most ``FALSE_DISCOVERIES``: of those named slower at most that share is wrong on average, and
    of those named faster.
    """
    cells = _comparable(base, head, invalid)
    lines = {(cell.workload, cell.shape): operator_lines(head, cell.workload, cell.shape) for cell in cells}
    tests = [
        _test(cell, evidence, lines[cell.workload, cell.shape].get(cell.op))
        for cell, evidence in zip(cells, _evidence(cells))
    ]
    return sorted(tests, key=lambda test: (test.base - test.head, test.workload, test.shape, test.op))


def judge_subroutines(
    base: RunDocument, head: RunDocument, policy: Policy, *, invalid: Iterable[Invalid] = ()
) -> list[Comparison]:
    """Judge the operators, modules and functions that ``[gate.tolerance]`` names by their paired times, whatever the call does.

    One regressed where its change is estimated beyond its tolerance and shown beyond chance: of all those judged, a share of
    ``FALSE_ALARMS`` at most is called so wrongly, over all looks.
    """
    if not judges_subroutines(policy.tolerances):  # asked at every look of every gate
        return []
    asked = [
        (cell, allowed)
        for cell in [*_comparable(base, head, invalid), *_of_python(base, head, invalid)]
        if (allowed := given_tolerance(policy, cell.metric, cell.workload, cell.shape)) is not None
    ]
    evidence = _evidence([cell for cell, _ in asked])
    lines = {(cell.workload, cell.shape): operator_lines(head, cell.workload, cell.shape) for cell, _ in asked}
    return [
        _judged(cell, allowed, found, policy, lines[cell.workload, cell.shape].get(cell.op))
        for (cell, allowed), found in zip(asked, evidence)
    ]


def _judged(cell: _Cell, allowed: float, evidence: _Evidence, policy: Policy, line: str | None) -> Comparison:
    test = _test(cell, evidence, line)
    level = nominal_level(FALSE_ALARMS, alarm_looks(policy.looks), test.pairs, shape=SHAPE)
    outcome: Outcome = "inconclusive"
    if evidence.q <= level and abs(test.delta) > allowed:
        outcome = "regressed" if test.delta > 0 else "improved"
    elif test.interval is not None and test.interval[1] < max(allowed, EXCLUDED_CHANGE):
        outcome = "unchanged"
    described = metric(cell.metric)
    return Comparison(
        workload=cell.workload,
        shape=cell.shape,
        metric=described.name,
        unit=described.unit,
        better=described.better,
        method="paired",
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
        parts=[Part(name=cell.op, base=test.base, head=test.head, line=line)] if outcome == "regressed" else [],
    )


def untimed_subroutines(
    base: RunDocument, head: RunDocument, policy: Policy, workload: str, shape: str
) -> list[tuple[str, Side]]:
    """Return the times that ``[gate.tolerance]`` names and one side lacks in a pair where the other has them, by metric.

    Where a side timed none in a pair at all, "operators" or "subroutines" stands for them. What the sides run differently often
    is no matter of its time, and a module or function that one side never ran is one that the change added or took away.
    """
    changed = changed_counts(base, head)
    operators = {
        (OPERATOR_TIME + op if op else "operators", side)
        for op, side in _absent(base, head, workload, shape, "operators")
        if (workload, shape, op) not in changed and judges_subroutines(policy.tolerances, (OPERATOR_TIME,))
    }
    subroutines = {
        (name or "subroutines", side)
        for name, side in _absent(base, head, workload, shape, "subroutines")
        if judges_subroutines(policy.tolerances, PYTHON_TIMES)
    }
    return sorted(
        (name, side)
        for name, side in operators | subroutines
        if "." not in name or given_tolerance(policy, name, workload, shape) is not None
    )


def _absent(base: RunDocument, head: RunDocument, workload: str, shape: str, kind: _Kind) -> set[tuple[str, Side]]:
    """Return what one side did not time in a pair and the other did; the name is empty where a side timed nothing in a pair."""
    times = [
        _times(base.replicates, workload, shape, "first", kind),
        _times(head.replicates, workload, shape, "second", kind),
    ]
    ever = [{name for pair in side.values() for name in pair} for side in times]
    found: set[tuple[str, Side]] = set()
    for one in head.replicates:
        if (one.workload, one.arm) != (workload, "ab"):
            continue
        for index, side in enumerate(_SIDES):
            own, other = times[index].get(one.pair), times[1 - index].get(one.pair, {})
            absent = {""} if own is None or (ever[1 - index] and not ever[index]) else other.keys() - own.keys()
            if kind == "subroutines":
                absent &= ever[index] | {""}
            found |= {(name, side) for name in absent - {OUTSIDE_OPERATORS}}
    return found


def _comparable(base: RunDocument, head: RunDocument, invalid: Iterable[Invalid]) -> list[_Cell]:
    """Return the operators that both sides run equally often, of shapes whose times prove something."""
    counts = changed_counts(base, head)
    return [
        cell
        for workload, shape in _valid_shapes(head, invalid)
        for cell in _cells(base, head, workload, shape)
        if (cell.workload, cell.shape, cell.op) not in counts
    ]


def _of_python(base: RunDocument, head: RunDocument, invalid: Iterable[Invalid]) -> list[_Cell]:
    """Return the modules and functions that both sides run, of shapes whose times prove something."""
    return [
        cell
        for workload, shape in _valid_shapes(head, invalid)
        for pairs in [paired_times(base, head, workload, shape, "subroutines")]
        if pairs
        # Whatever runs in a call runs within its longest subroutine.
        for total in [float(np.median([max(first.values(), default=0.0) for first, _ in pairs]))]
        for cell in _timed(workload, shape, pairs, total)
    ]


def _valid_shapes(head: RunDocument, invalid: Iterable[Invalid]) -> list[tuple[str, str]]:
    spoiled = {(entry.workload, entry.shape) for entry in invalid}
    every = [(workload.name, shape) for workload in head.workloads for shape in workload.shapes]
    return [place for place in every if place not in spoiled]


def operator_times(
    base: RunDocument,
    head: RunDocument,
    tests: Iterable[OperatorTest],
    explanations: Iterable[Explanation],
    *,
    invalid: Iterable[Invalid] = (),
) -> list[OperatorTime]:
    """Return what every profiled operator takes on both sides, most time first, shape by shape.

    Whatever says by how much an operator differs says the difference of these two numbers: what the explanation puts down to
    it, which is without the profiler's own time, else what its test found, else the paired estimate.
    """
    spoiled = {(entry.workload, entry.shape) for entry in invalid}
    known = {(test.workload, test.shape, test.op): test.head - test.base for test in tests}
    known |= {(e.workload, e.shape, part.profiled): part.seconds for e in explanations for part in e.contributions}
    times: list[OperatorTime] = []
    for workload in head.workloads:
        for shape in workload.shapes:
            pairs = [] if (workload.name, shape) in spoiled else paired_times(base, head, workload.name, shape)
            rows = [_time(workload.name, shape, op, pairs, known) for op in _heaviest(pairs)]
            times += sorted(rows, key=lambda row: -max(row.base, row.head))
    return times


def _heaviest(pairs: list[tuple[dict[str, float], dict[str, float]]]) -> list[str]:
    """Return the operators with most time in all members of the pairs, and what is outside them."""
    total: dict[str, float] = defaultdict(float)
    for side in chain.from_iterable(pairs):
        for op, seconds in side.items():
            total[op] += seconds
    operators = sorted(total.keys() - {OUTSIDE_OPERATORS}, key=lambda op: (-total[op], op))
    return [*operators[:MAX_OPERATORS], *(total.keys() & {OUTSIDE_OPERATORS})]


def _time(
    workload: str,
    shape: str,
    op: str,
    pairs: list[tuple[dict[str, float], dict[str, float]]],
    known: Mapping[tuple[str, str, str], float],
) -> OperatorTime:
    before = float(np.median([first.get(op, 0.0) for first, _ in pairs]))
    difference = known.get((workload, shape, op))
    if difference is None:
        difference = estimate(np.array([second.get(op, 0.0) - first.get(op, 0.0) for first, second in pairs]))
    gone = not any(op in second for _, second in pairs)
    before, after = (max(0.0, -difference), 0.0) if gone else (before, max(0.0, before + difference))
    return OperatorTime(
        workload=workload, shape=shape, op=op, base=rounded(before), head=rounded(after), pairs=len(pairs)
    )


def _evidence(cells: list[_Cell]) -> list[_Evidence]:
    slower = [p_above(cell.differences, 0.0) for cell in cells]
    faster = [p_below(cell.differences, 0.0) for cell in cells]
    choices = zip(cells, slower, faster, false_discovery(slower), false_discovery(faster))
    return [
        _Evidence(p_slower, q_slower) if estimate(cell.differences) > 0 else _Evidence(p_faster, q_faster)
        for cell, p_slower, p_faster, q_slower, q_faster in choices
    ]


def _cells(base: RunDocument, head: RunDocument, workload: str, shape: str) -> list[_Cell]:
    pairs = paired_times(base, head, workload, shape)
    if not pairs:
        return []
    total = float(np.median([sum(first.values()) - first.get(OUTSIDE_OPERATORS, 0.0) for first, _ in pairs]))
    return _timed(workload, shape, pairs, total, prefix=OPERATOR_TIME)


def _timed(workload: str, shape: str, pairs: _Pairs, total: float, *, prefix: str = "") -> list[_Cell]:
    """Return what enough pairs timed on both sides and is enough of the total."""
    cells = []
    for name in sorted({name for first, _ in pairs for name in first} - {OUTSIDE_OPERATORS}):
        times = np.array([(a[name], b[name]) for a, b in pairs if min(a.get(name, 0.0), b.get(name, 0.0)) > 0])
        if len(times) >= MIN_PAIRS and (typical := float(np.median(times[:, 0]))) >= MIN_SHARE * total:
            ratios = (np.log(times[:, 1]) - np.log(times[:, 0])).clip(-LARGEST, LARGEST)
            named = prefix + name
            part = named.partition(".")[2]
            cells.append(_Cell(workload, shape, part, named, ratios, typical, typical / total))
    return cells


def paired_times(base: RunDocument, head: RunDocument, workload: str, shape: str, kind: _Kind = "operators") -> _Pairs:
    """Return the seconds of every operator of a shape, and outside them, of both members of each pair, by pair.

    Those of its modules and functions where the ``kind`` is "subroutines".
    """
    before = _times(base.replicates, workload, shape, "first", kind)
    after = _times(head.replicates, workload, shape, "second", kind)
    return [(before[pair], after[pair]) for pair in sorted(before.keys() & after.keys())]


def _times(
    replicates: Iterable[Replicate], workload: str, shape: str, member: str, kind: _Kind
) -> dict[int, dict[str, float]]:
    """Return the times of the shape by pair."""
    return {
        replicate.pair: times[shape]
        for replicate in replicates
        if (replicate.workload, replicate.arm, replicate.member) == (workload, "ab", member)
        and shape in (times := replicate.operators if kind == "operators" else replicate.subroutines)
    }


def _test(cell: _Cell, evidence: _Evidence, line: str | None) -> OperatorTest:
    effect = estimate(cell.differences)
    tail = (1 - CONFIDENCE) / 2
    low, high = lower_bound(cell.differences, tail), upper_bound(cell.differences, tail)
    return OperatorTest(
        workload=cell.workload,
        shape=cell.shape,
        op=cell.op,
        base=rounded(cell.base),
        head=rounded(cell.base * math.exp(effect)),
        share=rounded(cell.share),
        delta=rounded(math.expm1(effect)),
        interval=(rounded(math.expm1(low)), rounded(math.expm1(high))),
        confidence=CONFIDENCE,
        p=rounded(evidence.p),
        q=rounded(evidence.q),
        outcome=_outcome(effect, evidence.q, low, high),
        pairs=int(cell.differences.size),
        line=line,
    )


def _outcome(effect: float, q: float, low: float, high: float) -> _Outcome:
    smallest, excluded = math.log1p(SMALLEST_CHANGE), math.log1p(EXCLUDED_CHANGE)
    if q <= FALSE_DISCOVERIES and abs(effect) > smallest:
        return "regressed" if effect > 0 else "improved"
    return "unchanged" if -excluded < low and high < excluded else "inconclusive"
