"""Step 17: what memory does over many steady calls: its peaks, what is reserved in vain, new segments, growth, page faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from gc import collect
from typing import Any

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.document.run import Finding, Value
from perfgate.measuring.checklist.limits import MaybeEvidence, above, finding, limit
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, unavailable
from perfgate.measuring.checklist.values import missing, of_quantile, several, with_interval
from perfgate.measuring.counting.collect import calls_within
from perfgate.measuring.counting.counters import count_calls
from perfgate.measuring.devices.device import MemoryStatistics
from perfgate.measuring.timing.calls import find_steady_state
from perfgate.stats.robust import theil_sen
from perfgate.stats.summary import quantile
from perfgate.system.garbage import quiet
from perfgate.trace.summary import DeviceSummary

# Of fewer calls the interval of a slope says nothing.
_FEWEST_CALLS = 12
_TOP_OPS = 10

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Effort:
    calls: int
    seconds: float
    warm_up_seconds: float

    def shared(self, shapes: int) -> _Effort:
        """The part of one of several shapes."""
        return replace(self, seconds=self.seconds / shapes, warm_up_seconds=self.warm_up_seconds / shapes)


_QUICK = _Effort(calls=60, seconds=1.5, warm_up_seconds=0.5)
_FULL = _Effort(calls=300, seconds=8.0, warm_up_seconds=5.0)


class MemoryStep:
    """Watch the allocator and the process over steady calls of every shape; where memory grows, name what stays allocated."""

    card = card(17)

    def measure(self, context: StepContext) -> StepOutcome:
        outcome = StepOutcome()
        for shape in context.workload.shapes:
            context.progress(f"memory over steady calls of shape {shape}")
            with quiet():
                values = _measure_shape(context, shape)
            outcome.values += values
            outcome.findings += _judge_shape(context, shape, {value.metric: value for value in values})
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the peaks that a recording holds, rank by rank; growth takes calls made here."""
        outcome = StepOutcome()
        for summary in context.summaries:
            outcome.values += _recorded_values(summary)
            outcome.values += _memory_of_operators(summary)
            outcome.findings += _largest_allocation(summary)
        return outcome if outcome.values else unavailable(Message("system.no-memory-recorded"))


STEP = MemoryStep()


@dataclass(frozen=True)
class _Watched:
    """What was read after each of some steady calls, one entry a call; the allocator's statistics before and after all."""

    resident: Floats
    faults: Floats
    allocated: Floats | None
    before: MemoryStatistics | None
    after: MemoryStatistics | None


def _effort(context: StepContext) -> _Effort:
    if not context.quick:
        return _FULL
    seconds = context.seconds(quick=_QUICK.seconds, full=_FULL.seconds)
    return replace(_QUICK, seconds=seconds, warm_up_seconds=_QUICK.warm_up_seconds * seconds / _QUICK.seconds)


def _measure_shape(context: StepContext, shape: str) -> list[Value]:
    effort = _effort(context).shared(len(context.workload.shapes))
    call = context.workload.caller(shape)
    state = find_steady_state(call, context.device, cap_seconds=effort.warm_up_seconds)
    calls = calls_within(state.call_ns, seconds=effort.seconds, fewest=_FEWEST_CALLS, most=effort.calls)
    watched = _watch(context, call, calls)
    allocated = watched.allocated
    if allocated is None:
        # The profiler that counts allocations makes the process grow itself, so it comes last. Of its first call it may
        # count too much.
        counts = context.device.count_memory([call] * (calls + 1))
        allocated = None if counts is None else np.cumsum([float(count.kept_bytes) for count in counts[1:]])
    labels = {"shape": shape}
    return [
        *_growth("memory.growth", allocated, labels),
        Value(metric="memory.resident", value=float(watched.resident.max()), count=calls, labels=labels),
        *_growth("memory.resident_growth", watched.resident, labels),
        of_quantile("memory.faults", quantile(watched.faults, 0.5), labels),
        *_pool_values(watched, calls, labels),
    ]


def _watch(context: StepContext, call: Callable[[], Any], calls: int) -> _Watched:
    device = context.device
    resident, faults, allocated = np.zeros(calls), np.zeros(calls), np.zeros(calls)
    device.synchronize()
    device.reset_memory_peaks()
    before = device.memory_statistics()
    after = before
    for number in range(calls):
        faults_before = device.host_memory().minor_faults
        call()
        device.synchronize()
        faults[number] = device.host_memory().minor_faults - faults_before
        collect()
        after = device.memory_statistics()
        allocated[number] = after.allocated if after else 0
        resident[number] = device.host_memory().resident
    return _Watched(resident, faults, allocated if after else None, before, after)


def _pool_values(watched: _Watched, calls: int, labels: dict[str, str]) -> list[Value]:
    before, after = watched.before, watched.after
    if before is None or after is None:
        # One word for the whole pool.
        return missing("memory.allocated", Message("system.no-pool"), labels)
    numbers = {
        "memory.allocated": float(after.peak_allocated),
        "memory.reserved": float(after.peak_reserved),
        "memory.fragmentation": _fragmentation(after.peak_allocated, after.peak_reserved),
        "memory.inactive_split": float(after.inactive_split),
        "memory.retries": float(after.retries - before.retries),
        "memory.segments": (after.segments - before.segments) / calls,
    }
    return several(numbers, labels, count=calls)


