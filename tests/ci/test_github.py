"""Our GitHub workflows run: measure, artifact, publish, one comment; the fake GitHub remembers, prism judges every request."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perfgate.judging.forge.comment import marker, read_state
from tests.ci.act import WORKFLOWS, Hub, recorded
from tests.ci.packages import ROOT, software_npu
from tests.fakes.forge import BOT_TOKEN

pytestmark = [
    pytest.mark.skipif(shutil.which("act") is None, reason="make test-ci installs act"),
]
SLOWER = ("y = self.layer(x)\n", "y = self.layer(x)\n        y = y + 0\n        y = y + 0\n")
MARKER = marker("default")

# A workflow of somebody's own that goes by the gate's word.
OWN_CALLER = """
name: own
on: pull_request
permissions: {}
jobs:
  gate:
    uses: ./.github/workflows/gate.yml
    permissions: {actions: read, contents: read, pull-requests: write, statuses: write}
    with: {python-version: "3.11", package: perfgate}
  after:
    needs: gate
    runs-on: ubuntu-latest
    steps:
      - run: echo "$VERDICT, $CODE"
        env:
          VERDICT: ${{ needs.gate.outputs.verdict }}
          CODE: ${{ needs.gate.outputs.exit-code }}
"""
# A job of somebody's own around the one step.
OWN_JOB = """
name: own
on: pull_request
permissions: {contents: read}
jobs:
  own:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@VERSION
        with: {fetch-depth: 0, persist-credentials: false}
      - id: gate
        continue-on-error: true
        uses: ./.github/actions/perfgate
        with: {python: PYTHON, package: perfgate, key: own, setup: export WORD=heard}
      - run: echo "$VERDICT, $CODE, $COMMENT, $URL"
        env:
          VERDICT: ${{ steps.gate.outputs.verdict }}
          CODE: ${{ steps.gate.outputs.exit-code }}
          COMMENT: ${{ steps.gate.outputs.comment }}
          URL: ${{ steps.gate.outputs.artifact-url }}
