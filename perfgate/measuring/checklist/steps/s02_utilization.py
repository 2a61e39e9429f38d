"""Step 2: how much of the time the device works, and how long it idles in each call."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perfgate.catalogue.lookup import card
from perfgate.document.run import Evidence, Finding, Value
from perfgate.measuring.checklist.limits import below, noticed
from perfgate.measuring.checklist.step import StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._traces import steady_calls
from perfgate.measuring.counting.collect import calls_within
from perfgate.measuring.devices.device import Device
from perfgate.measuring.devices.load import read_under_load
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.timing.steady import find_steady_state
from perfgate.trace.analysis import union_length
from perfgate.trace.summary import StepParts

_FEWEST_CALLS = 20
_MOST_CALLS = 100
# A workload of minutes per call gets fewer than twenty rather than an hour.
_LONGEST_NS = 2_000_000_000
_FEWEST_LONG_CALLS = 3
# The driver's utilization is that of the last second or so, and npu-smi takes about a second to tell it.
_REPORTED_SECONDS = 5.0
_FEWEST_READINGS = 2
_NO_TIMELINE = "the profiler shows no kernels of this device on a timeline of their own; see utilization.host"


@dataclass(frozen=True)
class _Run:
    """So many calls one after another without a profiler: nanoseconds of wall time, and of CPU of the whole process."""

    calls: int
    wall_ns: int
    cpu_ns: int


class UtilizationStep:
    """Kernel time from a trace over wall time from a run without it: the profiler stretches gaps, not kernels."""

    card = card(2)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape. Without a kernel timeline only the host's own utilization is real."""
        values: list[Value] = []
        findings: list[Finding] = []
        with quiet():
            for shape in context.workload.shapes:
                context.progress(f"utilization with inputs of shape {shape}")
                found = _measure_shape(context, shape)
                values += found
                findings += [finding for value in found for finding in _judge(context, value)]
        return StepOutcome(status=status_of(findings), values=values, findings=findings)


STEP = UtilizationStep()


def _measure_shape(context: StepContext, shape: str) -> list[Value]:
    device, labels = context.device, {"shape": shape}
    call = context.workload.caller(shape)
    run = _run_calls(call, device, calls=_calls(context, call))
    host = Value(
        metric="utilization.host",
        value=run.cpu_ns / (run.wall_ns * max(context.threads, 1)),
        count=run.calls,
        labels=labels,
    )
    if "kernel_timeline" not in device.capabilities:
        absent = (Value(metric=name, value=None, labels=labels, reason=_NO_TIMELINE) for name in _TIMELINE_METRICS)
        return [*absent, host]
    reported = [] if context.quick else [_reported(context, call, labels)]
    busy_ns = _busy_ns(context, shape, calls=run.calls)
    return [
        # Kernels of the traced run may take a hair longer than in the run without; a share ends at 1.
        Value(metric="utilization.busy", value=min(busy_ns / run.wall_ns, 1.0), count=run.calls, labels=labels),
        Value(
            metric="utilization.gap",
            value=max(run.wall_ns - busy_ns, 0) / run.calls / 1e9,
            count=run.calls,
            labels=labels,
        ),
        host,
        *reported,
    ]


_TIMELINE_METRICS = ("utilization.busy", "utilization.gap")


def _calls(context: StepContext, call: Callable[[], Any]) -> int:
    """Warm up, and return how many calls to make: 20 to 100 (20 when quick)."""
    state = find_steady_state(call, context.device, cap_seconds=1.0 if context.quick else 10.0)
    if state.call_ns > _LONGEST_NS:
        return _FEWEST_LONG_CALLS
    most = _FEWEST_CALLS if context.quick else _MOST_CALLS
    return calls_within(state.call_ns, seconds=2.0, fewest=_FEWEST_CALLS, most=most)


def _run_calls(call: Callable[[], Any], device: Device, *, calls: int) -> _Run:
    """Make calls back to back and wait for the device once, at the end."""
    device.synchronize()
    cpu_started, started = device.process_cpu_ns(), device.clock_ns()
    for _ in range(calls):
        call()
    device.synchronize()
    # A coarse clock may not have moved; a share over nothing is no share.
    return _Run(calls, max(device.clock_ns() - started, 1), device.process_cpu_ns() - cpu_started)


def _reported(context: StepContext, call: Callable[[], Any], labels: dict[str, str]) -> Value:
    """Return what the driver says while calls are made and no profiler runs: npu-smi shows 0 % while one does."""

    def load() -> None:
        call()
        context.device.synchronize()

    readings = read_under_load(context.device.telemetry, load, _REPORTED_SECONDS)
    shares = [reading.utilization for reading in readings if reading.utilization is not None]
    if len(shares) < _FEWEST_READINGS:
        reason = f"the driver told its utilization {len(shares)} times in {_REPORTED_SECONDS:g} s of calls"
        return Value(metric="utilization.reported", value=None, labels=labels, reason=reason)
    return Value(metric="utilization.reported", value=statistics.median(shares), count=len(shares), labels=labels)


def _busy_ns(context: StepContext, shape: str, *, calls: int) -> float:
    """Return the nanoseconds in which a kernel of so many calls ran, on any stream, as traced calls tell."""
    trace = steady_calls(context, shape)
    return union_length(trace.kernels().intervals) / trace.calls * calls


def _judge(context: StepContext, value: Value) -> list[Finding]:
    if value.metric == "utilization.busy":
        return _below_limits(value, context.limits)
    if value.metric == "utilization.host" and "kernel_timeline" not in context.device.capabilities:
        # Other processes take their part of the CPUs too, so this says no more than that.
        return _below_limits(value, context.limits)
    return []


def judge_parts(parts: StepParts, shape: str, limits: Mapping[str, float]) -> list[Finding]:
    """Judge how much of its steps a device ran kernels; what takes most of the time beside computing gives the words."""
    others = {
        "utilization.communication": parts.exposed_communication_ns,
        "utilization.copies": parts.exposed_copies_ns or 0,
        "utilization.preparing": parts.preparing_ns,
        "utilization.busy": parts.free_ns,
    }
    largest = max(others, key=lambda rule: others[rule])
    busy = (parts.computing_ns + parts.exposed_communication_ns) / parts.length_ns
    evidence: dict[str, Evidence] = {
        "shape": shape,
        "computing": parts.computing_ns / parts.length_ns,
        _PART_NAMES[largest]: others[largest] / parts.length_ns,
    }
    found = below("utilization.busy", busy, given=limits, evidence=evidence)
    return [noticed(largest, finding.severity, finding.evidence) for finding in found]


_PART_NAMES = {
    "utilization.communication": "exposed communication",
    "utilization.copies": "exposed copies",
    "utilization.preparing": "preparing",
    "utilization.busy": "free",
}


def _below_limits(value: Value, limits: Mapping[str, float]) -> list[Finding]:
    if value.value is None:
        return []
    return below(value.metric, value.value, given=limits, evidence={"shape": value.labels["shape"]})
