"""Make the values of a step: numbers with their intervals, and missing ones with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from perfgate.document.message import Message
from perfgate.document.run import Value
from perfgate.stats.summary import CONFIDENCE, SampleEstimate, quantile

Labels = Mapping[str, str]
Interval = tuple[float | None, float | None]


def missing(metrics: str | Iterable[str], reason: Message, labels: Labels | None = None) -> list[Value]:
    """One value without a number for each metric."""
    names = [metrics] if isinstance(metrics, str) else metrics
    return [Value(metric=name, value=None, reason=reason, labels=dict(labels or {})) for name in names]


def several(numbers: Mapping[str, float], labels: Labels, *, count: int | None = None) -> list[Value]:
    return [Value(metric=name, value=number, count=count, labels=dict(labels)) for name, number in numbers.items()]


def with_interval(metric: str, value: float | None, interval: Interval, count: int, labels: Labels) -> Value:
    """A value with the interval that holds it at ``CONFIDENCE``."""
    return Value(metric=metric, value=value, interval=interval, confidence=CONFIDENCE, count=count, labels=dict(labels))


def of_estimate(metric: str, number: SampleEstimate, labels: Labels) -> Value:
    return with_interval(metric, number.value, number.interval, number.size, labels)


def lower_bound_only(metric: str, number: SampleEstimate, labels: Labels, reason: Message) -> Value:
    """A quantile that is not estimable: only its lower end is sure."""
    return Value(
        metric=metric,
        value=None,
        interval=(number.low, None),
        confidence=CONFIDENCE,
        count=number.size,
        labels=dict(labels),
        reason=reason,
    )


def median(metric: str, samples: npt.NDArray[np.float64], labels: Labels) -> Value:
    """The mean of the two middle samples if their number is even."""
    number = quantile(samples, 0.5)
    return with_interval(metric, float(np.median(samples)), number.interval, number.size, labels)
