"""`perfgate plan`: what a check would measure, decided without a device, torch, or any code of the change."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from perfgate.cli.commands.plan import COMMAND
from perfgate.document.plan import MeasurementPlan
from perfgate.errors import ConfigError, ForgeError, UsageError
from perfgate.flows.check.plan import PlanRequest, plan_check
from perfgate.flows.shared.doors import Doors
from tests.end_to_end.conftest import Clone
from tests.end_to_end.publishing import Job
from tests.fakes.forge import BOT_TOKEN, Reply
from tests.unit.forge.test_runner import outputs_of

SLOWER = ("def build():", "def build():\n    import time")


def planned(root: Path, environ: Mapping[str, str] = {}, **request: Any) -> MeasurementPlan:
    doors = Doors(environ=environ, say=lambda text: None, sleep=lambda seconds: None, clock=lambda: 0.0)
    return plan_check(root, PlanRequest(**{"base": "main", **request}), doors)


def test_plan__code_of_the_model_changed__names_the_workloads_and_the_device(clone: Clone) -> None:
    head = clone.commit("slower", model=SLOWER)
    plan = planned(clone.root)
    assert (plan.measure, plan.reason, plan.workloads) == (True, None, ["small"])
    assert (plan.device, plan.accelerator) == ("cpu", False)
    assert (plan.base, plan.head) == (clone.git("rev-parse", "main"), head)
    assert planned(clone.root, device="npu:1").accelerator


def test_plan__only_a_file_of_another_host_changed__takes_no_device(clone: Clone, tmp_path: Path) -> None:
    (clone.root / ".travis.yml").write_text("words")
    clone.commit("words")
    output = tmp_path / "output"
    plan = planned(clone.root, {"GITHUB_OUTPUT": str(output)}, device="npu", outputs=True)
    assert plan.reason is not None
    assert (plan.measure, plan.accelerator, plan.workloads) == (False, False, [])
    assert plan.reason.code == "gate.only-unread"
    assert outputs_of(output.read_text()) == {
        "measure": "false",
        "accelerator": "false",
        "testbeds": "",
        "base": plan.base,
    }


def test_plan__testbeds__an_accelerator_among_them_is_needed(clone: Clone, tmp_path: Path) -> None:
    config = clone.root / "perfgate.toml"
    config.write_text(config.read_text() + '\n[testbeds]\ncpu = "cpu"\n910b = "npu"\n')
    clone.commit("a matrix", model=SLOWER)
    output = tmp_path / "output"
    plan = planned(clone.root, {"GITHUB_OUTPUT": str(output)}, outputs=True)
    assert (plan.testbeds, plan.accelerator) == ({"cpu": "cpu", "910b": "npu"}, True)
    assert outputs_of(output.read_text())["testbeds"] == "cpu 910b"


@pytest.mark.parametrize(
    ("draft", "environ"),
    [
        (True, {"CI_MERGE_REQUEST_DRAFT": "true"}),
        (False, {"CI_MERGE_REQUEST_DRAFT": "false", "CI_MERGE_REQUEST_TITLE": "Draft: x"}),
        (True, {"CI_MERGE_REQUEST_TITLE": "Draft: x"}),
        (False, {"CI_MERGE_REQUEST_TITLE": "Drafting"}),
        (True, {"GITHUB_ACTIONS": "true", "draft": "true"}),
        (False, {"GITHUB_ACTIONS": "true", "draft": "false"}),
    ],
)
def test_plan__draft__is_measured_unless_drafts_are_skipped(
    clone: Clone, tmp_path: Path, draft: bool, environ: dict[str, str]
) -> None:
    clone.commit("slower", model=SLOWER)
    if "draft" in environ:
        pull = {"number": 7, "head": {"sha": "a" * 40}, "draft": environ["draft"] == "true"}
        (tmp_path / "event.json").write_text(json.dumps({"pull_request": pull}))
        environ = {**environ, "GITHUB_EVENT_PATH": str(tmp_path / "event.json")}
    assert planned(clone.root, environ).measure
    plan = planned(clone.root, environ, skip_drafts=True)
    assert (plan.measure, plan.reason.code if plan.reason else None) == (not draft, "gate.draft" if draft else None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[gat]\n", "unknown key 'gat'"),
        ('device = "npx"\n', "device 'npx' is not known"),
        ('[testbeds]\n"a/b" = "npu"\n', "[testbeds] 'a/b' must be letters"),
        ('[testbeds]\na = "npx"\n', "[testbeds] a must be `cpu | npu | cuda`, found 'npx'"),
    ],
)
def test_plan__wrong_configuration__is_refused_before_a_device_is_taken(clone: Clone, line: str, words: str) -> None:
    (clone.root / "perfgate.toml").write_text('workload = "perf/workload.py:small"\n' + line)
    clone.commit("a mistake")
    with pytest.raises(ConfigError, match=re.escape(words)):
        planned(clone.root)


def test_plan__workload_that_is_not_there__is_refused(clone: Clone) -> None:
    with pytest.raises(ConfigError, match="no workload 'smal'"):
        planned(clone.root, workloads=("smal",))


def test_plan__json__one_document_on_standard_output(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    clone.commit("slower", model=SLOWER)
    for name in ("GITHUB_ACTIONS", "GITLAB_CI"):
        monkeypatch.delenv(name, raising=False)
    done = CliRunner().invoke(COMMAND, ["--base", "main", "--json", "-C", str(clone.root)])
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    assert (plan["schema"], plan["measure"], plan["workloads"]) == ("perfgate/plan", True, ["small"])
    assert "to measure: small on cpu" in done.stderr


@pytest.fixture
def checkout(github: Job, tmp_path: Path) -> Path:
    """The checkout of a measuring job: the head of the change."""
    root = tmp_path / "checkout"
    shutil.copytree(github.root, root)
    subprocess.run(["git", "checkout", "-q", github.project.merge], cwd=root, check=True, capture_output=True)
    return root


def test_plan__pending__the_status_waits_for_the_verdict(github: Job, checkout: Path) -> None:
    environ = {**github.environ, "PERFGATE_TOKEN": BOT_TOKEN}
    planned(checkout, environ, pending=True)
    (status,) = github.fake.statuses
    assert (status.sha, status.state, status.name) == (github.project.head, "pending", "perfgate")
    assert status.description == "to measure: encoder on cpu"
    github.measure()
    assert github.publish().returncode == 0
    assert [(one.name, one.state) for one in github.fake.statuses][-1] == ("perfgate", "success")


def test_plan__pending_without_the_rights__is_refused(github: Job, checkout: Path) -> None:
    with pytest.raises(UsageError, match="--pending needs a token"):
        planned(checkout, github.environ, pending=True)
    with pytest.raises(UsageError, match="not a CI job"):
        planned(checkout, {}, pending=True)
    github.fake.script("POST", Reply(403, {"message": "Resource not accessible by integration"}))
    with pytest.raises(ForgeError):
        planned(checkout, {**github.environ, "PERFGATE_TOKEN": BOT_TOKEN}, pending=True)


def test_plan__modules__torch_is_not_among_them() -> None:
    script = "import sys, perfgate.flows.check.plan\nsys.exit('torch' in sys.modules)\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
