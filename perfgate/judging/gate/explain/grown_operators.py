"""The operators of a job that take longer on the head, from the traces of one turn a side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from perfgate.document.alignment import Work
from perfgate.document.explanation import OperatorDelta
from perfgate.document.profile import JobProfile
from perfgate.document.run import CodeChange
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.evidence.profiled_work import DEVICE, CalledOperator, ProjectFunction, called_operators
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.explain.sampled_growth import is_sure

# An operator that adds less to a unit is no cause of a slowdown that a gate can detect.
_LEAST_SHARE = 0.01
# With fewer calls the spread is unknown.
_FEWEST_CALLS = 4
# The batching of a server differs from turn to turn, and so does the number of operator calls per token. This share of the
# operators may be called less often on the head than all others.
_PACE = 0.1
# Counts that differ by less may come from one more batch.
_SAME_COUNT = 0.05


class GrownOperator(NamedTuple):
    """An operator of the head, and how much longer it takes in a unit; ``is_changed`` is whether the change calls it."""

    function: ProjectFunction
    on_device: bool
    is_changed: bool
    delta: OperatorDelta


def grown_operators(base: JobProfile, head: JobProfile, changes: Sequence[CodeChange]) -> list[GrownOperator]:
    """The operators that take longer beyond the spread of their calls, most first; of equal operators, a changed one first.

    Base's calls are scaled to the number of head's batches.
    """
    if not base.operator_units or not head.operator_units:
        return []
    before, after = called_operators(base), called_operators(head)
    pace = _pace(before, after)
    code = ChangedCode(changes, head.functions)
    grown: list[GrownOperator] = []
    for key, work in after.items():
        old = before.get(key, Work(work.operator, 0.0, 0.0))
        seconds = work.amount - old.amount * pace
        line = code.of_function(work.line) if work.line else None
        is_changed = code.is_changed(line)
        error = math.hypot(work.error, old.error * pace)
        on_device = work.kind == DEVICE
        unit_seconds = base.seconds if on_device else min(base.cpu, base.seconds)
        is_large = seconds >= _LEAST_SHARE * unit_seconds and work.calls * head.operator_units >= _FEWEST_CALLS
        if is_large and is_sure(seconds, error, is_expected=is_changed):
            delta = _delta(work, old.calls * pace, seconds, line)
            grown.append(GrownOperator(key.function, on_device, is_changed, delta))
    most = max((operator.delta.seconds for operator in grown), default=0.0)

    def order(operator: GrownOperator) -> tuple[bool, float]:
        # Half of the largest is considered equal: a trace is of one turn.
        leads = operator.is_changed and operator.delta.seconds >= most / 2
        return not leads, -operator.delta.seconds

    return sorted(grown, key=order)


def _delta(work: Work, base_calls: float, seconds: float, line: str | None) -> OperatorDelta:
    delta = OperatorDelta(op=work.operator, kind="slower", seconds=rounded(seconds), line=line)
    if base_calls and work.calls <= (1 + _SAME_COUNT) * base_calls:
        return delta
    return msgspec.structs.replace(
        delta,
        kind="more" if base_calls else "added",
        base_count=rounded(base_calls),
        head_count=rounded(work.calls),
    )


def _pace(before: Mapping[CalledOperator, Work], after: Mapping[CalledOperator, Work]) -> float:
    """The factor by which a unit of the head makes unchanged calls more often than base, as its batches are smaller."""
    ratios: list[float] = []
    for key, work in after.items():
        old = before.get(key)
        if old is not None and old.calls > 0:
            ratios.append(work.calls / old.calls)
    ratios.sort()
    return ratios[int(_PACE * len(ratios))] if ratios else 1.0
