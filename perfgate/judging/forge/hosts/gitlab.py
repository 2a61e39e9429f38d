"""GitLab: merge requests, notes, commit statuses (docs.gitlab.com, REST API v4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Literal
from urllib.parse import quote

import msgspec

from perfgate.errors import ForgeError
from perfgate.judging.forge.forge import (
    ChangeRequest,
    CiEvent,
    Comment,
    CommitStatus,
    ForgeArtifact,
    Sleep,
    StatusState,
    WallClock,
)
from perfgate.judging.forge.http import ForgeSession, Query
from perfgate.judging.forge.issues import Issue
from perfgate.judging.forge.orders import CommentEvent, CommentPlace, OrderedChange

NAME = "gitlab"
API_URL, SERVER_URL = "https://gitlab.com/api/v4", "https://gitlab.com"
LINE = "{repository}/-/blob/{commit}/{path}#L{line}"
# CI_JOB_TOKEN may not write notes or statuses (doc/ci/jobs/ci_job_token.md), so a
# project access token is needed.
TOKEN_VARIABLES = ("PERFGATE_TOKEN",)
# Commits API: description and target_url of a status are limited to 255 characters.
MAX_DESCRIPTION = 255
# project_policy.rb: `create_commit_status` needs Developer since MR !224 of 2016; notes
# need Reporter.
RIGHTS = (
    "give it the scope api and, in the project of the merge request, the role Reporter for notes and issues, Developer for "
    "commit statuses and for a branch"
)
# Members API, "Roles".
_DEVELOPER = 30
# The accounts of access tokens (docs.gitlab.com, "Project access tokens", "Bot users
# for projects").
_BOT = re.compile(r"(?:project|group)_[0-9]+_bot(?:_|$)")
_STATES: dict[StatusState, str] = {
    "success": "success",
    "failure": "failed",
    "error": "failed",
    "pending": "pending",
}


def connect(event: CiEvent, token: str, *, sleep: Sleep, clock: WallClock) -> GitLab:
    session = ForgeSession(
        event.host.api_url,
        token,
        accept="application/json",
        sleep=sleep,
        clock=clock,
        ca_file=event.host.ca_file,
        rights=RIGHTS,
    )
    return GitLab(session, event)


class _User(msgspec.Struct):
    id: int
    username: str = ""


class _Note(msgspec.Struct):
    id: int
    body: str
    author: _User
    system: bool = False
    created_at: str = ""
    updated_at: str = ""


class _Issue(msgspec.Struct):
    iid: int
    state: str
    author: _User
    description: str | None = None


class _MergeRequest(msgspec.Struct):
    iid: int
    state: str
    target_branch: str
    source_branch: str
    sha: str | None = None
    diff_refs: dict[str, str | None] | None = None
    changes_count: str | None = None
    author: _User | None = None
    source_project_id: int | None = None
    target_project_id: int | None = None


class _Diff(msgspec.Struct):
    old_path: str
    new_path: str


class _Archive(msgspec.Struct):
    filename: str
    size: int = 0


class _Job(msgspec.Struct):
    id: int
    artifacts_file: _Archive | None = None


class GitLab:
    """One project on GitLab."""

    def __init__(self, session: ForgeSession, event: CiEvent) -> None:
        self._session = session
        self._event = event
        self._path = f"/projects/{quote(event.project, safe='')}"

    def find_change_request(self, *, prefer: int | None = None) -> ChangeRequest | None:  # noqa: ARG002 - it has one
        """The merge request the pipeline names; a branch pipeline has none."""
        number = self._event.change_request
        if number is None:
            return None
        request = self._merge_request(number)
        return ChangeRequest(
            number=request.iid,
            head_sha=request.sha or "",
            target=request.target_branch,
            base_sha=(request.diff_refs or {}).get("base_sha") or None,
        )

    def changed_files(self, number: int) -> list[str] | None:
        """The paths a merge request touches; None if its diff is too large for GitLab
        to list them all.

        Beyond an instance's limits (files or lines), the list is truncated silently,
        and the count of the merge request reads "1000+" (docs.gitlab.com, Merge
        requests API, "List merge request diffs" and "Retrieve a merge request").
        """
        path = f"{self._path}/merge_requests/{number}/diffs"
        diffs = list(self._session.pages(path, _Diff, query={"per_page": 100}))
        if self._merge_request(number).changes_count != str(len(diffs)):
            return None
        return sorted(
            {diff.old_path for diff in diffs} | {diff.new_path for diff in diffs}
        )

    def merge_base(self, first: str, second: str) -> str | None:
        path = f"{self._path}/repository/merge_base"
        return self._session.get(
            path, str, query={"refs[]": [first, second]}, field="id"
        )

    def parents(self, sha: str) -> list[str] | None:
        path = f"{self._path}/repository/commits/{quote(sha, safe='')}"
        return self._session.get(path, list[str], field="parent_ids")

    def artifacts(self) -> list[ForgeArtifact]:
        """The archives of the jobs of the event's pipeline, named as in the jobs.

        The pipeline belongs to the project it runs in, which for a merge request from a
        fork may be the fork.
        """
        path = f"{self._pipeline_project}/pipelines/{quote(self._event.job.run_id, safe='')}/jobs"
        jobs = self._session.pages(
            path, _Job, query={"per_page": 100, "include_retried": "true"}
        )
        pages_of_jobs = f"{self._event.host.server_url}/{self._event.repository}/-/jobs"
        return [
            ForgeArtifact(
                job.id,
                job.artifacts_file.filename.removesuffix(".zip"),
                job.artifacts_file.size,
                url=f"{pages_of_jobs}/{job.id}/artifacts/browse",
                files_url=f"{pages_of_jobs}/{job.id}/artifacts/file/",
            )
            for job in jobs
            if job.artifacts_file is not None
        ]

    def download(self, artifact: ForgeArtifact) -> bytes:
        return self._session.download(
            f"{self._pipeline_project}/jobs/{artifact.id}/artifacts"
        )

    @property
    def _pipeline_project(self) -> str:
        return f"/projects/{quote(self._event.repository, safe='')}"

    def comments(self, number: int) -> list[Comment]:
        """The notes of a merge request; those written by GitLab itself (``system``) are
        omitted.
        """
        query: Query = {"per_page": 100, "sort": "asc", "order_by": "created_at"}
        notes = self._session.pages(self._notes(number), _Note, query=query)
        return [
            Comment(note.id, note.body, own=note.author.id == self._user_id)
            for note in notes
            if not note.system
        ]

    def add_comment(self, number: int, body: str) -> None:
        self._session.send(
            "POST",
            self._notes(number),
            {"body": body},
            dict,
            expect=201,
            repeatable=False,
        )

    def edit_comment(self, number: int, comment_id: int, body: str) -> None:
        self._session.replace(
            "PUT", f"{self._notes(number)}/{comment_id}", {"body": body}
        )

    def delete_comment(self, number: int, comment_id: int) -> None:
        self._session.delete(f"{self._notes(number)}/{comment_id}")

    def set_status(self, status: CommitStatus) -> None:
        """Set the status of a commit.

        GitLab refuses a status that is already set with 400 "Cannot transition status
        via ..." (gitlab-foss issue 25807). A repeated job gets this answer; it is not
        an error.
        """
        description = status.description[:MAX_DESCRIPTION]
        body = {
            "state": _STATES[status.state],
            "name": status.name,
            "description": description,
        }
        if status.url and len(status.url) <= MAX_DESCRIPTION:
            body["target_url"] = status.url
        path = f"{self._path}/statuses/{quote(status.sha, safe='')}"
        words = self._session.refusal("POST", path, body, expect=201, refused=400)
        if words is not None and "Cannot transition status" not in words:
            raise ForgeError(
                "the status of commit {sha} was refused: {words!r}",
                sha=status.sha[:12],
                words=words[:300],
            )

    def issues(self, label: str) -> list[Issue]:
        query: Query = {"labels": label, "state": "all", "per_page": 100}
        issues = self._session.pages(f"{self._path}/issues", _Issue, query=query)
        return [
            Issue(
                i.iid,
                i.description or "",
                own=i.author.id == self._user_id,
                is_open=i.state == "opened",
            )
            for i in issues
        ]

    def add_issue(self, title: str, body: str, label: str) -> None:
        """Open a new issue; GitLab creates a missing label."""
        sent = {"title": title, "description": body, "labels": label}
        self._session.send(
            "POST", f"{self._path}/issues", sent, dict, expect=201, repeatable=False
        )

    def edit_issue(
        self, number: int, body: str, state: Literal["open", "closed"] | None = None
    ) -> None:
        event = {
            "open": {"state_event": "reopen"},
            "closed": {"state_event": "close"},
            None: {},
        }[state]
        sent = {"description": body, **event}
        self._session.send(
            "PUT",
            f"{self._path}/issues/{number}",
            sent,
            dict,
            expect=200,
            repeatable=True,
        )

    def comment_issue(self, number: int, body: str) -> None:
        """Write a note below an issue (docs.gitlab.com, Notes API, "Create an issue
        note").
        """
        path = f"{self._path}/issues/{number}/notes"
        self._session.send(
            "POST", path, {"body": body}, dict, expect=201, repeatable=False
        )

    def ordered_comment(self, place: CommentPlace) -> CommentEvent | None:
        """A note of a merge request as it is now, whatever started the pipeline claims
        of it; None if it was deleted.
        """
        path = f"{self._notes(place.number)}/{place.comment_id}"
        note = self._session.get_unless_refused(path, _Note, refused=404)
        if note is None:
            return None
        author = note.author
        return CommentEvent(
            number=place.number,
            body=note.body,
            author=author.username,
            bot=note.system
            or author.id == self._user_id
            or _BOT.match(author.username) is not None,
            edited=note.updated_at != note.created_at,
        )

    def ordered_change(self, number: int) -> OrderedChange:
        request = self._merge_request(number)
        return OrderedChange(
            number=request.iid,
            head_sha=request.sha or "",
            base_sha=(request.diff_refs or {}).get("base_sha") or "",
            is_open=request.state == "opened",
            from_fork=request.source_project_id is None
            or request.source_project_id != request.target_project_id,
            author=request.author.username if request.author else None,
            ref=f"refs/merge-requests/{request.iid}/head",
            branch=request.source_branch,
        )

    def start_pipeline(self, branch: str, variables: Mapping[str, str]) -> str:
        """Start a pipeline of a branch (docs.gitlab.com, Pipelines API, "Create a new
        pipeline").

        A project may reserve variables for higher roles, and its `workflow:rules` may
        leave such pipelines out: both are refused with 400.
        """
        body = {
            "ref": branch,
            "variables": [
                {"key": name, "value": value} for name, value in variables.items()
            ],
        }
        path = f"{self._path}/pipeline"
        number = self._session.send(
            "POST", path, body, int, expect=201, repeatable=False, field="id"
        )
        return f"{self._event.host.server_url}/{self._event.repository}/-/pipelines/{number}"

    def may_push(self, login: str) -> bool:
        """Whether an account may push, from the role Developer on (docs.gitlab.com,
        "Roles and permissions").
        """
        users = [
            user
            for user in self._session.pages("/users", _User, query={"username": login})
            if user.username == login
        ]
        if len(users) != 1:
            return False
        path = f"{self._path}/members/all/{users[0].id}"
        level = self._session.get_unless_refused(
            path, int, refused=404, field="access_level"
        )
        return level is not None and level >= _DEVELOPER

    @cached_property
    def _user_id(self) -> int:
        """The account of the token; a project access token has its own bot user."""
        return self._session.get("/user", _User).id

    def _merge_request(self, number: int) -> _MergeRequest:
        return self._session.get(f"{self._path}/merge_requests/{number}", _MergeRequest)

    def _notes(self, number: int) -> str:
        return f"{self._path}/merge_requests/{number}/notes"
