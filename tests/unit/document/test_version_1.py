"""Documents that perfgate wrote before sentences were codes: read, their sentences quoted or made from rule and evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfgate.catalogue.lookup import MESSAGES
from perfgate.document.files import read_decision, read_run
from perfgate.document.message import Message, quote
from perfgate.document.upgrade import UPGRADES
from perfgate.judging.report.text.messages import word, word_finding
from perfgate.locale import speaking

V1 = Path(__file__).parents[2] / "data" / "v1"


# A finding is worded from its rule and evidence, so it reads as the catalogue of today says.
REWORDED = {
    "convolutions and matrix products take most of the time, as they should": (
        "convolutions and matrix products take most of the time"
    )
}
# Advice whose sentence is another one today is quoted as it was written.
NEW_ADVICE = {"ops.share.conv_matmul"}


@pytest.mark.parametrize("name", ["measured", "recorded"])
def test_run__version_1__every_sentence_reads_as_it_was_written(name: str) -> None:
    old, run = json.loads((V1 / f"{name}.json").read_text(encoding="utf-8")), read_run(V1 / f"{name}.json")

    assert [word(warning) for warning in run.warnings] == old.get("warnings", [])
    for before, step in zip(old["steps"], run.steps):
        assert word(step.reason or "") == (before.get("reason") or "")
        assert [word(value.reason or "") for value in step.values] == [
            value.get("reason") or "" for value in before.get("values", [])
        ]
        assert [word_finding(finding) for finding in step.findings] == [
            REWORDED.get(finding["message"], finding["message"]) for finding in before.get("findings", [])
        ]


def test_run__version_1__quotes_are_not_translated_and_findings_are() -> None:
    run = read_run(V1 / "measured.json")
    finding = next(finding for step in run.steps for finding in step.findings)
    reason = next(step.reason for step in run.steps if step.slug == "transfer")
    with speaking("zh"):
        assert word(reason or "") == "the device works in host memory: there is nothing to copy"
        assert word_finding(finding) != "the CPUs granted are not kept busy, or others use them too"


def test_decision__version_1__reasons_get_their_codes() -> None:
    old = json.loads((V1 / "decision.json").read_text(encoding="utf-8"))
    decision = read_decision(V1 / "decision.json")

    assert [word(reason) for reason in decision.reasons] == old["reasons"]
    assert {reason.code for reason in decision.reasons} == {"verdict.testbed"}
    assert [word(warning) for warning in decision.warnings] == old["warnings"]
    assert [word(c.reason or "") for c in decision.comparisons] == [c.get("reason") or "" for c in old["comparisons"]]


def test_decision__version_1__advice_gets_its_code_and_reads_as_it_was_written() -> None:
    old = json.loads((V1 / "decision.json").read_text(encoding="utf-8"))
    suggestions = read_decision(V1 / "decision.json").suggestions

    assert [word(suggestion.message) for suggestion in suggestions] == [
        entry["message"] for entry in old["suggestions"]
    ]
    assert [suggestion.message.code for suggestion in suggestions] == [
        "quote" if entry["rule"] in NEW_ADVICE else f"advice.{entry['rule']}" for entry in old["suggestions"]
    ]


@pytest.mark.parametrize(
    ("suggestion", "message"),
    [
        (
            {"rule": "batch.better", "message": "use a batch size of 16 instead of 2 (8.0 s)", "evidence": {}},
            quote("use a batch size of 16 instead of 2 (8.0 s)"),
        ),
        ({"rule": "Byte Alignment", "message": "align {them}"}, quote("align {them}")),
        (
            {"rule": "layout-copy", "message": "older words"},
            quote("older words"),
        ),
    ],
    ids=["evidence is lacking", "another tool", "other words"],
)  # fmt: skip
def test_decision__advice_that_is_not_in_the_words_of_its_rule__a_quote(
    suggestion: dict[str, Any], message: Message
) -> None:
    old = {"reasons": [], "base": {}, "head": {}, "suggestions": [suggestion]}
    (upgraded,) = UPGRADES["perfgate/decision"][1](old)["suggestions"]
    assert upgraded["message"] == msgspec.to_builtins(message)


def test_decision__advice_on_what_was_tried_in_vain__has_a_code_of_its_own() -> None:
    words = MESSAGES["advice.ops.coverage.instead"].other
    old = {"reasons": [], "base": {}, "head": {}, "suggestions": [{"rule": "ops.coverage", "message": words}]}
    (upgraded,) = UPGRADES["perfgate/decision"][1](old)["suggestions"]
    assert upgraded["message"]["code"] == "advice.ops.coverage.instead"


@pytest.mark.parametrize("reason", ["no colon", "unheard of: x", "regressed: "])
def test_decision__reason_that_is_no_code__a_quote(reason: str) -> None:
    old = {"reasons": [reason], "base": {}, "head": {}}
    assert UPGRADES["perfgate/decision"][1](old)["reasons"] == [{"code": "quote", "values": {"text": reason}}]


def test_finding__rule_or_evidence_unknown__what_stood_there_is_quoted() -> None:
    step = {"findings": [{"rule": "batch.refused", "message": "it does not take 4", "evidence": {}}]}
    (upgraded,) = UPGRADES["perfgate/run"][1]({"steps": [step]})["steps"]
    assert upgraded["findings"][0]["message"] == {"code": "quote", "values": {"text": "it does not take 4"}}
    assert quote("x") == Message("quote", {"text": "x"})


def test_decision__version_1__what_stood_behind_an_operators_name_is_its_aspect() -> None:
    old = json.loads((V1 / "decision.json").read_text(encoding="utf-8"))
    parts = [
        {"name": name, "base": 0, "head": 1} for name in ("aten::add (kept)", "aten::mm (full precision)", "f (x)")
    ]
    old["comparisons"] = [{**old["comparisons"][0], "parts": parts}]

    (comparison,) = UPGRADES["perfgate/decision"][1](old)["comparisons"]

    assert [(part["name"], part.get("aspect")) for part in comparison["parts"]] == [
        ("aten::add", "kept"),
        ("aten::mm", "full precision"),
        ("f (x)", None),
    ]
