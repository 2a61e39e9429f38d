"""Step 1: how long one call takes, its tail, and how many items a second go through, in the steady state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.document.run import Finding, Value
from perfgate.document.samples import SampleSet, pack
from perfgate.measuring.checklist.copies.copies import start_cold
from perfgate.measuring.checklist.experiment import FailedExperiment, experiment
from perfgate.measuring.checklist.limits import MaybeEvidence, above, below, finding, limit
from perfgate.measuring.checklist.recorded import NO_STEPS, or_absent, profiled
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome
from perfgate.measuring.checklist.values import lower_bound_only, median, missing, of_quantile, several, with_interval
from perfgate.measuring.devices.device import Device
from perfgate.measuring.timing.calls import CallBudget, find_steady_state, measure_throughput, time_calls, timed_call
from perfgate.measuring.timing.open_loop import OpenLoop, calls_of, rate_of, run_open_loop
from perfgate.measuring.workload.workload import SLA
from perfgate.protocol import LoadRequest
from perfgate.stats.arrivals import draw
from perfgate.stats.steadiness import steadiness
from perfgate.stats.summary import P99_FLOOR, dependent_quantile, low_location, quantile, standard_deviation
from perfgate.system.garbage import quiet

_QUANTILES = ("latency.p50", "latency.p90", "latency.p99")
_SPREAD = "latency.std"
_STEADINESS = ("latency.drift", "latency.steady_share")
_COLD_START = ("start.import", "start.load", "start.first_call", "start.total")
_COLD_STARTS = 3
_OPEN_LOOP_QUANTILES = ("latency.p50", "latency.p99")
# Six windows, because of five no two order statistics hold the median with 95 % confidence.
_WINDOWS = 6
# Fewer calls are no traffic.
_FEWEST_ARRIVALS = 10


class _Pace(NamedTuple):
    """Seconds that the calls of one rate may take: as long as a P99 needs, within these bounds."""

    least: float
    most: float


@dataclass(frozen=True)
class _Effort:
    """What the step may spend, in seconds and calls: the quick one on the workload, the full one on each shape."""

    warm_up_seconds: float
    calls: int
    seconds: float
    most_seconds: float
    window_seconds: float
    open_loop: _Pace

    def shared(self, shapes: int) -> _Effort:
        """The part of one of several shapes."""
        return replace(
            self,
            warm_up_seconds=self.warm_up_seconds / shapes,
            seconds=self.seconds / shapes,
            most_seconds=self.most_seconds / shapes,
            open_loop=_Pace(self.open_loop.least / shapes, self.open_loop.most / shapes),
        )


_QUICK = _Effort(
    warm_up_seconds=3.0, calls=200, seconds=1.0, most_seconds=2.0, window_seconds=0.2, open_loop=_Pace(0.5, 2.0)
)
# 700 calls are enough for a P99 (662); the windows of throughput are one second long.
_FULL = _Effort(
    warm_up_seconds=30.0, calls=700, seconds=5.0, most_seconds=30.0, window_seconds=1.0, open_loop=_Pace(5.0, 30.0)
)


class LatencyStep:
    """Latency with every call waited for, throughput with several in flight; inputs rotate, no call is dropped."""

    card = card(1)

    def measure(self, context: StepContext) -> StepOutcome:
        shapes = context.workload.shapes
        effort = _QUICK.shared(len(shapes)) if context.quick else _FULL
        outcome = StepOutcome()
        with quiet():
            for shape in shapes:
                context.progress(f"timing calls of shape {shape}")
                outcome.add(_measure_shape(context, shape, effort))
        if context.cold_start and context.load is not None:
            outcome.values += _cold_start(context, context.load)
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Take the lengths of profiler steps for latencies of calls; the profiler's cost is in them, and the label says so."""
        outcome = StepOutcome()
        for summary in context.summaries:
            lengths = None if summary.unit == "whole recording" else summary.lengths()
            if lengths is None:
                reason = NO_STEPS if summary.unit == "whole recording" else Message("times.steps-without-times")
                outcome.values += missing([*_QUANTILES, _SPREAD, "latency.max"], reason, {"shape": summary.shape})
            elif len(lengths) == 1:
                only = Value(metric="latency.single", value=lengths[0] / 1e9, count=1, labels=profiled(summary))
                outcome.values.append(only)
            else:
                outcome.values += _quantiles(np.array(lengths) / 1e9, profiled(summary))
        return or_absent(outcome)


