"""One adapter for the forges with an API similar to GitHub's; their differences are
settings.

None of the servers was available for testing. Sources: Gitee: its own command line
client (oschina/gitee-cli, pkg/gitee: Bearer, paths, pages without links). GitCode: the
SDK gitcode-api on PyPI, which the tests run against the same fake server as this
adapter. Gitea and Forgejo: their API documentation (/api/swagger).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar
from urllib.parse import quote

import msgspec

from perfgate.errors import (
    ForgeError,
    ForgeHasNoArtifactsError,
    ForgeHasNoStatusesError,
)
from perfgate.judging.forge.dialects import Dialect, DialectForge
from perfgate.judging.forge.forge import (
    ChangeRequest,
    CiEvent,
    Comment,
    CommitStatus,
    ForgeArtifact,
    Sleep,
    WallClock,
)
from perfgate.judging.forge.http import MAX_PAGES, ForgeSession, Query
from perfgate.judging.forge.orders import CommentEvent, CommentPlace, OrderedChange
from perfgate.judging.forge.payloads import User

T = TypeVar("T")

PAGE_SIZE = 100


@dataclass(frozen=True)
class SimilarDialect(Dialect):
    """A dialect whose lists have numbered pages.

    ``scheme`` is the word before the token in a request's header.

    ``pushing`` are the permissions with push access, and ``head_ref`` is the git
    reference of a pull request's head.
    """

    pushing: frozenset[str] = frozenset({"write", "admin"})
    head_ref: str = "refs/pull/{number}/head"
    max_description: int = 255
    page_size: Literal["per_page", "limit"] = "per_page"
    scheme: Literal["Bearer", "token"] = "Bearer"
    has_statuses: bool = False


class _Account(User):
    # Gitea's payloads have none.
    type: str = "User"


class _Comment(msgspec.Struct):
    # GitCode's SDK types it as number or text.
    id: int | str
    body: str | None = None
    user: _Account | None = None
    created_at: str | None = None
    updated_at: str | None = None


class _Repository(msgspec.Struct):
    full_name: str | None = None


class _Head(msgspec.Struct):
    sha: str
    # Null once the fork is deleted.
    repo: _Repository | None = None


class _Pull(msgspec.Struct):
    number: int
    head: _Head
    base: _Head | None = None
    state: str = "open"
    user: User | None = None


class _Permission(msgspec.Struct):
    permission: str | None = None


def connect_similar(
    event: CiEvent,
    token: str,
    dialect: SimilarDialect,
    *,
    sleep: Sleep,
    clock: WallClock,
) -> SimilarForge:
    session = ForgeSession(
        event.host.api_url,
        token,
        accept="application/json",
        sleep=sleep,
        clock=clock,
        ca_file=event.host.ca_file,
        scheme=dialect.scheme,
    )
    return SimilarForge(session, event, dialect)


class SimilarForge(DialectForge):
    """One repository on a forge with a GitHub-like API."""

    _dialect: SimilarDialect

    def find_change_request(self, *, prefer: int | None = None) -> ChangeRequest | None:
        number = self._event.change_request
        if number is not None:
            return _change_request(
                self._session.get(f"{self._path}/pulls/{number}", _Pull)
            )
        pulls = self._all(
            f"{self._path}/pulls", _Pull, lambda pull: pull.number, state="open"
        )
        candidates = {
            pull.number: pull for pull in pulls if pull.head.sha == self._event.head_sha
        }
        if not candidates:
            return None
        return _change_request(
            candidates[prefer if prefer in candidates else max(candidates)]
        )

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
        """Raise ForgeHasNoArtifactsError: artifacts are stored by the CI, not by these
        forges.
        """
        raise ForgeHasNoArtifactsError(
            f"perfgate fetches no artifacts from {self._dialect.name}; bring the check folder here and name it: "
            "perfgate publish DIR"
        )

    def download(self, artifact: ForgeArtifact) -> bytes:
        raise ForgeError(
            f"perfgate fetches no artifacts from {self._dialect.name}: {artifact.name[:40]!r}"
        )

    def comments(self, number: int) -> list[Comment]:
        comments = self._all(f"{self._talk}/{number}/comments", _Comment, self._id)
        return [
            Comment(self._id(comment), comment.body or "", self._is_own(comment.user))
            for comment in comments
        ]

    def add_comment(self, number: int, body: str) -> None:
        """Write a new comment.

        The id in the answer is ignored: on GitCode it may be that of a discussion.
        """
        path = f"{self._talk}/{number}/comments"
        self._session.send(
            "POST", path, {"body": body}, dict, expect=(201, 200), repeatable=False
        )

    def set_status(self, status: CommitStatus) -> None:
        if not self._dialect.has_statuses:
            raise ForgeHasNoStatusesError(
                f"perfgate cannot set a commit status on {self._dialect.name}; the comment and this job's exit code carry "
                "the verdict"
            )
        super().set_status(status)

    def ordered_comment(self, place: CommentPlace) -> CommentEvent | None:
        """The comment among those of the change request, whatever started the job
        claims of it; None if it is not there.
        """
        comments = self._all(
            f"{self._talk}/{place.number}/comments", _Comment, self._id
        )
        comment = next(
            (one for one in comments if self._id(one) == place.comment_id), None
        )
        if comment is None:
            return None
        user = comment.user
        return CommentEvent(
            number=place.number,
            body=comment.body or "",
            author=user.login if user else "",
            bot=user is None or user.type != "User" or self._is_own(user),
            edited=comment.updated_at not in (None, comment.created_at),
        )

    def ordered_change(self, number: int) -> OrderedChange:
        """The pull request; one that does not name this repository as its source counts
        as one from a fork.
        """
        pull = self._session.get(f"{self._path}/pulls/{number}", _Pull)
        source = (pull.head.repo.full_name if pull.head.repo else None) or ""
        return OrderedChange(
            number=pull.number,
            head_sha=pull.head.sha,
            base_sha=pull.base.sha if pull.base else "",
            is_open=pull.state == "open",
            from_fork=source.lower() != self._event.project.lower(),
            author=pull.user.login if pull.user else None,
            ref=self._dialect.head_ref.format(number=pull.number),
        )

    def may_push(self, login: str) -> bool:
        """Whether an account may push; Gitea answers this to the tokens of
        administrators of the repository alone.
        """
        path = f"{self._path}/collaborators/{quote(login, safe='')}/permission"
        answer = self._session.get_unless_refused(path, _Permission, refused=404)
        return answer is not None and answer.permission in self._dialect.pushing

    def _all(
        self, path: str, kind: type[T], key: Callable[[T], int], **query: str
    ) -> list[T]:
        """The elements of a list, up to the first page that brings nothing new; ``key``
        distinguishes them.
        """
        elements: dict[int, T] = {}
        for page in self._pages(path, kind, **query):
            before = len(elements)
            elements.update({key(element): element for element in page})
            if len(elements) == before:
                break
        return list(elements.values())

    def _pages(self, path: str, kind: type[T], **query: str) -> Iterator[list[T]]:
        for number in range(1, MAX_PAGES + 1):
            numbered: Query = {
                **query,
                self._dialect.page_size: PAGE_SIZE,
                "page": number,
            }
            yield self._session.get(path, list[kind], query=numbered)  # type: ignore[valid-type]  # made here, for msgspec
        raise ForgeError(f"{path} has more than {MAX_PAGES} pages; perfgate stops here")

    def _id(self, comment: _Comment) -> int:
        text = str(comment.id)
        if not (text.isascii() and text.isdecimal()):
            raise ForgeError(
                f"{self._dialect.name} numbers a comment {text[:40]!r}; perfgate knows whole numbers only"
            )
        return int(text)


def _change_request(pull: _Pull) -> ChangeRequest:
    base = pull.base.sha if pull.base else None
    return ChangeRequest(pull.number, pull.head.sha, base_sha=base)
