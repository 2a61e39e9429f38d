"""Step 5 of a check: the batch sizes that the pairs measured, as the step's result on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

import msgspec

from perfgate.catalogue.lookup import card
from perfgate.catalogue.names import BATCH_THROUGHPUT
from perfgate.conductor.sides.function.batch_sizes import BatchSizes, SizesOfSide
from perfgate.document.message import Message, as_message
from perfgate.document.run import REPEAT, StepProcedure, StepResult, Value, WorkloadRecord
from perfgate.measuring.checklist.outcome import StepOutcome, unavailable
from perfgate.measuring.checklist.runner import step_result
from perfgate.measuring.checklist.steps.s05_batch import judge_sweep

BATCH_STEP = 5


def batch_step(
    side: SizesOfSide, sizes: BatchSizes, workload: WorkloadRecord, limits: Mapping[str, float]
) -> StepResult:
    """The result of one side: each size's typical rate, the rates of all rounds as turns, the knee and the best size."""
    result = step_result(card(BATCH_STEP), workload.name, _outcome(side, sizes, workload, limits), seconds=side.seconds)
    if sizes.rounds:
        result = msgspec.structs.replace(result, procedure=StepProcedure(quick=True, clock="awake"))
    if side.error is not None:
        error = side.error
        return msgspec.structs.replace(result, status="error", reason=as_message(error.message), error=error)
    waited = round(fmean(side.waited), 4) if side.waited else None
    return msgspec.structs.replace(result, values=[*result.values, *_turns(side, workload)], waited=waited)


def _outcome(
    side: SizesOfSide, sizes: BatchSizes, workload: WorkloadRecord, limits: Mapping[str, float]
) -> StepOutcome:
    is_alone = set(side.sweep.call_seconds) == {workload.batch}
    if not is_alone and (not sizes.rounds or side.error is not None):
        return unavailable(sizes.reason or Message("times.no-pair-for-sizes"))
    return judge_sweep(
        side.sweep,
        shape=workload.shapes[0],
        configured=workload.batch,
        promised=workload.sla_p99,
        limits=limits,
    )


def _turns(side: SizesOfSide, workload: WorkloadRecord) -> list[Value]:
    """The rate of every size in every round; a round is one turn of both sides."""
    values: list[Value] = []
    for size, rates in side.sweep.rates.items():
        for turn, rate in enumerate(rates, start=1):
            labels = {"shape": workload.shapes[0], "batch": str(size), REPEAT: str(turn)}
            values.append(Value(metric=BATCH_THROUGHPUT, value=rate, labels=labels))
    return values
