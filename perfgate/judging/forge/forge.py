"""The operations that the gate needs from every forge, in neutral terms: change
request, comment, status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Literal, Protocol
from urllib.parse import quote

from perfgate.document.run import CiContext
from perfgate.errors import UsageError
from perfgate.judging.forge import hosts
from perfgate.plugins import (
    FORGES,
    FORGES_PACKAGE,
    PACKAGED_FORGES,
    load_member,
    member_names,
)

# Seconds to wait, and seconds since the epoch: passed in, so that tests do not wait.
Sleep = Callable[[float], None]
WallClock = Callable[[], float]
StatusState = Literal["success", "failure", "pending", "error"]
# The login of the token's account, for tokens that cannot query it, e.g. of a custom
# app on GitHub.
ACCOUNT_VARIABLE = "PERFGATE_LOGIN"


@dataclass(frozen=True)
class ForgeHost:
    """The forge of a CI job, and what its clients need."""

    api_url: str
    server_url: str
    ca_file: str | None = None
    # The login of the token, if the forge does not reveal it.
    account: str | None = None


@dataclass(frozen=True)
class CiJob:
    """The pipeline that a job belongs to, and the pages of its results."""

    run_id: str
    run_attempt: int
    # How the measuring job ended, if known.
    measured: str | None = None
    job_url: str | None = None
    artifact_url: str | None = None
    report_url: str | None = None


@dataclass(frozen=True)
class CiEvent:
    """The CI job as described by its environment.

    It is trusted: artifacts and comments are checked against it.
    """

    forge: str
    host: ForgeHost
    # The repository in which the pipeline runs.
    repository: str
    # The API's name of the repository that gets the comment: ``owner/name``, or a
    # number on GitLab.
    project: str
    job: CiJob
    # The commit under review.
    head_sha: str
    # The commit that CI checked out: on a change request a merge of head into base.
    built_sha: str | None = None
    change_request: int | None = None
    # They find the change request if the event does not name it.
    owner: str | None = None
    branch: str | None = None
    # The commit that a merge queue puts ``head_sha`` on.
    base_sha: str | None = None
    # Whether the forge ties the change request to the job's own pipeline, so that no
    # commit status is needed.
    is_check: bool = False

    def context(self) -> CiContext:
        return CiContext(
            forge=self.forge,
            repository=self.repository,
            run_id=self.job.run_id,
            run_attempt=self.job.run_attempt,
            head_sha=self.head_sha,
            change_request=self.change_request,
        )


@dataclass(frozen=True)
class ChangeRequest:
    """A pull or merge request; ``merge_sha`` is the forge's test merge of it, if any.

    ``target`` is the branch it is to be merged into and ``base_sha`` the commit of that
    branch that the forge compares the change with. These and ``from_fork`` are None if
    the forge does not provide them.
    """

    number: int
    head_sha: str
    merge_sha: str | None = None
    target: str | None = None
    base_sha: str | None = None
    from_fork: bool | None = None


@dataclass(frozen=True)
class ForgeArtifact:
    """An artifact of a run; ``expired`` if its content is deleted.

    ``url`` is its page, and ``files_url`` the address prefix of its single files; None
    on forges without them.
    """

    id: int
    name: str
    bytes: int
    expired: bool = False
    url: str | None = None
    files_url: str | None = None


@dataclass(frozen=True)
class Comment:
    """A comment on a change request.

    ``own`` is true only if the account of our token wrote it.
    """

    id: int
    body: str
    own: bool


@dataclass(frozen=True)
class CommitStatus:
    """The status of a commit. ``name`` distinguishes several statuses of one commit."""

    sha: str
    state: StatusState
    name: str
    description: str
    url: str | None = None


class Forge(Protocol):
    """One repository on one forge, through one token.

    Every method raises ForgeError if the forge refuses.
    """

    def find_change_request(self, *, prefer: int | None = None) -> ChangeRequest | None:
        """The change request that the event names, or else a change request with the
        event's head, or None.

        If several have this head, the number ``prefer`` is taken, else an open change
        request, else the newest.
        """
        ...

    def changed_files(self, number: int) -> list[str] | None:
        """The paths that a change request adds, edits, renames or removes; None if the
        forge cannot list all.
        """
        ...

    def merge_base(self, first: str, second: str) -> str | None:
        """The merge base of two commits or branches; None if the forge does not support
        the query.

        Raises ForgeGoneError if one of them is not in the repository.
        """
        ...

    def parents(self, sha: str) -> list[str] | None:
        """The parents of a commit, in order; None if the forge does not support the
        query. Raises ForgeGoneError as above.
        """
        ...

    def artifacts(self) -> list[ForgeArtifact]:
        """The artifacts of the event's run, over all attempts.

        Raises ForgeHasNoArtifactsError if the forge stores none.
        """
        ...

    def download(self, artifact: ForgeArtifact) -> bytes: ...

    def comments(self, number: int) -> list[Comment]:
        """All comments, oldest first."""
        ...

    def add_comment(self, number: int, body: str) -> None:
        """Write a new comment, which notifies people. Raises ForgeUnansweredError if it
        may have been written.
        """
        ...

    def edit_comment(self, number: int, comment_id: int, body: str) -> None:
        """Replace a comment's text, without a notification.

        Raises ForgeGoneError if the comment is deleted. Raises ForgeUnansweredError,
        after the wait the forge asks for, if the edit may or may not be done: the
        caller must read concurrent changes before it tries again.
        """
        ...

    def delete_comment(self, number: int, comment_id: int) -> None:
        """Delete a comment; not an error if it is already gone."""
        ...

    def set_status(self, status: CommitStatus) -> None:
        """Set the status of a commit; one of the same name is replaced."""
        ...


def token_variables(forge: str) -> tuple[str, ...]:
    """The environment variables that may hold a forge's token, in order."""
    return tuple(_member(forge).TOKEN_VARIABLES)


def find_token(forge: str, environ: Mapping[str, str]) -> str | None:
    return next(
        (environ[name] for name in token_variables(forge) if environ.get(name)), None
    )


def addresses(forge: str) -> tuple[str | None, str | None]:
    """The API and server address of a public forge; None if every server has its own."""
    member = _member(forge)
    return member.API_URL, member.SERVER_URL


def line_address(event: CiEvent, path: str, line: int) -> str:
    """The page of a line of a file at the event's head, by its path in the repository."""
    page = _member(event.forge).LINE.format(
        repository=quote(event.repository),
        commit=event.head_sha,
        path=quote(path),
        line=line,
    )
    return f"{event.host.server_url}/{page}"


def read_event(forge: str, environ: Mapping[str, str]) -> CiEvent:
    """The event of a job in a forge's own CI, by its host."""
    event: CiEvent = _member(forge).read_event(environ)
    return event


def connect(event: CiEvent, token: str, *, sleep: Sleep, clock: WallClock) -> Forge:
    forge: Forge = _member(event.forge).connect(event, token, sleep=sleep, clock=clock)
    return forge


def _member(name: str) -> ModuleType:
    names = member_names(hosts, FORGES)
    if name in names:
        return load_member(hosts, name, FORGES)
    if name in PACKAGED_FORGES:
        raise UsageError(
            "the forge {forge} needs the package {package} in addition to perfgate; install it in this job: "
            "pip install {package}",
            forge=name,
            package=FORGES_PACKAGE,
        )
    raise UsageError(
        "no forge {name!r}; perfgate posts to {names}",
        name=name[:40],
        names=", ".join(sorted({*names, *PACKAGED_FORGES})),
    )
