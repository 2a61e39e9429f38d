"""Operators, modules and functions, tested one by one over the pairs: their losses show
even if the call hardly moves.

FBDetect (SOSP 2024) watches subroutines for the same reason: 0.05 % of a whole is 5 %
of one of its parts. A call has dozens of them, so they share a false-discovery rate;
the judge of numbers (``judge.py``) corrects for each test, which would leave none.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from msgspec.structs import replace

from perfgate.catalogue.names import OPERATOR_TIME
from perfgate.document.budget import judges_subroutines
from perfgate.document.comparison import Outcome, Paired
from perfgate.document.decision import Policy
from perfgate.document.explanation import OperatorDelta, Part
from perfgate.document.run import OUTSIDE_OPERATORS
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.comparison import compared
from perfgate.judging.gate.compare.rule import SHAPE, alarm_looks
from perfgate.judging.gate.evidence.tolerance import configured_tolerance
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.evidence.work_table import TimedParts, WorkTable
from perfgate.stats.arrays import Floats
from perfgate.stats.error_control import false_discovery, nominal_level
from perfgate.stats.signed_rank import (
    estimate,
    lower_bound,
    p_above,
    p_below,
    upper_bound,
)
from perfgate.stats.summary import median

FALSE_DISCOVERIES = 0.05  # share of the named operators that may be named wrongly
SMALLEST_CHANGE = (
    0.02  # the profiler and the memory layout change an operator by less than this
)
EXCLUDED_CHANGE = (
    0.05  # an operator is unchanged if both a loss and a gain of this size are excluded
)
# Of the operators' time in a call. Each tested operator makes the others harder to
# name: eight pairs, which give no p-value below 1/256, can name one of twelve. A
# slowdown by a tenth of an operator below this share is 0.05 % of the call.
MIN_SHARE = 0.005
MIN_PAIRS = 6  # the fewest that give a two-sided interval at 95 %
CONFIDENCE = 0.95
LARGEST = 20.0  # log ratio; a document from outside may hold any numbers


class _Subject(NamedTuple):
    """An operator, module or function of a shape: the log ratios of its pairs, its
    median seconds and share in the base.

    ``metric`` is the name of its time in a tolerance, ``line`` the line of the head
    that calls it most often.
    """

    place: ShapePlace
    name: str
    metric: str
    differences: Floats
    base: float
    share: float
    line: str | None


def compare_operators(rows: Iterable[TimedParts]) -> list[OperatorDelta]:
    """Test every operator that both sides run equally often in enough pairs; those that
    lost most seconds come first.

    An operator that one side runs more often is left to the exact counters, and its
    cost to the explanation. An operator is named if its change is above
    ``SMALLEST_CHANGE`` and its false-discovery-adjusted p-value, over all operators of
    all shapes, at most ``FALSE_DISCOVERIES``: the false-discovery rate is at most that
    among those named slower, and among those named faster.
    """
    tests = _tests(list(_subjects(rows, OPERATOR_TIME)))
    return sorted(
        tests, key=lambda test: (-test.seconds, test.workload, test.shape, test.op)
    )


def judge_subroutines(
    work: WorkTable,
    policy: Policy,
    alpha: float,
    *,
    spoiled: Collection[ShapePlace],
) -> list[Paired]:
    """Judge the operators, modules and functions that ``[gate.tolerance]`` names by
    their paired times, even if the call did not change.

    One regressed if its change is estimated beyond its tolerance and shown beyond
    chance: the false-discovery rate of a workload is at most ``alpha`` over all looks.
    """
    if not judges_subroutines(policy.tolerances):  # asked at every look of every gate
        return []
    operators = _subjects(valid(work.operators, spoiled), OPERATOR_TIME)
    subroutines = _subjects(valid(work.subroutines, spoiled), "")
    by_workload: dict[str, list[_Subject]] = {}
    for subject in (*operators, *subroutines):
        if configured_tolerance(policy, subject.metric, subject.place) is not None:
            by_workload.setdefault(subject.place.workload, []).append(subject)
    comparisons = []
    for of_workload in by_workload.values():
        for subject, test in zip(of_workload, _tests(of_workload)):
            comparisons.append(_judge(subject, test, policy, alpha))
    return comparisons


def valid(
    rows: Iterable[TimedParts], spoiled: Collection[ShapePlace]
) -> list[TimedParts]:
    """The rows, without places whose times are ``spoiled``."""
    return [row for row in rows if row.place not in spoiled]


def _subjects(rows: Iterable[TimedParts], prefix: str) -> Iterator[_Subject]:
    """Yield the parts that enough pairs timed on both sides, large enough in the call;
    none that one side runs more often.

    A call takes as long as all its operators; of modules and functions, all others run
    within the longest.
    """
    for row in rows:
        if not row.times:
            continue
        calls = []
        for base in row.times.base:
            if prefix == OPERATOR_TIME:
                calls.append(sum(base.values()) - base.get(OUTSIDE_OPERATORS, 0.0))
            else:
                calls.append(max(base.values(), default=0.0))
        call_seconds = median(calls)
        for name in sorted(row.times.names):
            times = row.times.of_part(name)
            timed = times[(times > 0).all(axis=1)]
            is_part = name != OUTSIDE_OPERATORS and name not in row.changed
            if not is_part or len(timed) < MIN_PAIRS:
                continue
            typical = median(timed[:, 0])
            if typical < MIN_SHARE * call_seconds:
                continue
            ratios = np.log(timed[:, 1]) - np.log(timed[:, 0])
            full_name = prefix + name
            short_name = full_name.partition(".")[2]
            yield _Subject(
                row.place,
                short_name,
                full_name,
                ratios.clip(-LARGEST, LARGEST),
                typical,
                typical / call_seconds,
                row.lines.get(short_name),
            )


def _tests(subjects: Sequence[_Subject]) -> Iterator[OperatorDelta]:
    """Yield the test of each subject: one-sided in the direction of its effect, and
    adjusted for all subjects.
    """
    q_slower = false_discovery(
        [p_above(subject.differences, 0.0) for subject in subjects]
    )
    q_faster = false_discovery(
        [p_below(subject.differences, 0.0) for subject in subjects]
    )
    for subject, slower, faster in zip(subjects, q_slower, q_faster):
        effect = estimate(subject.differences)
        yield _test(subject, effect, slower if effect > 0 else faster)


def _test(subject: _Subject, effect: float, q: float) -> OperatorDelta:
    tail = (1 - CONFIDENCE) / 2
    low = lower_bound(subject.differences, tail)
    high = upper_bound(subject.differences, tail)
    base = rounded(subject.base)
    head = rounded(subject.base * math.exp(effect))
    smallest = math.log1p(SMALLEST_CHANGE)
    excluded = math.log1p(EXCLUDED_CHANGE)
    outcome: Literal["regressed", "improved", "unchanged", "inconclusive"] = (
        "inconclusive"
    )
    if q <= FALSE_DISCOVERIES and abs(effect) > smallest:
        outcome = "regressed" if effect > 0 else "improved"
    elif -excluded < low and high < excluded:
        outcome = "unchanged"
    return OperatorDelta(
        workload=subject.place.workload,
        shape=subject.place.shape,
        op=subject.name,
        base=base,
        head=head,
        seconds=head - base,
        share=rounded(subject.share),
        delta=rounded(math.expm1(effect)),
        interval=(rounded(math.expm1(low)), rounded(math.expm1(high))),
        confidence=CONFIDENCE,
        q=rounded(q),
        outcome=outcome,
        pairs=int(subject.differences.size),
        line=subject.line,
    )


def _judge(
    subject: _Subject, test: OperatorDelta, policy: Policy, alpha: float
) -> Paired:
    assert test.pairs is not None
    assert test.delta is not None
    assert test.q is not None
    allowed = configured_tolerance(policy, subject.metric, subject.place) or 0.0
    level = nominal_level(alpha, alarm_looks(policy.looks), test.pairs, shape=SHAPE)
    outcome: Outcome = "inconclusive"
    if test.q <= level and abs(test.delta) > allowed:
        outcome = "regressed" if test.delta > 0 else "improved"
    elif test.interval is not None and test.interval[1] < max(allowed, EXCLUDED_CHANGE):
        outcome = "unchanged"
    parts: list[Part] = []
    if outcome == "regressed":
        parts = [
            Part(
                name=subject.name,
                base=test.base or 0.0,
                head=test.head or 0.0,
                line=test.line,
            )
        ]
    return replace(
        compared(Paired, subject.place, subject.metric, outcome),
        tolerance=allowed,
        parts=parts,
        base=test.base,
        head=test.head,
        delta=test.delta,
        interval=test.interval,
        confidence=test.confidence,
        p_adjusted=test.q,
        pairs=test.pairs,
    )
