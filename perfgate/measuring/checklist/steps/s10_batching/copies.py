"""Step 10 on concurrent copies of the workload: throughput, tails, and the knee."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from perfgate.document.message import Message
from perfgate.errors import MeasuringError
from perfgate.measuring.checklist.copies.copies import CopiesLevel, free_memory, time_processes, time_threads
from perfgate.measuring.checklist.experiment import ExperimentError, FailedExperiment, experiment, own_call
from perfgate.measuring.checklist.outcome import StepOutcome
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.devices.device import Device
from perfgate.measuring.devices.host import Host
from perfgate.measuring.devices.registry import monitored_kinds, open_sensor
from perfgate.measuring.timing.versus import Versus
from perfgate.stats.summary import dependent_quantile
from perfgate.system.processes import cpu_seconds, name_of

_METRICS = ("copies.throughput", "copies.p50", "copies.p99")
# Factor on the number of copies: half of all estimates of a perfect gain lie slightly above that number.
_IMPOSSIBLE = 1.1
# Mean share of one CPU; less does not disturb.
_AT_WORK = 0.05
_MOST = 5


def measure_copies(outcome: StepOutcome, context: StepContext) -> None:
    """Time the copies on the first shape, in threads and in processes, and name other active processes."""
    with neighbours(context.device) as others:
        _measure_ways(outcome.under(shape=context.workload.shapes[0]), context)
    if others:
        outcome.note("copies.neighbours", "info", {"others": ", ".join(others)})


def _measure_ways(outcome: StepOutcome, context: StepContext) -> None:
    shape = context.workload.shapes[0]
    own_call(context, shape)
    gains: dict[str, Versus] = {}
    for way in ("threads", "processes"):
        context.doing(
            "up to {copies} {way} at the same time, on shape {shape}", copies=max(context.copies), way=way, shape=shape
        )
        of_way = outcome.under(**{"in": way})
        if way == "processes" and context.load is None:
            continue
        if way == "threads" and context.workload.workload.train_step is not None:
            of_way.missing(_METRICS, Message("times.copies-train-one-model"))
            continue
        run = partial(_time_copies, context, way, 1.4 if context.quick else 6.0)
        measured = experiment(context, run, failing="times.copies-failed")
        if isinstance(measured, FailedExperiment):
            of_way.missing(_METRICS, measured.reason)
            continue
        for level in measured:
            _add_level(of_way.under(copies=str(level.copies)), level, context)
        gain = best_gain(measured)
        if isinstance(gain, Message):
            outcome.missing(f"copies.{way}_gain", gain)
            outcome.note("copies.disturbed", "info", {"in": way, **gain.values})
            continue
        gains[way] = gain
        outcome.speedup(f"copies.{way}_gain", gain)
        _judge_growth(outcome, measured, way)
    if len(gains) > 1:
        threads, processes = gains["threads"], gains["processes"]
        # The intervals must not overlap.
        outcome.above(
            "copies.waiting", processes.low / threads.high, {"threads": threads.speedup, "processes": processes.speedup}
        )


def _time_copies(context: StepContext, way: str, seconds: float) -> list[CopiesLevel]:
    """Raises ExperimentError if the processes would not fit into memory."""
    if way == "threads" or context.load is None:
        return time_threads(context.workload, context.device, context.copies, seconds=seconds)
    if refusal := too_large(context):
        raise ExperimentError(refusal)
    return time_processes(context.load, context.copies, seconds=seconds, folder=context.artifacts)


def too_large(context: StepContext) -> Message | None:
    """Why the processes do not fit into memory: the kernel would kill one of them, or another user's."""
    most = max(context.copies)
    needed, free = most * context.device.host_memory().resident, free_memory()
    if free is None or needed <= free:
        return None
    return Message("times.copies-too-large", {"copies": most, "needed": needed, "free": free})


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
            return Message("times.copies-disturbed", {"copies": level.copies, "gain": gain.speedup})
    return max(levels, key=lambda level: level.calls_per_second).gain_over(levels[0])


def _judge_growth(outcome: StepOutcome, levels: list[CopiesLevel], way: str) -> None:
    """Note the number of copies up to which each step gains, and the tail latency at the largest number."""
    gain, knee = outcome.limit("copies.knee.gain"), levels[0]
    for level in levels[1:]:
        if level.calls_per_second < gain * knee.calls_per_second:
            break
        knee = level
    versus = knee.gain_over(levels[0])
    gained = {"copies": knee.copies, "gain": versus.speedup, "low": versus.low, "high": versus.high}
    outcome.note("copies.knee", "info", {"in": way, **gained})
    _judge_tail(outcome, levels[0], levels[-1], way)


def _judge_tail(outcome: StepOutcome, alone: CopiesLevel, most: CopiesLevel, way: str) -> None:
    """Compare the P99 at the largest number of copies with that of one; skipped if a bound of either is unknown.

    The interval divides the bounds of both, which is conservative.
    """
    before, after = (dependent_quantile(level.pooled, 0.99) for level in (alone, most))
    if most is alone or None in (*before.interval, *after.interval):
        return
    low, high = after.low / before.high, after.high / before.low  # type: ignore[operator] # None was refused above
    evidence = {"copies": most.copies, "decay": after.value / before.value, "low": low, "high": high}
    outcome.note("copies.tail", "info", {"in": way, **evidence})


@contextmanager
def neighbours(device: Device) -> Iterator[list[str]]:
    """A list that is filled at the end, the busiest process first; empty if there was none or none is visible."""
    names: list[str] = []
    before, began = cpu_seconds(), time.monotonic()
    yield names
    elapsed, after = time.monotonic() - began, cpu_seconds()
    # Processes started meanwhile may be copies of ours.
    shares = {pid: (after[pid] - before[pid]) / elapsed for pid in before.keys() & after.keys() - {os.getpid()}}
    names += _on_device(device)
    for pid in sorted(shares, key=lambda pid: -shares[pid])[:_MOST]:
        if shares[pid] > _AT_WORK:
            names.append(f"{name_of(pid)} ({shares[pid]:.2f} CPUs)")


def _on_device(device: Device) -> list[str]:
    if device.kind == "cpu" or device.kind not in monitored_kinds():
        return []
    try:
        telemetry = open_sensor(f"{device.kind}:{device.index}", Host())()
    except MeasuringError:
        return []
    foreign = [process for process in telemetry.foreign_processes or () if process.pid != os.getpid()]
    return [f"{process.name or name_of(process.pid) or process.pid} (on the device)" for process in foreign[:_MOST]]