STEP = LatencyStep()


def _measure_shape(context: StepContext, shape: str, effort: _Effort) -> StepOutcome:
    call, labels = context.workload.caller(shape), {"shape": shape}
    device, batch = context.device, context.workload.batch
    if context.brief:  # of the others the pairs tell more
        return StepOutcome([_first_call(timed_call(call, device), labels)])
    steady = find_steady_state(call, device, cap_seconds=effort.warm_up_seconds)
    before = _memory(device)
    times = time_calls(call, device, _call_budget(context, shape, effort))
    after = _memory(device)
    rates = measure_throughput(call, device, items=batch, window_seconds=effort.window_seconds, windows=_WINDOWS).rates
    at_rates = _measure_open_loop(context, shape, effort.open_loop)
    seconds = times.wall / 1e9
    low = Value(metric="latency.low", value=low_location(seconds), count=int(seconds.size), labels=labels)
    latencies = [low, *_quantiles(seconds, labels)]
    unsteady = finding("latency.steady_state", "warning", {"shape": shape, "calls": steady.calls})
    held = StepOutcome()
    if context.steady_seconds:
        held = _judge_steadiness(context, seconds, labels)
        own = {"process": times.wall.nbytes + times.cpu.nbytes, "device": 0}
        held.add(_judge_memory(context, before, {place: after[place] - own[place] for place in after}, labels))
    return StepOutcome(
        values=[
            _first_call(steady.first_call_ns, labels),
            Value(metric="latency.warm_up_calls", value=float(steady.calls), labels=labels),
            *latencies,
            *held.values,
            *at_rates.values,
            median("throughput.median", rates, labels),
            Value(metric="throughput.min", value=float(rates.min()), count=int(rates.size), labels=labels),
        ],
        findings=[
            *([] if steady.steady else [unsteady]),
            *held.findings,
            *at_rates.findings,
            *_judge_sla([*latencies, *at_rates.values], context.workload.workload.sla, shape),
        ],
        samples=[
            SampleSet(metric="latency", samples=pack(times.wall), labels={"shape": shape, "clock": "wall"}),
            SampleSet(metric="latency", samples=pack(times.cpu), labels={"shape": shape, "clock": "thread_cpu"}),
        ],
    )


def _first_call(nanoseconds: int, labels: dict[str, str]) -> Value:
    return Value(metric="latency.first_call", value=nanoseconds / 1e9, count=1, labels=labels)


def _cold_start(context: StepContext, load: LoadRequest) -> list[Value]:
    """The parts of a cold start on the first shape, each the median of new processes one after another."""
    labels = {"shape": context.workload.shapes[0]}
    context.progress("starting a process that imports, loads and calls the workload")
    starts = experiment(
        context,
        lambda: [start_cold(load, folder=context.artifacts) for _ in range(1 if context.quick else _COLD_STARTS)],
        failing="times.cold-start-failed",
    )
    if isinstance(starts, FailedExperiment):
        return missing(_COLD_START, starts.reason, labels)
    parts = np.array([(start.import_ns, start.load_ns, start.first_call_ns) for start in starts]) / 1e9
    seconds = np.median(np.column_stack((parts, parts.sum(axis=1))), axis=0)
    return several(dict(zip(_COLD_START, seconds.tolist())), labels, count=len(starts))


