"""Step 5: throughput against batch size: which is large enough, the best one, what the configured one loses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.document.run import Finding, Value
from perfgate.measuring.checklist.batch_sweep import BRIEF, FULL, QUICK, Sweep, forget, probe, visit_all
from perfgate.measuring.checklist.limits import above, finding, limit
from perfgate.measuring.checklist.step import (
    RecordingContext,
    StepContext,
    StepOutcome,
    not_applicable,
    unavailable,
)
from perfgate.measuring.checklist.values import median, missing, with_interval
from perfgate.stats.signed_rank import lower_bound, upper_bound
from perfgate.stats.summary import CONFIDENCE, quantile
from perfgate.system.garbage import quiet


class BatchStep:
    """Sizes 1, 2, 4 … in random order, several visits each, so that no drift of the machine looks like an effect."""

    card = card(5)

    def measure(self, context: StepContext) -> StepOutcome:
        """Sweep the first shape; not applicable where the model takes no other batch size than the configured one."""
        shape, configured = context.workload.shapes[0], context.workload.batch
        effort = BRIEF if context.brief else QUICK if context.quick else FULL
        sweep = Sweep()
        with quiet():
            probe(context, shape, effort, sweep)
            if set(sweep.sizes) != {configured}:
                visit_all(context, shape, effort, sweep)
                forget(context, shape, sweep.sizes)
        # A size that the probe measured may be refused by a later visit.
        if set(sweep.sizes) <= {configured}:
            if context.no_experiments is not None:
                return unavailable(context.no_experiments)
            return not_applicable(_why_fixed(sweep, configured))
        return _outcome(context, sweep, {"shape": shape})

    def judge_recording(self, context: RecordingContext) -> StepOutcome:  # noqa: ARG002  as every step's
        return not_applicable(Message("times.one-batch-size"))


STEP = BatchStep()


def _outcome(context: StepContext, sweep: Sweep, labels: dict[str, str]) -> StepOutcome:
    throughput = sweep.throughput()
    configured = context.workload.batch
    knee = find_knee(sweep.rates, limit("batch.knee.gain", context.limits))
    best = _best(throughput, sweep, context.workload.workload.sla.p99)
    outcome = StepOutcome([_knee_value(knee, sweep, labels)], _notes(sweep, knee))
    if best is None:
        outcome.values += missing("batch.best", Message("times.sla-not-kept"), labels)
    else:
        outcome.values.append(Value(metric="batch.best", value=float(best), labels=labels))
    if best is None or configured not in throughput:
        outcome.values += missing("batch.loss", Message("times.knee-needs-throughput"), labels)
    else:
        loss = 1.0 - throughput[configured] / throughput[best]
        outcome.values.append(Value(metric="batch.loss", value=loss, labels=labels))
        outcome.findings += above("batch.loss", loss, context.limits, {"batch": configured, "best": best})
    for size in throughput:
        rates = np.asarray(sweep.rates[size])
        outcome.values.append(median("batch.throughput", rates, {**labels, "batch": str(size)}))
    return outcome


class Knee(NamedTuple):
    """Where the knee lies: at the smallest size shown to be about as fast as the best one, at the earliest at the smallest
    not shown to be slower.
    """

    earliest: int
    shown: int
    largest: int

    @property
    def is_resolved(self) -> bool:
        """Whether the visits leave at most a doubling open; a wider range would be another one in the next run.

        The largest size that was measured is as fast as itself, which shows nothing.
        """
        return self.shown <= 2 * self.earliest and self.shown < self.largest


def find_knee(rates: Mapping[int, Sequence[float]], gain: float) -> Knee | None:
    """From which size on the best one is not ``gain`` times as fast; None where that is the largest one only.

    ``rates`` are the items per second of each visit, whose order the sizes share: they are compared visit by visit, so that
    a disturbance which meets a whole round meets both.
    """
    sizes = sorted(rates)
    if len(sizes) < 2:
        return None
    best = max(sizes, key=lambda size: float(np.median(rates[size])))
    tail = (1 - CONFIDENCE) / 2
    earliest = shown = best
    for smaller in reversed(sizes[: sizes.index(best)]):
        behind = np.log(np.asarray(rates[best])) - np.log(np.asarray(rates[smaller]))
        earliest = smaller if lower_bound(behind, tail) <= math.log(gain) else earliest
        shown = smaller if upper_bound(behind, tail) < math.log(gain) else shown
    return None if earliest == sizes[-1] else Knee(earliest, shown, sizes[-1])


def _knee_value(knee: Knee | None, sweep: Sweep, labels: dict[str, str]) -> Value:
    if knee is None:
        return Value(metric="batch.knee", value=None, reason=Message("times.knee-not-reached"), labels=labels)
    if not knee.is_resolved:
        reason = Message("times.knee-between", {"earliest": knee.earliest, "shown": knee.shown})
        return Value(metric="batch.knee", value=None, reason=reason, labels=labels)
    shown, visits = float(knee.shown), len(sweep.rates[knee.shown])
    return with_interval("batch.knee", shown, (float(knee.earliest), shown), visits, labels)


def _best(throughput: dict[int, float], sweep: Sweep, promised: float | None) -> int | None:
    """The size of the highest throughput whose P99 keeps the SLA, None where none does."""
    # Of less than 100 calls the P99 is the slowest one: a size is rather refused than promised too much.
    fast = [
        size
        for size in throughput
        if promised is None or quantile(np.asarray(sweep.latencies[size]), 0.99).value <= promised
    ]
    return max(fast, key=throughput.__getitem__, default=None)


def _notes(sweep: Sweep, knee: Knee | None) -> list[Finding]:
    """Say what ended the sweep, where the knee is not known, and which sizes the model refused."""
    noted = [
        ("batch.out_of_memory", sweep.out_of_memory),
        ("batch.too_slow", sweep.too_slow),
        ("batch.knee", sweep.sizes[-1] if sweep.sizes and knee is None else None),
    ]
    findings = [finding(rule, "info", {"batch": size}) for rule, size in noted if size]
    if knee is not None and not knee.is_resolved:
        findings.append(finding("batch.knee_between", "info", {"earliest": knee.earliest, "shown": knee.shown}))
    for size, error in sweep.refused.items():
        findings.append(finding("batch.refused", "info", {"batch": size, "error": error}))
    return findings


def _why_fixed(sweep: Sweep, configured: int) -> Message:
    if sweep.refused:
        size, error = next(iter(sweep.refused.items()))
        return Message("times.batch-fixed", {"configured": configured, "size": size, "error": error})
    if sweep.out_of_memory:
        return Message("times.no-other-size-fits", {"configured": configured})
    return Message("times.one-size-named", {"size": configured})
