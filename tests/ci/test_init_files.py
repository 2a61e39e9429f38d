"""What `perfgate init` writes, read by the programs that run it: action-validator, act and gitlab-ci-local."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from perfgate.flows.init.init import start_project
from perfgate.flows.init.inputs import InitOptions
from tests.fakes.package_index import offline

ROOT = Path(__file__).parents[2]
ACTIONS = Path(__file__).parent / "actions"
EVENTS = [
    ("pull_request", "perfgate.yml", "gate.yml"),
    ("push", "perfgate.yml", "gate.yml"),
    ("schedule", "perfgate-trusted.yml", "trusted.yml"),
]
PIN = "a" * 40
ACTION = f"tools/perfgate@{PIN}"
OPTIONS = {"python": "3.11", "setup": "echo 'a' # \"b\"", "labels": ["self-hosted", "npu"]}


def _need(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not on the PATH; `make test-ci` brings it")


def _tool(*command: str, cwd: Path) -> str:
    _need(command[0])
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _commit(project: Path, origin: str) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a", "-C", str(project)]
    for arguments in (["remote", "add", "origin", origin], ["add", "-A"], ["commit", "-qm", "perfgate"]):
        subprocess.run([*git, *arguments], check=True)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in offline().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "model"
    subprocess.run(["git", "init", "-q", "-b", "main", str(root)], check=True)
    return root


def test_github_files__action_validator__accepts_both(project: Path) -> None:
    start_project(project, InitOptions(forge="github", action=ACTION, **OPTIONS))
    for name in ("perfgate.yml", "perfgate-trusted.yml"):
        _tool("action-validator", f".github/workflows/{name}", cwd=project)


@pytest.mark.parametrize(("event", "file", "called"), EVENTS)
def test_github_files__act__begins_the_measuring_job_of_the_workflow_they_call(
    project: Path, event: str, file: str, called: str
) -> None:
    """act takes the called workflow from this checkout, at the commit that the file names, with its inputs.

    There is no package index here, so installing perfgate fails; test_github.py runs the workflows to their end.
    """
    start_project(
        project, InitOptions(forge="github", action=ACTION, labels=["self-hosted", "npu"], setup="echo set up")
    )
    _commit(project, "https://github.com/team/model")
    log = _act(project, event, file, called)
    assert f"and subpath '.github/workflows/{called}' from {ROOT}" in log, log
    assert re.search(r"/measure *\]   ✅  Success - Main Check out", log), log
    assert re.search(r"/measure *\]   \| set up$", log, flags=re.MULTILINE), log


def test_github_files__container__is_where_the_measuring_job_would_run(project: Path) -> None:
    """act has no docker here, and of an expression it takes an image alone: GitHub takes options and volumes too."""
    start_project(project, InitOptions(forge="github", action=ACTION, image="registry.example/model:8"))
    _commit(project, "https://github.com/team/model")
    log = _act(project, "pull_request", "perfgate.yml", "gate.yml")
    assert re.search(r"/measure *\] +🐳  docker pull image=registry\.example/model:8 ", log), log


def _act(project: Path, event: str, file: str, called: str) -> str:
    """Run a workflow of the project without doing what needs a container; return the log."""
    text = (ROOT / ".github" / "workflows" / called).read_text()
    actions = set(re.findall(r"uses: (actions/[\w-]+@\S+)", text))
    lent = [f"https://github.com/tools/perfgate@{PIN}={ROOT}"]
    lent += [f"https://github.com/{used}={ACTIONS / used.split('/')[1].partition('@')[0]}" for used in sorted(actions)]
    command = ["act", event, "-n", "-W", f".github/workflows/{file}", "--no-cache-server", "--env", "PIP_NO_INDEX=1"]
    command += [part for place in lent for part in ("--local-repository", place)]
    command += [part for label in ("self-hosted", "npu", "ubuntu-latest") for part in ("-P", f"{label}=-self-hosted")]
    _need(command[0])
    environment = {**os.environ, "ACT_ORIGIN": str(project)}  # where the stand-in for actions/checkout gets the commit
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return done.stdout


def test_gitlab_file__gitlab_ci_local__fills_in_the_template(project: Path) -> None:
    start_project(project, InitOptions(forge="gitlab", action=ACTION, **OPTIONS))
    file = project / ".gitlab-ci.yml"
    called = f"project: tools/perfgate\n    ref: {PIN}\n    file: /templates/perfgate.yml"
    assert called in file.read_text()
    # What needs the other project's server.
    file.write_text(file.read_text().replace(called, "local: /templates/perfgate.yml"))
    shutil.copytree(ROOT / "templates", project / "templates")
    _commit(project, "git@gitlab.com:team/model.git")
    # GitLab itself takes an empty list of tags (lib/gitlab/ci/config/entry/tags.rb); the schema of its editor does not.
    lax = ("--ignore-schema-paths", "#/definitions/tags/minItems")
    shown = _tool("gitlab-ci-local", *lax, "--preview", cwd=project)
    assert "perfgate-measure:" in shown
    assert "$[[" not in shown
    assert "perfgate-publish:" in shown
    assert os.linesep.join(["    - self-hosted", "    - npu"]) in shown
