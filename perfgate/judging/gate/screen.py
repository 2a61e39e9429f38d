"""Stored runs of main only screen: what they flag is suspected until it is measured side by side.

limit = m + t(0.99, S-1) s sqrt(1 + 1/S), the prediction interval for one more session, from at least six sessions: on a shared
machine, sessions of the same code differ by several percent, so fewer say nothing.
"""

from __future__ import annotations

import math
from typing import Optional

import numpy as np
from scipy.special import stdtrit

from perfgate.catalogue.lookup import metric
from perfgate.document.decision import Comparison, Outcome
from perfgate.document.history import History, HistorySeries
from perfgate.document.run import RunDocument
from perfgate.judging.gate.rounding import rounded

MIN_SESSIONS = 6
LEVEL = 0.99
SCREENED = ("latency.p50", "latency.p90")


def screen(head: RunDocument, history: History) -> list[Comparison]:
    """Compare the head's own values with the stored sessions of main."""
    comparisons = []
    for series in history.series:
        value = _value(head, series)
        if value is not None and len(series.values) >= MIN_SESSIONS:
            comparisons.append(_compare(series, value))
    return comparisons


def _value(head: RunDocument, series: HistorySeries) -> Optional[float]:
    for step in head.steps:
        for value in step.values:
            if (step.workload, value.metric, value.labels.get("shape")) == (
                series.workload,
                series.metric,
                series.shape,
            ):
                return value.value
    return None


def _compare(series: HistorySeries, value: float) -> Comparison:
    logs = np.log(series.values)
    sessions = logs.size
    centre = float(np.mean(logs))
    half = float(stdtrit(sessions - 1, LEVEL)) * float(np.std(logs, ddof=1)) * math.sqrt(1 + 1 / sessions)
    effect = math.log(value) - centre
    described = metric(series.metric)
    outcome: Outcome = "regressed" if effect > half else "improved" if effect < -half else "unchanged"
    return Comparison(
        workload=series.workload,
        shape=series.shape,
        metric=series.metric,
        unit=described.unit,
        better=described.better,
        method="screen",
        outcome=outcome,
        gating=False,
        base=rounded(math.exp(centre)),
        head=rounded(value),
        delta=rounded(math.expm1(effect)),
        interval=(rounded(math.expm1(effect - half)), rounded(math.expm1(effect + half))),
        confidence=rounded(2 * LEVEL - 1),
        reason=f"against {sessions} stored sessions of main; suspected until measured side by side",
    )
