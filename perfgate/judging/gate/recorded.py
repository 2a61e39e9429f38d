"""Two recordings side by side: the times of whole steps and of single operators are shown and judged by nobody.

Times of different minutes, let alone days, differ by what else the machine did, and a profiler adds its own. What repeats all
the same is compared: exact counts (counters.py), and what kernels take in all (kernel_times.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from perfgate.catalogue.lookup import METRICS, metric
from perfgate.document.decision import Comparison
from perfgate.document.run import FROM_PROFILE, OperatorRow, RunDocument
from perfgate.judging.gate.rounding import rounded

NOT_COMPARED = "recorded, not compared: measure with perfgate check"
# Of each shape, the operators with the most self time on either side.
MAX_OPERATORS = 10
_SHOWN = {name for name, entry in METRICS.items() if entry.recorded}

_Place = tuple[str, str]


def are_recordings(base: RunDocument, head: RunDocument) -> bool:
    """Return whether neither side was measured."""
    return base.session.command == head.session.command == FROM_PROFILE


def recorded_times(base: RunDocument, head: RunDocument) -> list[Comparison]:
    """Return times of both sides that nothing follows from: of the whole step, then of its heaviest operators."""
    return [*_values(base, head), *_operators(base, head)]


def _values(base: RunDocument, head: RunDocument) -> Iterator[Comparison]:
    before, after = _numbers(base), _numbers(head)
    for key in after:
        if key in before:
            (workload, shape), name = key
            yield _shown((workload, shape), name, before[key], after[key])


def _numbers(run: RunDocument) -> dict[tuple[_Place, str], float]:
    return {
        ((step.workload, value.labels.get("shape", "")), value.metric): value.value
        for step in run.steps
        for value in step.values
        if value.metric in _SHOWN and value.value is not None
    }


def _operators(base: RunDocument, head: RunDocument) -> Iterator[Comparison]:
    before, after = _rows(base), _rows(head)
    for place in (key for key in after if key in before):
        old, new = before[place], after[place]
        times = {op: (_time(old.get(op)), _time(new.get(op))) for op in old.keys() | new.keys()}
        heaviest = sorted(times, key=lambda op: (-max(time or 0.0 for time in times[op]), op))
        for op in heaviest[:MAX_OPERATORS]:
            yield _shown(place, f"ops.time:{op}", *times[op])


def _rows(run: RunDocument) -> dict[_Place, dict[str, OperatorRow]]:
    """Return the operators of each shape; those of a recording that marks no steps are not of one step, so of no use here."""
    whole = {(counters.workload, counters.shape) for counters in run.counters if not counters.repeats}
    rows: dict[_Place, dict[str, OperatorRow]] = {}
    for row in run.operators:
        if (row.workload, row.shape) in whole:
            continue
        rows.setdefault((row.workload, row.shape), {})[row.op] = row
    return rows


def _time(row: OperatorRow | None) -> float | None:
    return None if row is None else row.self_time


def _shown(place: _Place, name: str, base: float | None, head: float | None) -> Comparison:
    described = metric(name)
    return Comparison(
        workload=place[0],
        shape=place[1],
        metric=name,
        unit=described.unit,
        better=described.better,
        method="recorded",
        outcome="not_comparable",
        gating=False,
        base=None if base is None else rounded(base),
        head=None if head is None else rounded(head),
        reason=NOT_COMPARED,
    )
