"""Why it changed: operators of base and head side by side."""

from __future__ import annotations

from typing import Optional

from perfgate.document.decision import OperatorChange
from perfgate.document.run import OperatorRow, RunDocument
from perfgate.judging.gate.rounding import rounded

MAX_CHANGES = 10
MIN_SHARE = 0.002  # of the base's busy time; an op that runs more often for less than this explains nothing


def operator_changes(base: RunDocument, head: RunDocument) -> list[OperatorChange]:
    """Return the operators that came, went or changed, the largest change of time first, a few per shape.

    Recordings that mark no calls are left out: their counts are not of one call.
    """
    before, after = _by_shape(base), _by_shape(head)
    whole = {(c.workload, c.shape) for run in (base, head) for c in run.counters if not c.repeats}
    changes: list[OperatorChange] = []
    for key in sorted((before.keys() & after.keys()) - whole):
        total = sum(row.self_time for row in before[key].values()) or 1.0
        lines = operator_lines(head, *key)
        found = [
            change
            for op in before[key].keys() | after[key].keys()
            if (change := _change(key, op, before[key].get(op), after[key].get(op), lines.get(op)))
            and _matters(change, total)
        ]
        found.sort(key=lambda change: (-abs(change.head_time - change.base_time), change.op))
        changes += found[:MAX_CHANGES]
    return changes


def operator_lines(run: RunDocument, workload: str, shape: str) -> dict[str, str]:
    """Return the project line that most often calls each operator of a shape, as the exact counters found it."""
    return {
        op.op: op.line
        for counters in run.counters
        if (counters.workload, counters.shape) == (workload, shape)
        for op in counters.ops
        if op.line
    }


def _by_shape(run: RunDocument) -> dict[tuple[str, str], dict[str, OperatorRow]]:
    shapes: dict[tuple[str, str], dict[str, OperatorRow]] = {}
    for row in run.operators:
        shapes.setdefault((row.workload, row.shape), {})[row.op] = row
    return shapes


def _change(
    key: tuple[str, str], op: str, before: Optional[OperatorRow], after: Optional[OperatorRow], line: Optional[str]
) -> OperatorChange:
    return OperatorChange(
        workload=key[0],
        shape=key[1],
        op=op,
        base_time=rounded(before.self_time) if before else 0.0,
        head_time=rounded(after.self_time) if after else 0.0,
        base_count=rounded(before.count) if before else 0.0,
        head_count=rounded(after.count) if after else 0.0,
        line=line,
    )


def _matters(change: OperatorChange, total: float) -> bool:
    """Only ops whose count changed: the profiler's times alone are too noisy to accuse one."""
    if change.base_count == change.head_count:
        return False
    came_or_went = min(change.base_count, change.head_count) == 0
    return came_or_went or abs(change.head_time - change.base_time) > MIN_SHARE * total
