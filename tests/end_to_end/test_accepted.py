"""`perfgate baseline accept`: of which commit a regression is meant."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from perfgate.flows.publish.trusted import read_trusted_inputs
from perfgate.flows.publish.wording import obeys_comments
from perfgate.flows.shared.doors import Doors
from perfgate.judging.forge.detect import detect
from tests.end_to_end.conftest import Clone, Perfgate
from tests.end_to_end.publishing import START, Job
from tests.end_to_end.test_command import Order
from tests.fakes.forge import BOT_TOKEN

RELU = "return torch.relu(y)"


@pytest.mark.slow
def test_baseline_accept__commit_named__its_regression_is_shown_and_does_not_gate(
    perfgate: Perfgate, clone: Clone
) -> None:
    head = clone.commit("an operator more", model=(RELU, "return torch.relu(y + 0)"))
    clone.git("checkout", "-q", "main")
    meant = ("counters.framework_ops", "--reason", "needs it", "--by", "Li Wei", "--commit", "feature")
    accepted = perfgate("baseline", "accept", *meant, cwd=clone.root)
    assert accepted.returncode == 0, accepted.stderr
    assert accepted.stdout == f"accepted counters.framework_ops of {head[:12]} by Li Wei\n"

    clone.git("checkout", "-q", "feature")
    perfgate("check", "--base", "main", "--steps", "4", "--out", "out", cwd=clone.root)
    decision = json.loads((clone.root / "out" / "decision.json").read_text())
    (counted,) = [entry for entry in decision["comparisons"] if entry["metric"] == "counters.framework_ops"]
    assert (counted["outcome"], counted["gating"]) == ("regressed", False)
    assert counted["accepted"] == "Li Wei: needs it"


def test_baseline_accept__commit_that_git_does_not_know__exit_2(perfgate: Perfgate, clone: Clone) -> None:
    done = perfgate("baseline", "accept", "latency.*", "--reason", "meant", "--commit", "nonsense", cwd=clone.root)
    assert done.returncode == 2
    assert "git knows no commit 'nonsense'" in done.stderr
    assert perfgate("baseline", "accepted", "--json", cwd=clone.root).stdout.strip() == "[]"


def _commands(text: str, program: str) -> list[str]:
    return re.findall(rf"`({re.escape(program)} [^`]+)`", text)


def _clone_of_branch(job: Job, folder: Path) -> Path:
    """A clone as a reviewer has it: of the branches on the server, where no branch leads to the forge's merge."""
    server = folder / "server.git"
    job.project.git("clone", "-q", "--bare", str(job.root), str(server))
    job.project.git("push", "-q", str(server), f"{job.project.head}:refs/heads/feature")
    branch = folder / "branch"
    job.project.git("clone", "-q", "--branch", "feature", "--no-local", str(server), str(branch))
    for field in ("name", "email"):
        job.project.git("-C", str(branch), "config", f"user.{field}", "someone")
    return branch


def _checkout(job: Job, folder: Path, workflow: str) -> Path:
    """The publishing job's checkout, with a workflow."""
    root = folder / "checkout"
    job.project.git("clone", "-q", str(job.root), str(root))
    (root / ".github" / "workflows").mkdir(parents=True)
    (root / ".github" / "workflows" / "perfgate.yml").write_text(f"{workflow}\n")
    return root


def test_comment__command_of_the_line_if_intended__accepts_in_a_clone_of_the_branch(
    job: Job, perfgate: Perfgate, tmp_path: Path
) -> None:
    """On GitHub and in GitLab's pipelines for merged results the commit that was measured is the forge's merge."""
    job.measure(ops=64)
    assert job.publish(root=_checkout(job, tmp_path, "on: push")).returncode == 1
    (command,) = _commands(job.comment(), "perfgate baseline accept")
    branch = _clone_of_branch(job, tmp_path)
    words = shlex.split(command)[1:]
    accepted = perfgate(*words, cwd=branch, PERFGATE_STORE=job.environ["PERFGATE_STORE"])
    assert accepted.returncode == 0, accepted.stderr
    assert job.project.head[:12] in accepted.stdout
    assert job.publish().returncode == 0
    assert " perfgate: WARN" in job.comment()


def test_check__in_a_job_of_a_change_request__its_own_text_names_the_head_of_the_branch(job: Job) -> None:
    job.measure(ops=64)
    decision = json.loads((job.artifact / "decision.json").read_text())
    assert (decision["sides"]["head"]["commit"], decision["sides"]["head"]["reviewed"]) == (
        job.project.merge,
        job.project.head,
    )


def test_comment__on_a_forge_that_reads_orders__its_order_accepts(github: Job) -> None:
    github.fake.roles = {"ann": "maintain"}
    github.measure(ops=64)
    github.publish()
    github.fake.upload(50, "perfgate-default-1", github.zipped())
    (order,) = _commands(github.comment(), "/perfgate accept")
    assert order == f"/perfgate accept {github.project.head} 1 REASON"
    assert "perfgate baseline accept" not in github.comment()
    Order(github, "ann", order).obey()
    comment, reply = github.comments()
    assert " perfgate: WARN" in comment
    assert reply.endswith("; perfgate's verdict is now WARN\n")


def test_comment__on_a_forge_that_reads_no_orders__has_none(gitlab: Job) -> None:
    gitlab.measure(ops=64)
    gitlab.publish()
    assert "/perfgate" not in gitlab.comment()


TRUSTED = "jobs: {trusted: {uses: team/perfgate/.github/workflows/trusted.yml@main}}"


@pytest.mark.parametrize(
    ("workflow", "count"),
    [
        (f"on: {{issue_comment: {{types: [created]}}}}\n{TRUSTED}", 1),
        (f"on: {{push: }}  # not issue_comment\n{TRUSTED}", 0),
        (
            "on: {issue_comment: {types: [created]}}\njobs: {greet: {uses: team/greeter/.github/workflows/greet.yml@main}}",
            0,
        ),
        ("on: issue_comment\njobs: {own: {steps: [{run: perfgate command --key default}]}}", 1),
    ],
)
def test_comment__workflows_of_the_checkout__decide_whether_an_order_is_heard(
    github: Job, tmp_path: Path, workflow: str, count: int
) -> None:
    github.measure(ops=64)
    github.publish(root=_checkout(github, tmp_path, workflow))
    assert len(_commands(github.comment(), "/perfgate accept")) == count


def test_comment__job_that_is_none_of_github_actions__without_workflows_no_order_is_heard(github: Job) -> None:
    environ = {**github.environ, "PERFGATE_TOKEN": BOT_TOKEN}
    doors = Doors(environ=environ, say=print, sleep=lambda _: None, clock=lambda: START)
    trusted = read_trusted_inputs(github.root, detect(environ), doors, posts=True)
    assert obeys_comments(trusted)
    assert not obeys_comments(replace(trusted, environ={"JENKINS_URL": "https://ci.example"}))
