"""The checklist on a recording made elsewhere: the steps that it supports, and reasons
for the others.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message, together
from perfgate.document.run import CounterSet, KernelTimes, OperatorRow, StepResult
from perfgate.measuring.checklist.runner import find_steps, step_result
from perfgate.measuring.checklist.step import (
    RecordedStep,
    RecordingContext,
    StepOutcome,
    not_applicable,
)
from perfgate.trace.analysis.kernel_times import kernel_times
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.arithmetic import TimeSpan
from perfgate.trace.model.readings import Readings

NO_STEPS = Message("times.no-steps-marked")
_READ_SELDOM = Message("system.traffic-read-seldom")
NO_DEVICE = Message("times.nothing-on-device")
# All steps but the last, which is the gate's.
_NUMBERS = range(1, 20)


class RecordedChecklist(NamedTuple):
    """The parts of a run document that come from a recording."""

    steps: list[StepResult]
    counters: list[CounterSet]
    operators: list[OperatorRow]
    kernel_times: list[KernelTimes]


def recorded_checklist(context: RecordingContext) -> RecordedChecklist:
    """Judge the recording by every step; a shape is a rank or device."""
    checklist = RecordedChecklist([], [], [], [])
    members = find_steps()
    for number in _NUMBERS:
        step: object = members.get(number)
        outcome = not_applicable(Message("times.calls-needed"))
        if isinstance(step, RecordedStep):
            outcome = step.judge_recording(context)
        checklist.steps.append(step_result(card(number), context.workload, outcome))
        checklist.counters.extend(outcome.counters)
        checklist.operators.extend(outcome.operators)
    for summary in context.summaries:
        if (times := kernel_times(summary, context.workload)) is not None:
            checklist.kernel_times.append(times)
    return checklist


def profiled(summary: DeviceSummary) -> dict[str, str]:
    """The labels of a number that the profiler's own cost is in."""
    return {"shape": summary.shape, "under": "profiler"}


class CollectiveShares(NamedTuple):
    """The shares of the time in ``timed`` collectives that a rank waits, transfers data
    and idles; None was not recorded.

    Idle is the rest, mostly time before the last rank arrived (sample
    msinsight-910B-alexnet-2501: 96.4 of 106.0 ms).
    """

    timed: int
    waiting: float | None
    transit: float | None
    idle: float | None

    @property
    def without_transfer(self) -> float | None:
        """The share that no overlap with computing shortens: other ranks are late."""
        if self.waiting is None or self.idle is None:
            return None
        return self.waiting + self.idle


def collective_shares(summary: DeviceSummary) -> CollectiveShares:
    timed = [
        collective
        for collective in summary.timeline.collectives or ()
        if collective.elapsed_ns
    ]
    elapsed = sum(collective.elapsed_ns or 0 for collective in timed)
    shares: list[float | None] = [None, None, None]
    for index, part in enumerate(("wait_ns", "transit_ns", "idle_ns")):
        times = [getattr(collective, part) for collective in timed]
        if timed and None not in times:
            shares[index] = sum(times) / elapsed
    return CollectiveShares(len(timed), *shares)


def waiting_shares(summaries: Sequence[DeviceSummary]) -> list[float | None]:
    """For each rank the share of its time in collectives without a transfer; unknown
    shares take the mean of the others.
    """
    shares = [collective_shares(summary).without_transfer for summary in summaries]
    recorded = [share for share in shares if share is not None]
    if not recorded:
        return shares
    mean = statistics.mean(recorded)
    return [mean if share is None else share for share in shares]


def device_times_missing(summary: DeviceSummary) -> Message:
    """Why a summary has no parts."""
    if summary.on_host:
        return NO_DEVICE
    if summary.unit == "whole recording":
        return NO_STEPS
    if all(step.computing_ns is not None for step in summary.steps):
        return Message("times.first-step-unknown")
    return Message("times.device-by-step-unknown")


def setting_number(settings: Mapping[str, str], *names: str) -> int | None:
    """The first of these settings, None if it is not a positive number: ranks that
    differ are written as several numbers.
    """
    text = next((settings[name] for name in names if name in settings), "")
    if text.isdecimal():
        return int(text) or None
    return None


def or_absent(outcome: StepOutcome) -> StepOutcome:
    """The outcome; if all of its values are missing it becomes absent, and their
    reasons become its reason.
    """
    if all(value.value is None for value in outcome.values):
        reasons = [
            value.reason
            for value in outcome.values
            if isinstance(value.reason, Message)
        ]
        outcome.absent = "not_applicable"
        if any(reason != NO_DEVICE for reason in reasons):
            outcome.absent = "unavailable"
        outcome.reason = together(reasons)
    return outcome


def busy_window(summary: DeviceSummary) -> TimeSpan | None:
    """From the first to the last task of the steps on the device; None if no task of a
    device was recorded.
    """
    if summary.on_host:
        return None
    starts = []
    ends = []
    for part in summary.work:
        events = part.inside()
        if len(events):
            starts.append(int(events.start.min()))
            ends.append(int(events.end.max()))
    return TimeSpan(min(starts), max(ends)) if starts else None


def add_rate(
    outcome: StepOutcome, metric: str, readings: Readings, window: TimeSpan
) -> float | None:
    """Add the mean and the highest of a counter's rates, and return the mean; missing
    if it was read too seldom for that.
    """
    traffic = readings.mean_within(*window)
    if traffic is None:
        outcome.missing(metric, _READ_SELDOM)
        return None
    mean, highest, count = traffic
    for of, rate in (("mean", mean), ("highest", highest)):
        outcome.under(of=of).number(metric, rate, count=count)
    return mean
