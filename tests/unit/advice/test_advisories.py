"""What advisors of other tools found, merged with what the steps of perfgate found."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.document.message import quote
from perfgate.document.run import Advisory, Finding, StepResult
from perfgate.flows.run.advisors import advise_profile
from perfgate.judging.advice.advise import advised, suggestions
from tests.fakes.documents import make_decision, make_run
from tests.installed import without_plugins

SOURCE = "other-tool 2.0"


def advisory(category: str, *rules: str) -> Advisory:
    return Advisory(
        source=SOURCE,
        workload="encoder",
        category=category,
        description="2 collectives are not aligned.",
        suggestion="1. Align them.",
        evidence={"count": 2},
        rules=list(rules),
    )


ALIGNMENT, SHAPES = advisory("Alignment"), advisory("Shapes change", "graph.recompiles", "graph.op_compiled")


def test_suggestions__problem_that_no_step_found__merged_with_its_source() -> None:
    merged = suggestions(make_run(steps=[], advisories=[ALIGNMENT, SHAPES]))
    assert [(one.rule, one.source, one.step) for one in merged] == [
        ("Alignment", SOURCE, None),
        ("Shapes change", SOURCE, None),
    ]
    assert merged[0].message == quote("Alignment: 2 collectives are not aligned. 1. Align them.")


@pytest.mark.parametrize("rule", SHAPES.rules)
def test_suggestions__problem_that_a_step_found_too__reported_once_by_the_step(rule: str) -> None:
    again = Finding(rule=rule, severity="warning", message=quote(""), evidence={"reason": "shapes"})
    for workload, other in (("encoder", []), ("decoder", ["Shapes change"])):
        step = StepResult(number=9, slug="graph", workload=workload, status="attention", findings=[again])
        merged = suggestions(make_run(steps=[step], advisories=[ALIGNMENT, SHAPES]))
        assert [one.rule for one in merged if one.source == SOURCE] == ["Alignment", *other]


def test_advised__problem_of_both_sides__only_the_new_one_is_introduced() -> None:
    base = make_run("base", steps=[], advisories=[ALIGNMENT])
    judged = advised(make_decision("FAIL", comparisons=[]), base, make_run(steps=[], advisories=[ALIGNMENT, SHAPES]))
    assert [(one.rule, one.introduced) for one in judged.explained.suggestions] == [
        ("Alignment", False),
        ("Shapes change", True),
    ]


def test_advised__base_without_advisories__nothing_is_known_to_be_new() -> None:
    head = make_run(steps=[], advisories=[ALIGNMENT, SHAPES])
    judged = advised(make_decision("FAIL", comparisons=[]), make_run("base", steps=[]), head)
    assert not any(one.introduced for one in judged.explained.suggestions)


def test_advise_profile__folder_of_ascend_and_no_advisor__names_the_package_to_install(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    (tmp_path / "trace.json").write_text("[]")
    with without_plugins():
        assert advise_profile(tmp_path, "encoder", said.append) == ([], [])
        assert advise_profile(tmp_path / "trace.json", "encoder", said.append) == ([], [])
    assert said == ["no advisor is installed for this recording (pip install perfgate-advisor)"]
