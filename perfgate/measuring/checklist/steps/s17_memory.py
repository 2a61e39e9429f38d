"""Step 17: what memory does over many steady calls: its peaks, what is reserved in vain, new segments, growth, page faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from gc import collect
from typing import Any

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import card
from perfgate.document.run import Evidence, Finding, Value
from perfgate.measuring.checklist.limits import above, limit, noticed
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, status_of
from perfgate.measuring.counting.collect import calls_within
from perfgate.measuring.counting.counters import count_calls
from perfgate.measuring.devices.device import MemoryStatistics
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.timing.steady import find_steady_state
from perfgate.stats.lines import Slope, theil_sen
from perfgate.stats.summary import CONFIDENCE, quantile
from perfgate.trace.recording import AllocationTotal
from perfgate.trace.summary import DeviceSummary

# Of fewer calls the interval of a slope says nothing.
_FEWEST_CALLS = 12
_NO_POOL = "the framework keeps no pool of this device's memory"
_UNCOUNTED = "the device's allocations cannot be counted"
_NO_MEMORY = "the recording holds no memory: record with profile_memory=True"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Effort:
    calls: int
    seconds: float
    warm_up_seconds: float

    def shared(self, shapes: int) -> _Effort:
        """Return the part of one of several shapes."""
        return _Effort(self.calls, self.seconds / shapes, self.warm_up_seconds / shapes)


_QUICK = _Effort(calls=60, seconds=1.5, warm_up_seconds=0.5)
_FULL = _Effort(calls=300, seconds=8.0, warm_up_seconds=5.0)


@dataclass(frozen=True)
class _Watched:
    """What was read after each of some steady calls, one entry a call; the allocator's statistics before and after all."""

    resident: Floats
    faults: Floats
    allocated: Floats | None
    before: MemoryStatistics | None
    after: MemoryStatistics | None


class MemoryStep:
    """Watch the allocator and the process over steady calls of every shape; where memory grows, name what is kept."""

    card = card(17)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape."""
        values: list[Value] = []
        findings: list[Finding] = []
        for shape in context.workload.shapes:
            context.progress(f"memory over steady calls of shape {shape}")
            with quiet():
                found = _measure_shape(context, shape)
            values += found
            findings += _judge_shape(context, shape, {value.metric: value for value in found})
        return StepOutcome(status=status_of(findings), values=values, findings=findings)

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the peaks that a recording holds, rank by rank; growth takes calls made here."""
        values = [value for summary in context.summaries for value in _recorded_values(summary)]
        if not values:
            return StepOutcome(status="unavailable", reason=_NO_MEMORY)
        findings = [finding for summary in context.summaries for finding in _largest(summary)]
        return StepOutcome(status=status_of(findings), values=values, findings=findings)


STEP = MemoryStep()


