"""The catalogue fits together: advice, limits and rules name what exists, and limits say where they come from."""

from __future__ import annotations

import ast
from pathlib import Path
from string import Formatter

import pytest

from perfgate.catalogue.load import FOLDER
from perfgate.catalogue.lookup import (
    CARDS,
    CHANGE_ADVICE,
    FAMILIES,
    LIMITS,
    METRICS,
    RULE_ADVICE,
    RULES,
    is_known,
    judged_by,
    measuring_step,
    metric,
)
from perfgate.catalogue.records import MeasuredGain
from perfgate.measuring import checklist
from tests.each import each

# The entries of evidence that every suggestion on a change has, and those of one on other inputs.
ON_A_CHANGE = {"op", "base", "head"}
ON_OTHER_INPUTS = {"larger-inputs", "other-dtype", "other-layout"}
CHECKLIST = "the twenty-step checklist"
CI_CHECK = "the list of what a CI job should check: a kernel of more than 50 ms"


def names(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name is not None}


def noticed_rules() -> dict[str, set[str]]:
    """Every rule that a step notices by a constant, with the severities it may get there."""
    severities: dict[str, set[str]] = {}
    for path in Path(checklist.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and _called(call.func) in ("finding", "note") and len(call.args) > 1:
                rule, severity = call.args[0], call.args[1]
                if isinstance(rule, ast.Constant):
                    words = {str(node.value) for node in ast.walk(severity) if isinstance(node, ast.Constant)}
                    severities[str(rule.value)] = words or {"warning"}
    return severities


def _called(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def test_steps__files__are_named_after_number_and_slug() -> None:
    files = sorted(path.stem for path in (FOLDER / "steps").glob("*.toml"))
    assert files == [f"s{card.number:02}_{card.slug}" for card in CARDS.values()]


def test_steps__metrics_limits_and_rules__stand_in_one_step_only() -> None:
    assert len(METRICS) == sum(len(card.metrics) for card in CARDS.values())
    assert len(LIMITS) == sum(len(card.limits) for card in CARDS.values())
    assert len(RULES) == sum(len(card.rules) for card in CARDS.values())


def test_rules__those_that_warn__all_have_advice() -> None:
    by_limit = {name.rpartition(".")[0] for name in LIMITS if name.endswith((".warning", ".severe"))} & RULES.keys()
    by_step = {rule for rule, severities in noticed_rules().items() if {"warning", "severe"} & severities}
    assert len(by_limit) > 30
    assert len(by_step) > 10
    assert sorted((by_limit | by_step) - RULE_ADVICE.keys()) == []


def test_advice__names__no_rule_and_change_alike() -> None:
    assert RULES.keys() & CHANGE_ADVICE.keys() == set()


@each("rule", RULE_ADVICE)
def test_advice_on_rule__words__need_only_what_the_rule_itself_names(rule: str) -> None:
    advice = RULE_ADVICE[rule]
    assert names(advice.message) | names(advice.code) <= names(RULES[rule].message)


@each("change", CHANGE_ADVICE)
def test_advice_on_change__words__need_only_what_a_change_always_has(change: str) -> None:
    evidence = ON_A_CHANGE | ({"before", "after"} if change in ON_OTHER_INPUTS else set())
    assert names(CHANGE_ADVICE[change].message) <= evidence


@each("rule", RULE_ADVICE)
def test_advice_on_rule__steps_and_measured_gain__exist(rule: str) -> None:
    advice = RULE_ADVICE[rule]
    assert set(advice.steps) <= CARDS.keys()
    assert names(advice.instead or "") == set()
    if isinstance(advice.gain, MeasuredGain):
        assert METRICS[advice.gain.metric].step == RULES[rule].step


def test_metrics__names_of_other_entries__exist() -> None:
    assert {entry.gate.advice for entry in METRICS.values()} - {""} <= CHANGE_ADVICE.keys()
    assert {entry.trend.follows for entry in METRICS.values()} - {""} <= METRICS.keys()
    assert all(family.metrics for family in FAMILIES.values())


@pytest.mark.parametrize(
    ("name", "step"), [("latency.low", 1), ("counters.copies", 4), ("memory.peak", 4), ("ops.count:aten::mm", 4)]
)
def test_measuring_step__counters__are_counted_by_step_4_whatever_step_explains_them(name: str, step: int) -> None:
    assert measuring_step(name) == step


def test_judges__metric__exists() -> None:
    assert {rule.judges.metric for rule in RULES.values() if rule.judges} <= METRICS.keys()


@pytest.mark.parametrize(
    ("limit", "judged"),
    [
        ("transfer.share.severe", "transfer.share"),
        ("format.mixed.info", "format.mixed_convolutions"),
        ("graph.recompiles.warning", None),
        ("batching.agreement", None),
        ("no.such.limit.warning", None),
    ],
)
def test_judged_by__limit__metric_whose_value_it_bounds(limit: str, judged: str | None) -> None:
    bounded = judged_by(limit)
    assert (bounded.metric if bounded else None) == judged


def test_limits__source__is_the_checklist_for_the_eight_numbers_that_it_names() -> None:
    """The list of the twenty steps gives numbers in steps 2, 3 and 4 alone."""
    assert {name for name, limit in LIMITS.items() if limit.source == CHECKLIST} == {
        "utilization.busy.warning",
        "utilization.busy.severe",
        "transfer.share.warning",
        "transfer.share.severe",
        "ops.share.conv_matmul.info",
        "ops.share.copy.severe",
        "ops.share.reshape.warning",
        "ops.share.softmax.warning",
    }
    assert [name for name, limit in LIMITS.items() if limit.source == CI_CHECK] == ["ops.kernel_time.warning"]


def test_limits__numbers_of_our_own__say_why() -> None:
    reasons = {
        name: limit.source.removeprefix("perfgate's own threshold").strip(": ,") for name, limit in LIMITS.items()
    }
    assert [name for name, reason in reasons.items() if len(reason) < 10] == []


@pytest.mark.parametrize(
    ("name", "part", "unit", "kind"),
    [
        ("ops.count:aten::mm", "aten::mm", "1", "exact"),
        ("ops.time:aten::mm", "aten::mm", "s", "noisy"),
        ("op.aten::mm", "aten::mm", "s", "noisy"),
        ("module.Encoder.layers.*", "Encoder.layers.*", "s", "noisy"),
        ("function.model.py:attend", "model.py:attend", "s", "noisy"),
    ],
)
def test_metric__of_a_part_of_the_call__is_derived(name: str, part: str, unit: str, kind: str) -> None:
    derived = metric(name)
    assert (derived.name, derived.part, derived.unit, derived.kind, derived.step) == (name, part, unit, kind, 4)


def test_metric__unknown_name__stands_for_itself_and_is_not_known() -> None:
    unknown = metric("latency.p51")
    assert (unknown.name, unknown.title, unknown.unit, unknown.better) == ("latency.p51", "latency.p51", "1", "neutral")
    assert not is_known("latency.p51")
    assert is_known("latency.p50")
    assert is_known("op.aten::mm")