def _judge_steadiness(context: StepContext, seconds: npt.NDArray[np.float64], labels: dict[str, str]) -> StepOutcome:
    """Say whether the calls stayed at one speed for as long as was asked for, and what those of the longest level took.

    A drift counts as far as its interval shows one at least.
    """
    shape, span = labels["shape"], float(seconds.sum())
    held = steadiness(seconds)
    if held is None:
        too_few = Message("times.too-few-for-steadiness", {"calls": int(seconds.size)})
        return StepOutcome(values=missing(_STEADINESS, too_few, labels))
    stretch = seconds[held.start : held.end]
    share = float(stretch.sum()) / span
    drift = with_interval(_STEADINESS[0], held.drift, (held.low, held.high), int(seconds.size), labels)
    steady = Value(metric=_STEADINESS[1], value=share, count=held.levels, labels=labels)
    outcome = StepOutcome(values=[drift, steady])
    evidence: MaybeEvidence = {
        "shape": shape,
        "seconds": round(span, 1),
        "drift": held.drift,
        "low": held.low,
        "high": held.high,
    }
    drifts = above("latency.drift", max(0.0, held.low, -held.high), context.limits, evidence)
    outcome.findings += drifts
    if held.levels > 1:
        outcome.values += _quantiles(stretch, {**labels, "stretch": "longest level"})
        levels: MaybeEvidence = {**evidence, "levels": held.levels, "share": share}
        outcome.findings += below("latency.steady_share", share, context.limits, levels)
    elif not drifts:
        most = limit("latency.drift.warning", context.limits)
        is_steady = -most <= held.low and held.high <= most
        rule = "latency.drift.steady" if is_steady else "latency.drift.undecided"
        outcome.findings.append(finding(rule, "info", evidence))
    return outcome


def _memory(device: Device) -> dict[str, int]:
    """The bytes that the process holds in the host's memory, and in the device's where it has its own."""
    statistics = device.memory_statistics()
    held = {"process": device.host_memory().resident}
    return held if statistics is None else {**held, "device": statistics.allocated}


def _judge_memory(
    context: StepContext, before: dict[str, int], after: dict[str, int], labels: dict[str, str]
) -> StepOutcome:
    """The memory at both ends of the steady state; step 17 names the line where a call keeps some."""
    outcome = StepOutcome()
    for place, began in before.items():
        where = {**labels, "of": place}
        outcome.values += several({"soak.memory_begin": float(began), "soak.memory_end": float(after[place])}, where)
        if began:
            evidence: MaybeEvidence = {
                **where,
                "begin": float(began),
                "end": float(after[place]),
                "seconds": context.steady_seconds,
            }
            outcome.findings += above("soak.growth", after[place] / began - 1, context.limits, evidence)
    return outcome


def _call_budget(context: StepContext, shape: str, effort: _Effort) -> CallBudget:
    """A promise about the P99 takes as many calls as a P99 needs, also when quick."""
    sla = context.workload.workload.sla
    if context.steady_seconds:
        return CallBudget(effort.calls, context.steady_seconds, max(context.steady_seconds, effort.most_seconds))
    rates = [budget.rate for budget in context.budgets_on("latency.p99", shape)]
    if None in [*rates, *([sla.rate] if sla.p99 is not None else [])]:
        return CallBudget(max(effort.calls, _FULL.calls), effort.seconds, max(effort.most_seconds, _FULL.most_seconds))
    return CallBudget(effort.calls, effort.seconds, effort.most_seconds)


def _quantiles(seconds: npt.NDArray[np.float64], labels: dict[str, str]) -> list[Value]:
    """The percentiles and the standard deviation with their intervals, and the maximum.

    A P99 of too few calls has no value, and the reason says so.
    """
    values = []
    for metric in _QUANTILES:
        number = quantile(seconds, int(metric[-2:]) / 100)
        if metric == "latency.p99" and number.size < P99_FLOOR:
            reason = Message("times.p99-too-few-calls-see-p90", {"needed": P99_FLOOR, "calls": number.size})
            values.append(lower_bound_only(metric, number, labels, reason))
        else:
            values.append(of_quantile(metric, number, labels))
    if seconds.size > 1:
        spread = standard_deviation(seconds)
        values.append(with_interval(_SPREAD, spread.value, spread.interval or (None, None), spread.size, labels))
    return [*values, Value(metric="latency.max", value=float(seconds.max()), count=int(seconds.size), labels=labels)]