def _fragmentation(allocated: float, reserved: float) -> float:
    return 1.0 - allocated / reserved if reserved else 0.0


def _growth(metric: str, series: Floats | None, labels: dict[str, str]) -> list[Value]:
    if series is None:
        return missing(metric, Message("system.allocations-uncounted"), labels)
    slope = theil_sen(series)
    return [with_interval(metric, slope.value, (slope.low, slope.high), series.size, labels)]


def _judge_shape(context: StepContext, shape: str, values: dict[str, Value]) -> list[Finding]:
    limits, findings = context.limits, list[Finding]()
    numbers = {metric: value.value for metric, value in values.items() if value.value is not None}
    for rule in ("memory.segments", "memory.retries", "memory.faults"):
        if rule in numbers:
            findings += above(rule, numbers[rule], limits, {"shape": shape})
    reserved = numbers.get("memory.reserved", 0.0)
    if "memory.fragmentation" in numbers and reserved >= limit("memory.fragmentation.size", limits):
        evidence: MaybeEvidence = {"shape": shape, "reserved [B]": reserved}
        findings += above("memory.fragmentation", numbers["memory.fragmentation"], limits, evidence)
    return findings + _judge_growth(context, shape, values["memory.growth"], values["memory.resident_growth"])


def _judge_growth(context: StepContext, shape: str, allocator: Value, process: Value) -> list[Finding]:
    """Call it growth where the whole interval lies above the limit; of the process, what the allocator does not explain."""
    explained, findings = 0.0, list[Finding]()
    low, high = allocator.interval or (None, None)
    if low is not None:
        grows = low > limit("memory.growth.warning", context.limits)
        evidence: MaybeEvidence = {
            **_growth_evidence(allocator, shape),
            **(_leaking_op(context, shape) if grows else {}),
        }
        findings += above("memory.growth", low, context.limits, evidence)
        if "own_memory" not in context.device.capabilities:
            explained = max(high or 0.0, 0.0)
    low, _ = process.interval or (None, None)
    if low is not None:
        evidence = _growth_evidence(process, shape)
        findings += above("memory.resident_growth", low - explained, context.limits, evidence)
    return findings


def _growth_evidence(value: Value, shape: str) -> MaybeEvidence:
    return {"growth [B/call]": value.value or 0.0, "calls": value.count or 0, "shape": shape}


def _leaking_op(context: StepContext, shape: str) -> MaybeEvidence:
    """The operator, and its line, whose results most often outlive a call; nothing where none is seen to."""
    counters = count_calls(context.workload, context.device, shape, repeats=2, root=context.root)
    sites = [site for site in counters.sites if site.metric == "memory.kept"]
    if not sites:
        return {}
    most = max(sites, key=lambda site: (site.count, site.line is not None))
    return {"op": most.name, "blocks": most.count, "line": most.line}


def _recorded_values(summary: DeviceSummary) -> list[Value]:
    """The peaks by component: PTA is torch_npu's allocator, APP the whole process."""
    peaks = summary.timeline.memory
    values = []
    for name, peak in sorted(peaks.items()):
        component, _, part = name.rpartition(".")
        if part in ("allocated", "reserved"):
            values += several({f"memory.{part}": peak}, {"shape": summary.shape, "component": component})
    allocated, reserved = peaks.get("PTA.allocated"), peaks.get("PTA.reserved")
    if allocated is not None and reserved:
        labels = {"shape": summary.shape, "component": "PTA"}
        values += several({"memory.fragmentation": _fragmentation(allocated, reserved)}, labels)
    return values


def _memory_of_operators(summary: DeviceSummary) -> list[Value]:
    """What the operators that allocated most did in all, and what they held when all together held most."""
    allocations = sorted(summary.timeline.allocations or (), key=lambda total: (-total.total_bytes, total.name))
    values = []
    for total in allocations[:_TOP_OPS]:
        labels = {"shape": summary.shape, "op": total.name}
        numbers = {"memory.operator_total": total.total_bytes, "memory.operator_held": total.held_bytes}
        values += several(numbers, labels, count=total.count)
    return values


def _largest_allocation(summary: DeviceSummary) -> list[Finding]:
    """Say which operator allocated most, where the recording lists allocations."""
    allocations = summary.timeline.allocations
    if not allocations:
        return []
    most = max(allocations, key=lambda total: (total.total_bytes, total.name))
    evidence: MaybeEvidence = {
        "op": most.name,
        "total [B]": most.total_bytes,
        "largest [B]": most.largest_bytes,
        "held at the peak [B]": most.held_bytes,
        "blocks": most.count,
        "shape": summary.shape,
    }
    return [finding("memory.largest", "info", evidence)]
