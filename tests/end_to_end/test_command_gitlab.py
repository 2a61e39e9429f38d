"""Orders in notes of GitLab: a webhook starts the pipeline, and the forge alone says what was ordered and by whom."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from perfgate.config import load_config
from perfgate.document.history import Acceptance
from perfgate.errors import UsageError
from perfgate.flows.publish.command import answer_bisection, run_command
from perfgate.flows.shared.doors import Doors
from perfgate.flows.shared.store import open_project_store
from tests.end_to_end.publishing import START, Job
from tests.fakes.forge import BOT, BOT_TOKEN, Account
from tests.fakes.forge_dialects import gitlab_account


@pytest.fixture
def own(gitlab: Job) -> Job:
    """A job on merge request 7 from a branch of the project itself; who has which role."""
    gitlab.fake.roles = {"ann": "developer", "bob": "reporter", "eve": "maintainer"}
    gitlab.fake.changes[:] = [replace(change, owner="team") for change in gitlab.fake.changes]
    gitlab.environ["CI_PROJECT_ID"] = "5"
    return gitlab


def ordered(job: Job, body: str, author: str | Account = "ann", **payload: Any) -> str:
    """Write a note, run the job that its webhook starts in this process, and return what the log says."""
    account = author if isinstance(author, Account) else gitlab_account(author)
    note = job.fake.write(7, body, account)
    return obey(job, {"id": note.id, "action": "create"}, **payload)


def obey(job: Job, attributes: dict[str, Any], **payload: Any) -> str:
    said: list[str] = []
    path = job.folder / "TRIGGER_PAYLOAD"
    path.write_text(
        json.dumps({"object_kind": "note", "object_attributes": attributes, "merge_request": {"iid": 7}, **payload})
    )
    environ = {name: value for name, value in job.environ.items() if not name.startswith("CI_MERGE_REQUEST")}
    environ |= {
        "CI_PIPELINE_SOURCE": "trigger",
        "TRIGGER_PAYLOAD": str(path),
        "CI_PIPELINE_ID": "90",
        "CI_COMMIT_SHA": job.project.base,
        "PERFGATE_TOKEN": BOT_TOKEN,
    }
    doors = Doors(environ=environ, say=said.append, sleep=lambda _: None, clock=lambda: START)
    run_command(job.root, doors)
    return "\n".join(said)


def accepted(job: Job) -> list[Acceptance]:
    config = load_config(job.root)
    return open_project_store(config, job.environ).entries(config.project, Acceptance)


def replies(job: Job) -> list[str]:
    """The notes of perfgate, without the orders."""
    return [note.body for note in job.fake.comments[7] if note.author == BOT]


def test_accept__number_of_a_cause_until_a_day__kept_and_judged_again(own: Job) -> None:
    own.measure(ops=64)
    own.environ["PERFGATE_COMMANDS"] = "true"
    assert own.publish().returncode == 1
    own.fake.upload(50, "perfgate-default-1", own.zipped())
    assert "comment `/perfgate accept 1 REASON`" in replies(own)[0].replace(f"{own.project.head} ", "")
    ordered(own, f"/perfgate accept {own.project.head} 1 a wider encoder until 2999-01-31")
    kept = accepted(own)
    assert {(one.commit, one.reason, one.accepted_by, one.until) for one in kept} == {
        (own.project.head, "a wider encoder", "ann", "2999-01-31")
    }
    comment, reply = replies(own)
    assert " perfgate: WARN" in comment
    assert "until 2999-01-31; perfgate's verdict is now WARN" in reply


@pytest.mark.parametrize("author", ["bob", "nobody"])
def test_accept__member_without_the_role__only_the_log_says_so(own: Job, author: str) -> None:
    assert "may not push" in ordered(own, "/perfgate accept latency.low meant", author)
    assert (accepted(own), replies(own)) == ([], [])


@pytest.mark.parametrize("login", ["project_5_bot_1a2b", "group_12_bot_x"])
def test_accept__access_token__nothing(own: Job, login: str) -> None:
    own.fake.roles[login] = "maintainer"
    assert "Nothing was asked" in ordered(own, "/perfgate accept latency.low meant", login)
    assert "Nothing was asked" in ordered(own, "/perfgate accept latency.low meant", BOT)
    assert accepted(own) == []


def test_accept__payload_that_claims_another_author_and_text__what_gitlab_says_counts(own: Job) -> None:
    note = own.fake.write(7, "/perfgate accept latency.low meant", gitlab_account("bob"))
    lie = {"id": note.id, "action": "create", "note": "/perfgate accept * mine", "author_id": gitlab_account("eve").id}
    assert "bob may not push" in obey(own, lie, user={"username": "eve"})
    assert accepted(own) == []


def test_accept__edited_deleted_or_no_order__nothing(own: Job) -> None:
    edited = own.fake.write(7, "/perfgate accept latency.low meant", gitlab_account("ann"))
    edited.edited = True
    assert "Nothing was asked" in obey(own, {"id": edited.id, "action": "create"})
    assert "Nothing was asked" in obey(own, {"id": 999_999})
    assert "Nothing was asked" in ordered(own, "looks good to me")
    assert accepted(own) == []


def test_command__another_event__wrong_use(own: Job) -> None:
    with pytest.raises(UsageError, match="was not started by a new comment"):
        ordered(own, "/perfgate accept latency.low meant", object_kind="issue")


@pytest.mark.parametrize("payload", [{"merge_request": None}, {"object_attributes": {"id": 1, "action": "update"}}])
def test_command__note_that_is_edited_or_elsewhere__no_order_and_no_error(own: Job, payload: dict[str, Any]) -> None:
    # Its webhook starts a pipeline too.
    assert "Nothing was asked" in ordered(own, "/perfgate accept latency.low meant", **payload)
    assert accepted(own) == []


def test_accept__fork__its_author_is_refused_and_others_name_the_commit(own: Job) -> None:
    own.fake.changes[:] = [replace(change, owner="mallory") for change in own.fake.changes]
    own.fake.roles["mallory"] = "developer"
    ordered(own, f"/perfgate accept {own.project.head} latency.low mine", "mallory")
    ordered(own, "/perfgate accept latency.low meant")
    assert accepted(own) == []
    refused, unnamed = replies(own)
    assert "someone other than its author has to ask" in refused
    assert f"its head is `{own.project.head}`" in unnamed
    ordered(own, f"/perfgate accept {own.project.head} latency.low meant")
    assert [one.accepted_by for one in accepted(own)] == ["ann"]


def test_bisect__member_with_the_role__a_pipeline_of_the_branch_has_what_to_search(own: Job) -> None:
    own.fake.membership = "developer"
    ordered(own, "/perfgate bisect latency.*@encoder")
    (pipeline,) = own.fake.pipelines
    # A pipeline of main would run the commits of the change with main's rights.
    assert pipeline.sha == own.project.head
    assert pipeline.variables == {
        "PERFGATE_ACTION": "bisect",
        "PERFGATE_KEY": "default",
        "PERFGATE_CHANGE_REQUEST": "7",
        "PERFGATE_HEAD_SHA": own.project.head,
        "PERFGATE_BASE_SHA": own.project.base,
        "PERFGATE_METRIC": "latency.*@encoder",
    }
    page = f"{own.fake.url}/team/model/-/pipelines/{pipeline.id}"
    words = f"perfgate is bisecting up to `{own.project.head[:12]}` for the commit that made `latency.*@encoder` worse"
    assert replies(own) == [f"{words}: [the job]({page})\n"]


@pytest.mark.parametrize(
    ("membership", "role", "why"),
    [("reporter", "developer", "HTTP 403"), ("developer", "maintainer", "Insufficient permissions to set pipeline")],
)
def test_bisect__gitlab_starts_no_pipeline__the_line_for_a_clone_and_why_in_the_log(
    own: Job, membership: str, role: str, why: str
) -> None:
    own.fake.membership, own.fake.variables_role = membership, role
    assert why in ordered(own, "/perfgate bisect")
    assert own.fake.pipelines == []
    (reply,) = replies(own)
    assert by_hand(own) in reply
    assert f"[the job]({own.environ['CI_PIPELINE_URL']})" in reply


def test_bisect__fork__the_line_for_a_clone_once_the_commit_is_named(own: Job) -> None:
    own.fake.membership = "developer"
    own.fake.changes[:] = [replace(change, owner="mallory") for change in own.fake.changes]
    ordered(own, "/perfgate bisect")
    ordered(own, f"/perfgate bisect {own.project.head}")
    assert own.fake.pipelines == []
    unnamed, answer = replies(own)
    assert f"its head is `{own.project.head}`" in unnamed
    assert answer.endswith(f"`{by_hand(own)}`\n")


def by_hand(job: Job) -> str:
    """The line that bisects merge request 7 in a clone."""
    base, head = job.project.base[:12], job.project.head
    fetch = "git fetch origin && git fetch origin refs/merge-requests/7/head"
    return f'{fetch} && perfgate bisect --good "$(git merge-base {base} {head[:12]})" --bad {head}'


def test_answer__of_the_branch_s_pipeline__stands_in_the_merge_request(own: Job) -> None:
    given = {
        "PERFGATE_FORGE": "gitlab",
        "PERFGATE_API_URL": own.fake.api_url,
        "PERFGATE_SERVER_URL": own.fake.url,
        "PERFGATE_REPOSITORY": "5",
        "PERFGATE_CHANGE_REQUEST": "7",
        "PERFGATE_HEAD_SHA": own.project.head,
        "PERFGATE_RUN_ID": "9000",
        "PERFGATE_JOB_URL": f"{own.fake.url}/team/model/-/pipelines/9000",
        "PERFGATE_TOKEN": BOT_TOKEN,
    }
    doors = Doors(environ={**own.environ, **given}, say=lambda _: None, sleep=lambda _: None, clock=lambda: START)
    answer_bisection(own.folder, "en", doors)
    (reply,) = replies(own)
    assert reply.startswith(
        "perfgate found no commit: the measuring job left no bisection; see its log for the reason."
    )
    assert f"[the job]({given['PERFGATE_JOB_URL']})" in reply


@pytest.mark.parametrize("author", ["bob", "nobody"])
def test_bisect__member_without_the_role__only_the_log_says_so(own: Job, author: str) -> None:
    own.fake.membership = "developer"
    assert "may not push" in ordered(own, "/perfgate bisect", author)
    assert (own.fake.pipelines, replies(own)) == ([], [])


def test_run__on_gitlab__said_how(own: Job) -> None:
    ordered(own, "/perfgate run")
    assert replies(own) == ["to measure again, re-run the pipeline of the merge request: choose Run pipeline in it\n"]
