"""Step 19 of a check: the state of the device that the watcher read beside the pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from perfgate.catalogue.lookup import card
from perfgate.document.run import StepProcedure, StepResult, WorkloadRecord
from perfgate.document.samples import Replicate
from perfgate.document.telemetry import TelemetryReading
from perfgate.measuring.checklist.runner import step_result
from perfgate.measuring.checklist.steps.s19_thermal import judge_watched

THERMAL_STEP = 19


def thermal_step(replicates: Sequence[Replicate], workload: WorkloadRecord, limits: Mapping[str, float]) -> StepResult:
    """The result of one side, of the readings beside its replicates."""
    readings: dict[int, TelemetryReading] = {}
    for replicate in replicates:
        readings.update({reading.began_ns: reading for reading in replicate.readings})
    outcome = judge_watched([readings[began] for began in sorted(readings)], limits)
    result = step_result(card(THERMAL_STEP), workload.name, outcome)
    return msgspec.structs.replace(result, procedure=StepProcedure(quick=True, clock="wall"))
