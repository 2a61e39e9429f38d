"""Step 18: whether the trace is complete, and whether its events can be attributed to
the code that caused them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message, reason_of
from perfgate.errors import MeasuringError
from perfgate.measuring.checklist.step import (
    RecordingContext,
    StepContext,
    StepOutcome,
    unavailable,
)
from perfgate.measuring.checklist.traces import steady_calls
from perfgate.measuring.counting.collect import calls_within, read_calls
from perfgate.measuring.devices.device import Call, Device
from perfgate.measuring.timing.calls import CallBudget, time_calls
from perfgate.system.garbage import quiet
from perfgate.trace.analysis.stacks import attributed_share, stacks_of
from perfgate.trace.model.events import EventTable


class ProfileStep:
    """Read the trace of every shape, and profile some calls of the first in turns with
    plain calls.
    """

    card = card(18)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; unavailable, with the profiler's own message, if it
        records no events.
        """
        outcome = context.outcome()
        try:
            for shape in context.workload.shapes:
                context.doing("reading the trace of shape {shape}", shape=shape)
                trace = steady_calls(context, shape)
                of_shape = outcome.under(shape=shape)
                _judge(of_shape, trace.events)
            shape = context.workload.shapes[0]
            # A check compares no overhead, so that its first turn on the head is
            # enough.
            if not context.extent.brief and context.experiments.refusal is None:
                _measure_overhead(context, shape, outcome.under(shape=shape))
        except MeasuringError as error:
            return unavailable(reason_of(error))
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge every device of a recording; unavailable if none has a timeline."""
        outcome = context.outcome()
        for summary in context.summaries:
            if len(summary.timeline.events):
                _judge(outcome.under(shape=summary.shape), summary.timeline.events)
        if not outcome.values:
            return unavailable(Message("system.no-timeline"))
        outcome.missing("profile.overhead", Message("system.profiled-calls-only"))
        return outcome


STEP = ProfileStep()


def _judge(outcome: StepOutcome, events: EventTable) -> None:
    stacks = stacks_of(events)
    share = attributed_share(stacks)
    # If no launch at all was recorded, none was lost.
    incomplete = stacks.cut + (
        stacks.unlaunched if stacks.unlaunched < int(stacks.on_device.sum()) else 0
    )
    if share is None:
        code = "system.nothing-ran"
        if len(stacks.events):
            code = "system.no-stacks-recorded"
        outcome.missing("profile.attributed", Message(code))
    else:
        outcome.number("profile.attributed", share)
    outcome.number("profile.lost_events", incomplete)
    outcome.number(
        "profile.events", len(stacks.events) / stacks.units, count=stacks.units
    )
    outcome.above("profile.lost_events", incomplete)
    if share is not None:
        outcome.below("profile.attributed", share)


def _measure_overhead(context: StepContext, shape: str, outcome: StepOutcome) -> None:
    """Compare profiled calls with the plain calls before and after them; starting and
    stopping the profiler is not timed.
    """
    context.doing(
        "profiling calls of shape {shape} in turns with plain calls", shape=shape
    )
    call, device = context.workload.caller(shape), context.device
    rounds = 3 if context.extent.quick else 15
    is_late = "late_analysis" in device.capabilities
    if is_late:  # analysing one recording takes seconds
        rounds = 2
    with quiet(), tempfile.TemporaryDirectory(dir=context.artifacts) as folder:
        state = context.warm_up(shape, quick=0.5, full=0.5)
        calls = calls_within(state.call_ns, seconds=0.1, fewest=3, most=10)
        plain, recordings = [_plain_ns(call, device, calls)], []
        for number in range(rounds):
            if is_late:
                recordings.append(
                    device.record_raw(call, calls=calls, folder=Path(folder))
                )
            else:
                name = f"round-{number}"
                recordings.append(
                    device.record_trace(
                        call, calls=calls, folder=Path(folder), name=name
                    )
                )
            plain.append(_plain_ns(call, device, calls))
        profiled = {}
        for path in device.analyse_raw(Path(folder), recordings):
            # A typical call, by its mark in the trace.
            marks = read_calls(path).spans()
            profiled[path] = float(np.median(marks.end - marks.start))
    ratios = []
    for path, before, after in zip(recordings, plain, plain[1:]):
        if path in profiled:
            ratios.append(2 * profiled[path] / (before + after))
    overhead = float(np.median(ratios))
    outcome.number("profile.overhead", overhead, count=len(ratios))
    outcome.above("profile.overhead", overhead)


def _plain_ns(call: Call, device: Device, calls: int) -> float:
    return float(np.median(time_calls(call, device, CallBudget(calls)).wall))
