"""The head's own numbers beside those of main's stored runs. They inform: no verdict, title, count or order rests on them.

The interval is the prediction interval for one more run, exp(m ± t(0.99, S-1) s sqrt(1 + 1/S)), from at least six: on a shared
machine, runs of the same code differ by several percent, and one value in fifty lies outside by chance.

A run of main that the runs before it show as slower is stored like every other, and the trend sees it; but it does not become
part of the level by itself, or a regression that nobody accepted would hide behind its own repetition. Which runs make up the
level is decided whenever they are read, so that an acceptance counts from the moment it is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import stdtrit

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import LATENCY, P50, P90, P99
from perfgate.catalogue.terms import Better
from perfgate.document.decision import StoredComparison
from perfgate.document.history import Acceptance, History, HistorySeries
from perfgate.document.run import RunDocument
from perfgate.judging.gate.comparison import key_matches, rounded
from perfgate.judging.gate.numbers import leading_numbers

MIN_RUNS = 6
LEVEL = 0.99
# How many of the newest values the report draws.
_DRAWN = 60
# Who accepts one of these accepts that a call takes longer.
_OF_A_CALL = (LATENCY, P50, P90, P99)


def compare_stored(head: RunDocument, history: History) -> list[StoredComparison]:
    numbers = {
        (number.workload, number.shape, number.metric, number.labels): value.value
        for number, value in leading_numbers(head).items()
    }
    values = ((series, numbers.get(_key(series))) for series in history.series if series.values)
    return [_compare(series, value) for series, value in values if value is not None]


def level(values: Sequence[float], is_accepted: Callable[[int], bool], *, better: Better = "lower") -> list[float]:
    """Those of main's runs, oldest first, that later ones are compared with.

    One that the level before it shows as regressed is left out. Where ``is_accepted`` says so of its index, the level before
    it is left behind instead. Where a value is not positive, or neither direction is the better one, no run is left out.
    """
    if better == "neutral" or any(value <= 0 for value in values):
        return list(values)
    worse = 1 if better == "lower" else -1
    level_values: list[float] = []
    for index, value in enumerate(values):
        if len(level_values) >= MIN_RUNS:
            centre, half = _centre_and_half(level_values)
            if worse * (math.log(value) - centre) > half:
                if is_accepted(index):
                    level_values = [value]
                continue
        level_values.append(value)
    return level_values


def accepts(acceptance: Acceptance, metric: str, workload: str, shape: str) -> bool:
    """Whether somebody accepted that this metric is worse; who accepts one time of a call accepts that calls take longer."""
    names = _OF_A_CALL if metric in _OF_A_CALL else (metric,)
    return any(key_matches(acceptance.metric, name, workload, shape) for name in names)


def _key(series: HistorySeries) -> tuple[str, str, str, tuple[tuple[str, str], ...]]:
    return series.workload, series.shape, series.metric, tuple(sorted(series.labels.items()))


def _centre_and_half(values: Sequence[float]) -> tuple[float, float]:
    """The mean of the logarithms, and half of the prediction interval for one more."""
    logs = np.log(values)
    half = float(stdtrit(logs.size - 1, LEVEL)) * float(np.std(logs, ddof=1)) * math.sqrt(1 + 1 / logs.size)
    return float(np.mean(logs)), half


def _compare(series: HistorySeries, value: float) -> StoredComparison:
    runs = len(series.values)
    positive = min(series.values) > 0
    interval = None
    if positive and runs >= MIN_RUNS:
        centre, half = _centre_and_half(series.values)
        interval = (rounded(math.exp(centre - half)), rounded(math.exp(centre + half)))
    typical = math.exp(float(np.mean(np.log(series.values)))) if positive else float(np.median(series.values))
    return StoredComparison(
        workload=series.workload,
        shape=series.shape,
        metric=series.metric,
        labels=series.labels,
        unit=metric(series.metric).unit,
        head=rounded(value),
        runs=runs,
        typical=rounded(typical),
        interval=interval,
        confidence=rounded(2 * LEVEL - 1) if interval else None,
        values=[rounded(value) for value in series.values[-_DRAWN:]],
    )
