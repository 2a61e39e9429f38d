"""The results of steps that a check measures in its own way: batch sizes, compiled calls, and the device's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from msgspec.structs import replace

from perfgate.catalogue.lookup import card
from perfgate.catalogue.names import BATCH_THROUGHPUT
from perfgate.conductor.sides.checklist.compiled_calls import CompiledSide
from perfgate.conductor.sides.function.batch_sizes import BatchSizes, SizesOfSide
from perfgate.document.message import Message, as_message
from perfgate.document.run import (
    REPEAT,
    StepProcedure,
    StepResult,
    Value,
    WorkloadRecord,
)
from perfgate.document.samples import Replicate
from perfgate.document.telemetry import TelemetryReading
from perfgate.measuring.checklist.runner import step_result
from perfgate.measuring.checklist.step import StepOutcome, unavailable
from perfgate.measuring.checklist.steps.s05_batch import judge_sweep
from perfgate.measuring.checklist.steps.s19_thermal import judge_watched

# Counting always runs on both sides: exact counters are compared first.
COUNTING_STEP, BATCH_STEP, GRAPH_STEP, THERMAL_STEP = 4, 5, 9, 19
SPEEDUP, COLD = "graph.speedup", "graph.compile_cold"


def batch_step(
    side: SizesOfSide,
    sizes: BatchSizes,
    workload: WorkloadRecord,
    limits: Mapping[str, float],
) -> StepResult:
    """The batch sizes that the pairs measured, of one side: typical rates, all rounds as turns, knee and best size."""
    result = step_result(
        card(BATCH_STEP),
        workload.name,
        _sweep(side, sizes, workload, limits),
        seconds=side.seconds,
    )
    if sizes.rounds:
        result = replace(result, procedure=StepProcedure(quick=True, clock="awake"))
    if side.error is not None:
        return replace(
            result,
            status="error",
            reason=as_message(side.error.message),
            error=side.error,
        )
    values, shape = list(result.values), workload.shapes[0]
    for size, rates in side.sweep.rates.items():
        for turn, rate in enumerate(rates, start=1):
            labels = {"shape": shape, "batch": str(size), REPEAT: str(turn)}
            values.append(Value(metric=BATCH_THROUGHPUT, value=rate, labels=labels))
    waited = None
    if side.waited:
        waited = round(fmean(side.waited), 4)
    return replace(result, values=values, waited=waited)


def _sweep(
    side: SizesOfSide,
    sizes: BatchSizes,
    workload: WorkloadRecord,
    limits: Mapping[str, float],
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


def with_speedup(step: StepResult, side: CompiledSide, shape: str) -> StepResult:
    """Step 9 with the typical speed-up by compiling and the speed-up of every turn, or the reason that there is none."""
    if step.error is not None:
        return step
    compiled = StepOutcome(labels={"shape": shape})
    if side.cold_seconds is not None:
        compiled.number(COLD, side.cold_seconds)
    if side.speedups:
        compiled.median(SPEEDUP, np.asarray(side.speedups))
    elif side.reason is not None:
        compiled.missing(SPEEDUP, side.reason)
    for turn, speedup in enumerate(side.speedups, start=1):
        compiled.under(**{REPEAT: str(turn)}).number(SPEEDUP, speedup)
    values = [value for value in step.values if value.metric not in (SPEEDUP, COLD)]
    return replace(
        step, values=values + compiled.values, duration=step.duration + side.seconds
    )


def thermal_step(
    replicates: Sequence[Replicate],
    workload: WorkloadRecord,
    limits: Mapping[str, float],
) -> StepResult:
    """The device's state on one side, by the readings taken during its replicates."""
    readings: dict[int, TelemetryReading] = {}
    for replicate in replicates:
        readings.update({reading.began_ns: reading for reading in replicate.readings})
    outcome = judge_watched([readings[began] for began in sorted(readings)], limits)
    result = step_result(card(THERMAL_STEP), workload.name, outcome)
    return replace(result, procedure=StepProcedure(quick=True, clock="wall"))
