"""Orders in comments on the forges of this package: a webhook names the comment, and the forge alone says what it orders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_dialects import GitCodeDialect, GiteaDialect, GiteeDialect

from perfgate.config import load_config
from perfgate.document.history import Acceptance
from perfgate.errors import UsageError
from perfgate.flows.publish.command import run_command
from perfgate.flows.publish.publish import publish
from perfgate.flows.publish.trusted import PublishRequest, read_trusted_inputs
from perfgate.flows.shared.doors import Doors
from perfgate.flows.shared.store import open_project_store
from perfgate.judging.forge.detect import detect, read_comment
from perfgate.judging.forge.orders import CommentEvent, CommentPlace
from tests.end_to_end.given import Given, given_job
from tests.end_to_end.publishing import START, Project
from tests.fakes.forge import BOT_TOKEN, OTHER_BOT, Account

REFS = {
    "gitee": "refs/pull/7/head",
    "gitcode": "refs/merge-requests/7/head",
    "gitea": "refs/pull/7/head",
}


@pytest.fixture(
    params=[GiteeDialect, GitCodeDialect, GiteaDialect],
    ids=lambda dialect: dialect.name,
)
def job(
    request: pytest.FixtureRequest, tmp_path: Path, project: Project
) -> Iterator[Given]:
    with given_job(request.param(), tmp_path, project) as job:
        job.fake.roles = {
            "ann": "developer",
            "bob": "reporter",
            "eve": "maintainer",
            "mallory": "developer",
        }
        yield job


def environ(job: Given, **more: str) -> dict[str, str]:
    return {
        "PERFGATE_FORGE": job.host,
        "PERFGATE_API_URL": job.fake.api_url,
        "PERFGATE_REPOSITORY": "team/model",
        "PERFGATE_CHANGE_REQUEST": "7",
        "PERFGATE_TOKEN": BOT_TOKEN,
        "PERFGATE_STORE": str(job.folder / "store.db"),
        **more,
    }


def ordered(
    job: Given,
    body: str,
    author: str | Account = "ann",
    *,
    edited: bool = False,
    number: int = 7,
) -> str:
    """Write a comment, run the job that its webhook starts in this process, and return what the log says."""
    account = author if isinstance(author, Account) else Account(70, author, bot=False)
    comment = job.fake.write(number, body, account)
    comment.edited = edited
    return obey(job, PERFGATE_COMMENT=str(comment.id))


def obey(job: Given, **more: str) -> str:
    said: list[str] = []
    variables = environ(
        job, PERFGATE_HEAD_SHA=job.project.base, PERFGATE_RUN_ID="90", **more
    )
    doors = Doors(
        environ=variables, say=said.append, sleep=lambda _: None, clock=lambda: START
    )
    run_command(job.project.root, doors)
    return "\n".join(said)


def published(job: Given, run: int) -> str:
    """Publish a check of a slower head, and return the comment."""
    variables = environ(
        job,
        PERFGATE_HEAD_SHA=job.project.head,
        PERFGATE_RUN_ID=str(run),
        PERFGATE_COMMANDS="true",
    )
    doors = Doors(
        environ=variables, say=lambda _: None, sleep=lambda _: None, clock=lambda: START
    )
    trusted = read_trusted_inputs(
        job.project.root, detect(variables), doors, posts=True
    )
    publish(job.measure(run, ops=64), trusted, PublishRequest(), doors)
    return job.comments()[0]


def accepted(job: Given) -> list[Acceptance]:
    config = load_config(job.project.root)
    return open_project_store(config, environ(job)).entries(config.project, Acceptance)


def test_accept__number_of_a_cause__kept_and_counts_when_published_again(
    job: Given,
) -> None:
    assert f"`/perfgate accept {job.project.head} 1 REASON`" in published(job, 1)
    ordered(
        job, f"/perfgate accept {job.project.head} 1 a wider encoder until 2999-01-31"
    )
    kept = {
        (one.commit, one.reason, one.accepted_by, one.until) for one in accepted(job)
    }
    assert kept == {(job.project.head, "a wider encoder", "ann", "2999-01-31")}
    comment, reply = job.comments()
    assert " perfgate: FAIL" in comment
    assert (
        "until 2999-01-31; this takes effect once the publishing job of this commit is re-run"
        in reply
    )
    assert " perfgate: WARN" in published(job, 2)


@pytest.mark.parametrize(
    "body", ["/perfgate accept latency.low meant", "/perfgate bisect", "/perfgate run"]
)
def test_order__account_without_push_access__only_the_log_says_so(
    job: Given, body: str
) -> None:
    for author in ("bob", "nobody"):
        assert "may not push" in ordered(job, body, author)
    assert (accepted(job), job.comments()) == ([], [])


def test_order__of_our_own_account_edited_or_of_another_change__nothing(
    job: Given,
) -> None:
    line = "/perfgate accept latency.low meant"
    job.fake.changes.append(replace(job.fake.changes[0], number=8))
    assert "Nothing was asked" in ordered(job, line, edited=True)
    assert "Nothing was asked" in ordered(job, line, number=8)
    assert "Nothing was asked" in ordered(job, "looks good to me")
    if job.host != "gitea":  # where no account says what it is
        assert "Nothing was asked" in ordered(job, line, OTHER_BOT)
    assert accepted(job) == []


def test_accept__fork__its_author_is_refused_and_others_name_the_commit(
    job: Given,
) -> None:
    job.fake.changes[:] = [replace(job.fake.changes[0], owner="mallory")]
    ordered(job, f"/perfgate accept {job.project.head} latency.low mine", "mallory")
    ordered(job, "/perfgate accept latency.low meant")
    assert accepted(job) == []
    ordered(job, f"/perfgate accept {job.project.head} latency.low meant")
    assert [one.accepted_by for one in accepted(job)] == ["ann"]


def test_bisect_and_run__no_job_can_be_started__the_line_for_a_clone(
    job: Given,
) -> None:
    ordered(job, "/perfgate bisect latency.*@encoder")
    ordered(job, "/perfgate run")
    by_hand, again = job.comments()
    base, head = job.project.base[:12], job.project.head
    fetch = f"git fetch origin && git fetch origin {REFS[job.host]}"
    search = f"""perfgate bisect 'latency.*@encoder' --good "$(git merge-base {base} {head[:12]})" --bad {head}"""
    assert by_hand.endswith(f"on the measuring machine: `{fetch} && {search}`\n")
    assert "re-run the CI job of this pull request" in again


def test_command__no_comment_named__wrong_use(job: Given) -> None:
    with pytest.raises(
        UsageError, match="with the comment's number in PERFGATE_COMMENT"
    ):
        obey(job)


@pytest.mark.parametrize("event", ["issue_comment", "pull_request_comment"])
def test_read_comment__gitea_actions__its_place_alone(
    tmp_path: Path, event: str
) -> None:
    written = {
        "id": 31,
        "body": "/perfgate run",
        "user": {"login": "ann"},
        "created_at": "x",
        "updated_at": "x",
    }
    payload = {
        "action": "created",
        "issue": {"number": 7, "pull_request": {"merged": False}},
        "comment": written,
    }
    path = tmp_path / "event.json"
    actions = {
        "GITEA_ACTIONS": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": event,
    }
    actions["GITHUB_EVENT_PATH"] = str(path)
    path.write_text(json.dumps(payload))
    assert read_comment(actions) == CommentPlace(7, 31)
    for changes in ({"action": "edited"}, {"issue": {"number": 7}}):
        path.write_text(json.dumps({**payload, **changes}))
        found = read_comment(actions)
        assert isinstance(found, CommentEvent)
        assert found.body == ""
    assert read_comment({**actions, "GITHUB_EVENT_NAME": "push"}) is None
