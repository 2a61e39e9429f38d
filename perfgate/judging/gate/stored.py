"""The head's own times beside those of main's stored runs. They inform: no verdict, title, count or order rests on them.

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

from perfgate.catalogue.lookup import METRICS, metric
from perfgate.catalogue.names import LATENCY, P99
from perfgate.document.decision import StoredComparison
from perfgate.document.history import Acceptance, History, HistorySeries
from perfgate.document.run import RunDocument
from perfgate.judging.gate.comparison import key_matches, rounded

MIN_RUNS = 6
LEVEL = 0.99
STORED_METRICS = tuple(name for name, entry in METRICS.items() if entry.stored)
# Who accepts one of these accepts that a call takes longer.
_OF_A_CALL = (LATENCY, *STORED_METRICS, P99)


def compare_stored(head: RunDocument, history: History) -> list[StoredComparison]:
    values = ((series, _value(head, series)) for series in history.series if series.values)
    return [_compare(series, value) for series, value in values if value is not None]


def level(values: Sequence[float], is_accepted: Callable[[int], bool]) -> list[float]:
    """Those of main's runs, oldest first, that later ones are compared with.

    One that the level before it shows as regressed is left out. Where ``is_accepted`` says so of its index, the level before
    it is left behind instead.
    """
    level_values: list[float] = []
    for index, value in enumerate(values):
        if len(level_values) >= MIN_RUNS:
            centre, half = _centre_and_half(level_values)
            if math.log(value) - centre > half:
                if is_accepted(index):
                    level_values = [value]
                continue
        level_values.append(value)
    return level_values


def accepts_a_slower_call(acceptance: Acceptance, workload: str, shape: str) -> bool:
    """Whether what somebody accepted is that a call of this workload and shape takes longer."""
    return any(key_matches(acceptance.metric, name, workload, shape) for name in _OF_A_CALL)


def _centre_and_half(values: Sequence[float]) -> tuple[float, float]:
    """The mean of the logarithms, and half of the prediction interval for one more."""
    logs = np.log(values)
    half = float(stdtrit(logs.size - 1, LEVEL)) * float(np.std(logs, ddof=1)) * math.sqrt(1 + 1 / logs.size)
    return float(np.mean(logs)), half


def _value(head: RunDocument, series: HistorySeries) -> float | None:
    key = (series.workload, series.metric, series.shape)
    for step in head.steps:
        for value in step.values:
            if (step.workload, value.metric, value.labels.get("shape")) == key:
                return value.value
    return None


def _compare(series: HistorySeries, value: float) -> StoredComparison:
    runs = len(series.values)
    interval = None
    if runs >= MIN_RUNS:
        centre, half = _centre_and_half(series.values)
        interval = (rounded(math.exp(centre - half)), rounded(math.exp(centre + half)))
    return StoredComparison(
        workload=series.workload,
        shape=series.shape,
        metric=series.metric,
        unit=metric(series.metric).unit,
        head=rounded(value),
        runs=runs,
        typical=rounded(math.exp(float(np.mean(np.log(series.values))))),
        interval=interval,
        confidence=rounded(2 * LEVEL - 1) if interval else None,
    )
