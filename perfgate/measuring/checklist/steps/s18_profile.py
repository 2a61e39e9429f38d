"""Step 18: whether the trace can be trusted, and whether it leads back from what ran to the code that asked for it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.run import Finding, Value
from perfgate.errors import MeasuringError
from perfgate.measuring.checklist.limits import above, below
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._traces import steady_calls
from perfgate.measuring.counting.collect import calls_within, read_calls
from perfgate.measuring.devices.device import Device
from perfgate.measuring.timing.calls import CallBudget, time_calls
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.timing.steady import find_steady_state
from perfgate.trace.events import EventTable
from perfgate.trace.stacks import Stacks, attributed_share, stacks_of

_NO_STACKS = (
    "the recording joins nothing that ran with a stack of the host; record the host too, on a CPU with_stack=True"
)
_NOTHING_RAN = "the trace shows nothing that ran"
_NO_PLAIN_CALLS = "a recording shows profiled calls alone"


@dataclass(frozen=True)
class _Effort:
    """``rounds`` of profiled calls between plain ones, each of at most ``seconds`` and ``most`` calls."""

    rounds: int
    seconds: float
    most: int


# Where a recording takes seconds to be analysed, fewer rounds tell as much as there is patience for.
_QUICK = _Effort(rounds=5, seconds=0.1, most=10)
_FULL = _Effort(rounds=15, seconds=0.1, most=10)
_LATE_ROUNDS = 2


class ProfileStep:
    """Read the trace of every shape, and profile some calls of the first in turns with plain ones."""

    card = card(18)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; unavailable, with the profiler's own words, where it records nothing."""
        try:
            return self._measure(context)
        except MeasuringError as error:
            return StepOutcome(status="unavailable", reason=str(error))

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge every device of a recording; unavailable where none shows what ran when."""
        judged = [
            _judge(summary.timeline.events, {"shape": summary.shape}, context.limits)
            for summary in context.summaries
            if len(summary.timeline.events)
        ]
        if not judged:
            return StepOutcome(status="unavailable", reason="the recording holds tables, and no timeline to draw")
        values = [value for one in judged for value in one.values]
        values.append(Value(metric="profile.overhead", value=None, reason=_NO_PLAIN_CALLS))
        findings = [finding for one in judged for finding in one.findings]
        return StepOutcome(status=status_of(findings), values=values, findings=findings)

    def _measure(self, context: StepContext) -> StepOutcome:
        values: list[Value] = []
        findings: list[Finding] = []
        for shape in context.workload.shapes:
            context.progress(f"reading the trace of shape {shape}")
            trace, labels = steady_calls(context, shape), {"shape": shape}
            judged = _judge(trace.events, labels, context.limits)
            values += [*judged.values, Value(metric="profile.size", value=trace.path.stat().st_size, labels=labels)]
            findings += judged.findings
        overhead = _overhead(context, context.workload.shapes[0])
        values.append(overhead.value)
        findings += overhead.findings
        return StepOutcome(status=status_of(findings), values=values, findings=findings)


STEP = ProfileStep()


class _Judged(NamedTuple):
    values: list[Value]
    findings: list[Finding]


def _judge(events: EventTable, labels: dict[str, str], limits: Mapping[str, float]) -> _Judged:
    stacks = stacks_of(events)
    share, lost = attributed_share(stacks), _lost(stacks)
    missing = _NO_STACKS if len(stacks.events) else _NOTHING_RAN
    values = [
        Value(metric="profile.attributed", value=share, labels=labels, reason=missing if share is None else None),
        Value(metric="profile.lost_events", value=lost, labels=labels),
        Value(metric="profile.events", value=len(stacks.events) / stacks.units, count=stacks.units, labels=labels),
        Value(metric="profile.depth", value=stacks.depth(), labels=labels),
    ]
    findings = above("profile.lost_events", lost, given=limits, evidence=labels)
    if share is not None:
        findings += below("profile.attributed", share, given=limits, evidence=labels)
    return _Judged(values, findings)


def _lost(stacks: Stacks) -> int:
    """Count what is not complete. Where no launch at all was recorded, none was lost."""
    work = int(stacks.on_device.sum())
    return stacks.cut + (stacks.unlaunched if stacks.unlaunched < work else 0)


class _Overhead(NamedTuple):
    value: Value
    findings: list[Finding]


def _overhead(context: StepContext, shape: str) -> _Overhead:
    """Compare profiled calls with the plain ones before and after them; the profiler's start and end are not counted."""
    context.progress(f"profiling calls of shape {shape} in turns with plain ones")
    call, labels = context.workload.caller(shape), {"shape": shape}
    effort = _QUICK if context.quick else _FULL
    late = "late_analysis" in context.device.capabilities
    rounds = _LATE_ROUNDS if late else effort.rounds
    with quiet(), tempfile.TemporaryDirectory(dir=context.artifacts) as folder:
        state = find_steady_state(call, context.device, cap_seconds=0.5)
        calls = calls_within(state.call_ns, seconds=effort.seconds, fewest=3, most=effort.most)
        plain, recordings = [_plain(call, context.device, calls)], []
        for number in range(rounds):
            recordings.append(_profile(call, context.device, calls, Path(folder), number, late=late))
            plain.append(_plain(call, context.device, calls))
        recorded = context.device.analyse_raw(Path(folder), recordings) if late else recordings
        profiled = {path: _profiled(path) for path in recorded}
    ratios = [
        2 * profiled[path] / (before + after)
        for path, before, after in zip(recordings, plain, plain[1:])
        if path in profiled
    ]
    value = float(np.median(ratios))
    findings = above("profile.overhead", value, given=context.limits, evidence=labels)
    return _Overhead(Value(metric="profile.overhead", value=value, count=len(ratios), labels=labels), findings)


def _profile(call: Callable[[], Any], device: Device, calls: int, folder: Path, number: int, *, late: bool) -> Path:
    if late:
        return device.record_raw(call, calls=calls, folder=folder)
    return device.record_trace(call, calls=calls, folder=folder, name=f"round-{number}")


def _plain(call: Callable[[], Any], device: Device, calls: int) -> float:
    return float(np.median(time_calls(call, device, CallBudget(calls)).wall))


def _profiled(path: Path) -> float:
    """Return the nanoseconds of a typical call, by its mark in the trace."""
    spans = read_calls(path).spans()
    return float(np.median(spans.end - spans.start))
