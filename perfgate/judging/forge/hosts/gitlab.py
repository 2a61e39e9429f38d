"""GitLab: merge requests, notes, commit statuses (docs.gitlab.com, REST API v4)."""

from __future__ import annotations

from functools import cached_property
from typing import Optional
from urllib.parse import quote

import msgspec

from perfgate.errors import ForgeError
from perfgate.judging.forge.forge import ChangeRequest, CiEvent, Comment, CommitStatus, StatusState
from perfgate.judging.forge.http import ForgeSession, Query
from perfgate.judging.forge.limits import Clock, Sleep

NAME = "gitlab"
API_URL, SERVER_URL = "https://gitlab.com/api/v4", "https://gitlab.com"
# CI_JOB_TOKEN may not write notes or statuses (doc/ci/jobs/ci_job_token.md), so a project access token is needed.
TOKEN_VARIABLES = ("PERFGATE_TOKEN",)
# Commits API: description and target_url of a status are limited to 255 characters.
MAX_DESCRIPTION = 255
_STATES: dict[StatusState, str] = {"success": "success", "failure": "failed", "error": "failed", "pending": "pending"}


def connect(event: CiEvent, token: str, *, sleep: Sleep, clock: Clock) -> GitLab:
    """Return the project of an event."""
    session = ForgeSession(
        event.api_url, token, accept="application/json", sleep=sleep, clock=clock, ca_file=event.ca_file
    )
    return GitLab(session, event)


class _User(msgspec.Struct):
    id: int


class _Note(msgspec.Struct):
    id: int
    body: str
    author: _User
    system: bool = False


class _MergeRequest(msgspec.Struct):
    iid: int
    sha: Optional[str] = None


class _Ignored(msgspec.Struct):
    """An answer of which only the status counts."""


class GitLab:
    """One project on GitLab."""

    def __init__(self, session: ForgeSession, event: CiEvent) -> None:
        self._session = session
        self._event = event
        self._path = f"/projects/{quote(event.project, safe='')}"

    def find_change_request(self) -> Optional[ChangeRequest]:
        """Return the merge request the pipeline names; a branch pipeline has none."""
        number = self._event.change_request
        if number is None:
            return None
        found = self._session.get(f"{self._path}/merge_requests/{number}", _MergeRequest)
        return ChangeRequest(number=found.iid, head_sha=found.sha or "")

    def comments(self, number: int) -> list[Comment]:
        """Return the notes of a merge request; those GitLab itself writes (``system``) are left out."""
        query: Query = {"per_page": 100, "sort": "asc", "order_by": "created_at"}
        notes = self._session.pages(self._notes(number), _Note, query=query)
        return [self._comment(note) for note in notes if not note.system]

    def add_comment(self, number: int, body: str) -> None:
        """Write a new note."""
        self._session.send("POST", self._notes(number), {"body": body}, _Ignored, expect=201, repeatable=False)

    def edit_comment(self, number: int, comment_id: int, body: str) -> None:
        """Replace a note's text."""
        path = f"{self._notes(number)}/{comment_id}"
        self._session.send("PUT", path, {"body": body}, _Ignored, expect=200, repeatable=True)

    def delete_comment(self, number: int, comment_id: int) -> None:
        """Delete a note."""
        self._session.delete(f"{self._notes(number)}/{comment_id}")

    def set_status(self, status: CommitStatus) -> None:
        """Mark a commit.

        GitLab refuses a status that stands already with 400 "Cannot transition status via ..." (gitlab-foss issue
        25807): a repeated job sees that, and nothing is wrong then.
        """
        body = {
            "state": _STATES[status.state],
            "name": status.name,
            "description": status.description[:MAX_DESCRIPTION],
        }
        if status.url and len(status.url) <= MAX_DESCRIPTION:
            body["target_url"] = status.url
        path = f"{self._path}/statuses/{quote(status.sha, safe='')}"
        words = self._session.refusal("POST", path, body, expect=201, refused=400)
        if words is not None and "Cannot transition status" not in words:
            raise ForgeError(f"the status of commit {status.sha[:12]} was refused: {words[:300]!r}")

    @cached_property
    def _user_id(self) -> int:
        """The account of the token; a project access token has a bot user of its own."""
        return self._session.get("/user", _User).id

    def _notes(self, number: int) -> str:
        return f"{self._path}/merge_requests/{number}/notes"

    def _comment(self, note: _Note) -> Comment:
        return Comment(id=note.id, body=note.body, own=note.author.id == self._user_id)
