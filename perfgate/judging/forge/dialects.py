"""One adapter for GitHub and the forges with a similar API; their differences are settings.

None of the other servers was available for testing. Sources: Gitee: its own command line client (oschina/gitee-cli,
pkg/gitee: Bearer, paths, pages without links). GitCode: the SDK gitcode-api on PyPI, which the tests run against the same
fake server as this adapter. Gitea and Forgejo: their API documentation (/api/swagger).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar
from urllib.parse import quote

import msgspec

from perfgate.errors import ForgeError, ForgeHasNoStatusesError, ForgeSettingError
from perfgate.judging.forge.forge import ChangeRequest, CiEvent, Clock, Comment, CommitStatus, ForgeArtifact, Sleep
from perfgate.judging.forge.http import ForgeSession, Ignored

T = TypeVar("T")

PAGE_SIZE = 100


@dataclass(frozen=True)
class Dialect:
    """The differences of one forge. ``talk`` is the API path that holds the comments of a change request.

    ``max_description`` is the longest description of a commit status, in characters.
    """

    name: str
    talk: Literal["issues", "pulls"]
    page_size: Literal["per_page", "limit"]
    scheme: Literal["Bearer", "token"]
    has_statuses: bool
    max_description: int = 255


class User(msgspec.Struct):
    """An account of the forge."""

    login: str


class _Comment(msgspec.Struct):
    # GitCode's SDK types it as number or text.
    id: int | str
    body: str | None = None
    user: User | None = None


class _Head(msgspec.Struct):
    sha: str


class _Pull(msgspec.Struct):
    number: int
    head: _Head
    base: _Head | None = None
    state: str = "open"


def connect_dialect(event: CiEvent, token: str, dialect: Dialect, *, sleep: Sleep, clock: Clock) -> DialectForge:
    session = ForgeSession(
        event.api_url,
        token,
        accept="application/json",
        sleep=sleep,
        clock=clock,
        ca_file=event.ca_file,
        scheme=dialect.scheme,
    )
    return DialectForge(session, event, dialect)


class DialectForge:
    """One repository on a forge with a GitHub-like API."""

    def __init__(self, session: ForgeSession, event: CiEvent, dialect: Dialect) -> None:
        owner, slash, name = event.project.partition("/")
        if not (owner and slash and name) or "/" in name:
            raise ForgeSettingError(f"a {dialect.name} repository reads OWNER/NAME, found {event.project!r}")
        self._session = session
        self._event = event
        self._dialect = dialect
        self._path = f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}"

    def find_change_request(self, *, prefer: int | None = None) -> ChangeRequest | None:
        number = self._event.change_request
        if number is not None:
            return _change_request(self._session.get(f"{self._path}/pulls/{number}", _Pull))
        pulls = self._all(f"{self._path}/pulls", _Pull, lambda pull: pull.number, state="open")
        candidates = {pull.number: pull for pull in pulls if pull.head.sha == self._event.head_sha}
        if not candidates:
            return None
        return _change_request(candidates[prefer if prefer in candidates else max(candidates)])

    def changed_files(self, number: int) -> list[str] | None:  # noqa: ARG002 - the same for all
        """Return None: the maximum length of these forges' file lists is untested."""
        return None

    def merge_base(self, first: str, second: str) -> str | None:  # noqa: ARG002 - the same for all
        """Return None: this part of the API is untested."""
        return None

    def parents(self, sha: str) -> list[str] | None:  # noqa: ARG002 - the same for all
        """Return None: this part of the API is untested."""
        return None

    def artifacts(self) -> list[ForgeArtifact]:
        """Raise ForgeError: artifacts are stored by the CI, not by these forges."""
        raise ForgeError(
            f"perfgate fetches no artifacts from {self._dialect.name}; bring the check folder here and name it: "
            "perfgate publish DIR"
        )

    def download(self, artifact: ForgeArtifact) -> bytes:
        raise ForgeError(f"perfgate fetches no artifacts from {self._dialect.name}: {artifact.name[:40]!r}")

    def comments(self, number: int) -> list[Comment]:
        path = f"{self._path}/{self._dialect.talk}/{number}/comments"
        comments = self._all(path, _Comment, self._id)
        return [Comment(self._id(comment), comment.body or "", self._is_own(comment.user)) for comment in comments]

    def add_comment(self, number: int, body: str) -> None:
        """Write a new comment. The id in the answer is ignored: on GitCode it may be that of a discussion."""
        path = f"{self._path}/{self._dialect.talk}/{number}/comments"
        self._session.send("POST", path, {"body": body}, Ignored, expect=(201, 200), repeatable=False)

    def edit_comment(self, number: int, comment_id: int, body: str) -> None:  # noqa: ARG002 - found by its id alone
        self._session.replace("PATCH", self._one(comment_id), {"body": body})

    def delete_comment(self, number: int, comment_id: int) -> None:  # noqa: ARG002 - found by its id alone
        self._session.delete(self._one(comment_id))

    def set_status(self, status: CommitStatus) -> None:
        if not self._dialect.has_statuses:
            raise ForgeHasNoStatusesError(
                f"perfgate knows no commit status on {self._dialect.name}; the comment and this job's exit code say the same"
            )
        body = {
            "state": status.state,
            "context": status.name,
            "description": status.description[: self._dialect.max_description],
        }
        if status.url:
            body["target_url"] = status.url
        path = f"{self._path}/statuses/{quote(status.sha, safe='')}"
        self._session.send("POST", path, body, Ignored, expect=201, repeatable=True)

    @cached_property
    def _login(self) -> str:
        """The account of the token: comments that it wrote are ours."""
        return self._session.get("/user", User).login

    def _all(self, path: str, kind: type[T], key: Callable[[T], int], **query: str) -> list[T]:
        elements: dict[int, T] = {}
        for page in self._session.numbered_pages(path, kind, query={**query, self._dialect.page_size: PAGE_SIZE}):
            before = len(elements)
            elements.update({key(element): element for element in page})
            if len(elements) == before:
                break
        return list(elements.values())

    def _one(self, comment_id: int) -> str:
        return f"{self._path}/{self._dialect.talk}/comments/{comment_id}"

    def _id(self, comment: _Comment) -> int:
        text = str(comment.id)
        if not (text.isascii() and text.isdecimal()):
            raise ForgeError(f"{self._dialect.name} numbers a comment {text[:40]!r}; perfgate knows whole numbers only")
        return int(text)

    def _is_own(self, user: User | None) -> bool:
        return user is not None and user.login == self._login


def _change_request(pull: _Pull) -> ChangeRequest:
    base = pull.base.sha if pull.base else None
    return ChangeRequest(pull.number, pull.head.sha, base_sha=base, open=pull.state == "open")
