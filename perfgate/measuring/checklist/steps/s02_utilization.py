"""Step 2: how much of the time the device works, and how long it idles in each call."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.document.run import Finding, Value
from perfgate.measuring.checklist.limits import Limits, MaybeEvidence, below, finding
from perfgate.measuring.checklist.recorded import device_times_missing, or_absent, profiled
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome
from perfgate.measuring.checklist.traces import steady_calls
from perfgate.measuring.checklist.values import missing, several
from perfgate.measuring.counting.collect import calls_within
from perfgate.measuring.devices.card import read_under_load
from perfgate.measuring.devices.device import Device
from perfgate.measuring.timing.calls import find_steady_state
from perfgate.system.garbage import quiet
from perfgate.trace.analysis import union_length
from perfgate.trace.summary import StepParts

_TIMELINE_METRICS = ("utilization.busy", "utilization.gap")
_FEWEST_CALLS = 20
_MOST_CALLS = 100
# A workload of minutes per call gets fewer than twenty rather than an hour.
_LONGEST_NS = 2_000_000_000
_FEWEST_LONG_CALLS = 3
# The driver's utilization is that of the last second or so, and npu-smi takes about a second to tell it.
_REPORTED_SECONDS = 5.0
_FEWEST_READINGS = 2


class UtilizationStep:
    """Kernel time from a trace over wall time from a run without it: the profiler stretches gaps, not kernels."""

    card = card(2)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape. Without a kernel timeline only the host's own utilization is real."""
        outcome = StepOutcome()
        with quiet():
            for shape in context.workload.shapes:
                context.progress(f"utilization with inputs of shape {shape}")
                outcome.add(_measure_shape(context, shape))
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        outcome = StepOutcome()
        for summary in context.summaries:
            parts = summary.parts()
            if parts is None:
                outcome.values += missing(_TIMELINE_METRICS, device_times_missing(summary), {"shape": summary.shape})
                continue
            kernels_ns = parts.computing_ns + parts.fused_ns + parts.exposed_communication_ns
            numbers = {
                "utilization.busy": kernels_ns / parts.length_ns,
                "utilization.computing": parts.computing_ns / parts.length_ns,
                "utilization.free": parts.free_ns / parts.length_ns,
                "utilization.gap": (parts.length_ns - kernels_ns) / summary.spans / 1e9,
            }
            outcome.values += several(numbers, profiled(summary), count=summary.spans)
            outcome.findings += _judge_parts(parts, summary.shape, context.limits)
        return or_absent(outcome)


STEP = UtilizationStep()


def _measure_shape(context: StepContext, shape: str) -> StepOutcome:
    labels = {"shape": shape}
    call = context.workload.caller(shape)
    plain = _time_back_to_back(call, context.device, calls=_warm_up(context, call))
    host = plain.cpu_ns / (plain.wall_ns * max(context.threads, 1))
    host_value = Value(metric="utilization.host", value=host, count=plain.calls, labels=labels)
    if not context.shows_kernels:
        # Other processes take their part of the CPUs too, so a low share says no more than that.
        values = [*missing(_TIMELINE_METRICS, Message("times.no-own-timeline"), labels), host_value]
        return StepOutcome(values, below("utilization.host", host, context.limits, labels))
    reported = [] if context.quick else [_reported(context, call, labels)]
    trace = steady_calls(context, shape)
    busy_ns = union_length(trace.kernels().intervals) / trace.calls * plain.calls
    numbers = {
        # Kernels of the traced run may take a hair longer than in the run without; a share ends at 1.
        "utilization.busy": min(busy_ns / plain.wall_ns, 1.0),
        "utilization.gap": max(plain.wall_ns - busy_ns, 0) / plain.calls / 1e9,
    }
    return StepOutcome(
        [*several(numbers, labels, count=plain.calls), host_value, *reported],
        below("utilization.busy", numbers["utilization.busy"], context.limits, labels),
    )


def _warm_up(context: StepContext, call: Callable[[], Any]) -> int:
    """How many calls to make after it: 20 to 100 (20 when quick)."""
    state = find_steady_state(call, context.device, cap_seconds=1.0 if context.quick else 10.0)
    if state.call_ns > _LONGEST_NS:
        return _FEWEST_LONG_CALLS
    most = _FEWEST_CALLS if context.quick else _MOST_CALLS
    return calls_within(state.call_ns, seconds=2.0, fewest=_FEWEST_CALLS, most=most)


class _PlainCalls(NamedTuple):
    """So many calls one after another without a profiler: nanoseconds of wall time, and of CPU of the whole process."""

    calls: int
    wall_ns: int
    cpu_ns: int


def _time_back_to_back(call: Callable[[], Any], device: Device, *, calls: int) -> _PlainCalls:
    """Wait for the device once, at the end."""
    device.synchronize()
    cpu_started, started = device.process_cpu_ns(), device.clock_ns()
    for _ in range(calls):
        call()
    device.synchronize()
    # A coarse clock may not have moved; a share over nothing is no share.
    return _PlainCalls(calls, max(device.clock_ns() - started, 1), device.process_cpu_ns() - cpu_started)


def _reported(context: StepContext, call: Callable[[], Any], labels: dict[str, str]) -> Value:
    """What the driver says while calls are made and no profiler runs: npu-smi shows 0 % while one does."""

    def load() -> None:
        call()
        context.device.synchronize()

    readings = read_under_load(context.device.telemetry, load, _REPORTED_SECONDS)
    shares = [reading.utilization for reading in readings if reading.utilization is not None]
    if len(shares) < _FEWEST_READINGS:
        reason = Message("times.utilization-readings", {"times": len(shares), "seconds": _REPORTED_SECONDS})
        return Value(metric="utilization.reported", value=None, labels=labels, reason=reason)
    return Value(metric="utilization.reported", value=statistics.median(shares), count=len(shares), labels=labels)


class _Rest(NamedTuple):
    """What a device does beside computing: the rule that names it, the name of its share in evidence, and its time."""

    rule: str
    name: str
    ns: int


def _judge_parts(parts: StepParts, shape: str, limits: Limits) -> list[Finding]:
    """Judge how much of its steps a device ran kernels; what takes most of the time beside computing gives the words."""
    largest = max(
        _Rest("utilization.communication", "exposed communication", parts.exposed_communication_ns),
        _Rest("utilization.copies", "exposed copies", parts.exposed_copies_ns or 0),
        _Rest("utilization.preparing", "preparing", parts.preparing_ns),
        _Rest("utilization.busy", "free", parts.free_ns),
        key=lambda rest: rest.ns,
    )
    busy = (parts.computing_ns + parts.fused_ns + parts.exposed_communication_ns) / parts.length_ns
    evidence: MaybeEvidence = {
        "shape": shape,
        "computing": parts.computing_ns / parts.length_ns,
        largest.name: largest.ns / parts.length_ns,
    }
    findings = below("utilization.busy", busy, limits, evidence)
    return [finding(largest.rule, judged.severity, judged.evidence) for judged in findings]
