"""From an empty repository to a first verdict, by what a newcomer types."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Perfgate
from tests.fakes.package_index import offline

PIN = "a" * 40
ACTION = f"tools/perfgate@{PIN}"
# Of one model on both sides nothing may regress. A busy machine may leave times undecided, and says so.
UNCHANGED = {("PASS", 0), ("INCONCLUSIVE", 3)}
AUTHOR = [option for name in ("name", "email") for option in ("-c", f"user.{name}=someone")]


@pytest.fixture
def empty(tmp_path: Path, perfgate: Perfgate) -> Path:
    root = tmp_path / "model"
    perfgate.environment.update(offline())
    subprocess.run(["git", "init", "-q", "-b", "main", str(root)], env=perfgate.environment, check=True)
    return root


@pytest.mark.slow
def test_init__a_new_repository__first_verdict_and_checklist(empty: Path, perfgate: Perfgate) -> None:
    """About a minute: the example is measured as any model is, with the settings that `init` writes."""
    written = perfgate("init", "--github", "--action", ACTION, cwd=empty)
    assert written.returncode == 0, written.stderr
    for arguments in (["add", "--all"], ["commit", "-qm", "Add perfgate"]):
        subprocess.run(["git", *AUTHOR, *arguments], cwd=empty, env=perfgate.environment, check=True)
    # A busy machine takes its time: longer than the fixture waits for a command.
    with perfgate.start("local", "--always", cwd=empty, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as local:
        said, _ = local.communicate(timeout=400)
    decision = json.loads((empty / ".perfgate" / "local" / "decision.json").read_bytes())
    assert {entry["shape"] for entry in decision["comparisons"]} == {"typical", "short"}
    assert (decision["verdict"], local.returncode) in UNCHANGED, said
    run = perfgate("run", "--quick", "--steps", "1,4", cwd=empty)
    assert run.returncode == 0, run.stdout + run.stderr
    steps = json.loads((empty / "perfgate-out" / "run.json").read_bytes())["checklist"]["steps"]
    assert [(step["number"], step["status"]) for step in steps] == [(1, "ok"), (4, "ok")]
    # What perfgate wrote is no part of the project.
    status = ["git", "status", "--porcelain"]
    assert subprocess.run(status, cwd=empty, env=perfgate.environment, check=True, capture_output=True).stdout == b""


@pytest.mark.slow
def test_init__first_call__measures_what_the_workload_says(empty: Path, perfgate: Perfgate) -> None:
    perfgate("init", "--gitlab", "--action", ACTION, cwd=empty)
    done = perfgate("run", "--quick", "--steps", "4", cwd=empty)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((empty / "perfgate-out" / "run.json").read_bytes())
    (workload,) = document["workloads"]
    assert (workload["name"], workload["batch"], sorted(workload["shapes"])) == ("example", 8, ["short", "typical"])
    assert {result["status"] for result in document["checklist"]["correctness"]} == {"passed"}
