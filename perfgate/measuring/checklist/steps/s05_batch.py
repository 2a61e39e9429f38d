"""Step 5: throughput against batch size: which is large enough, the best one, what the configured one loses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.run import Finding, Value
from perfgate.measuring.checklist.limits import above, limit, noticed
from perfgate.measuring.checklist.step import StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._batch_sweep import FULL, QUICK, Sweep, forget, probe, visit_all
from perfgate.measuring.timing.quiet import quiet
from perfgate.stats.signed_rank import lower_bound, upper_bound
from perfgate.stats.summary import CONFIDENCE, quantile


class BatchStep:
    """Sizes 1, 2, 4 … in random order, several visits each, so that no drift of the machine looks like an effect."""

    card = card(5)

    def measure(self, context: StepContext) -> StepOutcome:
        """Sweep the first shape; not applicable where the model takes no other batch size than the configured one."""
        shape, configured = context.workload.shapes[0], context.workload.batch
        effort = QUICK if context.quick else FULL
        sweep = Sweep()
        with quiet():
            probe(context, shape, effort, sweep)
            if set(sweep.sizes) <= {configured}:
                return StepOutcome(status="not_applicable", reason=_why_fixed(sweep, configured))
            visit_all(context, shape, effort, sweep)
            forget(context, shape, sweep.sizes)
        return _outcome(context, sweep, shape)


def _outcome(context: StepContext, sweep: Sweep, shape: str) -> StepOutcome:
    labels = {"shape": shape}
    throughput = sweep.throughput()
    knee = find_knee(sweep.rates, limit("batch.knee.gain", context.limits))
    best = _best(throughput, sweep, context.workload.workload.sla.p99)
    loss = None if best is None else _loss(throughput, context.workload.batch, best)
    values = [
        _knee_value(knee, sweep, labels),
        _value("batch.best", best, "no batch size keeps the SLA", labels),
        _value("batch.loss", loss, "it needs the throughput of the configured and of the best batch size", labels),
        *(_throughput_value(sweep, size, shape) for size in throughput),
    ]
    findings = [*_notes(sweep, knee), *_judge(context, loss, best)]
    return StepOutcome(status=status_of(findings), values=values, findings=findings)


class Knee(NamedTuple):
    """The smallest batch size not shown to be worse than the best one, and the smallest shown not to be."""

    size: int
    surely: int


def find_knee(rates: Mapping[int, Sequence[float]], gain: float) -> Knee | None:
    """Return from which size on the best one is not ``gain`` times as fast; None where that is the largest one only.

    ``rates`` are the items per second of each visit, whose order the sizes share: they are compared visit by visit, so that
    a disturbance which meets a whole round meets both.
    """
    sizes = sorted(rates)
    if len(sizes) < 2:
        return None
    best = max(sizes, key=lambda size: float(np.median(rates[size])))
    tail = (1 - CONFIDENCE) / 2
    size = surely = best
    for smaller in reversed(sizes[: sizes.index(best)]):
        behind = np.log(np.asarray(rates[best])) - np.log(np.asarray(rates[smaller]))
        size = smaller if lower_bound(behind, tail) <= math.log(gain) else size
        surely = smaller if upper_bound(behind, tail) < math.log(gain) else surely
    return None if size == sizes[-1] else Knee(size, surely)


def _knee_value(knee: Knee | None, sweep: Sweep, labels: dict[str, str]) -> Value:
    if knee is None:
        reason = "not reached: the largest batch size measured is beyond doubt the fastest"
        return Value(metric="batch.knee", value=None, reason=reason, labels=labels)
    return Value(
        metric="batch.knee",
        value=float(knee.size),
        interval=(float(knee.size), float(knee.surely)),
        confidence=CONFIDENCE,
        count=len(sweep.rates[knee.size]),
        labels=labels,
    )


def _best(throughput: dict[int, float], sweep: Sweep, promised: float | None) -> int | None:
    """Return the size of the highest throughput whose P99 keeps the SLA, None where none does."""
    kept = [size for size in throughput if promised is None or _p99(sweep.latencies[size]) <= promised]
    return max(kept, key=throughput.__getitem__, default=None)


def _p99(latencies: list[float]) -> float:
    # Of less than 100 calls this is the slowest one: a size is rather refused than promised too much.
    return quantile(np.asarray(latencies), 0.99).value


def _loss(throughput: dict[int, float], configured: int, best: int) -> float | None:
    if configured not in throughput:
        return None
    return 1.0 - throughput[configured] / throughput[best]


def _throughput_value(sweep: Sweep, size: int, shape: str) -> Value:
    found = quantile(np.asarray(sweep.rates[size]), 0.5)
    return Value(
        metric="batch.throughput",
        value=float(np.median(sweep.rates[size])),
        interval=found.interval,
        confidence=CONFIDENCE,
        count=found.size,
        labels={"shape": shape, "batch": str(size)},
    )


def _value(metric: str, value: float | None, missing: str, labels: dict[str, str]) -> Value:
    if value is None:
        return Value(metric=metric, value=None, reason=missing, labels=labels)
    return Value(metric=metric, value=float(value), labels=labels)


def _notes(sweep: Sweep, knee: Knee | None) -> list[Finding]:
    """Say what ended the sweep, what was left out, and that the knee was not reached."""
    largest = sweep.sizes[-1] if sweep.sizes else 0
    noted = [
        ("batch.out_of_memory", sweep.out_of_memory),
        ("batch.too_slow", sweep.too_slow),
        ("batch.knee", None if knee else largest),
    ]
    found = [noticed(rule, "info", {"batch": size}) for rule, size in noted if size]
    refused = [
        noticed("batch.refused", "info", {"batch": size, "error": error}) for size, error in sweep.refused.items()
    ]
    return found + refused


def _judge(context: StepContext, loss: float | None, best: int | None) -> list[Finding]:
    if loss is None or best is None:
        return []
    evidence = {"batch": context.workload.batch, "best": best}
    return above("batch.loss", loss, given=context.limits, evidence=evidence)


def _why_fixed(sweep: Sweep, configured: int) -> str:
    if sweep.refused:
        size, error = next(iter(sweep.refused.items()))
        return f"the batch size is fixed at {configured}: a batch of {size} is refused ({error})"
    if sweep.out_of_memory:
        return f"no batch size but the configured {configured} fits into the device's memory"
    return f"the workload names no batch size but the configured {configured}"


STEP = BatchStep()
