"""JUnit XML of a decision: what GitLab's widget shows, valid whatever names it is of."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate.document.message import Message, quote
from perfgate.document.run import ErrorDetail
from perfgate.judging.report.render.junit import junit, junit_of_run, junit_without_verdict
from tests.fakes.documents import (
    make_comparison,
    make_counter,
    make_decision,
    make_failure,
    make_run,
    operator_changes,
    regressed_counters,
    regressed_time,
    unchanged_comparisons,
)

SCHEMA = Path(__file__).parents[2] / "data" / "junit" / "gitlab.xsd"


@cache
def schema() -> Any:
    import xmlschema

    return xmlschema.XMLSchema(SCHEMA)


def read(text: str) -> list[ET.Element]:
    schema().validate(text)
    suite = ET.fromstring(text.encode())[0]
    cases = list(suite)
    assert suite.attrib["tests"] == str(len(cases))
    return cases


def case(cases: list[ET.Element], classname: str, name: str) -> tuple[str | None, str]:
    """Return what became of a case, and its words."""
    (found,) = [c for c in cases if (c.attrib["classname"], c.attrib["name"]) == (classname, name)]
    (child,) = found
    return (None if child.tag == "system-out" else child.tag), child.text or child.attrib["message"]


def test_junit__regressed_time_and_counter__failures_with_interval_cause_and_line() -> None:
    decision = make_decision(
        "FAIL", comparisons=[*regressed_time(), *regressed_counters()], operator_changes=operator_changes()
    )
    cases = read(junit(decision, language="en"))
    assert case(cases, "encoder/long", "latency.low") == (
        "failure",
        "FAIL: 36.1 ms → 38.6 ms, 6.8 % slower (5.9 to 7.7 %)\nlimit: 1 %\ncause: 24 more aten::add at model.py:88\n",
    )
    kind, text = case(cases, "encoder/long", "counters.copies")
    assert (kind, "at model.py:91" in text) == ("failure", True)
    assert case(cases, "perfgate", "verdict")[0] is None
    # Of single operators nothing is said where a metric says it.
    assert {found.attrib["name"] for found in cases} == {
        "verdict", "latency.low", "latency.p50", "counters.framework_ops", "counters.copies", "counters.copy_bytes",
    }  # fmt: skip


def test_junit__unchanged__passes_and_says_what_was_measured() -> None:
    cases = read(
        junit(make_decision(comparisons=unchanged_comparisons(), operator_changes=operator_changes()), language="en")
    )
    kind, text = case(cases, "encoder/long", "latency.low")
    assert kind is None
    assert "36.10 ms → 36.20 ms" in text
    assert "cause" not in text
    assert all(found.find("failure") is None and found.find("error") is None for found in cases)


def test_junit__undecided_or_not_comparable__skipped_and_the_verdict_is_an_error() -> None:
    noisy = make_comparison(
        outcome="inconclusive", interval=(-0.012, 0.041), delta=0.013, reason=quote("too few pairs")
    )
    other = make_comparison("latency.p50", outcome="not_comparable", reason=quote("torch differs"))
    cases = read(
        junit(
            make_decision(
                "INCONCLUSIVE", reasons=[Message("verdict.undecided", {"name": "x"})], comparisons=[noisy, other]
            ),
            language="en",
        )
    )
    assert case(cases, "encoder/long", "latency.low") == (
        "skipped", "1.3 % slower (1.2 % faster to 4.1 % slower): too few pairs",
    )  # fmt: skip
    assert case(cases, "encoder/long", "latency.p50")[0] == "skipped"
    assert case(cases, "perfgate", "verdict")[0] == "error"


def test_junit__regression_that_does_not_fail_the_gate__is_no_failure() -> None:
    worse = make_counter("counters.copies", 2, 3, gating=False)
    cases = read(junit(make_decision("WARN", comparisons=[worse]), language="en"))
    assert case(cases, "encoder/long", "counters.copies")[0] is None


def test_junit__head_could_not_be_measured__error_with_its_traceback() -> None:
    cases = read(junit(make_decision("INCONCLUSIVE", comparisons=[], failures=[make_failure()]), language="en"))
    kind, text = case(cases, "encoder", "loading (head)")
    assert kind == "error"
    assert 'File "model.py", line 88, in forward' in text


def test_junit__chinese__words_are_and_names_are_not() -> None:
    cases = read(junit(make_decision("FAIL", comparisons=regressed_time()), "zh"))
    kind, text = case(cases, "encoder/long", "latency.low")
    assert kind == "failure"
    assert "变慢 6.8 %" in text


def test_junit_without_verdict__its_reason__is_an_error() -> None:
    assert case(read(junit_without_verdict("there is none")), "perfgate", "verdict") == ("error", "there is none")


def test_junit_of_run__step_that_failed__error_and_the_others_pass() -> None:
    broken = make_run()
    cases = read(junit_of_run(broken, language="en"))
    assert case(cases, "encoder", "1 latency")[0] is None
    assert case(cases, "encoder", "3 transfer")[0] == "skipped"


# Everything Python takes for text: controls, surrogates, characters that XML 1.0 forbids even escaped.
HOSTILE = st.text(st.characters(codec=None, exclude_categories=[]), max_size=60)


@settings(max_examples=150, deadline=None)
@given(workload=HOSTILE, shape=HOSTILE, reason=HOSTILE)
def test_junit__any_names__are_valid(workload: str, shape: str, reason: str) -> None:
    error = ErrorDetail(kind="exception", message=reason, traceback=f"{workload}\n{shape}")
    named = make_counter("counters.copies", 1, 9, workload=workload, shape=shape, reason=reason)
    twin = make_counter("counters.copies", 1, 1, workload=workload, shape=shape)
    failure = make_failure(workload=workload, what=shape, error=error)
    read(junit(make_decision("FAIL", comparisons=[named, twin], failures=[failure]), language="en"))


@pytest.mark.parametrize("name", ["a\x00b", "a\x1b[31mb", "a\ud800b", "a\ufffeb", "]]>", "<failure/>", "", "a&#0;b"])
def test_junit__names_that_xml_cannot_hold__are_valid(name: str) -> None:
    cases = read(
        junit(make_decision("FAIL", comparisons=[make_counter("counters.copies", 1, 9, workload=name)]), language="en")
    )
    assert len(cases) == 2
