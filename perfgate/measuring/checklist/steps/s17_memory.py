"""Step 17: memory over many steady calls: peaks, fragmentation, new segments, growth
and page faults.
"""

from __future__ import annotations

from gc import collect

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.document.run import Value
from perfgate.measuring.checklist.step import (
    MaybeEvidence,
    RecordingContext,
    StepContext,
    StepOutcome,
    unavailable,
)
from perfgate.measuring.counting.collect import calls_within
from perfgate.measuring.counting.counters import count_calls
from perfgate.measuring.devices.device import Call, Device, MemoryStatistics
from perfgate.stats.arrays import Floats
from perfgate.stats.robust import theil_sen
from perfgate.stats.summary import quantile
from perfgate.system.garbage import quiet
from perfgate.trace.analysis.summary import DeviceSummary

# The fewest calls for the interval of a slope.
_FEWEST_CALLS = 12
_MOST_CALLS = 300
_TOP_OPS = 10


class MemoryStep:
    """Watch the allocator and the process over steady calls of every shape; name the
    operator that keeps memory.
    """

    card = card(17)

    def measure(self, context: StepContext) -> StepOutcome:
        outcome = context.outcome()
        for shape in context.workload.shapes:
            context.doing("memory over steady calls of shape {shape}", shape=shape)
            of_shape = outcome.under(shape=shape)
            with quiet():
                _measure_shape(of_shape, context, shape)
            values = {
                value.metric: value
                for value in outcome.values
                if value.labels["shape"] == shape
            }
            _judge_shape(of_shape, context, shape, values)
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the recorded peaks, rank by rank; growth takes calls made here."""
        outcome = context.outcome()
        for summary in context.summaries:
            rank = outcome.under(shape=summary.shape)
            # Add the peaks by component: PTA is torch_npu's allocator, APP the whole
            # process.
            peaks = summary.timeline.memory.peaks
            for name, peak in sorted(peaks.items()):
                component, _, part = name.rpartition(".")
                if part in ("allocated", "reserved"):
                    rank.under(component=component).number(f"memory.{part}", peak)
            allocated, reserved = peaks.get("PTA.allocated"), peaks.get("PTA.reserved")
            if allocated is not None and reserved:
                rank.under(component="PTA").number(
                    "memory.fragmentation", _fragmentation(allocated, reserved)
                )
            _add_operators(rank, summary)
        return outcome.or_else(unavailable(Message("system.no-memory-recorded")))


STEP = MemoryStep()


def _measure_shape(outcome: StepOutcome, context: StepContext, shape: str) -> None:
    device, shapes = context.device, len(context.workload.shapes)
    call = context.workload.caller(shape)
    state = context.warm_up(shape, quick=0.5 / shapes, full=5.0 / shapes)
    seconds = context.seconds(quick=0.5, full=8.0) / shapes
    most = _FEWEST_CALLS if context.extent.quick else _MOST_CALLS
    calls = calls_within(
        state.call_ns, seconds=seconds, fewest=_FEWEST_CALLS, most=most
    )
    device.synchronize()
    device.reset_memory_peaks()
    before = device.memory_statistics()
    resident, faults, allocated = _watch(device, call, calls)
    after = device.memory_statistics()
    if allocated is None:
        # The profiler that counts allocations makes the process itself grow, so it
        # comes last. It may count too much in its first call.
        counts = device.count_memory([call] * (calls + 1))
        if counts is not None:
            allocated = np.cumsum([float(count.kept_bytes) for count in counts[1:]])
    _add_growth(outcome, "memory.growth", allocated)
    outcome.number("memory.resident", float(resident.max()), count=calls)
    _add_growth(outcome, "memory.resident_growth", resident)
    outcome.estimate("memory.faults", quantile(faults, 0.5))
    _add_pool(outcome, before, after, calls)


def _watch(
    device: Device, call: Call, calls: int
) -> tuple[Floats, Floats, Floats | None]:
    """After each call the resident bytes, its page faults, and the bytes in the
    allocator, None if it has no statistics.
    """
    resident = np.zeros(calls)
    faults = np.zeros(calls)
    allocated = np.zeros(calls)
    for number in range(calls):
        faults_before = device.host_memory().minor_faults
        call()
        device.synchronize()
        faults[number] = device.host_memory().minor_faults - faults_before
        collect()
        statistics = device.memory_statistics()
        if statistics is not None:
            allocated[number] = statistics.allocated
        resident[number] = device.host_memory().resident
    if device.memory_statistics() is None:
        return resident, faults, None
    return resident, faults, allocated


def _add_pool(
    outcome: StepOutcome,
    before: MemoryStatistics | None,
    after: MemoryStatistics | None,
    calls: int,
) -> None:
    if before is None or after is None:
        # One missing value stands for the whole pool.
        outcome.missing("memory.allocated", Message("system.no-pool"))
        return
    outcome.numbers(
        {
            "memory.allocated": float(after.peak_allocated),
            "memory.reserved": float(after.peak_reserved),
            "memory.fragmentation": _fragmentation(
                after.peak_allocated, after.peak_reserved
            ),
            "memory.retries": float(after.retries - before.retries),
            "memory.segments": (after.segments - before.segments) / calls,
        },
        count=calls,
    )


def _fragmentation(allocated: float, reserved: float) -> float:
    if reserved:
        return 1.0 - allocated / reserved
    return 0.0


def _add_growth(outcome: StepOutcome, metric: str, series: Floats | None) -> None:
    if series is None:
        outcome.missing(metric, Message("system.allocations-uncounted"))
        return
    outcome.estimate(metric, theil_sen(series))


def _judge_shape(
    outcome: StepOutcome, context: StepContext, shape: str, values: dict[str, Value]
) -> None:
    numbers = {
        metric: value.value
        for metric, value in values.items()
        if value.value is not None
    }
    for rule in ("memory.segments", "memory.retries", "memory.faults"):
        if rule in numbers:
            outcome.above(rule, numbers[rule])
    reserved = numbers.get("memory.reserved", 0.0)
    if "memory.fragmentation" in numbers and reserved >= context.limit(
        "memory.fragmentation.size"
    ):
        outcome.above(
            "memory.fragmentation",
            numbers["memory.fragmentation"],
            {"reserved [B]": reserved},
        )
    # Report growth if the whole interval lies above the limit; for the process, growth
    # beyond the allocator's.
    allocator = values["memory.growth"]
    process = values["memory.resident_growth"]
    explained = 0.0
    low, high = allocator.interval or (None, None)
    if low is not None:
        leak: MaybeEvidence = {}
        if low > context.limit("memory.growth.warning"):
            leak = _leaking_op(context, shape)
        outcome.above("memory.growth", low, {**_growth_evidence(allocator), **leak})
        if "own_memory" not in context.device.capabilities:
            explained = max(high or 0.0, 0.0)
    low, _ = process.interval or (None, None)
    if low is not None:
        outcome.above(
            "memory.resident_growth", low - explained, _growth_evidence(process)
        )


def _growth_evidence(value: Value) -> MaybeEvidence:
    return {"growth [B/call]": value.value or 0.0, "calls": value.count or 0}


def _leaking_op(context: StepContext, shape: str) -> MaybeEvidence:
    """The operator with the most results that outlive a call, and its line; empty if
    there is none.
    """
    counters = count_calls(context.workload, shape, repeats=2)
    sites = [site for site in counters.sites if site.metric == "memory.kept"]
    if not sites:
        return {}
    most = max(sites, key=lambda site: (site.count, site.line is not None))
    return {"op": most.name, "blocks": most.count, "line": most.line}


def _add_operators(outcome: StepOutcome, summary: DeviceSummary) -> None:
    """Add the total of the operators that allocated most, and their share of the peak;
    name the largest.
    """
    allocations = sorted(
        summary.timeline.memory.allocations or (),
        key=lambda total: (-total.total_bytes, total.name),
    )
    for total in allocations[:_TOP_OPS]:
        outcome.under(op=total.name).numbers(
            {
                "memory.operator_total": total.total_bytes,
                "memory.operator_held": total.held_bytes,
            },
            count=total.count,
        )
    for most in allocations[:1]:
        outcome.note(
            "memory.largest",
            "info",
            {
                "op": most.name,
                "total [B]": most.total_bytes,
                "largest [B]": most.largest_bytes,
                "held at the peak [B]": most.held_bytes,
                "blocks": most.count,
            },
        )
