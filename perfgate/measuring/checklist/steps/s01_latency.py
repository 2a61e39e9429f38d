"""Step 1: the latency of a call, its tail, and the throughput in the steady state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.catalogue.names import START_SPREAD, STD, TAIL
from perfgate.document.message import Message
from perfgate.measuring.checklist.copies.copies import level_of_new_process, start_cold
from perfgate.measuring.checklist.experiment import FailedExperiment, experiment
from perfgate.measuring.checklist.recorded import NO_STEPS, or_absent, profiled
from perfgate.measuring.checklist.step import (
    MaybeEvidence,
    RecordingContext,
    StepContext,
    StepOutcome,
)
from perfgate.measuring.devices.device import Device
from perfgate.measuring.timing.calls import (
    CallBudget,
    find_steady_state,
    measure_throughput,
    time_calls,
    timed_call,
)
from perfgate.measuring.timing.open_loop import (
    OpenLoop,
    calls_of,
    rate_of,
    run_open_loop,
)
from perfgate.measuring.workload.workload import SLA
from perfgate.protocol import LoadRequest
from perfgate.stats.arrays import Floats
from perfgate.stats.arrivals import draw
from perfgate.stats.changes import steadiness
from perfgate.stats.summary import (
    P99_FLOOR,
    TENTH_FLOOR,
    dependent_quantile,
    low_location,
    quantile,
    slowest_tenth,
    standard_deviation,
)
from perfgate.system.garbage import quiet

_QUANTILES = ("latency.p50", "latency.p90", "latency.p99")
_STEADINESS = ("latency.drift", "latency.steady_share")
_COLD_START = ("start.import", "start.load", "start.first_call", "start.total")
_COLD_STARTS = 3
_OPEN_LOOP_QUANTILES = ("latency.p50", "latency.p99")
# Fewer calls are not traffic.
_FEWEST_ARRIVALS = 10
# Seconds of all promised rates and shapes together, if that is what their P99 takes; a
# step may take 300 s.
_MOST_SECONDS_OF_PROMISES = 120.0
# No host sends more in the time of a rate.
_MOST_ARRIVALS = 5_000_000
# An open loop may take this many times its usual time if it would otherwise end just
# before its P99 is known.
_STRETCH = 1.5


# The calls of a full run; 700 are enough for a P99 (662).
_FULL_CALLS = 700
_FULL_SECONDS = 30.0


_Started = TypeVar("_Started")


class LatencyStep:
    """Latency of synchronized calls, throughput with several in flight; inputs rotate,
    no call is dropped.
    """

    card = card(1)

    def measure(self, context: StepContext) -> StepOutcome:
        shapes = context.workload.shapes
        outcome = context.outcome()
        with quiet():
            for shape in shapes:
                context.doing("timing calls of shape {shape}", shape=shape)
                _measure_shape(outcome.under(shape=shape), context, shape)
        if context.settings.cold_start and context.process.load is not None:
            _cold_start(outcome.under(shape=shapes[0]), context, context.process.load)
        has_queue = "queue" in context.device.capabilities
        if context.extent.starts and context.process.load is not None and has_queue:
            _time_starts(outcome.under(shape=shapes[0]), context, context.process.load)
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Use the lengths of profiler steps as latencies; a label marks the profiler's
        overhead in them.
        """
        outcome = context.outcome()
        for summary in context.summaries:
            lengths, reason = summary.lengths(), Message("times.steps-without-times")
            if summary.unit == "whole recording":
                lengths, reason = None, NO_STEPS
            if lengths is None:
                outcome.under(shape=summary.shape).missing(
                    [*_QUANTILES, TAIL, STD, "latency.max"], reason
                )
            elif len(lengths) == 1:
                outcome.under(**profiled(summary)).number(
                    "latency.single", lengths[0] / 1e9, count=1
                )
            else:
                _add_quantiles(
                    outcome.under(**profiled(summary)), np.array(lengths) / 1e9
                )
        return or_absent(outcome)


STEP = LatencyStep()


