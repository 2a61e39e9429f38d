"""The tables of the page that come from run documents: operators, counters, testbed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import METRICS
from perfgate.document.decision import DecisionDocument, TestbedDifference
from perfgate.document.explanation import OperatorDelta
from perfgate.document.run import OUTSIDE_OPERATORS, OperatorRow, RunDocument
from perfgate.document.samples import Replicate, unpack
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text.names import metric_name, place
from perfgate.judging.report.text.templates import Values

Floats = npt.NDArray[np.float64]
_MAX_TABLES = 40
_MAX_ROWS = 2000
_Key = tuple[str, str]
_Rows = Mapping[str, OperatorRow]
_Times = dict[str, tuple[float | None, float | None]]


def operator_tables(decision: DecisionDocument, base: RunDocument | None, head: RunDocument) -> list[Values]:
    """Per workload and shape the operators of both sides, those with the most self time first.

    The counts come from the trace of each side; the times come from the decision, because its pairs profiled both sides in
    turns. Separate recordings have only their own times. ``largest`` is the most seconds of one of them, ``of_head`` the sum
    over all of the head's.
    """
    before, after = _operators(base), _operators(head)
    times = _recorded_times(before, after) if decision.recorded else _paired_times(decision)
    keys = list(dict.fromkeys([*after, *before, *times]))[:_MAX_TABLES]
    return [_operator_table(key, before.get(key, {}), after.get(key, {}), times.get(key, {})) for key in keys]


def counter_rows(base: RunDocument | None, head: RunDocument) -> list[Values]:
    """Every exact counter of both sides, changed ones marked."""
    before, after = _counters(base), _counters(head)
    rows: list[Values] = []
    for key in list(dict.fromkeys([*after, *before]))[:_MAX_ROWS]:
        workload, shape, metric = key
        unit = METRICS[metric].unit if metric in METRICS else "1"
        values = [before.get(key), after.get(key)]
        cells = formats.quantities(values, unit, metric=metric)
        rows.append(
            {
                "metric": metric_name(metric),
                "place": place(workload, shape),
                "base": cells[0],
                "head": cells[1],
                "changed": base is not None and values[0] != values[1],
            }
        )
    return rows


def testbed_rows(base: RunDocument | None, head: RunDocument) -> list[TestbedDifference]:
    """The comparable fields of both testbeds, differing ones first."""
    after = head.testbed.comparable
    before = after if base is None else base.testbed.comparable
    fields = sorted(before.keys() | after.keys(), key=lambda field: (before.get(field) == after.get(field), field))
    return [
        TestbedDifference(field=field, base=before.get(field), head=after.get(field)) for field in fields[:_MAX_ROWS]
    ]


def _operators(run: RunDocument | None) -> dict[_Key, dict[str, OperatorRow]]:
    tables: dict[_Key, dict[str, OperatorRow]] = {}
    for operator in run.operators if run else []:
        tables.setdefault(operator.place, {})[operator.op] = operator
    return tables


def _recorded_times(before: Mapping[_Key, _Rows], after: Mapping[_Key, _Rows]) -> dict[_Key, _Times]:
    return {
        key: {op: (_self_time(before, key, op), _self_time(after, key, op)) for op in sides}
        for key in before.keys() | after.keys()
        if (sides := {*before.get(key, {}), *after.get(key, {})})
    }


def _self_time(side: Mapping[_Key, _Rows], key: _Key, op: str) -> float | None:
    row = side.get(key, {}).get(op)
    return None if row is None else row.self_time


def _paired_times(decision: DecisionDocument) -> dict[_Key, _Times]:
    times: dict[_Key, _Times] = {}
    for row in decision.operators:
        if row.base is not None and row.op != OUTSIDE_OPERATORS:
            times.setdefault(row.place, {})[row.op] = (row.base or None, row.head or None)
    return times


def _operator_table(key: _Key, before: _Rows, after: _Rows, times: _Times) -> Values:
    def most(operator: OperatorDelta) -> float:
        return max(operator.base or 0.0, operator.head or 0.0)

    operators = []
    for op in {*before, *after, *times}:
        base, head = times.get(op, (None, None))
        counts = [side[op].count if op in side else None for side in (before, after)]
        operators.append(OperatorDelta(op=op, base_count=counts[0], head_count=counts[1], base=base, head=head))
    operators.sort(key=lambda operator: (-most(operator), operator.op))
    return {
        "place": place(*key),
        "operators": operators,
        "largest": most(operators[0]) if operators else 0.0,
        "of_head": sum(head or 0.0 for _, head in times.values()),
    }


def _counters(run: RunDocument | None) -> dict[tuple[str, str, str], float]:
    return {
        (counters.workload, counters.shape, metric): value
        for counters in (run.counters if run else [])
        for metric, value in counters.values.items()
    }


_NANOSECOND = 1e-9


def paired_samples(base: RunDocument | None, head: RunDocument) -> dict[tuple[str, str], tuple[Floats, Floats]]:
    """The calls of both sides in all pairs, in seconds, by workload and shape in document order."""
    before = [] if base is None else base.replicates
    places = dict.fromkeys((r.workload, shape) for r in [*before, *head.replicates] for shape in r.shapes)
    return {at: (_calls(before, *at), _calls(head.replicates, *at)) for at in places}


def _calls(replicates: Iterable[Replicate], workload: str, shape: str) -> Floats:
    arrays = [
        unpack(r.shapes[shape].wall).astype(np.float64) * _NANOSECOND
        for r in replicates
        if r.arm == "ab" and r.workload == workload and shape in r.shapes
    ]
    return np.concatenate(arrays) if arrays else np.empty(0)
