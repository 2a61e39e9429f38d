"""`perfgate advise` as people call it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from perfgate.document.files import write_document
from perfgate.document.message import quote
from perfgate.document.run import Finding, StepResult, Value
from tests.command import run_perfgate
from tests.fakes.documents import make_run


def advise(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_perfgate("advise", *arguments, cwd=cwd, environment={**os.environ, "COLUMNS": "120"})


def write(folder: Path, *rules: str) -> None:
    """Write a run whose memory step noticed what the rules name."""
    found = [Finding(rule=rule, severity="warning", message=quote(""), evidence={"shape": "long"}) for rule in rules]
    step = StepResult(number=17, slug="memory", workload="encoder", status="attention", findings=found)
    folder.mkdir()
    write_document(folder / "run.json", make_run(steps=[step]))


@pytest.mark.parametrize("path", [[], ["perfgate-out"], ["perfgate-out/run.json"]])
def test_advise__run__what_to_try_and_the_command_that_shows_whether_it_helped(tmp_path: Path, path: list[str]) -> None:
    write(tmp_path / "perfgate-out", "memory.segments", "memory.growth")
    done = advise(*path, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    said = [line.strip() for line in done.stdout.splitlines()]
    assert said[0] == "Try"
    assert "• detach tensors that are stored beyond a call, and bound lists and caches (step 17)" in said
    assert said.count("perfgate run --steps 17 --workload encoder") == 2


def test_advise__chinese_and_json__the_words_on_standard_error_the_document_on_standard_output(tmp_path: Path) -> None:
    write(tmp_path / "perfgate-out", "memory.growth")
    done = advise("--lang", "zh", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("建议尝试\n  • 对保存到调用之外的张量 detach")
    (suggestion,) = json.loads(done.stdout)
    assert (suggestion["step"], suggestion["workload"]) == (17, "encoder")


def test_advise__nothing_noticed__says_so(tmp_path: Path) -> None:
    write(tmp_path / "perfgate-out")
    done = advise(cwd=tmp_path)
    assert (done.returncode, done.stdout) == (
        0,
        "No suggestions: no step has a finding that perfgate has advice for.\n",
    )


def test_advise__only_measured__what_a_step_found_faster_with_its_code(tmp_path: Path) -> None:
    finding = Finding(
        rule="batch.loss", severity="warning", message=quote(""), evidence={"shape": "long", "batch": 2, "best": 16}
    )
    lost = Value(metric="batch.loss", value=0.2, labels={"shape": "long"})
    step = StepResult(number=5, slug="batch", workload="encoder", status="attention", findings=[finding], values=[lost])
    write(tmp_path / "guessed", "memory.growth")
    (tmp_path / "tried").mkdir()
    write_document(tmp_path / "tried" / "run.json", make_run(steps=[step]))
    tried = advise("tried", "--measured", "--json", cwd=tmp_path)
    (best,) = json.loads(tried.stdout)
    assert best["gain"]["speedup"] == 1.25
    assert best["code"].startswith("batch=16")
    guessed = advise("guessed", "--measured", cwd=tmp_path)
    assert guessed.stdout == "Nothing that the checklist tried was measured to be faster.\n"


def test_advise__no_documents_there__exit_2_and_what_to_name(tmp_path: Path) -> None:
    done = advise("empty", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "empty holds no run.json and no decision.json; name the folder" in done.stderr