def _measure_shape(outcome: StepOutcome, context: StepContext, shape: str) -> None:
    call = context.workload.caller(shape)
    device = context.device
    batch = context.workload.batch
    if context.extent.brief:  # the pairs measure everything else better
        outcome.number("latency.first_call", timed_call(call, device) / 1e9, count=1)
        return
    steady = find_steady_state(
        call, device, cap_seconds=_of_shape(context, quick=3.0, full=30.0)
    )
    if steady.steady:
        context.process.warm_shapes.add(shape)
    before = _memory(device)
    times = time_calls(call, device, _call_budget(context, shape))
    after = _memory(device)
    window_seconds = 0.1 if context.extent.quick else 1.0
    # Six windows are the fewest that bound the median with 95 % confidence by order
    # statistics.
    rates, _ = measure_throughput(
        call, device, items=batch, window_seconds=window_seconds, windows=6
    )
    seconds = times.wall / 1e9
    outcome.number("latency.first_call", steady.first_call_ns / 1e9, count=1)
    if not steady.steady:
        outcome.note("latency.steady_state", "warning", {"calls": steady.calls})
    outcome.number("latency.low", low_location(seconds), count=int(seconds.size))
    _add_quantiles(outcome, seconds)
    if context.extent.steady:
        _judge_steadiness(outcome, seconds)
        after["process"] -= times.wall.nbytes + times.cpu.nbytes
        _judge_memory(outcome, context, before, after)
    _measure_open_loop(outcome, context, shape)
    outcome.median("throughput.median", rates)
    _judge_sla(outcome, context.workload.workload.sla, shape)
    outcome.under(clock="wall").raw_samples("latency", times.wall)
    outcome.under(clock="thread_cpu").raw_samples("latency", times.cpu)


def _cold_start(outcome: StepOutcome, context: StepContext, load: LoadRequest) -> None:
    """The parts of a cold start on the first shape, each the median of consecutive new
    processes.
    """
    context.doing("starting a process that imports, loads and calls the workload")
    count = 1 if context.extent.quick else _COLD_STARTS
    start = partial(start_cold, load, folder=context.artifacts)
    rows = []
    for cold in _started(outcome, context, _COLD_START, start, count=count):
        parts = cold.import_ns, cold.load_ns, cold.first_call_ns
        rows.append((*parts, sum(parts)))
    if rows:
        seconds = np.median(np.array(rows), axis=0) / 1e9
        outcome.numbers(dict(zip(_COLD_START, seconds.tolist())), count=count)


def _time_starts(outcome: StepOutcome, context: StepContext, load: LoadRequest) -> None:
    """Time the calls of new processes on an accelerator, and add the spread between
    them.
    """
    context.doing(
        "starting a process to compare its calls with those of other processes"
    )
    start = partial(level_of_new_process, load, folder=context.artifacts)
    levels = _started(
        outcome, context, (START_SPREAD,), start, count=context.extent.starts
    )
    if levels:
        outcome.number(START_SPREAD, start_spread(levels), count=len(levels))


def _started(
    outcome: StepOutcome,
    context: StepContext,
    metrics: Sequence[str],
    start: Callable[[], _Started],
    *,
    count: int,
) -> list[_Started]:
    """The results of new processes, one after the other; if one fails, none, and the
    metrics are missing.
    """
    results: list[_Started] = []
    while len(results) < count:
        started = experiment(context, start, failing="times.cold-start-failed")
        if isinstance(started, FailedExperiment):
            outcome.missing(metrics, started.reason)
            return []
        results.append(started)
    return results


def start_spread(levels: Sequence[float]) -> float:
    """The standard deviation of the difference between two processes, as that of a
    logarithm, from seconds of their calls.
    """
    return math.sqrt(2) * float(np.std(np.log(levels), ddof=1))


def _judge_steadiness(outcome: StepOutcome, seconds: Floats) -> None:
    """Judge whether the calls kept one speed for the requested time, and add the
    quantiles of the longest level.

    A drift counts by the end of its interval nearest to zero.
    """
    span, level = float(seconds.sum()), steadiness(seconds)
    if level is None:
        too_few = Message("times.too-few-for-steadiness", {"count": int(seconds.size)})
        outcome.missing(_STEADINESS, too_few)
        return
    stretch = seconds[level.start : level.end]
    share = float(stretch.sum()) / span
    outcome.number(
        _STEADINESS[0],
        level.drift,
        count=int(seconds.size),
        interval=(level.low, level.high),
    )
    outcome.number(_STEADINESS[1], share, count=level.levels)
    evidence: MaybeEvidence = {
        "seconds": round(span, 1),
        "drift": level.drift,
        "low": level.low,
        "high": level.high,
    }
    drifts = outcome.above("latency.drift", max(0.0, level.low, -level.high), evidence)
    if level.levels > 1:
        _add_quantiles(outcome.under(stretch="longest level"), stretch)
        outcome.below(
            "latency.steady_share",
            share,
            {**evidence, "levels": level.levels, "share": share},
        )
    elif not drifts:
        most = outcome.limit("latency.drift.warning")
        if -most <= level.low and level.high <= most:
            outcome.note("latency.drift.steady", "info", evidence)
        else:
            outcome.note("latency.drift.undecided", "info", evidence)


