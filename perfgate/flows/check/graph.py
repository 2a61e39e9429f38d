"""The speed-up by compiling of a check: the compiled calls of both sides, as values of step 9."""

from __future__ import annotations

import msgspec
import numpy as np

from perfgate.conductor.sides.checklist.compiled_calls import CompiledSide
from perfgate.document.run import REPEAT, StepResult
from perfgate.measuring.checklist.outcome import StepOutcome

GRAPH_STEP = 9
SPEEDUP, COLD = "graph.speedup", "graph.compile_cold"


def with_speedup(step: StepResult, side: CompiledSide, shape: str) -> StepResult:
    """Step 9 with the typical speed-up and that of every turn, or the reason that there is none."""
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
    return msgspec.structs.replace(step, values=values + compiled.values, duration=step.duration + side.seconds)