def _measure_shape(context: StepContext, shape: str) -> list[Value]:
    effort = (_QUICK if context.quick else _FULL).shared(len(context.workload.shapes))
    call = context.workload.caller(shape)
    state = find_steady_state(call, context.device, cap_seconds=effort.warm_up_seconds)
    calls = calls_within(state.call_ns, seconds=effort.seconds, fewest=_FEWEST_CALLS, most=effort.calls)
    watched = _watch(context, call, calls)
    # The profiler that counts allocations makes the process grow itself, so it comes last.
    held = watched.allocated if watched.allocated is not None else _held_by_calls(context, call, calls)
    labels = {"shape": shape}
    return [
        _growth("memory.growth", held, labels),
        Value(metric="memory.resident", value=float(watched.resident.max()), count=calls, labels=labels),
        _growth("memory.resident_growth", watched.resident, labels),
        _faults(watched.faults, labels),
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
        faulted = device.host_memory().minor_faults
        call()
        device.synchronize()
        faults[number] = device.host_memory().minor_faults - faulted
        collect()
        after = device.memory_statistics()
        allocated[number] = after.allocated if after else 0
        resident[number] = device.host_memory().resident
    return _Watched(resident, faults, allocated if after else None, before, after)


def _held_by_calls(context: StepContext, call: Callable[[], Any], calls: int) -> Floats | None:
    """Return what is held after each call on top of what was held before them, by the events of the allocator."""
    counts = context.device.count_memory([call] * (calls + 1))
    # Of the first one it may be too much.
    return None if counts is None else np.cumsum([float(count.kept_bytes) for count in counts[1:]])


def _pool_values(watched: _Watched, calls: int, labels: dict[str, str]) -> Iterator[Value]:
    before, after = watched.before, watched.after
    if before is None or after is None:
        # One word for the whole pool.
        yield Value(metric="memory.allocated", value=None, labels=labels, reason=_NO_POOL)
        return
    numbers = (
        float(after.peak_allocated),
        float(after.peak_reserved),
        _fragmentation(after.peak_allocated, after.peak_reserved),
        float(after.inactive_split),
        float(after.retries - before.retries),
        (after.segments - before.segments) / calls,
    )
    for name, number in zip(_POOL_METRICS, numbers):
        yield Value(metric=name, value=number, count=calls, labels=labels)


_POOL_METRICS = (
    "memory.allocated",
    "memory.reserved",
    "memory.fragmentation",
    "memory.inactive_split",
    "memory.retries",
    "memory.segments",
)


def _fragmentation(allocated: float, reserved: float) -> float:
    return 1.0 - allocated / reserved if reserved else 0.0


def _growth(metric: str, series: Floats | None, labels: dict[str, str]) -> Value:
    if series is None:
        return Value(metric=metric, value=None, labels=labels, reason=_UNCOUNTED)
    slope: Slope = theil_sen(series)
    return Value(
        metric=metric,
        value=slope.value,
        interval=(slope.low, slope.high),
        confidence=CONFIDENCE,
        count=series.size,
        labels=labels,
    )


def _faults(faults: Floats, labels: dict[str, str]) -> Value:
    found = quantile(faults, 0.5)
    return Value(
        metric="memory.faults",
        value=found.value,
        interval=found.interval,
        confidence=CONFIDENCE,
        count=found.size,
        labels=labels,
    )


def _judge_shape(context: StepContext, shape: str, values: dict[str, Value]) -> Iterator[Finding]:
    for rule in ("memory.segments", "memory.retries", "memory.faults"):
        value = _number(values, rule)
        if value is not None:
            yield from above(rule, value, given=context.limits, evidence={"shape": shape})
    yield from _judge_fragmentation(context, shape, values)
    yield from _judge_growth(context, shape, values)


def _judge_fragmentation(context: StepContext, shape: str, values: dict[str, Value]) -> list[Finding]:
    share, reserved = _number(values, "memory.fragmentation"), _number(values, "memory.reserved")
    if share is None or reserved is None or reserved < limit("memory.fragmentation.size", context.limits):
        return []
    evidence: dict[str, Evidence] = {"shape": shape, "reserved [B]": reserved}
    return above("memory.fragmentation", share, given=context.limits, evidence=evidence)


def _judge_growth(context: StepContext, shape: str, values: dict[str, Value]) -> Iterator[Finding]:
    """Call it growth where the whole interval lies above the limit; of the process, what the allocator does not explain."""
    explained = 0.0
    allocator = values["memory.growth"]
    if (low := _low(allocator)) is not None:
        sites = _kept_sites(context, shape) if low > limit("memory.growth.warning", context.limits) else {}
        yield from above("memory.growth", low, given=context.limits, evidence=_grown(allocator, shape, sites))
        in_process = "own_memory" not in context.device.capabilities
        explained = (allocator.interval or (0.0, 0.0))[1] or 0.0 if in_process else 0.0
    process = values["memory.resident_growth"]
    if (low := _low(process)) is not None:
        rest = low - max(explained, 0.0)
        yield from above("memory.resident_growth", rest, given=context.limits, evidence=_grown(process, shape, {}))


def _number(values: dict[str, Value], metric: str) -> float | None:
    return values[metric].value if metric in values else None


def _low(value: Value) -> float | None:
    return value.interval[0] if value.interval else None


def _grown(value: Value, shape: str, sites: dict[str, Evidence]) -> dict[str, Evidence]:
    return {"growth [B/call]": value.value or 0.0, "calls": value.count or 0, "shape": shape, **sites}


def _kept_sites(context: StepContext, shape: str) -> dict[str, Evidence]:
    """Return the operator, and its line, whose results most often outlive a call; nothing where none is seen to."""
    counted = count_calls(context.workload, context.device, shape, repeats=2, root=context.root)
    kept = [site for site in counted.sites if site.metric == "memory.kept"]
    if not kept:
        return {}
    most = max(kept, key=lambda site: (site.count, site.line is not None))
    found: dict[str, Evidence] = {"op": most.name, "blocks": most.count}
    return found if most.line is None else {**found, "line": most.line}


def _recorded_values(summary: DeviceSummary) -> Iterator[Value]:
    """Yield the peaks by component: PTA is torch_npu's allocator, APP the whole process."""
    peaks = summary.timeline.memory
    for name, peak in sorted(peaks.items()):
        component, _, part = name.rpartition(".")
        if part in ("allocated", "reserved"):
            labels = {"shape": summary.shape, "component": component}
            yield Value(metric=f"memory.{part}", value=peak, labels=labels)
    allocated, reserved = peaks.get("PTA.allocated"), peaks.get("PTA.reserved")
    if allocated is not None and reserved:
        labels = {"shape": summary.shape, "component": "PTA"}
        yield Value(metric="memory.fragmentation", value=_fragmentation(allocated, reserved), labels=labels)


def _largest(summary: DeviceSummary) -> list[Finding]:
    """Say which operator allocated most, where the recording lists allocations."""
    allocations = summary.timeline.allocations
    if not allocations:
        return []
    most: AllocationTotal = max(allocations, key=lambda total: (total.total_bytes, total.name))
    evidence: dict[str, Evidence] = {
        "op": most.name,
        "total [B]": most.total_bytes,
        "largest [B]": most.largest_bytes,
        "blocks": most.count,
        "shape": summary.shape,
    }
    return [noticed("memory.largest", "info", evidence)]
