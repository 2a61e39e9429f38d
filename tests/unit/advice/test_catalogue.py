"""Every rule has its advice in two languages, and its words need no evidence that a finding may lack."""

from __future__ import annotations

import ast
from pathlib import Path
from string import Formatter

import pytest

from perfgate.catalogue.advice.advice import Advice, Measured
from perfgate.catalogue.advice.findings import FINDINGS, UNADVISED
from perfgate.catalogue.advice.lookup import ADVICE, ON_CHANGES, ON_FINDINGS
from perfgate.catalogue.lookup import CARDS, LIMITS, METRICS, RULES
from perfgate.measuring import checklist

# The entries of evidence that every suggestion on a change has, and those of one on other inputs.
ON_A_CHANGE = {"op", "base", "head"}
ON_OTHER_INPUTS = {"larger-inputs", "other-dtype", "other-layout"}


def names(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name is not None}


def noticed_rules() -> dict[str, str]:
    """Return every rule that a step notices by a constant, with the severity it is given."""
    found = {}
    for path in Path(checklist.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "noticed":
                rule, severity = call.args[0], call.args[1]
                if isinstance(rule, ast.Constant):
                    words = {node.value for node in ast.walk(severity) if isinstance(node, ast.Constant)}
                    found[str(rule.value)] = " ".join(map(str, words)) or "warning"
    return found


def test_findings__rules_of_all_steps__each_has_advice_or_needs_none() -> None:
    assert sorted(RULES.keys() - ON_FINDINGS.keys() - UNADVISED) == []
    assert sorted((ON_FINDINGS.keys() | UNADVISED) - RULES.keys()) == []
    assert sorted(ON_FINDINGS.keys() & UNADVISED) == []


def test_findings__rules_that_warn__all_have_advice() -> None:
    by_limit = {name.rpartition(".")[0] for name in LIMITS if name.endswith((".warning", ".severe"))} & RULES.keys()
    by_step = {rule for rule, severity in noticed_rules().items() if {"warning", "severe"} & set(severity.split())}
    assert len(by_limit) > 30
    assert len(by_step) > 10
    assert sorted((by_limit | by_step) - ON_FINDINGS.keys()) == []


def test_advice__names__no_rule_twice() -> None:
    assert len(ADVICE) == len(FINDINGS) + len(ON_CHANGES)


@pytest.mark.parametrize("advice", FINDINGS, ids=lambda advice: advice.rule)
def test_advice_on_finding__words__need_only_what_the_rule_itself_names(advice: Advice) -> None:
    assert names(advice.message) | names(advice.code) <= names(RULES[advice.rule].message)


@pytest.mark.parametrize("advice", ON_CHANGES.values(), ids=lambda advice: advice.rule)
def test_advice_on_change__words__need_only_what_a_change_always_has(advice: Advice) -> None:
    known = ON_A_CHANGE | ({"before", "after"} if advice.rule in ON_OTHER_INPUTS else set())
    assert names(advice.message) <= known


@pytest.mark.parametrize("advice", ADVICE.values(), ids=lambda advice: advice.rule)
def test_advice__chinese__is_there_with_the_same_values(advice: Advice) -> None:
    assert advice.message.zh != str(advice.message)
    assert names(advice.message.zh) == names(advice.message)
    if advice.instead is not None:
        assert advice.instead.zh != str(advice.instead)
        assert names(advice.instead) == names(advice.instead.zh) == set()


@pytest.mark.parametrize("advice", ADVICE.values(), ids=lambda advice: advice.rule)
def test_advice__gain_and_steps__exist_in_the_catalogue(advice: Advice) -> None:
    assert set(advice.steps) <= CARDS.keys()
    if isinstance(advice.gain, Measured):
        assert METRICS[advice.gain.metric].step == next(
            number for number, card in CARDS.items() if advice.rule in {rule.name for rule in card.rules}
        )
