"""What step 10 says of copies of the workload that run at the same time: throughput, tails, and where it breaks."""

from __future__ import annotations

from functools import partial

from perfgate.document.message import Message
from perfgate.document.run import Finding, Value
from perfgate.measuring.checklist.copies.copies import Level, free_memory, time_processes, time_threads
from perfgate.measuring.checklist.copies.neighbours import neighbours
from perfgate.measuring.checklist.experiment import ExperimentError, FailedExperiment, experiment, own_call
from perfgate.measuring.checklist.limits import MaybeEvidence, above, finding, limit
from perfgate.measuring.checklist.step import StepContext, StepOutcome
from perfgate.measuring.checklist.values import lower_bound_only, missing, of_quantile, with_interval
from perfgate.measuring.timing.versus import Versus
from perfgate.stats.summary import P99_FLOOR, dependent_quantile

_METRICS = ("copies.throughput", "copies.p50", "copies.p99")
# Times the number of copies: the estimate of a perfect gain lies a little above their number in half of all runs.
_IMPOSSIBLE = 1.1


def measure_copies(context: StepContext) -> StepOutcome:
    """Time so many copies on the first shape, in threads and in processes, and name who else was at work meanwhile."""
    with neighbours(context.device) as others:
        outcome = _measure_ways(context)
    if others:
        outcome.findings.append(finding("copies.neighbours", "info", {"others": ", ".join(others)}))
    return outcome


def _measure_ways(context: StepContext) -> StepOutcome:
    shape, outcome = context.workload.shapes[0], StepOutcome()
    own_call(context, shape)
    gains: dict[str, Versus] = {}
    for way in ("threads", "processes"):
        context.progress(f"up to {max(context.copies)} {way} at the same time, on shape {shape}")
        if way == "processes" and context.load is None:
            continue
        if way == "threads" and context.workload.workload.train_step is not None:
            outcome.values += missing(_METRICS, Message("times.copies-train-one-model"), {"shape": shape, "in": way})
            continue
        run = partial(_time_copies, context, way, 1.4 if context.quick else 6.0)
        measured = experiment(context, run, failing="times.copies-failed")
        if isinstance(measured, FailedExperiment):
            outcome.values += missing(_METRICS, measured.reason, {"shape": shape, "in": way})
            continue
        for level in measured:
            outcome.values += _values(level, context, {"shape": shape, "in": way, "copies": str(level.copies)})
        gain = best_gain(measured)
        if isinstance(gain, Message):
            outcome.values += missing(f"copies.{way}_gain", gain, {"shape": shape})
            outcome.findings.append(finding("copies.disturbed", "info", {"shape": shape, "in": way, **gain.values}))
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


def _time_copies(context: StepContext, way: str, seconds: float) -> list[Level]:
    """Raises ExperimentError where so many processes would not fit into memory."""
    if way == "threads" or context.load is None:
        return time_threads(context.workload, context.device, context.copies, seconds=seconds)
    if refusal := too_large(context):
        raise ExperimentError(refusal)
    return time_processes(context.load, context.copies, seconds=seconds, folder=context.artifacts)


def too_large(context: StepContext) -> Message | None:
    """Why so many processes of this one's size do not fit: the kernel would kill one, and perhaps somebody else's."""
    most = max(context.copies)
    needed, free = most * context.device.host_memory().resident, free_memory()
    if free is None or needed <= free:
        return None
    return Message("times.copies-too-large", {"copies": most, "needed": needed, "free": free})


def _values(level: Level, context: StepContext, labels: dict[str, str]) -> list[Value]:
    items, calls = context.workload.batch, int(level.pooled.size)
    low, high = level.rate_interval
    rate = items * level.calls_per_second
    throughput = with_interval("copies.throughput", rate, (items * low, items * high), calls, labels)
    p50, p99 = (dependent_quantile(level.pooled, level_of) for level_of in (0.5, 0.99))
    if p99.size >= P99_FLOOR:
        tail = of_quantile("copies.p99", p99, labels)
    else:
        reason = Message("times.p99-too-few-calls", {"needed": P99_FLOOR, "calls": p99.size})
        tail = lower_bound_only("copies.p99", p99, labels, reason)
    return [throughput, of_quantile("copies.p50", p50, labels), tail]


def best_gain(levels: list[Level]) -> Versus | Message:
    """What the best number of copies brings over one, or why that is not known.

    No copies bring more than their number. Where any number of them does, one alone was slowed down by others, and every gain
    rests on that.
    """
    for level in levels[1:]:
        gain = level.gain_over(levels[0])
        if gain.low > level.copies or gain.speedup > _IMPOSSIBLE * level.copies:
            return Message("times.copies-disturbed", {"copies": level.copies, "gain": gain.speedup})
    return max(levels, key=lambda level: level.calls_per_second).gain_over(levels[0])


def _judge_growth(levels: list[Level], way: str, context: StepContext) -> list[Finding]:
    """Until which number of copies each step to the next brings more, and what the slowest calls of the most pay for it."""
    gain, knee = limit("copies.knee.gain", context.limits), levels[0]
    for level in levels[1:]:
        if level.calls_per_second < gain * knee.calls_per_second:
            break
        knee = level
    versus = knee.gain_over(levels[0])
    where: MaybeEvidence = {"shape": context.workload.shapes[0], "in": way}
    gained = {"copies": knee.copies, "gain": versus.speedup, "low": versus.low, "high": versus.high}
    return [finding("copies.knee", "info", {**where, **gained}), *_judge_tail(levels[0], levels[-1], where)]


def _judge_tail(alone: Level, most: Level, where: MaybeEvidence) -> list[Finding]:
    """How the P99 of the most copies differs from that of one alone; nothing where an end of either is not estimable.

    The interval divides the ends of both, which is wider than it need be.
    """
    before, after = (dependent_quantile(level.pooled, 0.99) for level in (alone, most))
    if most is alone or None in (*before.interval, *after.interval):
        return []
    low, high = after.low / before.high, after.high / before.low  # type: ignore[operator] # None was refused above
    evidence = {"copies": most.copies, "decay": after.value / before.value, "low": low, "high": high}
    return [finding("copies.tail", "info", {**where, **evidence})]
