"""The checklist on a recording that was made elsewhere: what it can say, and why it says no more."""

from __future__ import annotations

from dataclasses import dataclass

from perfgate.catalogue.lookup import card
from perfgate.document.run import CounterSet, KernelTimes, OperatorRow, StepResult
from perfgate.measuring.checklist.runner import find_steps, step_result
from perfgate.measuring.checklist.step import RecordedStep, RecordingContext, StepOutcome, not_applicable
from perfgate.trace.kernel_times import kernel_times
from perfgate.trace.summary import DeviceSummary

NO_STEPS = (
    "the recording marks no steps; call prof.step() after every iteration, so that a step can be told from the next"
)
NO_DEVICE = "the recording shows nothing that ran on a device"
_NO_DEVICE_TIMES = "the recording does not say what the device did in each of its steps"
_NO_BEGIN = (
    "nothing says when the first step began: there is no timeline, and the table of steps has no column Preparing"
)
_TAKES_CALLS = "it takes calls made here, with settings of their own; a recording shows calls that were made"
# All steps but the last, which is the gate's.
_NUMBERS = range(1, 20)


@dataclass(frozen=True)
class RecordedChecklist:
    """What a recording gives a run document."""

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
        outcome = step.judge_recording(context) if isinstance(step, RecordedStep) else not_applicable(_TAKES_CALLS)
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


def device_times_missing(summary: DeviceSummary) -> str:
    """Why a summary has no parts."""
    if summary.on_host:
        return NO_DEVICE
    if summary.unit == "whole recording":
        return NO_STEPS
    return _NO_BEGIN if all(step.computing_ns is not None for step in summary.steps) else _NO_DEVICE_TIMES


def or_absent(outcome: StepOutcome) -> StepOutcome:
    """The outcome; where all of its values are missing it is absent, and their reasons are its reason."""
    if all(value.value is None for value in outcome.values):
        reasons = dict.fromkeys(str(value.reason or "") for value in outcome.values)
        outcome.absent = "not_applicable" if set(reasons) <= {NO_DEVICE} else "unavailable"
        outcome.reason = "; ".join(reasons)
    return outcome
