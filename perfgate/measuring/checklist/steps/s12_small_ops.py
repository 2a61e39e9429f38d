"""Step 12: how many launches a call takes, how short they are, and whether the host keeps up with the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.run import Evidence, Finding, Value
from perfgate.measuring.checklist.limits import above, limit
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._launches import (
    judge_launches,
    judge_loops,
    launch_seconds,
    launch_values,
    launches_of,
    loops_of,
)
from perfgate.measuring.checklist.steps._traces import steady_summary
from perfgate.measuring.counting.collect import calls_within
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.timing.steady import find_steady_state
from perfgate.stats.summary import CONFIDENCE, quantile
from perfgate.trace.analysis import union_length
from perfgate.trace.events import KERNEL_KINDS
from perfgate.trace.summary import DeviceSummary
from perfgate.trace.tally import SYNCS, CallTally

# Six samples are the fewest whose order statistics hold the median with 95 % confidence.
_FEWEST_ENQUEUED = 6
_MOST_ENQUEUED = 100
_HOST_DEVICE = "the host is the device: a call returns when it is done, so there is no queue to keep filled"
_RECORDED = "a recording shows calls under the profiler, which slows launching; it takes calls made here"
_NOTHING = "the trace holds no kernel and no operator"
_NO_KERNEL = "no kernel ran on the device"


@dataclass(frozen=True)
class _Effort:
    warm_up_seconds: float
    enqueue_seconds: float


_QUICK = _Effort(warm_up_seconds=0.5, enqueue_seconds=0.5)
_FULL = _Effort(warm_up_seconds=5.0, enqueue_seconds=3.0)


@dataclass
class _Found:
    """What was found of one shape, or of all of them."""

    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def outcome(self) -> StepOutcome:
        """Return it as the outcome of the step."""
        if not self.values:
            return StepOutcome(status="unavailable", reason=_NOTHING)
        return StepOutcome(status=status_of(self.findings), values=self.values, findings=self.findings)


class SmallOpsStep:
    """A short trace for the launches, one call for the lines they come from, and calls without a profiler for the queue."""

    card = card(12)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; unavailable where a call runs nothing that the profiler knows."""
        found = _Found()
        with quiet():
            for shape in context.workload.shapes:
                context.progress(f"launches of a call with inputs of shape {shape}")
                _measure_shape(context, shape, found)
        return found.outcome()

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the launches of every rank of a recording."""
        found = _Found()
        for summary in context.summaries:
            _judge_recorded(summary, context.limits, found)
        return found.outcome()


STEP = SmallOpsStep()


def _measure_shape(context: StepContext, shape: str, found: _Found) -> None:
    effort = _QUICK if context.quick else _FULL
    call, labels = context.workload.caller(shape), {"shape": shape}
    state = find_steady_state(call, context.device, cap_seconds=effort.warm_up_seconds)
    summary = steady_summary(context, shape)
    tally = _dispatched(context, shape)
    names = {name for name, op in tally.ops.items() if op.count and not op.view}
    launches = launches_of(summary, shorter_ns=_shorter_ns(context.limits), dispatched=names)
    if launches is None:
        return
    loops = loops_of(tally.order or [])
    line = loops[0].line if loops else None
    found.values += [*launch_values(launches, labels), *_launch_time(summary, labels)]
    found.findings += judge_launches(launches, context.limits, shape=shape, line=line)
    found.findings += judge_loops(loops, context.limits, shape=shape)
    found.values.append(_launch_bound(context, call, summary, tally, shape, enqueued=_enqueued(state.call_ns, effort)))
    found.findings += _judge_launch_bound(found.values[-1], context.limits, launches.count)


def _judge_recorded(summary: DeviceSummary, limits: Mapping[str, float], found: _Found) -> None:
    labels = {"shape": summary.shape, "under": "profiler"}
    launches = launches_of(summary, shorter_ns=_shorter_ns(limits))
    if launches is None:
        return
    found.values += [*launch_values(launches, labels), *_launch_time(summary, labels)]
    reason = _HOST_DEVICE if summary.on_host else _RECORDED
    found.values.append(Value(metric="small_ops.launch_bound", value=None, labels=labels, reason=reason))
    found.findings += judge_launches(launches, limits, shape=summary.shape, line=None)


def _shorter_ns(limits: Mapping[str, float]) -> float:
    return limit("small_ops.short", limits) * 1e9


def _launch_time(summary: DeviceSummary, labels: dict[str, str]) -> list[Value]:
    seconds = launch_seconds(summary)
    return [] if seconds is None else [Value(metric="small_ops.launch_time", value=seconds, labels=labels)]


def _dispatched(context: StepContext, shape: str) -> CallTally:
    """Return what one steady call dispatches, in order."""
    # torch is imported here, so that the step can be listed without it.
    from perfgate.measuring.counting.dispatch import CountingMode

    workload, tally = context.workload, CallTally(order=[])
    inputs = workload.pool(shape)[0]
    CountingMode(tally, root=context.root, waits=context.device.host_waits()).count(lambda: workload.invoke(inputs))
    context.device.synchronize()
    return tally


def _enqueued(call_ns: float, effort: _Effort) -> int:
    return calls_within(call_ns, seconds=effort.enqueue_seconds, fewest=_FEWEST_ENQUEUED, most=_MOST_ENQUEUED)


def _launch_bound(
    context: StepContext,
    call: Callable[[], Any],
    summary: DeviceSummary,
    tally: CallTally,
    shape: str,
    *,
    enqueued: int,
) -> Value:
    """Return the time in which the host puts a call into an empty queue, over the time in which kernels of a call run.

    Launching is timed without the profiler, kernels within it: it slows the one and hardly the other.
    """
    metric, labels = "small_ops.launch_bound", {"shape": shape}
    if "queue" not in context.device.capabilities:
        return Value(metric=metric, value=None, labels=labels, reason=_HOST_DEVICE)
    if waits := tally.values()[SYNCS]:
        reason = f"a call waits for the device {waits} times itself, and that time cannot be told from launching"
        return Value(metric=metric, value=None, labels=labels, reason=reason)
    busy = float(np.median([_busy_ns(summary, span) for span in range(summary.spans)]))
    if not busy:
        return Value(metric=metric, value=None, labels=labels, reason=_NO_KERNEL)
    times = quantile(np.asarray([_enqueue_ns(context, call) for _ in range(enqueued)]), 0.5)
    low, high = times.interval
    return Value(
        metric=metric,
        value=times.value / busy,
        interval=(None if low is None else low / busy, None if high is None else high / busy),
        confidence=CONFIDENCE,
        count=times.size,
        labels=labels,
    )


def _busy_ns(summary: DeviceSummary, span: int) -> int:
    return union_length(summary.work[0].when(span, *KERNEL_KINDS))


def _enqueue_ns(context: StepContext, call: Callable[[], Any]) -> int:
    """Return the nanoseconds until a call returns that finds the queue empty."""
    context.device.synchronize()
    started = context.device.clock_ns()
    call()
    ended = context.device.clock_ns()
    context.device.synchronize()
    return ended - started


def _judge_launch_bound(value: Value, limits: Mapping[str, float], launches: float) -> list[Finding]:
    if value.value is None:
        return []
    evidence: dict[str, Evidence] = {"shape": value.labels["shape"], "launches": round(launches)}
    return above(value.metric, value.value, given=limits, evidence=evidence)