def _memory(device: Device) -> dict[str, int]:
    """The bytes that the process holds in host memory, and in device memory if the
    device has its own.
    """
    memory = {"process": device.host_memory().resident}
    statistics = device.memory_statistics()
    if statistics is not None:
        memory["device"] = statistics.allocated
    return memory


def _judge_memory(
    outcome: StepOutcome,
    context: StepContext,
    before: dict[str, int],
    after: dict[str, int],
) -> None:
    """Compare memory before and after the steady state; step 17 names the line that
    keeps memory.
    """
    for place, began in before.items():
        of_place = outcome.under(of=place)
        of_place.numbers(
            {"soak.memory_begin": float(began), "soak.memory_end": float(after[place])}
        )
        if began:
            of_place.above(
                "soak.growth",
                after[place] / began - 1,
                {
                    "of": place,
                    "begin": float(began),
                    "end": float(after[place]),
                    "seconds": context.extent.steady,
                },
            )


def _call_budget(context: StepContext, shape: str) -> CallBudget:
    """The time of the calls; an SLA on the P99 takes as many calls as a P99 needs, even
    if quick.
    """
    sla = context.workload.workload.sla
    calls, most = 120, _of_shape(context, quick=1.0, full=_FULL_SECONDS)
    if not context.extent.quick:
        calls = _FULL_CALLS
    if context.extent.steady:
        return CallBudget(
            calls, context.extent.steady, max(context.extent.steady, most)
        )
    is_promised = sla.p99 is not None and sla.rate is None
    if is_promised or any(
        budget.rate is None for budget in context.budgets_on("latency.p99", shape)
    ):
        calls, most = _FULL_CALLS, _FULL_SECONDS
    return CallBudget(calls, _of_shape(context, quick=0.5, full=5.0), most)


def _of_shape(context: StepContext, *, quick: float, full: float) -> float:
    """The seconds for a shape: of a quick run all shapes share them."""
    if context.extent.quick:
        return quick / len(context.workload.shapes)
    return full


def _add_quantiles(outcome: StepOutcome, seconds: Floats) -> None:
    """Add the percentiles, the slowest tenth and the standard deviation with their
    intervals, and the maximum.

    A P99 and a tenth of too few calls have a reason instead of a value.
    """
    outcome.estimate("latency.p50", quantile(seconds, 0.5))
    outcome.estimate("latency.p90", quantile(seconds, 0.9))
    outcome.p99(
        "latency.p99", quantile(seconds, 0.99), "times.p99-too-few-calls-see-p90"
    )
    if seconds.size >= TENTH_FLOOR:
        outcome.estimate(TAIL, slowest_tenth(seconds))
    else:
        too_few = Message(
            "times.tenth-too-few-calls",
            {"needed": TENTH_FLOOR, "calls": int(seconds.size)},
        )
        outcome.missing([TAIL], too_few)
    if seconds.size > 1:
        outcome.estimate(STD, standard_deviation(seconds))
    outcome.number("latency.max", float(seconds.max()), count=int(seconds.size))


def _judge_sla(outcome: StepOutcome, sla: SLA, shape: str) -> None:
    """Compare the P99 with the SLA: violated if even its lower bound lies above, met if
    its upper bound lies below.

    An SLA with a rate applies to the calls that arrive at that rate.
    """
    promised = sla.p99
    if promised is None:
        return
    labels = {"shape": shape}
    if sla.rate is not None:
        labels["rate"] = f"{sla.rate:g}"
    p99 = next(
        value
        for value in outcome.values
        if value.metric == "latency.p99" and value.labels == labels
    )
    low, high = p99.interval or (None, None)
    evidence: MaybeEvidence = {"sla.p99": promised, "calls": p99.count or 0}
    if low is not None and low > promised:
        outcome.note("sla.p99", "severe", {**evidence, "p99.low": low})
    elif p99.value is not None and p99.value > promised:
        outcome.note("sla.p99.near", "warning", {**evidence, "p99": p99.value})
    elif high is None or high > promised:
        outcome.note("sla.p99.few_calls", "info", evidence)


