"""GitHub and GitHub Enterprise Server: pull requests, issue comments, commit statuses (docs.github.com, REST API)."""

from __future__ import annotations

from functools import cached_property
from typing import Optional
from urllib.parse import quote

import msgspec

from perfgate.errors import ForgeError
from perfgate.judging.forge.forge import ChangeRequest, CiEvent, Comment, CommitStatus
from perfgate.judging.forge.http import ForgeSession, Query
from perfgate.judging.forge.limits import Clock, Sleep

NAME = "github"
API_URL, SERVER_URL = "https://api.github.com", "https://github.com"
TOKEN_VARIABLES = ("PERFGATE_TOKEN", "GITHUB_TOKEN")
# Commit statuses, "description": GitHub refuses more than 140 characters.
MAX_DESCRIPTION = 140


def connect(event: CiEvent, token: str, *, sleep: Sleep, clock: Clock) -> GitHub:
    """Return the repository of an event."""
    session = ForgeSession(event.api_url, token, accept="application/vnd.github+json", sleep=sleep, clock=clock)
    return GitHub(session, event)


class _User(msgspec.Struct):
    login: str
    type: str = "User"


class _Comment(msgspec.Struct):
    id: int
    body: Optional[str] = None
    user: Optional[_User] = None


class _Head(msgspec.Struct):
    sha: str


class _Pull(msgspec.Struct):
    number: int
    head: _Head
    merge_commit_sha: Optional[str] = None


class _Ignored(msgspec.Struct):
    """An answer of which only the status counts."""


class GitHub:
    """One repository on GitHub."""

    def __init__(self, session: ForgeSession, event: CiEvent) -> None:
        owner, slash, name = event.project.partition("/")
        if not (owner and slash and name) or "/" in name:
            raise ForgeError(f"a GitHub repository reads OWNER/NAME, found {event.project!r}")
        self._session = session
        self._event = event
        self._path = f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}"

    def find_change_request(self) -> Optional[ChangeRequest]:
        """Return the open pull request whose head is the event's.

        Asked by branch: the list of a commit's pull requests leaves out those from forks. Several open pull requests
        can have the same head; the newest is taken.
        """
        event = self._event
        if event.change_request is not None:
            return _change_request(self._session.get(f"{self._path}/pulls/{event.change_request}", _Pull))
        if not (event.owner and event.branch):
            return None
        query: Query = {"state": "open", "head": f"{event.owner}:{event.branch}", "per_page": 100}
        pulls = self._session.pages(f"{self._path}/pulls", _Pull, query=query)
        found = [pull for pull in pulls if pull.head.sha == event.head_sha]
        return _change_request(max(found, key=lambda pull: pull.number)) if found else None

    def comments(self, number: int) -> list[Comment]:
        """Return all comments of a pull request's conversation."""
        path = f"{self._path}/issues/{number}/comments"
        return [self._comment(found) for found in self._session.pages(path, _Comment, query={"per_page": 100})]

    def add_comment(self, number: int, body: str) -> None:
        """Write a new comment."""
        path = f"{self._path}/issues/{number}/comments"
        self._session.send("POST", path, {"body": body}, _Ignored, expect=201, repeatable=False)

    def edit_comment(self, number: int, comment_id: int, body: str) -> None:  # noqa: ARG002 - GitHub needs no number
        """Replace a comment's text."""
        path = f"{self._path}/issues/comments/{comment_id}"
        self._session.send("PATCH", path, {"body": body}, _Ignored, expect=200, repeatable=True)

    def delete_comment(self, number: int, comment_id: int) -> None:  # noqa: ARG002 - GitHub needs no number
        """Delete a comment."""
        self._session.delete(f"{self._path}/issues/comments/{comment_id}")

    def set_status(self, status: CommitStatus) -> None:
        """Mark a commit."""
        body = {"state": status.state, "context": status.name, "description": status.description[:MAX_DESCRIPTION]}
        if status.url:
            body["target_url"] = status.url
        path = f"{self._path}/statuses/{quote(status.sha, safe='')}"
        self._session.send("POST", path, body, _Ignored, expect=201, repeatable=True)

    @cached_property
    def _login(self) -> Optional[str]:
        """The account of the token; None for the token of an app, GITHUB_TOKEN among them, which may not ask (403)."""
        answer = self._session.get_unless_refused("/user", _User, refused=403)
        return answer.login if answer else None

    def _comment(self, found: _Comment) -> Comment:
        return Comment(id=found.id, body=found.body or "", own=self._is_own(found.user))

    def _is_own(self, user: Optional[_User]) -> bool:
        if user is None:
            return False
        return user.login == self._login if self._login else user.type == "Bot"


def _change_request(pull: _Pull) -> ChangeRequest:
    return ChangeRequest(number=pull.number, head_sha=pull.head.sha, merge_sha=pull.merge_commit_sha)
