"""What step 10 says of copies of the workload that run at the same time: throughput, tails, and where it breaks."""

from __future__ import annotations

from functools import partial

from perfgate.document.message import Message
from perfgate.document.run import Finding, Value
from perfgate.measuring.checklist.copies.copies import Level, free_memory, levels_up_to, time_processes, time_threads
from perfgate.measuring.checklist.copies.neighbours import neighbours
from perfgate.measuring.checklist.experiment import ExperimentError, FailedExperiment, experiment, own_call
from perfgate.measuring.checklist.limits import MaybeEvidence, above, finding, limit
from perfgate.measuring.checklist.step import StepContext, StepOutcome
from perfgate.measuring.checklist.values import lower_bound_only, missing, of_quantile
from perfgate.measuring.timing.versus import Versus
from perfgate.stats.summary import P99_FLOOR, dependent_quantile

_METRICS = ("copies.throughput", "copies.p50", "copies.p99")


def measure_copies(context: StepContext) -> StepOutcome:
    """Time 1, 2, 4 … copies on the first shape, in threads and in processes, and name who else was at work meanwhile."""
    with neighbours(context.device) as others:
        outcome = _measure_ways(context)
    if others:
        outcome.findings.append(finding("copies.neighbours", "info", {"others": ", ".join(others)}))
    return outcome


def _measure_ways(context: StepContext) -> StepOutcome:
    levels, seconds = levels_up_to(context.copies), 1.4 if context.quick else 6.0
    shape, outcome = context.workload.shapes[0], StepOutcome()
    own_call(context, shape)
    gains: dict[str, Versus] = {}
    for way in ("threads", "processes"):
        context.progress(f"up to {context.copies} {way} at the same time, on shape {shape}")
        if way == "processes" and context.load is None:
            continue
        run = partial(_time_copies, context, way, levels, seconds)
        measured = experiment(context, run, failing="times.copies-failed")
        if isinstance(measured, FailedExperiment):
            outcome.values += missing(_METRICS, measured.reason, {"shape": shape, "in": way})
            continue
        for level in measured:
            outcome.values += _values(level, context, {"shape": shape, "in": way, "copies": str(level.copies)})
        gain = best_gain(measured)
        if isinstance(gain, Message):
            outcome.values += missing(f"copies.{way}_gain", gain, {"shape": shape})
            continue
        gains[way] = gain
        outcome.values.append(gain.value(f"copies.{way}_gain", {"shape": shape}))
        outcome.findings += _judge_growth(measured, way, context)
    if len(gains) > 1:
        threads, processes = gains["threads"], gains["processes"]
        evidence: MaybeEvidence = {"shape": shape, "threads": threads.speedup, "processes": processes.speedup}
        # The whole intervals must lie apart.
        outcome.findings += above("copies.waiting", processes.low / threads.high, context.limits, evidence)
    return outcome


def _time_copies(context: StepContext, way: str, levels: list[int], seconds: float) -> list[Level]:
    """Raises ExperimentError where so many processes would not fit into memory."""
    if way == "threads" or context.load is None:
        return time_threads(context.workload, context.device, levels, seconds=seconds)
    if refusal := too_large(context):
        raise ExperimentError(refusal)
    return time_processes(context.load, levels, seconds=seconds, folder=context.artifacts)


def too_large(context: StepContext) -> Message | None:
    """Why so many processes of this one's size do not fit: the kernel would kill one, and perhaps somebody else's."""
    needed, free = context.copies * context.device.host_memory().resident, free_memory()
    if free is None or needed <= free:
        return None
    return Message("times.copies-too-large", {"copies": context.copies, "needed": needed, "free": free})


def _values(level: Level, context: StepContext, labels: dict[str, str]) -> list[Value]:
    items, calls = context.workload.batch, int(level.pooled.size)
    throughput = Value(metric="copies.throughput", value=items * level.calls_per_second, count=calls, labels=labels)
    p50, p99 = (dependent_quantile(level.pooled, level_of) for level_of in (0.5, 0.99))
    if p99.size >= P99_FLOOR:
        tail = of_quantile("copies.p99", p99, labels)
    else:
        reason = Message("times.p99-too-few-calls", {"needed": P99_FLOOR, "calls": p99.size})
        tail = lower_bound_only("copies.p99", p99, labels, reason)
    return [throughput, of_quantile("copies.p50", p50, labels), tail]


def best_gain(levels: list[Level]) -> Versus | Message:
    """What the best number of copies brings over one, or why that is not known: no copies bring more than their number."""
    best = max(levels, key=lambda level: level.calls_per_second)
    gain = best.gain_over(levels[0])
    if gain.low > best.copies:
        return Message("times.copies-disturbed", {"copies": best.copies, "gain": gain.speedup})
    return gain


def _judge_growth(levels: list[Level], way: str, context: StepContext) -> list[Finding]:
    """Until which number of copies each step to the next brings more, and what the slowest calls pay for it."""
    gain, knee = limit("copies.knee.gain", context.limits), levels[0]
    for level in levels[1:]:
        if level.calls_per_second < gain * knee.calls_per_second:
            break
        knee = level
    alone, last = levels[0], levels[-1]
    versus = knee.gain_over(alone)
    evidence: MaybeEvidence = {
        "shape": context.workload.shapes[0],
        "in": way,
        "copies": knee.copies,
        "gain": versus.speedup,
        "low": versus.low,
        "high": versus.high,
        "most": last.copies,
        "decay": _slowest(last) / _slowest(alone),
    }
    return [finding("copies.knee", "info", evidence)]


def _slowest(level: Level) -> float:
    return dependent_quantile(level.pooled, 0.99).value
