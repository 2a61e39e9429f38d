"""What every forge can do for the gate, in words that belong to none of them: change request, comment, status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Literal, Protocol
from urllib.parse import quote

import msgspec

from perfgate.document.run import CiContext
from perfgate.errors import UsageError
from perfgate.judging.forge import hosts
from perfgate.plugins import FORGES, load_member, member_names

# Seconds to wait, and seconds since the epoch: doors, so that tests wait for nothing.
Sleep = Callable[[float], None]
Clock = Callable[[], float]
StatusState = Literal["success", "failure", "pending", "error"]
# The login of the token's account, where the forge does not tell it: of an app of one's own on GitHub.
ACCOUNT_VARIABLE = "PERFGATE_LOGIN"


@dataclass(frozen=True)
class CiEvent:
    """What the CI job's environment says about itself. It is trusted: artifacts and comments are checked against it.

    ``project`` is how the API names the repository that gets the comment (``owner/name``, or a number on GitLab);
    ``repository`` the one the pipeline runs in. ``head_sha`` is the commit under review and ``built_sha`` the one that
    CI checked out (a merge of head into base, on a change request). ``owner`` and ``branch`` find the change request
    where the event does not name it. ``base_sha`` is the commit that a merge queue puts ``head_sha`` on. ``measured`` is how
    the measuring job ended, where the CI says so. ``is_check`` says that the job's own pipeline is what the forge holds a
    change request to, so that no commit status is wanted. ``account`` is whom the token belongs to, where the forge does not
    say that.
    """

    forge: str
    api_url: str
    server_url: str
    repository: str
    project: str
    run_id: str
    run_attempt: int
    head_sha: str
    built_sha: str | None = None
    change_request: int | None = None
    owner: str | None = None
    branch: str | None = None
    base_sha: str | None = None
    measured: str | None = None
    is_check: bool = False
    job_url: str | None = None
    artifact_url: str | None = None
    report_url: str | None = None
    ca_file: str | None = None
    account: str | None = None

    def context(self) -> CiContext:
        return msgspec.convert(self, CiContext, from_attributes=True)


@dataclass(frozen=True)
class ChangeRequest:
    """A pull or merge request; ``merge_sha`` is the forge's test merge of it, where there is one.

    ``target`` is the branch it is to be merged into and ``base_sha`` the commit of it that the forge compares the change
    with; None where the forge does not say. ``from_fork`` is None where it does not say that.
    """

    number: int
    head_sha: str
    merge_sha: str | None = None
    target: str | None = None
    base_sha: str | None = None
    open: bool = True
    from_fork: bool | None = None


@dataclass(frozen=True)
class ForgeArtifact:
    """What a run left on the forge; ``expired`` when it is only remembered.

    ``url`` is its page, and ``files_url`` what begins the addresses of single files in it, where the forge has such.
    """

    id: int
    name: str
    bytes: int
    expired: bool = False
    url: str | None = None
    files_url: str | None = None


@dataclass(frozen=True)
class Comment:
    """A comment on a change request. ``own`` is true only when the account of our token wrote it."""

    id: int
    body: str
    own: bool


@dataclass(frozen=True)
class CommitStatus:
    """The mark on a commit. ``name`` tells several statuses of one commit apart."""

    sha: str
    state: StatusState
    name: str
    description: str
    url: str | None = None


class Forge(Protocol):
    """One repository on one forge, through one token. Every method raises ForgeError when the forge refuses."""

    def find_change_request(self, *, prefer: int | None = None) -> ChangeRequest | None:
        """The change request that the event names, or else the one with the event's head, or None.

        Where several have this head, that with the number ``prefer`` is taken, or else an open one, or the newest.
        """
        ...

    def changed_files(self, number: int) -> list[str] | None:
        """The paths that a change request adds, edits, renames or removes; None where the forge cannot tell all."""
        ...

    def merge_base(self, first: str, second: str) -> str | None:
        """The common ancestor of two commits or branches, None where the forge cannot tell.

        Raises ForgeGoneError for one that is not in the repository.
        """
        ...

    def parents(self, sha: str) -> list[str] | None:
        """The parents of a commit, in order; None where the forge cannot tell. Raises ForgeGoneError as above."""
        ...

    def artifacts(self) -> list[ForgeArtifact]:
        """What the event's run has uploaded, all attempts. Raises ForgeError where the forge keeps none."""
        ...

    def download(self, artifact: ForgeArtifact) -> bytes: ...

    def comments(self, number: int) -> list[Comment]:
        """All comments people and programs wrote, oldest first."""
        ...

    def add_comment(self, number: int, body: str) -> None:
        """Write a new comment, which notifies people. Raises ForgeUnansweredError where it may have been written."""
        ...

    def edit_comment(self, number: int, comment_id: int, body: str) -> None:
        """Replace a comment's text, which notifies nobody.

        Raises ForgeGoneError where it is deleted, and ForgeUnansweredError, after the wait the forge asks for, where it may or
        may not be done: what others wrote in the meantime is to be looked at first.
        """
        ...

    def delete_comment(self, number: int, comment_id: int) -> None:
        """Delete a comment; one that is gone already is no error."""
        ...

    def set_status(self, status: CommitStatus) -> None:
        """Mark a commit; a status of the same name is replaced."""
        ...


def token_variables(forge: str, variable: str | None = None) -> tuple[str, ...]:
    """The environment variables in which a forge's token is looked for, in order; ``variable`` alone where it is given."""
    return (variable,) if variable else tuple(_member(forge).TOKEN_VARIABLES)


def find_token(forge: str, environ: Mapping[str, str], variable: str | None = None) -> str | None:
    return next((environ[name] for name in token_variables(forge, variable) if environ.get(name)), None)


def addresses(forge: str) -> tuple[str | None, str | None]:
    """The API and the server address of a forge that has one everybody uses; None where each has its own."""
    member = _member(forge)
    return member.API_URL, member.SERVER_URL


def line_address(event: CiEvent, path: str, line: int) -> str:
    """The page of a line of a file at the event's head, by its path in the repository."""
    repository, file = quote(event.repository), quote(path)
    page = _member(event.forge).LINE.format(repository=repository, commit=event.head_sha, path=file, line=line)
    return f"{event.server_url}/{page}"


def connect(event: CiEvent, token: str, *, sleep: Sleep, clock: Clock) -> Forge:
    forge: Forge = _member(event.forge).connect(event, token, sleep=sleep, clock=clock)
    return forge


def _member(name: str) -> ModuleType:
    names = member_names(hosts, FORGES)
    if name not in names:
        raise UsageError(f"no forge {name[:40]!r}; perfgate posts to {', '.join(names)}")
    return load_member(hosts, name, FORGES)
