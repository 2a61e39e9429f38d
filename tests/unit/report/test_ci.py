"""What is shown at which line of a change."""

from __future__ import annotations

import pytest

from perfgate.document.decision import HarnessRemoval
from perfgate.document.message import Message
from perfgate.judging.report.render.ci import (
    Annotation,
    Location,
    annotate,
    parse_location,
    verdict_annotation,
)
from tests.fakes.documents import (
    make_comparison,
    make_counter,
    make_decision,
    make_failure,
    make_operator_test,
    operator_changes,
    regressed_counters,
    regressed_time,
)


def test_annotate__slower_call_with_causes__one_annotation_a_line_titled_by_the_worst() -> None:
    decision = make_decision(
        "FAIL", comparisons=[*regressed_time(), *regressed_counters()], operator_changes=operator_changes()
    )
    assert annotate(decision) == [
        Annotation(
            "error",
            "perfgate: FAIL: fast-path latency of encoder/long: 6.8 % slower (5.9 to 7.7 %)",
            "24 more aten::add at model.py:88; in encoder/long, 12 → 36, 1.90 ms more self time",
            Location("model.py", 88),
        ),
        Annotation(
            "error",
            "perfgate: FAIL: copies per call of encoder/long: 1 more (exact)",
            "1 more aten::clone at model.py:91; in encoder/long, 0 → 1, 400 µs more self time",
            Location("model.py", 91),
        ),
    ]


def test_annotate__operator_that_only_its_own_test_names__is_the_message() -> None:
    slower = make_comparison(outcome="regressed", base=0.0361, head=0.0363, delta=0.006)
    decision = make_decision("FAIL", comparisons=[slower], operator_tests=[make_operator_test()])
    (found,) = annotate(decision)
    assert (found.location, found.message) == (Location("model.py", 41), "aten::mm takes 110 µs longer at model.py:41")


def test_annotate__suspected_regression__is_a_warning() -> None:
    decision = make_decision("WARN", comparisons=regressed_counters())
    assert {found.level for found in annotate(decision)} == {"warning"}


def test_annotate__workload_file_measures_less__warns_where_it_changed() -> None:
    change = HarnessRemoval(
        workload="encoder",
        message=Message("harness.function-removed", {"function": "check"}),
        lines=["perf/workload.py:12"],
    )
    decision = make_decision(
        "WARN",
        reasons=[Message("verdict.harness", {"name": "encoder: the head removed check="})],
        harness_changes=[change],
    )
    assert annotate(decision) == [
        Annotation("warning", "perfgate: workload file", "the head removed check=", Location("perf/workload.py", 12))
    ]


@pytest.mark.parametrize("verdict", ["PASS", "SKIPPED", "INCONCLUSIVE"])
def test_annotate__nothing_got_worse__nothing(verdict: str) -> None:
    noted = make_counter("counters.copies", 1, 2, gating=False)
    assert annotate(make_decision(verdict, comparisons=[noted])) == []  # type: ignore[arg-type]


def test_annotate__chinese__speaks_it() -> None:
    found = annotate(make_decision("FAIL", comparisons=regressed_time(), operator_changes=operator_changes()), "zh")
    assert "变慢 6.8 %" in found[0].title


def test_verdict_annotation__head_failed__error_with_the_headline() -> None:
    decision = make_decision("INCONCLUSIVE", comparisons=[], failures=[make_failure()])
    assert verdict_annotation(decision, language="en") == Annotation(
        "error",
        "perfgate: INCONCLUSIVE",
        "INCONCLUSIVE – the change could not be measured: loading of encoder failed",
    )
    assert verdict_annotation(make_decision("PASS"), language="en") is None


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("model.py:88", Location("model.py", 88)),
        ("a b/c,d.py:1", Location("a b/c,d.py", 1)),
        ("/etc/passwd:1", None),
        ("../x.py:1", None),
        ("a/../../x.py:1", None),
        ("~root/x.py:1", None),
        ("model.py", None),
        ("model.py:0", None),
        ("model.py:99999999", None),
        ("a::error file=b:1", None),
        ("a\n::error::b:1", None),
    ],
)
def test_parse_location__text_of_a_document__only_a_place_below_the_project(text: str, location: Location) -> None:
    assert parse_location(text) == location


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("model.py:88", Location("services/ranker/model.py", 88)),
        ("../shared/a.py:2", Location("services/shared/a.py", 2)),
        ("../../libs/a.py:2", Location("libs/a.py", 2)),
        ("../../../a.py:2", None),
        ("../..:2", None),
        ("x/../../a.py:2", None),
        ("..//etc/a.py:2", None),
    ],
)
def test_parse_location__project_in_a_folder__code_above_it_lies_in_the_clone(text: str, location: Location) -> None:
    assert parse_location(text, "services/ranker/") == location
