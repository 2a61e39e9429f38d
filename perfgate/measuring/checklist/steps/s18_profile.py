"""Step 18: whether the trace can be trusted, and whether it leads back from what ran to the code that asked for it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message, reason_of
from perfgate.document.run import Value
from perfgate.errors import MeasuringError
from perfgate.measuring.checklist.limits import above, below
from perfgate.measuring.checklist.step import Limits, RecordingContext, StepContext, StepOutcome, unavailable
from perfgate.measuring.checklist.traces import steady_calls
from perfgate.measuring.checklist.values import missing
from perfgate.measuring.counting.collect import calls_within, read_calls
from perfgate.measuring.devices.device import Device
from perfgate.measuring.timing.calls import CallBudget, find_steady_state, time_calls
from perfgate.system.garbage import quiet
from perfgate.trace.events import EventTable
from perfgate.trace.stacks import attributed_share, stacks_of


class ProfileStep:
    """Read the trace of every shape, and profile some calls of the first in turns with plain ones."""

    card = card(18)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; unavailable, with the profiler's own words, where it records nothing."""
        outcome = StepOutcome()
        try:
            for shape in context.workload.shapes:
                context.progress(f"reading the trace of shape {shape}")
                trace, labels = steady_calls(context, shape), {"shape": shape}
                outcome.add(_judge(trace.events, labels, context.limits))
                size = trace.path.stat().st_size
                outcome.values.append(Value(metric="profile.size", value=size, labels=labels))
            outcome.add(_measure_overhead(context, context.workload.shapes[0]))
        except MeasuringError as error:
            return unavailable(reason_of(error))
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge every device of a recording; unavailable where none shows what ran when."""
        outcome = StepOutcome()
        for summary in context.summaries:
            if len(summary.timeline.events):
                outcome.add(_judge(summary.timeline.events, {"shape": summary.shape}, context.limits))
        if not outcome.values:
            return unavailable(Message("system.no-timeline"))
        outcome.values += missing("profile.overhead", Message("system.profiled-calls-only"))
        return outcome


STEP = ProfileStep()


def _judge(events: EventTable, labels: dict[str, str], limits: Limits) -> StepOutcome:
    stacks = stacks_of(events)
    share = attributed_share(stacks)
    # What is not complete. Where no launch at all was recorded, none was lost.
    incomplete = stacks.cut + (stacks.unlaunched if stacks.unlaunched < int(stacks.on_device.sum()) else 0)
    outcome = StepOutcome()
    if share is None:
        code = "system.no-stacks-recorded" if len(stacks.events) else "system.nothing-ran"
        outcome.values += missing("profile.attributed", Message(code), labels)
    else:
        outcome.values.append(Value(metric="profile.attributed", value=share, labels=labels))
    per_call = len(stacks.events) / stacks.units
    outcome.values += [
        Value(metric="profile.lost_events", value=incomplete, labels=labels),
        Value(metric="profile.events", value=per_call, count=stacks.units, labels=labels),
        Value(metric="profile.depth", value=stacks.depth(), labels=labels),
    ]
    outcome.findings += above("profile.lost_events", incomplete, limits, labels)
    if share is not None:
        outcome.findings += below("profile.attributed", share, limits, labels)
    return outcome


def _measure_overhead(context: StepContext, shape: str) -> StepOutcome:
    """Compare profiled calls with the plain ones before and after them; the profiler's start and end are not counted."""
    context.progress(f"profiling calls of shape {shape} in turns with plain ones")
    call, device, labels = context.workload.caller(shape), context.device, {"shape": shape}
    late = "late_analysis" in device.capabilities
    # Where a recording takes seconds to be analysed, two rounds are all that there is patience for.
    rounds = 2 if late or context.brief else 5 if context.quick else 15
    with quiet(), tempfile.TemporaryDirectory(dir=context.artifacts) as folder:
        state = find_steady_state(call, device, cap_seconds=0.5)
        calls = calls_within(state.call_ns, seconds=0.1, fewest=3, most=10)
        plain, recordings = [_plain_ns(call, device, calls)], []
        for number in range(rounds):
            if late:
                recordings.append(device.record_raw(call, calls=calls, folder=Path(folder)))
            else:
                name = f"round-{number}"
                recordings.append(device.record_trace(call, calls=calls, folder=Path(folder), name=name))
            plain.append(_plain_ns(call, device, calls))
        analysed = device.analyse_raw(Path(folder), recordings) if late else recordings
        # A typical call, by its mark in the trace.
        spans = {path: read_calls(path).spans() for path in analysed}
        profiled = {path: float(np.median(marks.end - marks.start)) for path, marks in spans.items()}
    ratios = [
        2 * profiled[path] / (before + after)
        for path, before, after in zip(recordings, plain, plain[1:])
        if path in profiled
    ]
    overhead = float(np.median(ratios))
    return StepOutcome(
        [Value(metric="profile.overhead", value=overhead, count=len(ratios), labels=labels)],
        above("profile.overhead", overhead, context.limits, labels),
    )


def _plain_ns(call: Callable[[], Any], device: Device, calls: int) -> float:
    return float(np.median(time_calls(call, device, CallBudget(calls)).wall))