def _judge_sla(latencies: list[Value], sla: SLA, shape: str) -> list[Finding]:
    """Compare the P99 with the SLA: broken when even its lower end lies above, kept when its upper end lies below.

    An SLA with a rate is about the calls that came in at that rate.
    """
    promised, rate = sla.p99, None if sla.rate is None else f"{sla.rate:g}"
    if promised is None:
        return []
    p99 = next(value for value in latencies if value.metric == "latency.p99" and value.labels.get("rate") == rate)
    low, high = p99.interval or (None, None)
    evidence: MaybeEvidence = {"sla.p99": promised, "shape": shape, "calls": p99.count or 0}
    if low is not None and low > promised:
        return [finding("sla.p99", "severe", {**evidence, "p99.low": low})]
    if p99.value is not None and p99.value > promised:
        return [finding("sla.p99.near", "warning", {**evidence, "p99": p99.value})]
    if high is None or high > promised:
        return [finding("sla.p99.few_calls", "info", evidence)]
    return []


class _Offered(NamedTuple):
    """Calls that come in: how many a second, and when."""

    rate: float
    arrivals: npt.NDArray[np.float64]


def _measure_open_loop(context: StepContext, shape: str, pace: _Pace) -> StepOutcome:
    """Latency of calls that come in at a rate of their own, counted from when each was to start.

    The rates are those of the SLA, of budgets and of the traffic; without any of them nothing is measured.
    """
    outcome = StepOutcome()
    for offered in _offered(context, shape, pace):
        rate = f"{offered.rate:g}"
        context.progress(f"{rate} calls a second of shape {shape}, sent whether or not earlier ones are done")
        labels = {"shape": shape, "rate": rate}
        if offered.arrivals.size < _FEWEST_ARRIVALS:
            seconds = Message("times.time-allowed" if context.quick else "times.time-of-full-run")
            reason = Message(
                "times.rate-too-low", {"rate": offered.rate, "fewest": _FEWEST_ARRIVALS, "seconds": seconds}
            )
            outcome.values += missing(_OPEN_LOOP_QUANTILES, reason, labels)
            continue
        loop = run_open_loop(context.workload.caller(shape), context.device, offered.arrivals)
        outcome.values += [_open_loop_quantile(metric, loop, labels) for metric in _OPEN_LOOP_QUANTILES]
        if loop.saturated:
            calls = int(loop.latencies.size)
            served_ns = (loop.intended_ns + loop.latencies).max() - loop.intended_ns[0]
            evidence: MaybeEvidence = {**labels, "calls": calls, "served": float(calls / (served_ns / 1e9))}
            promised = offered.rate == context.workload.workload.sla.rate
            outcome.findings.append(finding("latency.saturated", "severe" if promised else "warning", evidence))
    return outcome


def _offered(context: StepContext, shape: str, pace: _Pace) -> Iterator[_Offered]:
    """Yield the rates to measure: those that the SLA and budgets name, each once, and that of the traffic.

    What is promised at a rate gets the full pace, long enough to be judged. Traffic is of items: its calls come in when
    their batch is full.
    """
    workload, seed = context.workload.workload, context.seed
    traffic = workload.traffic
    burstiness = traffic.burstiness if traffic is not None else 1.0
    budgets = [budget.rate for metric in _OPEN_LOOP_QUANTILES for budget in context.budgets_on(metric, shape)]
    promised = list(dict.fromkeys(rate for rate in (workload.sla.rate, *budgets) if rate is not None))
    for rate in promised:
        yield _Offered(rate, draw(rate, burstiness=burstiness, count=_count(rate, _FULL.open_loop), seed=seed))
    if traffic is not None and (rate := rate_of(traffic) / workload.batch) not in promised:
        yield _Offered(rate, calls_of(traffic, workload.batch, count=_count(rate, pace), seed=seed))


def _count(rate: float, pace: _Pace) -> int:
    return int(rate * min(pace.most, max(pace.least, (P99_FLOOR + 1) / rate)))


def _open_loop_quantile(metric: str, loop: OpenLoop, labels: dict[str, str]) -> Value:
    """A percentile; of a queue that grows without end only a lower bound, for its latency depends on when one stops."""
    number = dependent_quantile(loop.latencies / 1e9, int(metric[-2:]) / 100)
    if loop.saturated:
        reason = Message("times.queue-grows", {"rate": labels["rate"]})
        return lower_bound_only(metric, number, labels, reason)
    if metric == "latency.p99" and number.size < P99_FLOOR:
        reason = Message("times.p99-too-few-calls", {"needed": P99_FLOOR, "calls": number.size})
        return lower_bound_only(metric, number, labels, reason)
    return of_quantile(metric, number, labels)
