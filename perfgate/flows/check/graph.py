"""The speed-up by compiling of a check: the compiled calls of both sides, as values of step 9."""

from __future__ import annotations

import msgspec
import numpy as np

from perfgate.conductor.sides.checklist.compiled_calls import CompiledSide
from perfgate.document.run import REPEAT, StepResult, Value
from perfgate.measuring.checklist.values import median, missing

GRAPH_STEP = 9
SPEEDUP, COLD = "graph.speedup", "graph.compile_cold"


def with_speedup(step: StepResult, side: CompiledSide, shape: str) -> StepResult:
    """Step 9 with the typical speed-up and that of every turn, or the reason that there is none."""
    if step.error is not None:
        return step
    labels = {"shape": shape}
    values = [value for value in step.values if value.metric not in (SPEEDUP, COLD)]
    if side.cold_seconds is not None:
        values.append(Value(metric=COLD, value=side.cold_seconds, labels=labels))
    if side.speedups:
        values.append(median(SPEEDUP, np.asarray(side.speedups), labels))
    elif side.reason is not None:
        values += missing(SPEEDUP, side.reason, labels)
    for turn, speedup in enumerate(side.speedups, start=1):
        values.append(Value(metric=SPEEDUP, value=speedup, labels={**labels, REPEAT: str(turn)}))
    return msgspec.structs.replace(step, values=values, duration=step.duration + side.seconds)
