"""The answer of one gate or count of a bisection: whether the new state is slow, with
the probability of error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from statistics import NormalDist
from typing import NamedTuple

from perfgate.catalogue.lookup import METRICS
from perfgate.document.budget import PlacePattern
from perfgate.document.comparison import (
    Bound,
    Comparison,
    Exact,
    NumberComparison,
    Outcome,
    Paired,
)
from perfgate.document.decision import DecisionDocument
from perfgate.errors import MeasuringError
from perfgate.judging.gate.compare.rule import SHAPE
from perfgate.stats.culprits import Answer
from perfgate.stats.error_control import sequential_p

_NORMAL = NormalDist()
_NOT_SLOWER = frozenset({"unchanged", "improved"})


class OldStateError(MeasuringError):
    """The old state, against which every trial is compared, cannot be measured."""


class Signal(NamedTuple):
    """The metrics that a search follows, taken from the gate of all changes together.

    ``counters`` are the exact metrics that regressed there; they have no noise. Without
    any, ``time`` is the metric that moved most clearly, by ``size``, the logarithm of
    the ratio.
    """

    counters: frozenset[PlacePattern] = frozenset()
    time: PlacePattern | None = None
    size: float = 0.0

    @property
    def names(self) -> list[str]:
        names = [
            f"{place.workload}/{place.shape} {place.metric}".replace("/ ", " ")
            for place in self.places
        ]
        return sorted(names)

    @property
    def places(self) -> frozenset[PlacePattern]:
        if self.counters or not self.time:
            return self.counters
        return frozenset([self.time])

    @property
    def workloads(self) -> frozenset[str]:
        return frozenset(place.workload for place in self.places)


class TrialReading(NamedTuple):
    """An answer and the probability that it is wrong: 1 if undecided."""

    answer: Answer
    error: float = 0.0


def regressed(
    decision: DecisionDocument, pattern: PlacePattern | None = None
) -> list[Comparison]:
    """The regressed comparisons: of the metrics that match a pattern, gating or not, or
    else of all gating metrics.
    """
    regressions: list[Comparison] = []
    for comparison in decision.comparisons:
        is_meant = (
            comparison.gating if pattern is None else _matches(comparison, pattern)
        )
        if is_meant and comparison.outcome == "regressed":
            regressions.append(comparison)
    return regressions


def signal_of(decision: DecisionDocument, pattern: PlacePattern | None) -> Signal:
    """The signal in the gate of all changes together; empty without a regression."""
    regressions = regressed(decision, pattern)
    if counters := frozenset(
        place_of(regression)
        for regression in regressions
        if isinstance(regression, Exact)
    ):
        return Signal(counters)
    signal, clearness = Signal(), 0.0
    for comparison in regressions:
        size, spread = _size(comparison), _standard_error(comparison)
        if size and spread and abs(size / spread) > clearness:
            signal = Signal(time=place_of(comparison), size=size)
            clearness = abs(size / spread)
    return signal


def read_first(
    decision: DecisionDocument,
    pattern: PlacePattern | None,
    *,
    allowed: float = 1.0,
) -> TrialReading:
    """Whether all changes together are slow.

    Any regression decides, even if the verdict is INCONCLUSIVE for another reason.

    It is undecided if every regression is noise with a probability above ``allowed``.
    Raises MeasuringError if the old state cannot be measured.
    """
    regressions = regressed(decision, pattern)
    if regressions:
        chance = min(_chance(regression, decision) for regression in regressions)
        if chance > allowed:
            return TrialReading("undecided", 1.0)
        return TrialReading("slow", chance)
    is_fast = decision.verdict != "INCONCLUSIVE"
    if pattern is not None:
        # A verdict on other metrics does not cover the named one.
        outcomes = {
            comparison.outcome
            for comparison in decision.comparisons
            if _matches(comparison, pattern)
        }
        is_fast = not outcomes.isdisjoint(_NOT_SLOWER)
    if not is_fast:
        return _unanswered(decision)
    return TrialReading("fast", decision.procedure.policy.alpha_ok)


def read_next(
    decision: DecisionDocument, signal: Signal, allowed: float
) -> TrialReading:
    """Whether the new state is slow, by the signal alone. Raises as ``read_first``
    does.
    """
    if signal.counters:
        answer = read_counters(decision.comparisons, signal)
        if answer:
            return TrialReading(answer)
        return _unanswered(decision)
    reading = read_time(
        decision.comparisons, signal, decision.procedure.policy.looks, allowed
    )
    return reading or _unanswered(decision)


def read_counters(comparisons: Iterable[Comparison], signal: Signal) -> Answer | None:
    """Whether any of the followed counters regressed; None if that is not known of all
    of them.
    """
    measured = _measured(comparisons)
    outcomes: list[Outcome | None] = []
    for place in signal.counters:
        outcomes.append(measured[place].outcome if place in measured else None)
    if "regressed" in outcomes:
        return "slow"
    if _NOT_SLOWER.issuperset(outcomes):
        return "fast"
    return None


def read_time(
    comparisons: Iterable[Comparison],
    signal: Signal,
    looks: Sequence[int],
    allowed: float,
) -> TrialReading | None:
    """Whether at least half of the slowdown is there, if the probability of error is at
    most ``allowed``.

    The error covers all ``looks`` at the pairs of one gate. None if the time was not
    measured or is not evidence.
    """
    compared = None
    if signal.time:
        compared = _measured(comparisons).get(signal.time)
    if compared is None or compared.outcome == "not_comparable":
        return None
    size, spread = _size(compared), _standard_error(compared)
    if size is None or not spread:
        return None
    beyond_half = (size - signal.size / 2) / spread * math.copysign(1.0, signal.size)
    error = _NORMAL.cdf(-abs(beyond_half))
    if isinstance(compared, Paired) and compared.pairs:
        error = sequential_p(error, looks, compared.pairs, shape=SHAPE)
    if error > allowed:
        return TrialReading("undecided", 1.0)
    return TrialReading("slow" if beyond_half > 0 else "fast", error)


def read_last(
    decision: DecisionDocument, signal: Signal, allowed: float
) -> TrialReading:
    """The answer if more time did not show which half is slow: with several slowdowns,
    the search goes for the first.
    """
    compared = None
    if signal.time:
        compared = _measured(decision.comparisons).get(signal.time)
    if compared is not None and compared.outcome == "regressed":
        chance = _chance(compared, decision)
        if chance <= allowed:
            return TrialReading("slow", chance)
    return TrialReading("undecided", 1.0)


def place_of(comparison: Comparison) -> PlacePattern:
    return PlacePattern(comparison.metric, comparison.workload, comparison.shape)


def _measured(comparisons: Iterable[Comparison]) -> dict[PlacePattern, Comparison]:
    """The comparisons by their places, without bounds: a broken budget is not a
    comparison with the old state.
    """
    return {
        place_of(comparison): comparison
        for comparison in comparisons
        if not isinstance(comparison, Bound)
    }


def _matches(comparison: Comparison, pattern: PlacePattern) -> bool:
    """Whether a comparison is of a metric that the pattern names, or of the metric that
    stands for it.
    """
    is_named = fnmatchcase(
        comparison.metric, pattern.metric
    ) or comparison.metric in _shown_by(pattern.metric)
    return (
        is_named
        and not isinstance(comparison, Bound)
        and pattern.covers(comparison.workload, comparison.shape)
    )


@cache
def _shown_by(pattern: str) -> frozenset[str]:
    """The metrics compared over pairs that stand for the pattern's, e.g. latency.p50
    for latency.p90.
    """
    followed = set()
    for name, card in METRICS.items():
        if card.trend.follows and fnmatchcase(name, pattern):
            followed.add(card.trend.follows)
    return frozenset(followed)


def fails_on_head(decision: DecisionDocument) -> bool:
    return any(failure.side == "head" for failure in decision.gaps.failures)


def _unanswered(decision: DecisionDocument) -> TrialReading:
    for failure in decision.gaps.failures:
        if failure.side == "base":
            raise OldStateError(
                "the old state cannot be measured: {what} of workload {workload} fails",
                what=failure.what,
                workload=failure.workload,
            )
    if fails_on_head(decision):
        return TrialReading("impossible", 1.0)
    return TrialReading("undecided", 1.0)


def _chance(comparison: Comparison, decision: DecisionDocument) -> float:
    """The probability that a regression is noise; if it has none, the probability of
    any false alarm of the gate.
    """
    if isinstance(comparison, Exact):
        return 0.0
    if not isinstance(comparison, Paired) or comparison.p_adjusted is None:
        return decision.procedure.policy.alpha
    return comparison.p_adjusted


def _size(comparison: Comparison) -> float | None:
    if (
        isinstance(comparison, NumberComparison)
        and comparison.delta is not None
        and comparison.delta > -1
    ):
        return math.log1p(comparison.delta)
    return None


def _standard_error(comparison: Comparison) -> float | None:
    """The standard error of the ratio's logarithm, from the interval; None without one."""
    if (
        not isinstance(comparison, Paired)
        or comparison.interval is None
        or comparison.confidence is None
    ):
        return None
    if comparison.interval[0] <= -1:
        return None
    low, high = map(math.log1p, comparison.interval)
    width = (high - low) / 2 / _NORMAL.inv_cdf((1 + comparison.confidence) / 2)
    if 0 < width < math.inf:
        return width
    return None
