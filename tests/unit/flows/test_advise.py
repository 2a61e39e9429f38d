"""Where ``perfgate advise`` finds its suggestions, and that judging again gives the same ones."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from perfgate.document.decision import Policy
from perfgate.document.files import write_document
from perfgate.document.history import History
from perfgate.document.message import quote
from perfgate.document.run import Finding, RunDocument, Side, StepResult
from perfgate.errors import DocumentError, UsageError
from perfgate.flows.advise import suggestions_in
from perfgate.flows.shared.decision import decide_with_advice, judge_folder_with_advice
from tests.fakes.documents import make_run


def run(side: Side, *rules: str) -> RunDocument:
    found = [Finding(rule=rule, severity="warning", message=quote(""), evidence={"shape": "long"}) for rule in rules]
    return make_run(
        side, steps=[StepResult(number=17, slug="memory", workload="encoder", status="attention", findings=found)]
    )


@pytest.fixture
def check(tmp_path: Path) -> Path:
    """Write a check folder whose head leaves memory behind, and whose two sides are in want of segments."""
    base, head = run("base", "memory.segments"), run("head", "memory.segments", "memory.resident_growth")
    for side, document in (("base", base), ("head", head)):
        (tmp_path / side).mkdir()
        write_document(tmp_path / side / "run.json", document)
    write_document(tmp_path / "decision.json", decide_with_advice(base, head, policy=Policy(), history=History()))
    return tmp_path


def test_suggestions_in__folder_of_a_run__all_that_the_run_gives_reason_for(check: Path) -> None:
    for path in (check / "head", check / "head" / "run.json"):
        assert [one.rule for one in suggestions_in(path)] == ["memory.resident_growth", "memory.segments"]


def test_suggestions_in__check_folder__those_of_the_decision_with_what_is_new(check: Path) -> None:
    for path in (check, check / "decision.json"):
        assert {one.rule: one.introduced for one in suggestions_in(path)} == {
            "memory.resident_growth": True, "memory.segments": False,
        }  # fmt: skip


def test_judge_folder_with_advice__documents_alone__the_same_decision_again(check: Path) -> None:
    again = judge_folder_with_advice(check, policy=None)
    assert [(one.rule, one.introduced) for one in again.explained.suggestions] == [
        (one.rule, one.introduced) for one in suggestions_in(check)
    ]


def test_suggestions_in__folder_without_documents__says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no run.json and no decision.json"):
        suggestions_in(tmp_path)


def test_suggestions_in__damaged_document__refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(DocumentError):
        suggestions_in(tmp_path)


def test_suggestions_in__no_path__the_newest_result_wherever_perfgate_writes(
    check: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"neither perfgate-out nor \.perfgate/local holds a result"):
        suggestions_in(None)
    shutil.copytree(check / "base", tmp_path / "perfgate-out")
    os.utime(tmp_path / "perfgate-out" / "run.json", (0, 0))
    shutil.copytree(check / "head", tmp_path / ".perfgate" / "local")
    assert [one.rule for one in suggestions_in(None)] == ["memory.resident_growth", "memory.segments"]
