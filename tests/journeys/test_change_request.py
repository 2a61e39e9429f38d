"""Journey 3: a pull request of GitHub or a merge request of GitLab fails with the line, is accepted in a comment, and warns."""

from __future__ import annotations

import re

import pytest

from tests.fakes.forge import FakeForge
from tests.fakes.forge_dialects import GitHubDialect, GitLabDialect
from tests.journeys.ci_jobs import GitHubJobs, GitLabJobs, Jobs, Project
from tests.journeys.projects import ITEM_BY_ITEM, WHOLE_BATCH, commit_all, gate_project, start_project
from tests.journeys.shell import Shell

# Blocks so short time nothing: counters decide, and the clocks of a busy machine do not. What is accepted has to outlive the
# job that keeps it.
SETTINGS = """
[gate]
strict = true
looks = [8]
aa_pairs = 5
quads = 2
block_seconds = 0.002
checklist_budget = 0
[gate.tolerance]
"latency.*" = 9.0
"throughput.*" = 9.0
"hardware.*" = 9.0
[store]
path = "branch://perfgate-data"
"""
MISTAKE = "14 more `aten::addmm` at `mymodel/__init__.py:13`"
MAINTAINER = "ann"


def open_change_request(forge: FakeForge, shell: Shell) -> Project:
    """Put a gated model on main, and open a change request with a mistake."""
    start_project(shell)
    gate_project(shell)
    shell.writes("perfgate.toml", shell.reads("perfgate.toml") + SETTINGS)
    commit_all(shell, "Judge counters only")
    project = Project(forge, shell)
    shell.types("git checkout --quiet -b faster")
    shell.edits("mymodel/__init__.py", WHOLE_BATCH, ITEM_BY_ITEM)
    commit_all(shell, "Simplify the residual connection")
    project.push_change("faster")
    return project


@pytest.mark.journey
def test_github__pull_request_with_a_mistake__fails_with_the_line_is_accepted_and_warns(shell: Shell) -> None:
    with FakeForge(GitHubDialect()) as forge:
        project = open_change_request(forge, shell)
        fail_and_accept(GitHubJobs(project))
        statuses = [(status.sha, status.state) for status in forge.statuses]
        assert statuses == [(project.head, "failure"), (project.head, "success")]
        assert "WARN" in forge.statuses[-1].description
        assert forge.violations == []


@pytest.mark.journey
def test_gitlab__merge_request_with_a_mistake__fails_with_the_line_is_accepted_and_warns(shell: Shell) -> None:
    with FakeForge(GitLabDialect()) as forge:
        # Who may push to the branch that keeps what was accepted.
        forge.membership = "developer"
        fail_and_accept(GitLabJobs(open_change_request(forge, shell)))
        # There the pipeline is the check.
        assert forge.statuses == []
        assert forge.violations == []


def fail_and_accept(jobs: Jobs) -> None:
    """Run the jobs of the change request, read its comment as a person does, and do what it says."""
    project = jobs.project
    jobs.measure()
    jobs.publish()
    (comment,) = project.comments()
    assert " perfgate: FAIL" in comment
    assert MISTAKE in comment
    assert "mymodel/__init__.py#L13" in comment
    assert "return torch.cat([item + self.feed(item) for item in x.split(1)])" in comment
    assert "run it once on the whole tensor" in comment

    (order,) = re.findall(r"`(/perfgate accept [^`]*) REASON`", comment)
    jobs.comment(MAINTAINER, f"{order} items come one by one in production")
    comment, reply = project.comments()
    assert "perfgate's verdict is now WARN" in reply
    assert " perfgate: WARN" in comment
    assert "items come one by one in production" in comment
    assert MISTAKE in comment
