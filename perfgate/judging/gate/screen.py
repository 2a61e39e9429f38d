"""Stored runs of main only screen: what they flag is suspected until it is measured side by side.

limit = m + t(0.99, S-1) s sqrt(1 + 1/S), the prediction interval for one more session, from at least six sessions: on a shared
machine, sessions of the same code differ by several percent, so fewer say nothing.

A run of main that the sessions before it show as slower is kept like every other, and the trend sees it; but it does not become
what screens by itself, or a regression that nobody accepted would hide behind its own repetition. Which sessions make up the
level is found out whenever they are read, so that a word of acceptance counts from the moment it is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Callable, Optional

import numpy as np
from scipy.special import stdtrit

from perfgate.catalogue.lookup import metric
from perfgate.document.decision import Comparison, Outcome
from perfgate.document.history import Acceptance, History, HistorySeries
from perfgate.document.run import RunDocument
from perfgate.judging.gate.policy import fits
from perfgate.judging.gate.rounding import rounded

MIN_SESSIONS = 6
LEVEL = 0.99
SCREENED = ("latency.p50", "latency.p90")
# Who accepts one of these accepts that a call takes longer.
_OF_A_CALL = ("latency.low", *SCREENED, "latency.p99")


def screen(head: RunDocument, history: History) -> list[Comparison]:
    """Compare the head's own values with the stored sessions of main."""
    comparisons = []
    for series in history.series:
        value = _value(head, series)
        if value is not None and len(series.values) >= MIN_SESSIONS:
            comparisons.append(_compare(series, value))
    return comparisons


def level(values: Sequence[float], is_meant: Callable[[int], bool]) -> list[float]:
    """Return those of main's sessions, oldest first, that later ones are screened against.

    One that the level before it shows as regressed is left out. Where ``is_meant`` says of its index that it was accepted, the
    level before it is left behind instead.
    """
    kept: list[float] = []
    for index, value in enumerate(values):
        if len(kept) < MIN_SESSIONS or not _is_slower(kept, value):
            kept.append(value)
        elif is_meant(index):
            kept = [value]
    return kept


def accepts_a_slower_call(acceptance: Acceptance, workload: str, shape: str) -> bool:
    """Return whether what somebody accepted is that a call of this workload and shape takes longer."""
    return any(fits(acceptance.metric, name, workload, shape) for name in _OF_A_CALL)


def _is_slower(values: Sequence[float], value: float) -> bool:
    centre, half = _centre_and_half(values)
    return math.log(value) - centre > half


def _centre_and_half(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the logarithms, and half of the prediction interval for one more."""
    logs = np.log(values)
    half = float(stdtrit(logs.size - 1, LEVEL)) * float(np.std(logs, ddof=1)) * math.sqrt(1 + 1 / logs.size)
    return float(np.mean(logs)), half


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
    sessions = len(series.values)
    centre, half = _centre_and_half(series.values)
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