"""


def test_pull_request__slower_then_repaired__one_comment_edited_in_place_and_a_reply(hub: Hub) -> None:
    hub.start(setup='test -z "$GITHUB_TOKEN"')
    slower = hub.change("slower", model=SLOWER)
    done = hub.pull_request("opened")
    assert done.jobs == {"measure": "failed", "publish": "failed"}, done.log
    assert done.outputs("publish") == {"verdict": "FAIL", "exit-code": "1"}
    (comment,) = hub.comments()
    assert comment.splitlines()[0] == MARKER
    _check_linked(hub, comment, "FAIL", hub.merged)
    assert hub.job_page(hub.last) in comment
    assert " perfgate: FAIL" in comment
    assert "1 more `aten::add` at `model.py:13`\n" in comment
    assert "(2 in all, also at `:14`): `y = y + 0`\n" in comment
    assert hub.statuses() == [(slower, "failure")]
    assert "::error file=model.py,line=13," in done.log

    repaired = hub.change("repaired")
    done = hub.pull_request("synchronize")
    assert done.jobs == {"measure": "succeeded", "publish": "succeeded"}, done.log
    comment, reply = hub.comments()
    assert " perfgate: PASS" in comment
    assert "FAIL → PASS" in reply
    _check_linked(hub, comment, "PASS", hub.merged)
    assert hub.statuses() == [(slower, "failure"), (repaired, "success")]
    state = read_state(comment)
    assert state is not None
    assert (state.run, state.head) == (hub.last, repaired)


def _check_linked(hub: Hub, comment: str, verdict: str, measured: str) -> None:
    """Hold the comment's link to what it promises: the documents of this verdict, written by the job that posted it.

    ``measured`` is the commit they are of: a run for a pull request measures the forge's merge of it.
    """
    files = hub.linked(comment)
    assert files.keys() == {"comment.md", "decision.json", "report.html"}
    decision = json.loads(files["decision.json"])
    assert (decision["verdict"], decision["sides"]["head"]["commit"]) == (verdict, measured)
    assert f"perfgate: {verdict}" in files["comment.md"].decode()
    assert verdict in files["report.html"].decode()
    _check_evidence(hub, comment, verdict)


def _check_evidence(hub: Hub, comment: str, verdict: str) -> None:
    """Follow every other link: a page of its own opens as it is, a trace lies in the archive under the path that is named."""
    evidence = dict(hub.evidence(comment))
    ((name, report),) = evidence.pop("report.html").items()
    assert name.endswith("-report.html")
    assert verdict in report.decode()
    evidence.pop("the artifact")
    assert bool(evidence) == (verdict in {"FAIL", "WARN"})
    for path, files in evidence.items():
        if path.endswith("flame.html"):
            ((name, page),) = files.items()
            assert name.endswith("-flame.html")
            assert page.startswith(b"<!doctype html>")
        else:
            assert path in files, (path, list(files))


def test_pull_request__of_prose__a_job_after_the_gate_has_the_verdict_that_was_posted(hub: Hub) -> None:
    hub.start(own=OWN_CALLER)
    (hub.clone.root / "README.md").write_text("words")
    hub.change("words")
    hub.forge.changes[:] = [replace(hub.forge.changes[0], files=("README.md",))]
    done = hub.pull_request("opened", workflow="own.yml")
    assert done.jobs == {"measure": "succeeded", "publish": "succeeded", "after": "succeeded"}, done.log
    assert done.of("after") == "SKIPPED, 0"
    (comment,) = hub.comments()
    assert " perfgate: SKIPPED" in comment


def test_plan__change_of_prose__takes_no_device_and_is_skipped_by_the_bases_rules(hub: Hub) -> None:
    hub.start(plan=True)
    (hub.clone.root / "README.md").write_text("words")
    hub.change("words")
    hub.forge.changes[:] = [replace(hub.forge.changes[0], files=("README.md",))]
    done = hub.pull_request("opened")
    assert done.jobs == {"plan": "succeeded", "publish": "succeeded"}, done.log
    assert done.outputs("publish") == {"verdict": "SKIPPED", "exit-code": "0"}
    assert " perfgate: SKIPPED" in hub.comments()[0]
    assert not any(one.name == "perfgate-default-1" for one in hub.artifacts)


def test_fork__its_own_run_posts_nothing_and_the_trusted_one_does(hub: Hub) -> None:
    hub.start()
    # The branch is named as in the recorded hostile payload: shell, expression, HTML, bidi.
    hostile = recorded("pull_request.hostile")["pull_request"]["head"]["ref"]
    head = hub.change("slower", owner="mallory", branch=hostile, model=SLOWER)
    done = hub.pull_request("fork")
    assert done.jobs == {"measure": "failed"}, done.log
    assert hub.forge.calls == []
    assert [one.name for one in hub.artifacts] == [
        "perfgate-default-1",
        "perfgate-default-1-traces",
        "perfgate-default-1-flame.html",
    ]

    measured = hub.last
    done = hub.workflow_run("completed.no-pr", of=measured, event="pull_request", conclusion="failure")
    assert done.jobs == {"publish": "failed", "record": "succeeded"}, done.log
    (comment,) = hub.comments()
    assert " perfgate: FAIL" in comment
    _check_linked(hub, comment, "FAIL", hub.merged)
    assert hub.job_page(measured) in comment
    assert hub.statuses() == [(head, "failure")]

    # Once more with the hostile title, and with the pull request named in the event.
    hub.change("repaired", owner="mallory", branch=hostile)
    done = hub.pull_request("hostile")
    assert done.jobs == {"measure": "succeeded"}, done.log
    done = hub.workflow_run("completed", of=hub.last, event="pull_request", conclusion="success")
    assert done.jobs == {"publish": "succeeded", "record": "succeeded"}, done.log
    comment, _ = hub.comments()
    assert " perfgate: PASS" in comment
    kept = hub.server_git(
        "show", "perfgate-data:gates/" + hub.server_git("ls-tree", "--name-only", "perfgate-data:gates")
    )
    assert [(one["verdict"], one["change"]) for one in json.loads(kept)] == [("FAIL", 2), ("PASS", 2)]
    assert "evil.example" not in "".join(hub.comments())
    assert list(hub.folder.rglob("pwn")) == []


def test_fork__its_run_was_cancelled__the_comment_says_so_and_links_its_job(hub: Hub) -> None:
    hub.start()
    head = hub.change("slower", owner="mallory", model=SLOWER)
    done = hub.workflow_run("completed", of=77, event="pull_request", conclusion="cancelled")
    assert done.jobs == {"publish": "failed"}, done.log
    (comment,) = hub.comments()
    assert comment.splitlines()[0] == MARKER
    assert " perfgate: INCONCLUSIVE" in comment
    assert "was cancelled or exceeded its time limit" in comment
    assert hub.job_page(77) in comment
    assert hub.statuses() == [(head, "error")]


def test_comments__accepted_then_measured_again__by_who_may_push(hub: Hub) -> None:
    hub.start()
    hub.forge.roles = {"ann": "maintain", "bob": "read"}
    head = hub.change("slower", model=SLOWER)
    hub.pull_request("opened")
    (comment,) = hub.comments()
    assert " perfgate: FAIL" in comment

    done = hub.comment("bob", "/perfgate accept * it is fine")
    assert done.jobs == {"command": "succeeded"}, done.log
    assert hub.comments() == [comment]

    done = hub.comment("ann", "/perfgate accept * the two additions are meant")
    assert done.jobs == {"command": "succeeded"}, done.log
    comment, *replies = hub.comments()
    assert " perfgate: WARN" in comment
    assert "the two additions are meant" in comment
    assert any(f"is accepted for `{head[:12]}`" in reply for reply in replies)

    before = hub.last
    done = hub.comment("ann", "/perfgate run small")
    assert done.jobs == {"command": "succeeded", "measure": "succeeded", "publish": "succeeded"}, done.log
    assert BOT_TOKEN not in done.of("measure")
    whole, *others = hub.comments()
    assert whole == comment
    (ordered,) = [other for other in others if read_state(other) is not None]
    _check_linked(hub, ordered, "WARN", head)
    assert hub.job_page(hub.last) in ordered
    states = [state for other in others if (state := read_state(other)) is not None]
    assert [(state.run, state.head, state.verdict) for state in states] == [(before + 1, head, "WARN")]


def test_action__step_of_a_job_of_ones_own__says_the_verdict_in_its_outputs(hub: Hub) -> None:
    folder = hub.clone.root / ".github"
    (folder / "actions" / "perfgate").mkdir(parents=True)
    shutil.copy(ROOT / "action.yml", folder / "actions" / "perfgate")
    version = re.search(r"actions/checkout@(\S+)", (WORKFLOWS / "gate.yml").read_text())
    assert version is not None
    own = OWN_JOB.replace("VERSION", version[1]).replace("PYTHON", sys.executable)
    hub.start(own=own)
    hub.change("slower", model=SLOWER)
    done = hub.pull_request("opened", workflow="own.yml")
    assert done.jobs == {"own": "succeeded"}, done.log
    url = f"{hub.forge.url}/team/model/actions/runs/{hub.last}/artifacts/1"
    assert done.of("own").splitlines()[-1] == f"FAIL, 1, perfgate-out/comment.md, {url}"
    assert [one.name for one in hub.artifacts] == [
        "perfgate-own-1",
        "perfgate-own-1-traces",
        "perfgate-own-1-flame.html",
    ]


@pytest.mark.parametrize("path", [ROOT / "action.yml", *sorted(WORKFLOWS.glob("*.yml"))], ids=lambda path: path.name)
def test_ci_file__action_validator__finds_nothing(path: Path) -> None:
    done = subprocess.run(["action-validator", path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("more", [[], software_npu(str)], ids=["cpu", "and-npu"])
def test_matrix__testbeds_and_one_that_has_no_runner__one_comment_with_a_column_each(
    hub: Hub, more: list[dict[str, str]]
) -> None:
    config = hub.clone.root / "perfgate.toml"
    hub.clone.git("checkout", "-q", "main")
    testbeds = [{"name": "one-cpu"}, {"name": "two-cpus", "setup": "export OMP_NUM_THREADS=2"}, *more]
    names = [testbed["name"] for testbed in testbeds]
    kinds = {name: "npu" if "npu" in name else "cpu" for name in names} | {"absent": "npu"}
    config.write_text(config.read_text() + "[testbeds]\n" + "".join(f'{name} = "{kinds[name]}"\n' for name in kinds))
    hub.start(testbeds=json.dumps(testbeds))
    head = hub.change("slower", model=SLOWER)
    done = hub.pull_request("opened")
    assert done.outputs("publish") == {"verdict": "FAIL", "exit-code": "1"}, done.log
    (comment,) = hub.comments()
    assert f"## ❌ perfgate: FAIL – on {len(names)} of {len(kinds)} testbeds: {', '.join(names)}" in comment
    assert f"| | {' | '.join(kinds)} |" in comment
    assert "- **absent**: INCONCLUSIVE – " in comment
    assert hub.statuses() == [(head, "failure")]
    names = {one.name for one in hub.artifacts}
    assert {"perfgate-default-one-cpu-1", "perfgate-default-two-cpus-1", "perfgate-default-judged-1"} <= names
    files = hub.linked(comment)
    assert {"comment.md", "joint.json", "one-cpu/decision.json", "two-cpus/report.html"} <= files.keys()
