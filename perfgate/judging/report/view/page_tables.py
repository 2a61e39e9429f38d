"""The tables of the page that come from run documents: operators, counters, testbed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.document.decision import DecisionDocument, TestbedDifference
from perfgate.document.run import OUTSIDE_OPERATORS, RunDocument
from perfgate.document.samples import Replicate, unpack
from perfgate.judging.report.text import formats
from perfgate.judging.report.text.names import metric_name, place
from perfgate.judging.report.text.numbers import DASH, amounts, percent, whole
from perfgate.judging.report.text.words import EMPTY, Words, say

Floats = npt.NDArray[np.float64]
_MAX_TABLES = 40
_MAX_ROWS = 2000
_SHOWN_OPERATORS = 40
_NANOSECOND = 1e-9
# A workload and a shape.
_Place = tuple[str, str]


class OperatorCells(NamedTuple):
    """An operator on both sides: its calls, its self time, the bars of that, and how
    the calls changed.
    """

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


class OperatorTable(NamedTuple):
    """The operators of a place, most self time first, and how many are left out."""

    place: str
    operators: list[OperatorCells]
    more: int


class CounterRow(NamedTuple):
    """An exact counter of both sides."""

    metric: str
    place: str
    base: Words
    head: Words
    changed: bool


@dataclass
class _BothSides:
    """The calls and the self time of an operator, by side."""

    op: str
    counts: dict[str, float] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)

    @property
    def longest(self) -> float:
        return max(self.times.values(), default=0.0)

    def add_times(self, base: float, head: float | None) -> None:
        if base:
            self.times["base"] = base
        if head:
            self.times["head"] = head


def operator_tables(
    decision: DecisionDocument, base: RunDocument | None, head: RunDocument
) -> list[OperatorTable]:
    """Per workload and shape the operators of both sides.

    The counts come from the trace of each side; the times come from the decision,
    because its pairs profiled both sides in turns. Separate recordings have only their
    own times.
    """
    operators: dict[_Place, dict[str, _BothSides]] = {}
    for run, side in ((head, "head"), (base, "base")):
        if run is None:
            continue
        for row in run.checklist.operators:
            both = operators.setdefault(row.place, {}).setdefault(
                row.op, _BothSides(row.op)
            )
            both.counts[side] = row.count
            if decision.measured.recorded:
                both.times[side] = row.self_time
    if not decision.measured.recorded:
        for timed in decision.explained.operators:
            if timed.base is not None and timed.op != OUTSIDE_OPERATORS:
                both = operators.setdefault(timed.place, {}).setdefault(
                    timed.op, _BothSides(timed.op)
                )
                both.add_times(timed.base, timed.head)
    tables = []
    for at, rows in list(operators.items())[:_MAX_TABLES]:
        tables.append(_operator_table(at, list(rows.values())))
    return tables


def _operator_table(at: _Place, operators: list[_BothSides]) -> OperatorTable:
    operators.sort(key=lambda operator: (-operator.longest, operator.op))
    of_head = sum(operator.times.get("head", 0.0) for operator in operators)
    cells = [
        _cells(operator, operators[0].longest, of_head)
        for operator in operators[:_SHOWN_OPERATORS]
    ]
    return OperatorTable(place(*at), cells, len(operators) - len(cells))


def _cells(operator: _BothSides, longest: float, of_head: float) -> OperatorCells:
    times = operator.times
    counts = operator.counts
    base, head = amounts([times.get("base"), times.get("head")], "s")
    share = DASH
    if "head" in times and of_head:
        share = percent(times["head"] / of_head)
    return OperatorCells(
        op=operator.op,
        base_count=_count(counts.get("base")),
        head_count=_count(counts.get("head")),
        base=base,
        head=head,
        base_bar=times.get("base", 0.0) / (longest or 1.0),
        head_bar=times.get("head", 0.0) / (longest or 1.0),
        share=share,
        status=_status(counts.get("base"), counts.get("head")),
        changed=counts.get("base") != counts.get("head"),
    )


def _count(calls: float | None) -> Words:
    if calls is None:
        return DASH
    return whole(calls)


def _status(before: float | None, after: float | None) -> Words:
    if before == after:
        return EMPTY
    if before is None:
        return say("new")
    if after is None:
        return say("gone")
    if after > before:
        return say("more")
    return say("fewer")


def counter_rows(base: RunDocument | None, head: RunDocument) -> list[CounterRow]:
    """Every exact counter of both sides, with changes marked."""
    before = _counters(base)
    after = _counters(head)
    rows = []
    for key in list(dict.fromkeys([*after, *before]))[:_MAX_ROWS]:
        workload, shape, metric = key
        values = [before.get(key), after.get(key)]
        base_cell, head_cell = formats.quantities(values, formats.measure_of(metric))
        changed = base is not None and values[0] != values[1]
        rows.append(
            CounterRow(
                metric_name(metric),
                place(workload, shape),
                base_cell,
                head_cell,
                changed,
            )
        )
    return rows


def _counters(run: RunDocument | None) -> Mapping[tuple[str, str, str], float]:
    values: dict[tuple[str, str, str], float] = {}
    if run is None:
        return values
    for counters in run.checklist.counters:
        for metric, value in counters.values.items():
            values[counters.workload, counters.shape, metric] = value
    return values


def testbed_rows(
    base: RunDocument | None, head: RunDocument
) -> list[TestbedDifference]:
    """The comparable fields of both testbeds, differences first."""
    before = after = head.testbed.comparable
    if base is not None:
        before = base.testbed.comparable
    rows = [
        TestbedDifference(field=name, base=before.get(name), head=after.get(name))
        for name in sorted(before.keys() | after.keys())
    ]
    rows.sort(key=lambda row: row.base == row.head)
    return rows[:_MAX_ROWS]


def paired_samples(
    base: RunDocument | None, head: RunDocument
) -> dict[_Place, tuple[Floats, Floats]]:
    """The calls of both sides in all pairs, in seconds, by workload and shape in
    document order.
    """
    before = []
    if base is not None:
        before = base.pairs.replicates
    places: dict[_Place, None] = {}
    for replicate in [*before, *head.pairs.replicates]:
        for shape in replicate.shapes:
            places[replicate.workload, shape] = None
    return {
        at: (_calls(before, *at), _calls(head.pairs.replicates, *at)) for at in places
    }


def _calls(replicates: Iterable[Replicate], workload: str, shape: str) -> Floats:
    arrays = []
    for replicate in replicates:
        if (
            replicate.arm == "ab"
            and replicate.workload == workload
            and shape in replicate.shapes
        ):
            nanoseconds = unpack(replicate.shapes[shape].times.wall)
            arrays.append(nanoseconds.astype(np.float64) * _NANOSECOND)
    if arrays:
        return np.concatenate(arrays)
    return np.empty(0)
