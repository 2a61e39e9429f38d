"""Step 5: throughput against batch size: the knee, the best size, and the loss at the configured one."""

from __future__ import annotations

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.measuring.checklist.batch_sweep import BRIEF, FULL, QUICK, Sweep, forget, probe, visit_all
from perfgate.measuring.checklist.limits import limit
from perfgate.measuring.checklist.step import (
    RecordingContext,
    StepContext,
    StepOutcome,
    not_applicable,
    unavailable,
)
from perfgate.measuring.checklist.values import median
from perfgate.stats.knee import Knee, find_knee
from perfgate.stats.summary import quantile
from perfgate.system.garbage import quiet


class BatchStep:
    """Sizes 1, 2, 4 … in random order, several visits each, so that no drift of the machine looks like an effect."""

    card = card(5)

    def measure(self, context: StepContext) -> StepOutcome:
        """Sweep the first shape; not applicable if the model accepts only the configured batch size."""
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
        outcome = context.outcome()
        _judge_sweep(outcome, outcome.under(shape=shape), context, sweep)
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:  # noqa: ARG002  as every step's
        return not_applicable(Message("times.one-batch-size"))


STEP = BatchStep()


def _judge_sweep(outcome: StepOutcome, of_shape: StepOutcome, context: StepContext, sweep: Sweep) -> None:
    throughput = sweep.throughput()
    configured = context.workload.batch
    knee = find_knee(sweep.rates, limit("batch.knee.gain", context.limits))
    promised = context.workload.workload.sla.p99
    # The P99 of fewer than 100 calls is the slowest one, so a size is refused rather than promised too early.
    fast = [
        size
        for size in throughput
        if promised is None or quantile(np.asarray(sweep.latencies[size]), 0.99).value <= promised
    ]
    best = max(fast, key=throughput.__getitem__, default=None)
    _add_knee(of_shape, knee)
    _note_limits_of_sweep(outcome, sweep, knee)
    if best is None:
        of_shape.missing("batch.best", Message("times.sla-not-kept"))
    else:
        of_shape.number("batch.best", float(best))
    if best is None or configured not in throughput:
        of_shape.missing("batch.loss", Message("times.knee-needs-throughput"))
    else:
        loss = 1.0 - throughput[configured] / throughput[best]
        of_shape.number("batch.loss", loss)
        outcome.above("batch.loss", loss, {"batch": configured, "best": best})
    for size in throughput:
        rates = np.asarray(sweep.rates[size])
        outcome.values.append(median("batch.throughput", rates, {**of_shape.labels, "batch": str(size)}))


def _add_knee(outcome: StepOutcome, knee: Knee | None) -> None:
    if knee is None:
        outcome.missing("batch.knee", Message("times.knee-not-reached"))
    elif not knee.is_resolved:
        outcome.missing("batch.knee", Message("times.knee-between", {"earliest": knee.earliest, "shown": knee.shown}))
    else:
        shown = float(knee.shown)
        outcome.number("batch.knee", shown, count=knee.visits, interval=(float(knee.earliest), shown))


def _note_limits_of_sweep(outcome: StepOutcome, sweep: Sweep, knee: Knee | None) -> None:
    """Note the end of the sweep, an unknown knee, and the sizes that the model refused."""
    noted = [
        ("batch.out_of_memory", sweep.out_of_memory),
        ("batch.too_slow", sweep.too_slow),
        ("batch.knee", sweep.sizes[-1] if sweep.sizes and knee is None else None),
    ]
    for rule, size in noted:
        if size:
            outcome.note(rule, "info", {"batch": size})
    if knee is not None and not knee.is_resolved:
        outcome.note("batch.knee_between", "info", {"earliest": knee.earliest, "shown": knee.shown})
    for size, error in sweep.refused.items():
        outcome.note("batch.refused", "info", {"batch": size, "error": error})


def _why_fixed(sweep: Sweep, configured: int) -> Message:
    if sweep.refused:
        size, error = next(iter(sweep.refused.items()))
        return Message("times.batch-fixed", {"configured": configured, "size": size, "error": error})
    if sweep.out_of_memory:
        return Message("times.no-other-size-fits", {"configured": configured})
    return Message("times.one-size-named", {"size": configured})
