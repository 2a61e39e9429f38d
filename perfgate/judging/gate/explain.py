"""Why it changed: how often base and head run their operators, side by side."""

from __future__ import annotations

from perfgate.document.decision import OperatorChange
from perfgate.document.run import OperatorRow, RunDocument
from perfgate.judging.gate.rounding import rounded

MAX_CHANGES = 10
MIN_SHARE = 0.002  # of a side's busy time; an op that runs more often for less than this explains nothing


def operator_changes(base: RunDocument, head: RunDocument) -> list[OperatorChange]:
    """Return the operators that came, went or run more or less often, a few per shape.

    Each side was traced by itself, so the traced times say how much an operator weighs on its side, never how much more or
    less it takes: they choose the operators and their order, and no more. Recordings that mark no calls are left out: their
    counts are not of one call.
    """
    before, after = _by_shape(base), _by_shape(head)
    whole = {(c.workload, c.shape) for run in (base, head) for c in run.counters if not c.repeats}
    changes: list[OperatorChange] = []
    for key in sorted((before.keys() & after.keys()) - whole):
        lines = operator_lines(head, *key)
        weights = {
            op: _weight(before[key].get(op), after[key].get(op)) for op in before[key].keys() | after[key].keys()
        }
        chosen = [
            op
            for op in sorted(weights, key=lambda op: (-weights[op], op))
            if weights[op] > MIN_SHARE or not (op in before[key] and op in after[key])
        ]
        changes += [
            OperatorChange(
                workload=key[0],
                shape=key[1],
                op=op,
                base_count=rounded(_count(before[key].get(op))),
                head_count=rounded(_count(after[key].get(op))),
                line=lines.get(op),
            )
            for op in chosen[:MAX_CHANGES]
        ]
    return changes


def changed_counts(base: RunDocument, head: RunDocument) -> set[tuple[str, str, str]]:
    """Return workload, shape and name of the operators that a call of one side runs more often than one of the other."""
    before, after = _by_shape(base), _by_shape(head)
    return {
        (*key, op)
        for key in before.keys() & after.keys()
        for op in before[key].keys() | after[key].keys()
        if _count(before[key].get(op)) != _count(after[key].get(op))
    }


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


def _weight(before: OperatorRow | None, after: OperatorRow | None) -> float:
    """Return the share of its side's time that the runs take which only one side has."""
    rows = [row for row in (before, after) if row is not None]
    more = abs(_count(after) - _count(before))
    return max(row.share for row in rows) * more / max(abs(row.count) for row in rows) if more else 0.0


def _count(row: OperatorRow | None) -> float:
    return row.count if row else 0.0
