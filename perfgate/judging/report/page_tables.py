"""The tables of the page that come from run documents: operators, counters, testbed."""

from __future__ import annotations

from typing import Optional

from perfgate.catalogue.lookup import METRICS
from perfgate.document.run import OperatorRow, RunDocument
from perfgate.judging.report import format as formats
from perfgate.judging.report import svg
from perfgate.judging.report.headline import metric_name
from perfgate.judging.report.locale.language import say
from perfgate.judging.report.summary import place
from perfgate.judging.report.words import Words

_MAX_OPERATORS = 40
_MAX_TABLES = 40
_MAX_ROWS = 2000
_Key = tuple[str, str]


def operator_tables(base: Optional[RunDocument], head: RunDocument) -> list[dict[str, object]]:
    """Return per workload and shape the operators of both sides, those with the most self time first."""
    before, after = _operators(base), _operators(head)
    keys = list(dict.fromkeys([*after, *before]))[:_MAX_TABLES]
    return [_operator_table(key, before.get(key, {}), after.get(key, {})) for key in keys]


def counter_rows(base: Optional[RunDocument], head: RunDocument) -> list[dict[str, object]]:
    """Return every exact counter of both sides, changed ones marked."""
    before, after = _counters(base), _counters(head)
    rows = []
    for key in list(dict.fromkeys([*after, *before]))[:_MAX_ROWS]:
        workload, shape, metric = key
        unit = METRICS[metric].unit if metric in METRICS else "1"
        values = [before.get(key), after.get(key)]
        shown = formats.quantities(values, unit, metric=metric)
        rows.append(
            {
                "metric": metric_name(metric),
                "place": place(workload, shape),
                "base": shown[0],
                "head": shown[1],
                "changed": base is not None and values[0] != values[1],
            }
        )
    return rows


def testbed_rows(base: Optional[RunDocument], head: RunDocument) -> list[dict[str, object]]:
    """Return the comparable fields of both testbeds, differing ones first."""
    after = head.testbed.comparable
    before = after if base is None else base.testbed.comparable
    fields = sorted(before.keys() | after.keys(), key=lambda field: (before.get(field) == after.get(field), field))
    return [
        {
            "field": field,
            "base": before.get(field),
            "head": after.get(field),
            "differs": before.get(field) != after.get(field),
        }
        for field in fields[:_MAX_ROWS]
    ]


def _operators(run: Optional[RunDocument]) -> dict[_Key, dict[str, OperatorRow]]:
    tables: dict[_Key, dict[str, OperatorRow]] = {}
    for operator in run.operators if run else []:
        tables.setdefault((operator.workload, operator.shape), {})[operator.op] = operator
    return tables


def _operator_table(key: _Key, before: dict[str, OperatorRow], after: dict[str, OperatorRow]) -> dict[str, object]:
    def most(op: str) -> float:
        return max(side[op].self_time for side in (before, after) if op in side)

    ops = sorted(before.keys() | after.keys(), key=lambda op: (-most(op), op))
    largest = most(ops[0]) if ops else 0.0
    return {
        "place": place(*key),
        "rows": [_operator_row(op, before.get(op), after.get(op), largest) for op in ops[:_MAX_OPERATORS]],
        "more": max(0, len(ops) - _MAX_OPERATORS),
    }


def _operator_row(
    op: str, before: Optional[OperatorRow], after: Optional[OperatorRow], largest: float
) -> dict[str, object]:
    times = [None if side is None else side.self_time for side in (before, after)]
    shown = formats.quantities(times, "s")
    bars = [svg.share_bar((time or 0) / largest if largest else 0, name) for time, name in zip(times, ("base", "head"))]
    return {
        "op": op,
        "base_time": shown[0],
        "head_time": shown[1],
        "base_count": formats.DASH if before is None else formats.whole(before.count),
        "head_count": formats.DASH if after is None else formats.whole(after.count),
        "share": formats.DASH if after is None else formats.percent(after.share),
        "bars": bars,
        "state": say("new") if before is None else say("gone") if after is None else _state(before, after),
    }


def _state(before: OperatorRow, after: OperatorRow) -> Words:
    if before.count == after.count:
        return Words("")
    return say("more") if after.count > before.count else say("fewer")


def _counters(run: Optional[RunDocument]) -> dict[tuple[str, str, str], float]:
    return {
        (counters.workload, counters.shape, metric): value
        for counters in (run.counters if run else [])
        for metric, value in counters.values.items()
    }
