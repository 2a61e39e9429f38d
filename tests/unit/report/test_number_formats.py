"""The numbers of a run and a check in the formats of tools that keep one value of each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from perfgate.catalogue.names import OPERATOR_SHARE
from perfgate.document.message import quote
from perfgate.document.run import CounterSet, OpCount, RunDocument, StepResult, Value
from perfgate.errors import UsageError
from perfgate.judging.report.render.number_formats import (
    bencher_metrics,
    benchmark_entries,
    csv_table,
    openmetrics,
    parquet_table,
)
from perfgate.judging.report.view.number_rows import own_numbers, rows_of_check, rows_of_run
from tests.fakes.documents import make_comparison, make_decision, make_run

SCHEMA = json.loads((Path(__file__).parents[2] / "data" / "bencher" / "bmf.schema.json").read_text())
HOSTILE = "a\x00b\ud800\n\u202e{}" + "x" * 2000


def measured(*values: Value, **fields: Any) -> RunDocument:
    step = StepResult(number=1, slug="latency", workload="encoder", status="ok", values=list(values))
    return make_run(None, steps=[step], **{"counters": [], "operators": [], **fields})


def latency(value: float | None = 0.0123, **fields: Any) -> Value:
    reason = None if value is not None else quote("needs 662 calls")
    return Value(metric="latency.p99", value=value, reason=reason, labels={"shape": "long"}, **fields)


def bencher(run: RunDocument) -> Any:
    metrics = json.loads(bencher_metrics(rows_of_run(run)))
    jsonschema.validate(metrics, SCHEMA)
    return metrics


def test_bencher__value_with_interval_and_labels__benchmark_of_its_place_in_base_units() -> None:
    throughput = Value(metric="batch.throughput", value=640.0, labels={"shape": "long", "batch": "8"})
    assert bencher(measured(latency(interval=(0.012, None), confidence=0.95, count=700), throughput)) == {
        "encoder/long": {"latency.p99": {"value": 0.0123, "lower_value": 0.012}},
        "encoder/long, batch 8": {"batch.throughput": {"value": 640.0}},
    }


def test_bencher__names_that_are_too_long_or_not_printable__valid() -> None:
    value = Value(metric="latency.p99", value=1.0, labels={"shape": HOSTILE, HOSTILE: HOSTILE})
    assert len(bencher(measured(value))) == 1


def test_own_numbers__unavailable_unstable_unknown_or_of_an_operator__left_out() -> None:
    counters = CounterSet(
        workload="encoder", shape="long", repeats=3, values={"counters.copies": 2, "counters.framework_ops": 40},
        ops=[OpCount(op="aten::add", count=3)], unstable=["counters.copies"],
    )  # fmt: skip
    unknown = Value(metric="no.such.metric", value=1.0)
    run = measured(latency(None), unknown, counters=[counters])
    assert [(row.metric, row.value) for row in own_numbers(rows_of_run(run))] == [("counters.framework_ops", 40)]


def test_own_numbers__check__the_head_by_its_step_and_else_by_its_comparison() -> None:
    compared = [
        make_comparison("latency.p99", base=0.04, head=0.05),
        make_comparison("latency.low", base=0.03, head=0.035, pairs=16),
    ]
    decision = make_decision("FAIL", comparisons=compared)
    sides = [measured(latency(seconds, interval=(0.9 * seconds, 1.1 * seconds))) for seconds in (0.041, 0.051)]
    rows = own_numbers(rows_of_check(decision, *sides))
    assert [(row.metric, row.value, row.low, row.labels, row.n) for row in rows] == [
        ("latency.p99", 0.051, 0.9 * 0.051, {}, None),
        ("latency.low", 0.035, None, {}, 16),
    ]


def test_benchmark_entries__both_directions_and_a_neutral_number__each_in_the_file_of_its_own() -> None:
    run = measured(
        latency(interval=(0.012, 0.0126), confidence=0.95, count=700),
        Value(metric="throughput.median", value=81.0),
        Value(metric="batch.knee", value=16.0),
    )
    lower, higher = (json.loads(benchmark_entries(rows_of_run(run), better)) for better in ("lower", "higher"))
    assert lower == [
        {
            "name": "encoder/long: latency.p99",
            "unit": "s",
            "value": 0.0123,
            "range": "0.012 to 0.0126",
            "extra": "n = 700, interval at 95%",
        }
    ]
    assert [entry["name"] for entry in higher] == ["encoder: throughput.median"]


def test_parquet__without_pyarrow__what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"needs pyarrow, .*; run pip install 'perfgate\[parquet\]'"):
        parquet_table([])


@pytest.mark.parametrize(
    "write",
    [
        lambda run: csv_table(rows_of_run(run)),
        lambda run: openmetrics(run, [4]),
        lambda run: bencher_metrics(rows_of_run(run)),
    ],
    ids=["csv", "openmetrics", "bencher"],
)
def test_formats__kernels_whose_long_names_differ_near_the_end__each_has_its_number(
    write: Callable[[RunDocument], str],
) -> None:
    template = f"void at::native::vectorized_elementwise_kernel<4, {'at::native::binary_internal::' * 6}"
    kernels = {f"{template}{functor}Functor<float> >": share for functor, share in (("Mul", 0.4321), ("Div", 0.1234))}
    values = [Value(metric=OPERATOR_SHARE, value=share, labels={"op": op}) for op, share in kernels.items()]
    step = StepResult(number=4, slug="top_ops", workload="encoder", status="ok", values=values)
    text = write(make_run(None, steps=[step], counters=[], operators=[]))
    for op, share in kernels.items():
        assert text.count(op) == 1
        assert text.count(str(share)) == 1