def _measure_open_loop(outcome: StepOutcome, context: StepContext, shape: str) -> None:
    """Measure the latency of calls that arrive at a fixed rate, from the intended start
    of each.

    The rates come from the SLA, budgets and the traffic; without any the measurement is
    skipped.
    """
    for calls_per_second, arrivals in _offered(context, shape):
        rate = f"{calls_per_second:g}"
        context.doing(
            "{rate} calls a second of shape {shape}, sent whether or not earlier calls are done",
            rate=rate,
            shape=shape,
        )
        at_rate = outcome.under(rate=rate)
        if arrivals.size < _FEWEST_ARRIVALS:
            seconds = Message(
                "times.time-allowed"
                if context.extent.quick
                else "times.time-of-full-run"
            )
            reason = Message(
                "times.rate-too-low",
                {
                    "rate": calls_per_second,
                    "fewest": _FEWEST_ARRIVALS,
                    "seconds": seconds,
                },
            )
            at_rate.missing(_OPEN_LOOP_QUANTILES, reason)
            continue
        loop = run_open_loop(context.workload.caller(shape), context.device, arrivals)
        _add_open_loop(at_rate, loop, rate)
        if loop.saturated:
            calls = int(loop.latencies.size)
            served_ns = (loop.intended_ns + loop.latencies).max() - loop.intended_ns[0]
            promised = calls_per_second == context.workload.workload.sla.rate
            at_rate.note(
                "latency.saturated",
                "severe" if promised else "warning",
                {
                    "rate": rate,
                    "calls": calls,
                    "served": float(calls / (served_ns / 1e9)),
                },
            )


def _offered(context: StepContext, shape: str) -> Iterator[tuple[float, Floats]]:
    """Yield the rates to measure, each with the times of the calls: the rates of the
    SLA, of budgets, and of the traffic.

    A promised rate gets the full time, long enough to be judged. Traffic consists of
    items: a call arrives when its batch is full.
    """
    workload, seed = context.workload.workload, context.seed
    traffic = workload.traffic
    burstiness = 1.0
    if traffic is not None:
        burstiness = traffic.burstiness
    rates = [workload.sla.rate]
    for metric in _OPEN_LOOP_QUANTILES:
        rates += [budget.rate for budget in context.budgets_on(metric, shape)]
    promised = [rate for rate in dict.fromkeys(rates) if rate is not None]
    for rate in promised:
        share = _MOST_SECONDS_OF_PROMISES / (
            len(promised) * len(context.workload.shapes)
        )
        count = _count(
            rate, least=5.0, usual=_FULL_SECONDS, most=max(share, _FULL_SECONDS)
        )
        yield (rate, draw(rate, burstiness=burstiness, count=count, seed=seed))
    if (
        traffic is not None
        and (rate := rate_of(traffic) / workload.batch) not in promised
    ):
        usual = _of_shape(context, quick=2.0, full=_FULL_SECONDS)
        count = _count(
            rate,
            least=_of_shape(context, quick=0.5, full=5.0),
            usual=usual,
            most=_STRETCH * usual,
        )
        yield (rate, calls_of(traffic, workload.batch, count=count, seed=seed))


def _count(rate: float, *, least: float, usual: float, most: float) -> int:
    """The calls that a P99 needs, or the calls of the usual seconds if a P99 takes
    longer than ``most``.
    """
    if (P99_FLOOR + 1) / rate > most:
        return int(rate * usual)
    return max(P99_FLOOR + 1, int(min(rate * least, _MOST_ARRIVALS)))


def _add_open_loop(outcome: StepOutcome, loop: OpenLoop, rate: str) -> None:
    """Add the percentiles; only lower bounds for a growing queue, because its latency
    depends on the time of stopping.
    """
    seconds = loop.latencies / 1e9
    p50, p99 = dependent_quantile(seconds, 0.5), dependent_quantile(seconds, 0.99)
    if loop.saturated:
        reason = Message("times.queue-grows", {"rate": rate})
        outcome.lower_bound("latency.p50", p50, reason)
        outcome.lower_bound("latency.p99", p99, reason)
    else:
        outcome.estimate("latency.p50", p50)
        outcome.p99("latency.p99", p99)
