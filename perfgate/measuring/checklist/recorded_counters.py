"""The counters over time of a recording, judged by the time in which its steps kept the device busy."""

from __future__ import annotations

from perfgate.document.message import Message
from perfgate.measuring.checklist.outcome import StepOutcome
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.arithmetic import TimeSpan
from perfgate.trace.model.readings import Readings

_READ_SELDOM = Message("system.traffic-read-seldom")


def busy_window(summary: DeviceSummary) -> TimeSpan | None:
    """From the first to the last task of the steps on the device; None if no task of a device was recorded."""
    device = [part.inside() for part in summary.work if not summary.on_host]
    busy = [(int(events.start.min()), int(events.end.max())) for events in device if len(events)]
    if busy:
        return TimeSpan(min(start for start, _ in busy), max(end for _, end in busy))
    return None


def add_rate(outcome: StepOutcome, metric: str, readings: Readings, window: TimeSpan) -> float | None:
    """Add the mean and the highest of a counter's rates, and return the mean; missing if it was read too seldom for that."""
    traffic = readings.mean_within(*window)
    if traffic is None:
        outcome.missing(metric, _READ_SELDOM)
        return None
    mean, highest, count = traffic
    for of, rate in (("mean", mean), ("highest", highest)):
        outcome.under(of=of).number(metric, rate, count=count)
    return mean
