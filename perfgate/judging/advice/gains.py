"""What following advice gains: as a step measured it, or at most by Amdahl's law."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfgate.catalogue.names import P50
from perfgate.catalogue.records import EstimatedGain, MeasuredGain
from perfgate.document.decision import Gain
from perfgate.document.run import Evidence, RunDocument, Value


def gain_of(source: object | None, run: RunDocument, workload: str, evidence: Mapping[str, Evidence]) -> Gain | None:
    """The gain that advice promises on a finding with this evidence; None where the run has no number for it."""
    if isinstance(source, MeasuredGain):
        return _measured(source, run, workload, evidence)
    if isinstance(source, EstimatedGain):
        return _estimated(source, run, workload, evidence)
    return None


def at_most(share: float) -> Gain | None:
    """What a call gains at most where ``share`` of its time goes (Amdahl, 1967); None for what is no part of it."""
    if not 0 < share < 1:
        return None
    return Gain(kind="estimated", speedup=1 / (1 - share), share=share)


def _measured(source: MeasuredGain, run: RunDocument, workload: str, evidence: Mapping[str, Evidence]) -> Gain | None:
    value = _value(run, source.metric, workload, evidence)
    if value is None or value.value is None:
        return None
    low, high = value.interval or (None, None)
    numbers = [_speedup(source, number) for number in (value.value, low, high)]
    speedup, *ends = numbers
    if speedup is None:
        return None
    bounds = sorted(end for end in ends if end is not None)
    return Gain(
        kind="measured", speedup=speedup, of=source.of, interval=(bounds[0], bounds[1]) if len(bounds) == 2 else None
    )


def _speedup(source: MeasuredGain, number: float | None) -> float | None:
    """A number of a metric as the speed-up that it means; None for what means none."""
    if number is None:
        return None
    ratio = 1 - number if source.loss else number
    if not (math.isfinite(ratio) and ratio > 0):
        return None
    return 1 / ratio if source.loss or source.inverse else ratio


def _estimated(source: EstimatedGain, run: RunDocument, workload: str, evidence: Mapping[str, Evidence]) -> Gain | None:
    share = _number(evidence, source.share)
    if share is None:
        return None
    if source.seconds:
        call = _value(run, P50, workload, evidence)
        return at_most(share / call.value) if call is not None and call.value else None
    if source.rest:
        share = 1 - share
    if source.stays:
        share *= 1 - (_number(evidence, source.stays) or 0.0)
    if source.of_busy:
        # Without the device's own word the share of its busy time stands for that of the call, which is not larger.
        busy = _value(run, "utilization.busy", workload, evidence)
        share *= busy.value if busy is not None and busy.value is not None else 1.0
    return at_most(share)


def _number(evidence: Mapping[str, Evidence], name: str) -> float | None:
    number = evidence.get(name)
    return float(number) if isinstance(number, (int, float)) and math.isfinite(number) else None


def _value(run: RunDocument, metric: str, workload: str, evidence: Mapping[str, Evidence]) -> Value | None:
    values = (value for step in run.steps if step.workload == workload for value in step.values)
    return next(
        (
            value
            for value in values
            if value.metric == metric
            and value.value is not None
            and all(str(evidence.get(label, text)) == text for label, text in value.labels.items())
        ),
        None,
    )
