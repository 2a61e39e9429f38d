"""Latency of calls that come in at a rate of their own, counted from when each was to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.document.run import Evidence, Finding, Severity, Value
from perfgate.measuring.checklist.limits import noticed
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.timing.arrivals import calls_of, draw, rate_of
from perfgate.measuring.timing.open_loop import OpenLoop, run_open_loop
from perfgate.stats.summary import CONFIDENCE, P99_FLOOR, dependent_quantile

METRICS = ("latency.p50", "latency.p99")
# Fewer calls are no traffic.
_FEWEST = 10


class Pace(NamedTuple):
    """Seconds that the calls of one rate may take: as long as a P99 needs, within these bounds."""

    least: float
    most: float


class _Offered(NamedTuple):
    """Calls that come in: how many a second, and when."""

    rate: float
    arrivals: npt.NDArray[np.float64]

    @property
    def label(self) -> str:
        return f"{self.rate:g}"


class OpenLoopOutcome(NamedTuple):
    """Values of one shape, labelled with the rate, and what is worth a word."""

    values: list[Value]
    findings: list[Finding]


def measure_open_loop(context: StepContext, shape: str, pace: Pace, *, promised: Pace) -> OpenLoopOutcome:
    """Measure at the rates of the SLA, of budgets and of the traffic; nothing where nobody names one.

    What is promised at a rate gets its own pace, long enough to be judged.
    """
    outcome = OpenLoopOutcome([], [])
    for offered in _offered(context, shape, pace, promised):
        context.progress(f"{offered.label} calls a second of shape {shape}, sent whether or not earlier ones are done")
        values, found = _measure(context, shape, offered)
        outcome.values.extend(values)
        if found is not None and found.saturated:
            severity: Severity = "severe" if offered.rate == context.workload.workload.sla.rate else "warning"
            outcome.findings.append(noticed("latency.saturated", severity, _evidence(offered, shape, found)))
    return outcome


def _offered(context: StepContext, shape: str, pace: Pace, promised_pace: Pace) -> Iterator[_Offered]:
    """Yield the rates to measure. Traffic is of items: its calls come in when their batch is full."""
    workload, seed = context.workload.workload, context.seed
    traffic, promised = workload.traffic, _promised_rates(context, shape)
    burstiness = traffic.burstiness if traffic is not None else 1.0
    for rate in promised:
        yield _Offered(rate, draw(rate, burstiness=burstiness, count=_count(rate, promised_pace), seed=seed))
    if traffic is not None and (rate := rate_of(traffic) / workload.batch) not in promised:
        yield _Offered(rate, calls_of(traffic, workload.batch, count=_count(rate, pace), seed=seed))


def _promised_rates(context: StepContext, shape: str) -> list[float]:
    """Return the rates that the SLA and budgets name, each once."""
    named = [context.workload.workload.sla.rate]
    named += [budget.rate for metric in METRICS for budget in context.budgets_on(metric, shape)]
    return list(dict.fromkeys(rate for rate in named if rate is not None))


def _count(rate: float, pace: Pace) -> int:
    return int(rate * min(pace.most, max(pace.least, (P99_FLOOR + 1) / rate)))


def _measure(context: StepContext, shape: str, offered: _Offered) -> tuple[list[Value], OpenLoop | None]:
    labels = {"shape": shape, "rate": offered.label}
    if offered.arrivals.size < _FEWEST:
        seconds = "the time for it" if context.quick else "the time that the full run takes for it"
        reason = f"{offered.label} calls a second are fewer than {_FEWEST} in {seconds}"
        return [Value(metric=metric, value=None, labels=labels, reason=reason) for metric in METRICS], None
    found = run_open_loop(context.workload.caller(shape), context.device, offered.arrivals)
    return [_quantile(metric, found, labels) for metric in METRICS], found


def _quantile(metric: str, found: OpenLoop, labels: dict[str, str]) -> Value:
    """Return a percentile; of a queue that grows without end only a lower bound, for its latency hangs on when one stops."""
    value = dependent_quantile(found.latencies / 1e9, int(metric[-2:]) / 100)
    missing: str | None = None
    if found.saturated:
        missing = f"the queue grows without end at {labels['rate']} calls a second"
    elif metric == "latency.p99" and value.size < P99_FLOOR:
        missing = f"not estimable: a P99 needs {P99_FLOOR} calls, there are {value.size}"
    stated = Value(
        metric=metric,
        value=value.value,
        interval=value.interval,
        confidence=CONFIDENCE,
        count=value.size,
        labels=labels,
    )
    if missing is None:
        return stated
    return msgspec.structs.replace(stated, value=None, interval=(value.low, None), reason=missing)


def _evidence(offered: _Offered, shape: str, found: OpenLoop) -> dict[str, Evidence]:
    served = (found.intended_ns + found.latencies).max() - found.intended_ns[0]
    return {
        "shape": shape,
        "rate": offered.label,
        "calls": int(found.latencies.size),
        "served": float(found.latencies.size / (served / 1e9)),
    }
