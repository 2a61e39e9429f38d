"""Step 5: throughput against batch size: the knee, the best size, and the loss at the
configured one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.document.sweep import Sweep
from perfgate.measuring.checklist.batch_sweep import (
    BRIEF,
    FULL,
    QUICK,
    forget,
    probe,
    visit_all,
)
from perfgate.measuring.checklist.step import (
    RecordingContext,
    StepContext,
    StepOutcome,
    not_applicable,
    unavailable,
)
from perfgate.stats.knee import NEARLY, Knee, find_knee, smallest_within, typical_rates
from perfgate.stats.summary import quantile
from perfgate.system.garbage import quiet


class BatchStep:
    """Sizes 1, 2, 4 … in random order, several visits each, so that no drift of the
    machine looks like an effect.
    """

    card = card(5)

    def measure(self, context: StepContext) -> StepOutcome:
        """Sweep the first shape; not applicable if the model accepts only the
        configured batch size.
        """
        shape = context.workload.shapes[0]
        effort = QUICK if context.extent.quick else FULL
        if context.extent.brief:
            effort = BRIEF
        sweep = Sweep()
        with quiet():
            probe(context, shape, effort, sweep)
            if set(sweep.sizes) != {context.workload.batch}:
                visit_all(context, shape, effort, sweep)
                forget(context, shape, sweep.sizes)
        if context.experiments.refusal is not None and set(sweep.sizes) <= {
            context.workload.batch
        }:
            return unavailable(context.experiments.refusal)
        return judge_sweep(
            sweep,
            shape=shape,
            configured=context.workload.batch,
            promised=context.workload.workload.sla.p99,
            limits=context.limits,
        )

    def judge_recording(self, context: RecordingContext) -> StepOutcome:  # noqa: ARG002  as every step's
        return not_applicable(Message("times.one-batch-size"))


STEP = BatchStep()


def judge_sweep(
    sweep: Sweep,
    *,
    shape: str,
    configured: int,
    promised: float | None,
    limits: Mapping[str, float],
) -> StepOutcome:
    """The outcome of a sweep, of this step or of the pairs; ``promised`` is the P99 in
    seconds that the workload promises.
    """
    # A size that the probe measured may be refused by a later visit.
    if set(sweep.sizes) <= {configured}:
        return not_applicable(_why_fixed(sweep, configured))
    outcome = StepOutcome(limits=limits)
    of_shape = outcome.under(shape=shape)
    noted = {
        "batch.out_of_memory": sweep.out_of_memory,
        "batch.too_slow": sweep.too_slow,
    }
    knee = find_knee(sweep.rates, outcome.limit("batch.knee.gain"))
    if knee is None:
        of_shape.missing("batch.knee", Message("times.knee-not-reached"))
        noted["batch.knee"] = sweep.sizes[-1]
    else:
        _add_size(of_shape, "batch.knee", knee)
    for rule, size in noted.items():
        if size:
            outcome.note(rule, "info", {"batch": size})
    for size, error in sweep.refused.items():
        outcome.note("batch.refused", "info", {"batch": size, "error": error})
    _add_best(outcome, of_shape, sweep, configured, promised)
    for size in sweep.sizes:
        of_shape.under(batch=str(size)).median(
            "batch.throughput", np.asarray(sweep.rates[size])
        )
    return outcome


def _add_best(
    outcome: StepOutcome,
    of_shape: StepOutcome,
    sweep: Sweep,
    configured: int,
    promised: float | None,
) -> None:
    """Add the best size that keeps the promise, and judge the loss of the configured
    one.
    """
    # The P99 of fewer than 100 calls is the slowest one, so a size is refused rather
    # than promised too early.
    fast = dict(sweep.rates)
    if promised is not None:
        for size in sweep.rates:
            if quantile(np.asarray(sweep.latencies[size]), 0.99).value > promised:
                del fast[size]
    if not fast:
        of_shape.missing("batch.best", Message("times.sla-not-kept"))
        of_shape.missing("batch.loss", Message("times.knee-needs-throughput"))
        return
    best = smallest_within(fast, NEARLY)
    _add_size(of_shape, "batch.best", best)
    if configured not in sweep.rates:
        of_shape.missing("batch.loss", Message("times.knee-needs-throughput"))
        return
    throughput = typical_rates(sweep.rates)
    loss = max(0.0, 1.0 - throughput[configured] / throughput[best.size])
    of_shape.number("batch.loss", loss)
    outcome.above("batch.loss", loss, {"batch": configured, "best": best.size})


def _add_size(outcome: StepOutcome, metric: str, knee: Knee) -> None:
    bounds = float(knee.earliest), float(knee.shown)
    outcome.number(metric, float(knee.size), count=knee.visits, interval=bounds)


def _why_fixed(sweep: Sweep, configured: int) -> Message:
    if sweep.refused:
        size, error = next(iter(sweep.refused.items()))
        return Message(
            "times.batch-fixed",
            {"configured": configured, "size": size, "error": error},
        )
    if sweep.out_of_memory:
        return Message("times.no-other-size-fits", {"size": configured})
    return Message("times.one-size-named", {"size": configured})
