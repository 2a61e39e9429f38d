"""action.yml, our own workflow and .gitlab-ci.yml: valid, safe by zizmor, and the scripts of the action really run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def _run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120, check=False)


def _load(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def _steps(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every step of an action or a workflow."""
    if isinstance(value, dict):
        yield from value.get("steps", [])
        for member in value.values():
            yield from _steps(member)


CI_FILES = [ROOT / "action.yml", *WORKFLOWS]


@pytest.mark.parametrize(
    ("schema", "path", "more"),
    [
        ("vendor.github-actions", ROOT / "action.yml", []),
        *[("vendor.github-workflows", path, []) for path in WORKFLOWS],
        ("vendor.gitlab-ci", ROOT / ".gitlab-ci.yml", ["--data-transform", "gitlab-ci"]),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_ci_file__vendored_schema__valid(schema: str, path: Path, more: list[str]) -> None:
    done = _run(BIN / "check-jsonschema", "--builtin-schema", schema, *more, path)
    assert done.returncode == 0, done.stdout


def test_ci_files__zizmor__finds_nothing() -> None:
    done = _run(BIN / "zizmor", "--offline", "--no-progress", *CI_FILES)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", CI_FILES, ids=lambda path: path.name)
def test_ci_file__scripts_and_actions__no_expression_inside_and_pinned(path: Path) -> None:
    steps = list(_steps(_load(path)))
    assert steps
    for step in steps:
        assert "${{" not in step.get("run", "")
        uses = step.get("uses", "./")
        assert uses.startswith("./") or re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", uses)


def test_workflow__jobs__only_the_one_without_the_changes_code_may_write() -> None:
    workflow = _load(ROOT / ".github" / "workflows" / "perfgate.yml")
    assert workflow["permissions"] == {}
    assert workflow["jobs"]["measure"]["permissions"] == {"contents": "read"}
    checkout = workflow["jobs"]["publish"]["steps"][0]
    assert checkout["with"]["ref"] == "${{ github.event.pull_request.base.sha }}"


class Action:
    """The steps of action.yml, run with bash as the runner does, and the real perfgate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.steps = {step["name"]: step for step in _load(ROOT / "action.yml")["runs"]["steps"]}
        _run("git", "init", "--quiet", folder)

    def run(self, step: str, **environ: str) -> subprocess.CompletedProcess[str]:
        plain = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_RUN_ATTEMPT": "2",
            "PERFGATE_PYTHON": sys.executable,
            "PERFGATE_DIRECTORY": ".",
            "PERFGATE_OUT": str(self.out),
            "PERFGATE_ARTIFACT": "perfgate",
        }
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", self.steps[step]["run"]]
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**plain, "PERFGATE_BASE": "", "PERFGATE_WORKLOAD": "", **environ},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in (self.folder / "output").read_text().splitlines())


@pytest.fixture
def action(tmp_path: Path) -> Action:
    return Action(tmp_path)


def test_action__nothing_to_measure__reports_the_exit_code_and_no_verdict(action: Action) -> None:
    done = action.run("Measure base and head")
    assert done.returncode == 0, done.stderr
    assert action.outputs() == {
        "exit-code": "2",
        "verdict": "",
        "decision": f"{action.out}/decision.json",
        "artifact": "perfgate-2",
    }
    assert "perfgate.toml does not exist" in done.stderr


def test_action__decision_of_an_earlier_job__is_not_taken(action: Action) -> None:
    action.out.mkdir()
    (action.out / "decision.json").write_text(json.dumps({"verdict": "PASS"}))
    (action.out / "comment.md").write_text("PASS")
    action.run("Measure base and head")
    assert action.outputs()["verdict"] == ""
    assert not (action.folder / "summary").exists()


@pytest.mark.parametrize("name", ["PERFGATE_BASE", "PERFGATE_WORKLOAD", "PERFGATE_DIRECTORY", "PERFGATE_ARTIFACT"])
def test_action__hostile_input__stays_data(action: Action, name: str) -> None:
    done = action.run("Measure base and head", **{name: '"; touch pwned; $(touch pwned) `touch pwned`\nverdict=PASS'})
    assert done.returncode == 0
    assert not (action.folder / "pwned").exists()
    assert action.outputs()["exit-code"] == "2"
    assert action.outputs()["verdict"] == ""


def test_action__output_of_perfgate__cannot_command_the_runner(action: Action) -> None:
    lines = action.run("Measure base and head").stdout.splitlines()
    word = lines[0].removeprefix("::stop-commands::")
    assert re.fullmatch("[0-9a-f]{32}", word)
    assert lines[-1] == f"::{word}::"


@pytest.mark.parametrize(("code", "expected"), [("0", 0), ("1", 1), ("3", 3), ("", 5), (None, 5)])
def test_action__verdict_step__ends_with_the_exit_code(action: Action, code: Optional[str], expected: int) -> None:
    environ = {} if code is None else {"PERFGATE_EXIT_CODE": code}
    assert action.run("Verdict", **environ).returncode == expected
