"""Step 1: how long one call takes, its tail, and how many items a second go through, in the steady state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.run import Evidence, Finding, SampleSet, Value
from perfgate.document.samples import pack
from perfgate.measuring.checklist.limits import noticed
from perfgate.measuring.checklist.step import StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._open_loop import Pace, measure_open_loop
from perfgate.measuring.timing.calls import CallBudget, CallTimes, Throughput, measure_throughput, time_calls
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.timing.steady import SteadyState, find_steady_state
from perfgate.measuring.workload.workload import SLA
from perfgate.stats.summary import CONFIDENCE, P99_FLOOR, Samples, low_location, quantile

QUANTILES = ("latency.p50", "latency.p90", "latency.p99")
# Six windows, because of five no two order statistics hold the median with 95 % confidence.
_WINDOWS = 6


@dataclass(frozen=True)
class _Effort:
    """What the step may spend, in seconds and calls: the quick one on the workload, the full one on each shape."""

    warm_up_seconds: float
    calls: int
    seconds: float
    most_seconds: float
    window_seconds: float
    open_loop: Pace

    def shared(self, shapes: int) -> _Effort:
        """Return the part of one of several shapes."""
        return _Effort(
            warm_up_seconds=self.warm_up_seconds / shapes,
            calls=self.calls,
            seconds=self.seconds / shapes,
            most_seconds=self.most_seconds / shapes,
            window_seconds=self.window_seconds / shapes,
            open_loop=Pace(least=self.open_loop.least / shapes, most=self.open_loop.most / shapes),
        )


_QUICK = _Effort(
    warm_up_seconds=3.0, calls=200, seconds=1.0, most_seconds=2.0, window_seconds=0.2, open_loop=Pace(0.5, 2.0)
)
# 700 calls are enough for a P99 (662); the windows of throughput are one second long.
_FULL = _Effort(
    warm_up_seconds=30.0, calls=700, seconds=5.0, most_seconds=30.0, window_seconds=1.0, open_loop=Pace(5.0, 30.0)
)


@dataclass
class _Gathered:
    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    samples: list[SampleSet] = field(default_factory=list)


class LatencyStep:
    """Latency with every call waited for, throughput with several in flight; inputs rotate, no call is dropped."""

    card = card(1)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape of the workload."""
        shapes = context.workload.shapes
        effort = _QUICK.shared(len(shapes)) if context.quick else _FULL
        gathered = _Gathered()
        with quiet():
            for shape in shapes:
                context.progress(f"timing calls of shape {shape}")
                _measure_shape(context, shape, effort, gathered)
        return StepOutcome(
            status=status_of(gathered.findings),
            values=gathered.values,
            findings=gathered.findings,
            samples=gathered.samples,
        )


def _measure_shape(context: StepContext, shape: str, effort: _Effort, gathered: _Gathered) -> None:
    call: Callable[[], Any] = context.workload.caller(shape)
    device, batch = context.device, context.workload.batch
    steady = find_steady_state(call, device, cap_seconds=effort.warm_up_seconds)
    times = time_calls(call, device, _spend(context, shape, effort))
    rates = measure_throughput(call, device, items=batch, window_seconds=effort.window_seconds, windows=_WINDOWS)
    at_rates = measure_open_loop(context, shape, effort.open_loop, promised=_FULL.open_loop)
    latencies = _latencies(times, {"shape": shape})
    gathered.values += [*_warm_up(steady, shape), *latencies, *at_rates.values, *_throughput(rates, shape)]
    kept = _sla([*latencies, *at_rates.values], context.workload.workload.sla, shape)
    gathered.findings += [*_unsteady(steady, shape), *at_rates.findings, *kept]
    gathered.samples += [
        SampleSet(metric="latency", samples=pack(times.wall), labels={"shape": shape, "clock": "wall"}),
        SampleSet(metric="latency", samples=pack(times.cpu), labels={"shape": shape, "clock": "thread_cpu"}),
    ]


def _spend(context: StepContext, shape: str, effort: _Effort) -> CallBudget:
    """Return what may be spent on calls; a promise about the P99 takes as many as a P99 needs, also when quick."""
    sla = context.workload.workload.sla
    rates = [budget.rate for budget in context.budgets_on("latency.p99", shape)]
    if None in [*rates, *([sla.rate] if sla.p99 is not None else [])]:
        return CallBudget(max(effort.calls, _FULL.calls), effort.seconds, max(effort.most_seconds, _FULL.most_seconds))
    return CallBudget(effort.calls, effort.seconds, effort.most_seconds)


def _warm_up(steady: SteadyState, shape: str) -> list[Value]:
    labels = {"shape": shape}
    return [
        Value(metric="latency.first_call", value=steady.first_call_ns / 1e9, count=1, labels=labels),
        Value(metric="latency.warm_up_calls", value=float(steady.calls), labels=labels),
    ]


def _latencies(times: CallTimes, labels: dict[str, str]) -> list[Value]:
    seconds = times.wall / 1e9
    count = int(seconds.size)
    return [
        Value(metric="latency.low", value=low_location(seconds), count=count, labels=labels),
        *(latency_quantile(name, seconds, labels) for name in QUANTILES),
        Value(metric="latency.max", value=float(seconds.max()), count=count, labels=labels),
    ]


def latency_quantile(metric: str, seconds: Samples, labels: dict[str, str]) -> Value:
    """Return a percentile with its interval; a P99 of too few calls has no value, and the reason says so."""
    found = quantile(seconds, int(metric[-2:]) / 100, confidence=CONFIDENCE)
    estimable = metric != "latency.p99" or found.size >= P99_FLOOR
    return Value(
        metric=metric,
        value=found.value if estimable else None,
        interval=found.interval if estimable else (found.low, None),
        confidence=CONFIDENCE,
        count=found.size,
        labels=labels,
        reason=None if estimable else f"not estimable: a P99 needs {P99_FLOOR} calls, there are {found.size}; see P90",
    )


def _throughput(rates: Throughput, shape: str) -> list[Value]:
    median = quantile(rates.rates, 0.5)
    return [
        Value(
            metric="throughput.median",
            value=float(np.median(rates.rates)),
            interval=median.interval,
            confidence=CONFIDENCE,
            count=median.size,
            labels={"shape": shape},
        ),
        Value(metric="throughput.min", value=float(rates.rates.min()), count=median.size, labels={"shape": shape}),
    ]


def _unsteady(steady: SteadyState, shape: str) -> list[Finding]:
    if steady.steady:
        return []
    return [noticed("latency.steady_state", "warning", {"shape": shape, "calls": steady.calls})]


def _sla(latencies: list[Value], sla: SLA, shape: str) -> list[Finding]:
    """Compare the P99 with the SLA: broken when even its lower end lies above, kept when its upper end lies below.

    An SLA with a rate is about the calls that came in at that rate.
    """
    promised, rate = sla.p99, None if sla.rate is None else f"{sla.rate:g}"
    if promised is None:
        return []
    p99 = next(value for value in latencies if value.metric == "latency.p99" and value.labels.get("rate") == rate)
    low, high = p99.interval or (None, None)
    evidence: dict[str, Evidence] = {"sla.p99": promised, "shape": shape, "calls": p99.count or 0}
    if low is not None and low > promised:
        return [noticed("sla.p99", "severe", {**evidence, "p99.low": low})]
    if p99.value is not None and p99.value > promised:
        return [noticed("sla.p99.near", "warning", {**evidence, "p99": p99.value})]
    if high is None or high > promised:
        return [noticed("sla.p99.few_calls", "info", evidence)]
    return []


STEP = LatencyStep()
