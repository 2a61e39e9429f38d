"""The tables of the page that come from run documents: operators, counters, testbed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import METRICS
from perfgate.document.decision import DecisionDocument, TestbedDifference
from perfgate.document.explanation import OperatorDelta
from perfgate.document.run import OUTSIDE_OPERATORS, OperatorRow, RunDocument
from perfgate.document.samples import Replicate, unpack
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text.names import metric_name, place
from perfgate.judging.report.text.numbers import DASH, percent, whole
from perfgate.judging.report.text.words import Words, say

Floats = npt.NDArray[np.float64]
_MAX_TABLES = 40
_MAX_ROWS = 2000
_SHOWN_OPERATORS = 40
_NANOSECOND = 1e-9
# A workload and a shape.
_Place = tuple[str, str]


@dataclass(frozen=True)
class OperatorCells:
    """An operator on both sides: its calls, its self time, the bars of that, and how the calls changed."""

    op: str
    base_count: Words
    head_count: Words
    base: Words
    head: Words
    base_bar: float
    head_bar: float
    share: Words
    status: Words
    changed: bool


@dataclass(frozen=True)
class OperatorTable:
    """The operators of a place, those with the most self time first, and how many are left out."""

    place: str
    operators: list[OperatorCells]
    more: int


@dataclass(frozen=True)
class CounterRow:
    """An exact counter of both sides."""

    metric: str
    place: str
    base: Words
    head: Words
    changed: bool


def operator_tables(decision: DecisionDocument, base: RunDocument | None, head: RunDocument) -> list[OperatorTable]:
    """Per workload and shape the operators of both sides.

    The counts come from the trace of each side; the times come from the decision, because its pairs profiled both sides in
    turns. Separate recordings have only their own times.
    """
    operators: dict[_Place, dict[str, OperatorDelta]] = {}
    times = {} if decision.recorded else _paired_times(decision)
    before, after = _operators(base), _operators(head)
    for at, op in dict.fromkeys([*after, *before, *times]):
        compared = _compared(op, before.get((at, op)), after.get((at, op)), recorded=decision.recorded)
        timed = times.get((at, op))
        if timed is not None:
            compared = msgspec.structs.replace(compared, base=timed.base or None, head=timed.head or None)
        operators.setdefault(at, {})[op] = compared
    return [_operator_table(at, list(listed.values())) for at, listed in list(operators.items())[:_MAX_TABLES]]


def _operators(run: RunDocument | None) -> dict[tuple[_Place, str], OperatorRow]:
    return {(row.place, row.op): row for row in run.operators} if run else {}


def _paired_times(decision: DecisionDocument) -> dict[tuple[_Place, str], OperatorDelta]:
    times = {}
    for row in decision.operators:
        if row.base is not None and row.op != OUTSIDE_OPERATORS:
            times[row.place, row.op] = row
    return times


def _compared(op: str, before: OperatorRow | None, after: OperatorRow | None, *, recorded: bool) -> OperatorDelta:
    compared = OperatorDelta(op=op)
    if before:
        time = before.self_time if recorded else None
        compared = msgspec.structs.replace(compared, base_count=before.count, base=time)
    if after:
        time = after.self_time if recorded else None
        compared = msgspec.structs.replace(compared, head_count=after.count, head=time)
    return compared


def _operator_table(at: _Place, operators: list[OperatorDelta]) -> OperatorTable:
    operators.sort(key=lambda operator: (-_most(operator), operator.op))
    of_head = sum(operator.head or 0.0 for operator in operators)
    cells = [_cells(operator, _most(operators[0]), of_head) for operator in operators[:_SHOWN_OPERATORS]]
    return OperatorTable(place(*at), cells, len(operators) - len(cells))


def _most(operator: OperatorDelta) -> float:
    return max(operator.base or 0.0, operator.head or 0.0)


def _cells(operator: OperatorDelta, largest: float, of_head: float) -> OperatorCells:
    base, head = formats.quantities([operator.base, operator.head], "s")
    return OperatorCells(
        op=operator.op,
        base_count=_count(operator.base_count),
        head_count=_count(operator.head_count),
        base=base,
        head=head,
        base_bar=(operator.base or 0.0) / (largest or 1.0),
        head_bar=(operator.head or 0.0) / (largest or 1.0),
        share=DASH if operator.head is None or not of_head else percent(operator.head / of_head),
        status=_status(operator),
        changed=operator.base_count != operator.head_count,
    )


def _count(calls: float | None) -> Words:
    return DASH if calls is None else whole(calls)


def _status(operator: OperatorDelta) -> Words:
    before, after = operator.base_count, operator.head_count
    if before == after:
        return Words("")
    if before is None:
        return say("new")
    if after is None:
        return say("gone")
    return say("more") if after > before else say("fewer")


def counter_rows(base: RunDocument | None, head: RunDocument) -> list[CounterRow]:
    """Every exact counter of both sides, changed ones marked."""
    before, after = _counters(base), _counters(head)
    rows = []
    for key in list(dict.fromkeys([*after, *before]))[:_MAX_ROWS]:
        workload, shape, metric = key
        unit = METRICS[metric].unit if metric in METRICS else "1"
        values = [before.get(key), after.get(key)]
        base_cell, head_cell = formats.quantities(values, unit, metric=metric)
        changed = base is not None and values[0] != values[1]
        rows.append(CounterRow(metric_name(metric), place(workload, shape), base_cell, head_cell, changed))
    return rows


def _counters(run: RunDocument | None) -> Mapping[tuple[str, str, str], float]:
    values: dict[tuple[str, str, str], float] = {}
    for counters in run.counters if run else []:
        for metric, value in counters.values.items():
            values[counters.workload, counters.shape, metric] = value
    return values


def testbed_rows(base: RunDocument | None, head: RunDocument) -> list[TestbedDifference]:
    """The comparable fields of both testbeds, differing ones first."""
    after = head.testbed.comparable
    before = base.testbed.comparable if base else after
    fields = sorted(before.keys() | after.keys())
    rows = [TestbedDifference(field=field, base=before.get(field), head=after.get(field)) for field in fields]
    rows.sort(key=lambda row: row.base == row.head)
    return rows[:_MAX_ROWS]


def paired_samples(base: RunDocument | None, head: RunDocument) -> dict[_Place, tuple[Floats, Floats]]:
    """The calls of both sides in all pairs, in seconds, by workload and shape in document order."""
    before = base.replicates if base else []
    places: dict[_Place, None] = {}
    for replicate in [*before, *head.replicates]:
        for shape in replicate.shapes:
            places[replicate.workload, shape] = None
    return {at: (_calls(before, *at), _calls(head.replicates, *at)) for at in places}


def _calls(replicates: Iterable[Replicate], workload: str, shape: str) -> Floats:
    arrays = []
    for replicate in replicates:
        if replicate.arm == "ab" and replicate.workload == workload and shape in replicate.shapes:
            nanoseconds = unpack(replicate.shapes[shape].wall)
            arrays.append(nanoseconds.astype(np.float64) * _NANOSECOND)
    return np.concatenate(arrays) if arrays else np.empty(0)
