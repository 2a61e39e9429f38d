"""Step 10 on concurrent copies of the workload: throughput, tails, and the knee."""

from __future__ import annotations

from functools import partial

from perfgate.document.message import Message
from perfgate.measuring.checklist.copies.copies import (
    CopiesLevel,
    free_memory,
    time_processes,
    time_threads,
)
from perfgate.measuring.checklist.experiment import (
    ExperimentError,
    FailedExperiment,
    experiment,
    own_call,
)
from perfgate.measuring.checklist.outcome import StepOutcome
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.timing.versus import Versus
from perfgate.stats.summary import dependent_quantile

_METRICS = ("copies.throughput", "copies.p50", "copies.p99")
# Factor on the number of copies: half of all estimates of a perfect gain lie slightly above that number.
_IMPOSSIBLE = 1.1


def measure_copies(outcome: StepOutcome, context: StepContext) -> None:
    """Time the copies on the first shape, in threads and in processes."""
    shape = context.workload.shapes[0]
    own_call(context, shape)
    gains: dict[str, Versus] = {}
    for way in ("threads", "processes"):
        context.doing(
            "up to {copies} {way} at the same time, on shape {shape}",
            copies=max(context.settings.copies),
            way=way,
            shape=shape,
        )
        of_way = outcome.under(**{"in": way})
        if way == "processes" and context.process.load is None:
            continue
        if way == "threads" and context.workload.workload.train_step is not None:
            of_way.missing(_METRICS, Message("times.copies-train-one-model"))
            continue
        run = partial(_time_copies, context, way, 1.4 if context.extent.quick else 6.0)
        measured = experiment(context, run, failing="times.copies-failed")
        if isinstance(measured, FailedExperiment):
            of_way.missing(_METRICS, measured.reason)
            continue
        for level in measured:
            _add_level(of_way.under(copies=str(level.copies)), level, context)
        gain = best_gain(measured)
        if isinstance(gain, Message):
            outcome.missing(f"copies.{way}_gain", gain)
            continue
        gains[way] = gain
        outcome.speedup(f"copies.{way}_gain", gain)
        _judge_growth(outcome, measured, way)
    if len(gains) > 1:
        threads, processes = gains["threads"], gains["processes"]
        # The intervals must not overlap.
        outcome.above(
            "copies.waiting",
            processes.low / threads.high,
            {"threads": threads.speedup, "processes": processes.speedup},
        )


def _time_copies(context: StepContext, way: str, seconds: float) -> list[CopiesLevel]:
    """Raises ExperimentError if the processes would not fit into memory."""
    if way == "threads" or context.process.load is None:
        return time_threads(context.workload, context.settings.copies, seconds=seconds)
    if refusal := too_large(context):
        raise ExperimentError(refusal)
    return time_processes(
        context.process.load,
        context.settings.copies,
        seconds=seconds,
        folder=context.artifacts,
    )


def too_large(context: StepContext) -> Message | None:
    """Why the processes do not fit into memory: the kernel would kill one of them, or another user's."""
    most = max(context.settings.copies)
    needed, free = most * context.device.host_memory().resident, free_memory()
    if free is None or needed <= free:
        return None
    return Message(
        "times.copies-too-large", {"copies": most, "needed": needed, "free": free}
    )


def _add_level(outcome: StepOutcome, level: CopiesLevel, context: StepContext) -> None:
    items, calls = context.workload.batch, int(level.pooled.size)
    low, high = level.rate_interval
    rate, interval = items * level.calls_per_second, (items * low, items * high)
    outcome.number("copies.throughput", rate, count=calls, interval=interval)
    outcome.estimate("copies.p50", dependent_quantile(level.pooled, 0.5))
    outcome.p99("copies.p99", dependent_quantile(level.pooled, 0.99))


def best_gain(levels: list[CopiesLevel]) -> Versus | Message:
    """The gain of the best number of copies over one, or why it is unknown.

    Copies cannot gain more than their number. If they do, other processes slowed the single copy down, and all gains are
    relative to it.
    """
    for level in levels[1:]:
        gain = level.gain_over(levels[0])
        if gain.low > level.copies or gain.speedup > _IMPOSSIBLE * level.copies:
            return Message(
                "times.copies-disturbed", {"copies": level.copies, "gain": gain.speedup}
            )
    return max(levels, key=lambda level: level.calls_per_second).gain_over(levels[0])


def _judge_growth(outcome: StepOutcome, levels: list[CopiesLevel], way: str) -> None:
    """Note the number of copies up to which each step gains, and the tail latency at the largest number."""
    gain, knee = outcome.limit("copies.knee.gain"), levels[0]
    for level in levels[1:]:
        if level.calls_per_second < gain * knee.calls_per_second:
            break
        knee = level
    versus = knee.gain_over(levels[0])
    gained = {
        "copies": knee.copies,
        "gain": versus.speedup,
        "low": versus.low,
        "high": versus.high,
    }
    outcome.note("copies.knee", "info", {"in": way, **gained})
