"""The real `perfgate publish` on a CI without variables, and several of it at once, in processes of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfgate.judging.forge.comment import marker, read_state
from tests.command import run_perfgate
from tests.end_to_end.given import Given, given_job
from tests.end_to_end.publishing import Project
from tests.fakes.forge import StoredChange
from tests.fakes.forge_dialects import GitHubDialect


@pytest.fixture
def job(tmp_path: Path, project: Project) -> Iterator[Given]:
    with given_job(GitHubDialect(), tmp_path, project) as job:
        yield job


def test_publish__event_by_variables__comment_and_status(job: Given) -> None:
    done = job.publish(job.measure(123, ops=64), 123)
    assert done.returncode == 1, done.stderr
    (body,) = job.comments()
    state = read_state(body)
    assert body.splitlines()[0] == marker("default")
    assert state is not None
    assert (state.run, state.attempt, state.head, state.verdict) == (123, 1, job.project.head, "FAIL")
    assert [(status.sha, status.state) for status in job.fake.statuses] == [(job.project.head, "failure")]


def test_publish__artifact_of_another_run__is_not_believed(job: Given) -> None:
    done = job.publish(job.measure(123), 124)
    assert done.returncode == 3
    assert "INCONCLUSIVE" in job.comments()[0]
    assert "'123'" in job.comments()[0]


def test_publish__variables_in_part__wrong_use(job: Given) -> None:
    folder = job.measure(123)
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environ |= {"PERFGATE_FORGE": job.host, "PERFGATE_RUN_ID": "123"}
    done = run_perfgate("publish", str(folder), environment=environ)
    assert done.returncode == 2
    assert "missing: PERFGATE_REPOSITORY, PERFGATE_HEAD_SHA" in done.stderr


@pytest.mark.slow
def test_publish__three_processes_at_once__one_comment_of_the_newest(job: Given) -> None:
    folders = {run: job.measure(run, ops=64 if run == 10 else 40) for run in (8, 9, 10)}
    started = [job.start(folders[run], run) for run in (10, 8, 9)]
    ended = [process.communicate(timeout=600) for process in started]
    assert [process.returncode for process in started] == [1, 0, 0], ended
    states = [read_state(body) for body in job.comments()]
    assert [(state.run, state.verdict) for state in states if state is not None] == [(10, "FAIL")]
    # Besides it at most the reply that the verdict turned, once.
    assert len([body for body in job.comments() if "PASS → FAIL" in body]) <= 1
    assert len(job.comments()) <= 2


def test_publish__change_request_has_moved_on__writes_no_comment(job: Given) -> None:
    job.fake.changes[:] = [StoredChange(7, "team", "feature", "e" * 40)]
    done = job.publish(job.measure(123, ops=64), 123)
    assert done.returncode == 1, done.stderr
    assert f"No change request has the head {job.project.head[:12]} any more" in done.stdout
    assert job.comments() == []
