"""The fake's GitHub and GitLab, driven by clients that others wrote (PyGithub, python-gitlab): their reading is ours too."""

from __future__ import annotations

from collections.abc import Iterator

import github
import gitlab
import pytest

from perfgate.judging.forge.forge import CiEvent, CiJob, CommitStatus, Forge, ForgeHost, connect
from perfgate.judging.forge.issues import IssueForge, keeps_issues
from tests.fakes.forge import BOT, PERSON, PERSON_TOKEN, FakeForge, StoredChange
from tests.fakes.forge import BOT_TOKEN as TOKEN
from tests.fakes.forge_dialects import GitHubDialect, GitLabDialect

pytestmark = pytest.mark.official

HEAD = "a" * 40


@pytest.fixture
def hub() -> Iterator[FakeForge]:
    with FakeForge(GitHubDialect()) as fake:
        fake.changes.append(StoredChange(7, "team", "feature", HEAD))
        yield fake


@pytest.fixture
def lab() -> Iterator[FakeForge]:
    with FakeForge(GitLabDialect()) as fake:
        fake.changes.append(StoredChange(7, "team", "feature", HEAD))
        yield fake


def _ours(fake: FakeForge) -> Forge:
    dialect = fake.dialect
    event = CiEvent(
        forge=dialect.name,  # type: ignore[attr-defined]
        host=ForgeHost(api_url=fake.api_url, server_url=fake.url),
        repository="team/model",
        project=dialect.project,  # type: ignore[attr-defined]
        job=CiJob(run_id="1", run_attempt=1),
        head_sha=HEAD,
        change_request=7,
    )
    return connect(event, TOKEN, sleep=lambda seconds: None, clock=lambda: 0.0)


def _issues(fake: FakeForge) -> IssueForge:
    return keeps_issues(_ours(fake))


def _pygithub(fake: FakeForge, token: str = TOKEN) -> github.Github:
    return github.Github(base_url=fake.api_url, auth=github.Auth.Token(token), retry=None, seconds_between_requests=None,
                         seconds_between_writes=None)  # fmt: skip


def _python_gitlab(fake: FakeForge, token: str = TOKEN) -> gitlab.Gitlab:
    return gitlab.Gitlab(fake.url, private_token=token, retry_transient_errors=False)


def test_pygithub__comments__each_reads_edits_and_deletes_what_the_other_wrote(hub: FakeForge) -> None:
    pull = _pygithub(hub).get_repo("team/model").get_pull(7)
    assert pull.head.sha == HEAD
    theirs = pull.create_issue_comment("theirs")
    ours = _ours(hub)
    ours.add_comment(7, "ours")
    assert [comment.body for comment in pull.get_issue_comments()] == ["theirs", "ours"]
    assert [(one.body, one.own) for one in ours.comments(7)] == [("theirs", True), ("ours", True)]
    ours.edit_comment(7, theirs.id, "edited")
    assert pull.get_issue_comment(theirs.id).body == "edited"
    theirs.delete()
    assert [comment.body for comment in ours.comments(7)] == ["ours"]


def test_pygithub__issues__what_we_keep_up_is_what_it_reads(hub: FakeForge) -> None:
    repository = _pygithub(hub, PERSON_TOKEN).get_repo("team/model")
    opened = repository.create_issue("theirs", body="text", labels=["other"])
    ours = _issues(hub)
    ours.add_issue("ours", "text", "perfgate")
    number = ours.issues("perfgate")[0].number
    ours.edit_issue(number, "closed", "closed")
    found = repository.get_issue(number)
    assert (found.title, found.body, found.state, [label.name for label in found.labels]) == (
        "ours", "closed", "closed", ["perfgate"],
    )  # fmt: skip
    opened.edit(state="closed")
    assert [issue.title for issue in repository.get_issues(state="open")] == []


def test_pygithub__status__ours_is_the_newest_of_the_commit(hub: FakeForge) -> None:
    _ours(hub).set_status(CommitStatus(HEAD, "failure", "perfgate", "slower", "https://forge.example/run"))
    requester = _pygithub(hub).requester
    (status,) = requester.requestJsonAndCheck("GET", f"/repos/team/model/commits/{HEAD}/statuses")[1]
    assert (status["state"], status["context"], status["description"]) == ("failure", "perfgate", "slower")


