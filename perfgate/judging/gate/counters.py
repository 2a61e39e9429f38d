"""Exact counters, first: no noise, so any worsening beyond the tolerance counts and carries the name of the op."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from perfgate.document.decision import Comparison, Outcome, Part, Policy
from perfgate.document.metric import metric
from perfgate.document.run import CounterSet, OpCount, RunDocument
from perfgate.judging.gate.policy import tolerance
from perfgate.judging.gate.rounding import rounded

MAX_PARTS = 12
_NOTHING = OpCount(op="", count=0)
_COPY_METRICS = ("counters.copies", "counters.noncontiguous_copies")


def compare_counters(base: RunDocument, head: RunDocument, policy: Policy) -> list[Comparison]:
    """Compare every counter of every shape, then the ops whose count changed."""
    bases = {(counters.workload, counters.shape): counters for counters in base.counters}
    comparisons: list[Comparison] = []
    for counters in head.counters:
        other = bases.get((counters.workload, counters.shape))
        if other is not None:
            comparisons += _compare_set(other, counters, policy)
    return comparisons


def _compare_set(base: CounterSet, head: CounterSet, policy: Policy) -> Iterator[Comparison]:
    for name in sorted(head.values):
        if name in base.values:
            yield _compare_counter(base, head, name, policy)
    yield from _compare_ops(base, head)


def _compare_counter(base: CounterSet, head: CounterSet, name: str, policy: Policy) -> Comparison:
    exact = name not in base.unstable and name not in head.unstable
    allowed = tolerance(policy, name)
    outcome = _outcome(base.values[name], head.values[name], allowed) if exact else "not_comparable"
    return _comparison(
        base,
        name,
        base.values[name],
        head.values[name],
        outcome=outcome,
        gating=exact,
        allowed=allowed,
        reason=None if exact else "the count differs between repeated calls of the same code, so it is not exact here",
        parts=_parts(base, head, name) if outcome in ("regressed", "improved") else [],
    )


def _outcome(base: float, head: float, allowed: float) -> Outcome:
    if head > base * (1 + allowed):
        return "regressed"
    return "improved" if head < base else "unchanged"


def _compare_ops(base: CounterSet, head: CounterSet) -> Iterator[Comparison]:
    """Ops by name inform and explain; they do not fail the gate, for one op may rightly replace another.

    Views are left to the run documents: they launch nothing.
    """
    if "counters.framework_ops" in {*base.unstable, *head.unstable}:
        return
    for op, (before, after, line) in sorted(_changed_ops(base, head).items()):
        yield _comparison(
            base,
            f"ops.count:{op}",
            before,
            after,
            outcome=_outcome(before, after, 0.0),
            gating=False,
            allowed=0.0,
            parts=[Part(name=op, base=before, head=after, line=line)],
        )


def _comparison(
    counters: CounterSet,
    name: str,
    base: float,
    head: float,
    *,
    outcome: Outcome,
    gating: bool,
    allowed: float,
    reason: Optional[str] = None,
    parts: Optional[list[Part]] = None,
) -> Comparison:
    described = metric(name)
    return Comparison(
        workload=counters.workload,
        shape=counters.shape,
        metric=name,
        unit=described.unit,
        better=described.better,
        method="exact",
        outcome=outcome,
        gating=gating,
        base=base,
        head=head,
        delta=rounded(head / base - 1) if base else None,
        tolerance=allowed,
        reason=reason,
        parts=parts or [],
    )


def _parts(base: CounterSet, head: CounterSet, name: str) -> list[Part]:
    """Return the operators that explain a change of a counter; which one allocates is not counted, so not said."""
    if name == "counters.copy_bytes":
        parts = _copied_bytes(base, head)
    elif name in (*_COPY_METRICS, "counters.framework_ops"):
        copying = {op.op for op in (*base.ops, *head.ops) if op.copy_bytes}
        parts = [
            Part(name=op, base=before, head=after, line=line)
            for op, (before, after, line) in _changed_ops(base, head).items()
            if name not in _COPY_METRICS or op in copying
        ]
    else:
        parts = []
    return sorted(parts, key=lambda part: (-abs(part.head - part.base), part.name))[:MAX_PARTS]


def _copied_bytes(base: CounterSet, head: CounterSet) -> list[Part]:
    before, after = _by_op(base), _by_op(head)
    return [
        Part(name=op, base=old.copy_bytes, head=new.copy_bytes, line=new.line or old.line)
        for op in before.keys() | after.keys()
        if (old := before.get(op, _NOTHING)).copy_bytes != (new := after.get(op, _NOTHING)).copy_bytes
    ]


def _changed_ops(base: CounterSet, head: CounterSet) -> dict[str, tuple[int, int, Optional[str]]]:
    """Return op -> (count before, count after, line that calls it in the head, or called it in the base)."""
    before, after = _by_op(base), _by_op(head)
    changed = {}
    for op in before.keys() | after.keys():
        old, new = before.get(op, _NOTHING), after.get(op, _NOTHING)
        if old.count != new.count and not (old.view or new.view):
            changed[op] = (old.count, new.count, new.line or old.line)
    return changed


def _by_op(counters: CounterSet) -> dict[str, OpCount]:
    return {op.op: op for op in counters.ops}
