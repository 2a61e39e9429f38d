"""OpenMetrics text of a run, read back by the reference parser."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from perfgate.catalogue.lookup import METRICS
from perfgate.document.message import quote
from perfgate.document.run import CounterSet, RunDocument, StepResult, Value
from perfgate.judging.report.render.number_formats import family_name, openmetrics
from tests.each import each
from tests.fakes.documents import make_run
from tests.fakes.records import changed

Sample = tuple[str, dict[str, str], float]


def read(text: str) -> dict[str, tuple[str, list[Sample]]]:
    families = list(text_string_to_metric_families(text))
    assert all(family.type == "gauge" for family in families)
    return {
        family.name: (family.unit, [(sample.name, sample.labels, sample.value) for sample in family.samples])
        for family in families
    }


def of_values(*values: Value, number: int = 1, **fields: Any) -> RunDocument:
    step = StepResult(number=number, slug="latency", workload="encoder", status="ok", values=list(values))
    return make_run(steps=[step], **fields)


def test_openmetrics__run__gauges_in_base_units_that_end_in_them() -> None:
    values = [
        Value(metric="latency.p50", value=0.0371, labels={"shape": "long"}),
        Value(metric="latency.p99", value=None, labels={"shape": "long"}, reason=quote("needs 662 calls")),
        Value(metric="utilization.host", value=0.91),
        Value(metric="no.such.metric", value=1.0),
    ]
    counters = CounterSet(
        workload="encoder", shape="long", repeats=3, values={"counters.copy_bytes": 1572864, "counters.copies": 2},
        ops=[], unstable=["counters.copies"],
    )  # fmt: skip
    text = openmetrics(of_values(*values, counters=[counters]), [1])
    assert read(text) == {
        "perfgate_latency_p50_seconds": (
            "seconds",
            [("perfgate_latency_p50_seconds", {"workload": "encoder", "shape": "long"}, 0.0371)],
        ),
        "perfgate_utilization_host_ratio": (
            "ratio",
            [("perfgate_utilization_host_ratio", {"workload": "encoder"}, 0.91)],
        ),
        "perfgate_counters_copy_bytes": (
            "bytes",
            [("perfgate_counters_copy_bytes", {"workload": "encoder", "shape": "long"}, 1572864.0)],
        ),
    }
    assert text.endswith("\n# EOF\n")


def test_openmetrics__step_that_is_not_asked_for__left_out() -> None:
    assert openmetrics(of_values(Value(metric="batch.knee", value=16.0), number=5, counters=[]), [1, 2]) == "# EOF\n"


def test_openmetrics__same_series_twice__the_first_counts() -> None:
    run = of_values(Value(metric="latency.p50", value=1.0), Value(metric="latency.p50", value=2.0), counters=[])
    (family,) = read(openmetrics(run, [1])).values()
    assert family[1] == [("perfgate_latency_p50_seconds", {"workload": "encoder"}, 1.0)]


@each("name", sorted(METRICS))
def test_openmetrics__every_metric_of_the_catalogue__is_read_back(name: str) -> None:
    text = openmetrics(of_values(Value(metric=name, value=1.5), counters=[]), [1])
    ((found, (_, samples)),) = read(text).items()
    assert found == family_name(METRICS[name])
    assert samples[0][2] == 1.5


def test_openmetrics__every_metric_of_the_catalogue_at_once__has_a_name_of_its_own() -> None:
    run = of_values(*(Value(metric=name, value=1.0) for name in METRICS), counters=[])
    assert len(read(openmetrics(run, [1]))) == len(METRICS)


@settings(max_examples=100, deadline=None)
@given(
    name=st.text(st.characters(codec=None, exclude_categories=[]), max_size=40),
    label=st.text(st.characters(codec=None, exclude_categories=[]), min_size=1, max_size=10),
)
def test_openmetrics__any_names__are_one_series(name: str, label: str) -> None:
    run = of_values(Value(metric="latency.p50", value=1.0, labels={label: name, "shape": name}), counters=[])
    run = changed(run, steps=[msgspec.structs.replace(run.checklist.steps[0], workload=name)])
    text = openmetrics(run, [1])
    text.encode()
    assert sum(len(samples) for _, samples in read(text).values()) <= 1
