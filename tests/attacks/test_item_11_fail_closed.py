"""Item 11: a missing or invalid artifact is INCONCLUSIVE, exit 3, and a comment that says why; never a silent green."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from perfgate.cli.commands.publish import COMMAND
from perfgate.errors import UsageError
from tests.end_to_end.publishing import Job
from tests.fakes.forge import Fault, Reply


def _inconclusive(job: Job, words: str, **request: Any) -> None:
    done = job.download(**request)
    assert done.returncode == 3, done.stderr
    body = job.comment()
    assert " perfgate: INCONCLUSIVE – the measuring job left no usable results" in body
    assert words in body
    assert "counts as not measured" in body
    assert job.statuses() == job.marked("error")


def test_item_11__nothing_was_uploaded__no_verdict(job: Job) -> None:
    _inconclusive(job, "uploaded none named `perfgate-default-1`")


def test_item_11__other_names_other_attempts_other_runs__no_verdict(job: Job) -> None:
    job.measure()
    for run, name in (
        (50, "perfgate-default-2"),
        (50, "perfgate-other-1"),
        (50, "perfgate-default-1x"),
        (49, "perfgate-default-1"),
    ):
        job.fake.upload(run, name, job.zipped())
    _inconclusive(job, "uploaded none named")
    assert job.fake.blobs.requests == []


def test_item_11__expired__no_verdict(github: Job) -> None:
    github.fake.upload(50, "perfgate-default-1", b"", expired=True)
    _inconclusive(github, "has expired; run the measuring job again")


def test_item_11__deleted_between_list_and_download__no_verdict(job: Job) -> None:
    artifact = job.fake.upload(50, "perfgate-default-1", b"")
    job.fake.faults.append(Fault("GET", f"/{artifact.id}/", Reply(404, {"message": "Not Found"})))
    _inconclusive(job, "cannot be fetched")


def test_item_11__repeated_job_without_a_new_measuring__takes_the_earlier_attempts(github: Job) -> None:
    github.measure()
    first = github.zipped()
    github.measure(ops=64, ci=msgspec.structs.replace(github.ci, run_attempt=2))
    github.fake.upload(50, "perfgate-default-1", first)
    github.fake.upload(50, "perfgate-default-2", github.zipped())
    github.environ["GITHUB_RUN_ATTEMPT"] = "1"
    assert github.download().returncode == 0
    github.environ["GITHUB_RUN_ATTEMPT"] = "3"
    assert github.download().returncode == 1
    assert " perfgate: FAIL" in github.comments()[0]


def test_item_11__documents_are_empty__no_verdict(job: Job) -> None:
    job.measure()
    job.change("head", counters=[], workloads=[])
    job.change("base", counters=[], workloads=[])
    done = job.publish()
    assert done.returncode == 3
    assert " perfgate: INCONCLUSIVE" in job.comment()


def test_item_11__base_nobody_can_vouch_for__no_verdict(job: Job) -> None:
    # The change request has another head by now and the clone does not know the base: nothing says that it is of main.
    job.fake.changes[0] = replace(job.fake.changes[0], head_sha="d" * 40)
    job.measure(base=job.project.newer)
    assert job.publish().returncode == 3
    assert job.statuses() == job.marked("error")


@pytest.mark.parametrize("options", [[], ["--download", "folder"]])
def test_item_11__neither_or_both_of_folder_and_download__wrong_use(options: list[str]) -> None:
    done = CliRunner().invoke(COMMAND, options)
    assert isinstance(done.exception, UsageError)
    assert "not both" in str(done.exception)


def test_item_11__download_without_a_token__wrong_use(job: Job) -> None:
    done = job.download(token=None)
    assert done.returncode == 2
    assert "has a token" in done.stderr