def test_pygithub__rights_that_the_token_lacks__refused_as_ours_are(hub: FakeForge) -> None:
    hub.rights.clear()
    repository = _pygithub(hub).get_repo("team/model")
    pull = repository.get_pull(7)
    for write in (lambda: pull.create_issue_comment("text"), lambda: repository.create_issue("title", body="text")):
        with pytest.raises(github.GithubException) as refused:
            write()
        assert refused.value.status == 403


def test_pygithub__comment_on_nothing__not_found(hub: FakeForge) -> None:
    with pytest.raises(github.UnknownObjectException):
        _pygithub(hub).get_repo("team/model").get_pull(8)


def test_python_gitlab__notes__each_reads_edits_and_deletes_what_the_other_wrote(lab: FakeForge) -> None:
    request = _python_gitlab(lab).projects.get(5, lazy=True).mergerequests.get(7)
    assert request.sha == HEAD
    theirs = request.notes.create({"body": "theirs"})
    ours = _ours(lab)
    ours.add_comment(7, "ours")
    assert [note.body for note in request.notes.list(iterator=True)] == ["theirs", "ours"]
    assert [(one.body, one.own) for one in ours.comments(7)] == [("theirs", True), ("ours", True)]
    ours.edit_comment(7, theirs.id, "edited")
    assert request.notes.get(theirs.id).body == "edited"
    request.notes.delete(theirs.id)
    assert [comment.body for comment in ours.comments(7)] == ["ours"]


def test_python_gitlab__notes_of_another__may_be_read_and_not_edited(lab: FakeForge) -> None:
    planted = lab.write(7, "of a person", PERSON)
    request = _python_gitlab(lab).projects.get("team/model", lazy=True).mergerequests.get(7, lazy=True)
    note = request.notes.get(planted.id)
    note.body = "mine now"
    with pytest.raises(gitlab.GitlabUpdateError) as refused:
        note.save()
    assert refused.value.response_code == 403


def test_python_gitlab__status__a_developers_is_a_job_of_the_pipeline_and_a_reporters_is_refused(
    lab: FakeForge,
) -> None:
    commit = _python_gitlab(lab).projects.get(5, lazy=True).commits.get(HEAD, lazy=True)
    status = {"state": "failed", "name": "perfgate", "description": "slower"}
    with pytest.raises(gitlab.GitlabCreateError) as refused:
        commit.statuses.create(status)
    assert refused.value.response_code == 403
    lab.membership = "developer"
    commit.statuses.create(status)
    assert [(one.name, one.status) for one in commit.statuses.list(iterator=True)] == [("perfgate", "failed")]
    assert [pipeline.jobs for pipeline in lab.pipelines] == [{"perfgate": "failed"}]


def test_python_gitlab__issues__what_we_keep_up_is_what_it_reads(lab: FakeForge) -> None:
    ours = _issues(lab)
    ours.add_issue("ours", "text", "perfgate")
    (issue,) = _python_gitlab(lab).projects.get(5, lazy=True).issues.list(labels="perfgate", iterator=True)
    assert (issue.title, issue.description, issue.state) == ("ours", "text", "opened")
    ours.edit_issue(issue.iid, "closed", "closed")
    assert _python_gitlab(lab).projects.get(5, lazy=True).issues.get(issue.iid).state == "closed"


def test_python_gitlab__note_that_only_orders__is_obeyed_and_not_written(lab: FakeForge) -> None:
    request = _python_gitlab(lab).projects.get(5, lazy=True).mergerequests.get(7, lazy=True)
    request.notes.create({"body": "/merge"})
    assert (lab.comments.get(7, []), lab.orders) == ([], [(BOT.login, "/merge")])


def test_python_gitlab__job_token__reads_notes_and_writes_none(lab: FakeForge) -> None:
    lab.job_tokens.add("glcbt-64_0123456789abcdef")
    client = gitlab.Gitlab(lab.url, job_token="glcbt-64_0123456789abcdef")
    request = client.projects.get(5, lazy=True).mergerequests.get(7)
    assert list(request.notes.list(iterator=True)) == []
    with pytest.raises(gitlab.GitlabAuthenticationError):
        request.notes.create({"body": "text"})
