from __future__ import annotations

import csv
import io
from typing import Any

from perfgate.document.decision import StepComparison, TurnDifference
from perfgate.document.run import StepResult, Value
from perfgate.judging.report.render.number_formats import csv_table
from perfgate.judging.report.view.number_rows import rows_of_check, rows_of_run
from tests.fakes.documents import make_bound, make_comparison, make_decision, make_run

COLUMNS = "step,metric,workload,shape,labels,side,value,unit,better,low,high,confidence,n"


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def only(rows: list[dict[str, str]], **fields: str) -> dict[str, str]:
    (row,) = [row for row in rows if fields.items() <= row.items()]
    return row


def latency(*values: Value) -> Any:
    return make_run(
        None, steps=[StepResult(number=1, slug="latency", workload="encoder", status="ok", values=list(values))]
    )


def test_csv_of_run__a_value_with_interval_and_labels__one_row_in_base_units() -> None:
    value = Value(
        metric="latency.p99",
        value=0.0123,
        interval=(0.012, None),
        confidence=0.95,
        count=700,
        labels={"shape": "long", "rate": "50", "batch": "8"},
    )
    text = csv_table(rows_of_run(latency(value)))
    assert text.splitlines()[0] == COLUMNS
    row = only(rows_of(text), metric="latency.p99")
    assert list(row.values()) == (
        [
            "1",
            "latency.p99",
            "encoder",
            "long",
            "batch=8;rate=50",
            "run",
            "0.0123",
            "s",
            "lower",
            "0.012",
            "",
            "0.95",
            "700",
        ]
    )


def test_csv_of_run__no_number__row_without_value() -> None:
    run = latency(Value(metric="latency.p99", value=None, count=3))
    row = only(rows_of(csv_table(rows_of_run(run))), metric="latency.p99")
    assert (row["value"], row["n"]) == ("", "3")


def test_csv_of_run__counters_and_operators__with_the_step_that_explains_them() -> None:
    run = make_run(None)
    rows = rows_of(csv_table(rows_of_run(run)))
    counters = run.checklist.counters[0]
    copies = only(rows, metric="counters.copies", shape=counters.shape)
    assert (copies["step"], copies["unit"], copies["value"]) == ("14", "1", str(counters.values["counters.copies"]))
    op = counters.ops[0]
    counted = only(rows, metric=f"ops.count:{op.op}", shape=counters.shape)
    assert (counted["value"], counted["n"]) == (str(op.count), str(counters.repeats))


def test_csv_of_check__comparison__base_head_and_difference() -> None:
    compared = make_comparison(base=0.04, head=0.05, delta=0.25, interval=(0.2, 0.3), confidence=0.99, pairs=16)
    budget = make_bound("latency.p99", 0.06, 0.05)
    rows = rows_of(csv_table(rows_of_check(make_decision("FAIL", comparisons=[compared, budget]), None, None)))
    base, head, difference = [row for row in rows if row["metric"] == "latency.low"]
    assert [row["side"] for row in (base, head, difference)] == ["base", "head", "difference"]
    assert [row["value"] for row in (base, head, difference)] == ["0.04", "0.05", "0.25"]
    assert [row["unit"] for row in (base, head, difference)] == ["s", "s", "1"]
    assert (difference["low"], difference["high"], difference["confidence"], difference["n"]) == (
        "0.2",
        "0.3",
        "0.99",
        "16",
    )
    assert (base["step"], base["labels"]) == ("20", "evidence=pair")
    assert [row["side"] for row in rows if row["metric"] == "latency.p99"] == ["bound", "head", "difference"]


def test_csv_of_check__both_runs_and_the_checklist__every_side_by_its_name() -> None:
    number = StepComparison(
        step=1,
        workload="encoder",
        shape="long",
        metric="latency.p50",
        unit="s",
        base=0.04,
        head=0.05,
        difference=TurnDifference(unit="turn", count=6, delta=0.25),
    )
    decision = make_decision("PASS", comparisons=[], numbers=[number])
    sides = [latency(Value(metric="latency.p50", value=value, labels={"shape": "long"})) for value in (0.04, 0.05)]
    rows = [row for row in rows_of(csv_table(rows_of_check(decision, *sides))) if row["metric"] == "latency.p50"]
    assert [(row["side"], row["value"]) for row in rows] == [("base", "0.04"), ("head", "0.05"), ("difference", "0.25")]


def test_csv_of_run__text_from_outside__one_cell_and_no_formula() -> None:
    value = Value(metric="latency.p50", value=1.0, labels={"shape": '=cmd|" /C calc"!A1\n,x', "rate": "1"})
    (row,) = [row for row in rows_of(csv_table(rows_of_run(latency(value)))) if row["metric"] == "latency.p50"]
    assert row["shape"].startswith("'=cmd|")
    assert "\n" not in row["shape"]
