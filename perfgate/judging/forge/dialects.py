"""Comments and commit statuses by GitHub's API; forges with a similar one are dialects
of it (plugins/perfgate-forges).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal
from urllib.parse import quote

from perfgate.errors import ForgeSettingError
from perfgate.judging.forge.forge import CiEvent, Comment, CommitStatus
from perfgate.judging.forge.http import ForgeSession
from perfgate.judging.forge.payloads import PostedComment, User


@dataclass(frozen=True)
class Dialect:
    """The differences of one forge. ``talk`` is the API path that holds the comments of
    a change request.

    ``max_description`` is the longest description of a commit status, in characters.
    """

    name: str
    talk: Literal["issues", "pulls"]
    max_description: int


class DialectForge:
    """One repository on a forge, as far as all dialects share it."""

    def __init__(self, session: ForgeSession, event: CiEvent, dialect: Dialect) -> None:
        owner, slash, name = event.project.partition("/")
        if not (owner and slash and name) or "/" in name:
            raise ForgeSettingError(
                "a {forge} repository reads OWNER/NAME, found {project!r}",
                forge=dialect.name,
                project=event.project,
            )
        self._session = session
        self._event = event
        self._dialect = dialect
        self._path = f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}"
        self._talk = f"{self._path}/{dialect.talk}"

    def comments(self, number: int) -> list[Comment]:
        comments = self._session.pages(
            f"{self._talk}/{number}/comments", PostedComment, query={"per_page": 100}
        )
        return [
            Comment(comment.id, comment.body or "", self._is_own(comment.user))
            for comment in comments
        ]

    def edit_comment(self, number: int, comment_id: int, body: str) -> None:  # noqa: ARG002 - found by its id alone
        self._session.replace(
            "PATCH", f"{self._talk}/comments/{comment_id}", {"body": body}
        )

    def delete_comment(self, number: int, comment_id: int) -> None:  # noqa: ARG002 - found by its id alone
        self._session.delete(f"{self._talk}/comments/{comment_id}")

    def set_status(self, status: CommitStatus) -> None:
        body = {
            "state": status.state,
            "context": status.name,
            "description": status.description[: self._dialect.max_description],
        }
        if status.url:
            body["target_url"] = status.url
        path = f"{self._path}/statuses/{quote(status.sha, safe='')}"
        self._session.send("POST", path, body, dict, expect=201, repeatable=True)

    @cached_property
    def _login(self) -> str:
        """The account of the token: comments that it wrote are ours."""
        return self._session.get("/user", User).login

    def _is_own(self, user: User | None) -> bool:
        return user is not None and user.login == self._login
