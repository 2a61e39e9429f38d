"""GitHub and GitHub Enterprise Server: pull requests, issue comments, commit statuses
(docs.github.com, REST API).
"""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from typing import Literal
from urllib.parse import quote

import msgspec

from perfgate.errors import ForgeError
from perfgate.judging.forge.dialects import Dialect, DialectForge
from perfgate.judging.forge.forge import (
    ACCOUNT_VARIABLE,
    ChangeRequest,
    CiEvent,
    ForgeArtifact,
    Sleep,
    WallClock,
)
from perfgate.judging.forge.http import ForgeSession, Query
from perfgate.judging.forge.issues import Issue
from perfgate.judging.forge.orders import OrderedChange
from perfgate.judging.forge.payloads import (
    Commit,
    ForgeRepository,
    PostedComment,
    PostedIssue,
    User,
)

NAME = "github"
API_URL, SERVER_URL = "https://api.github.com", "https://github.com"
LINE = "{repository}/blob/{commit}/{path}#L{line}"
TOKEN_VARIABLES = ("PERFGATE_TOKEN", "GITHUB_TOKEN")
# The account behind GITHUB_TOKEN (docs.github.com, "Use GITHUB_TOKEN for authentication
# in workflows").
ACTIONS_ACCOUNT = "github-actions[bot]"
# Commit statuses, "description": GitHub refuses more than 140 characters.
DIALECT = Dialect("GitHub", talk="issues", max_description=140)
# "Responses include a maximum of 3000 files" (docs.github.com, REST API, "List pull
# requests files").
MOST_FILES = 3000
# Number of pull requests searched for a head that no branch leads to.
RECENT_PULLS = 300


def connect(event: CiEvent, token: str, *, sleep: Sleep, clock: WallClock) -> GitHub:
    session = ForgeSession(
        event.host.api_url,
        token,
        accept="application/vnd.github+json",
        sleep=sleep,
        clock=clock,
    )
    return GitHub(session, event, DIALECT)


class _Issue(PostedIssue, kw_only=True):
    state: str
    body: str | None = None
    user: User | None = None


class _Ref(Commit):
    """The tip of a branch."""

    ref: str
    # Null once the fork is deleted.
    repo: ForgeRepository | None = None


class _Pull(msgspec.Struct):
    number: int
    head: _Ref
    base: _Ref
    state: str
    merge_commit_sha: str | None = None
    user: User | None = None


class _File(msgspec.Struct):
    filename: str
    previous_filename: str | None = None


class _Artifact(msgspec.Struct):
    id: int
    name: str
    size_in_bytes: int
    expired: bool


class GitHub(DialectForge):
    """One repository on GitHub."""

    def find_change_request(self, *, prefer: int | None = None) -> ChangeRequest | None:
        """The pull request that the event names, or else a pull request with the
        event's head.

        Searched by branch: the list of a commit's pull requests omits those from forks.
        If the fork or its branch was deleted or renamed, the most recently updated pull
        requests are searched.
        """
        if self._event.change_request is not None:
            return self._change_request(
                self._session.get(
                    f"{self._path}/pulls/{self._event.change_request}", _Pull
                )
            )
        candidates = self._with_our_head()
        if not candidates:
            return None
        return self._change_request(
            max(
                candidates,
                key=lambda pull: (
                    pull.number == prefer,
                    pull.state == "open",
                    pull.number,
                ),
            )
        )

    def _change_request(self, pull: _Pull) -> ChangeRequest:
        return ChangeRequest(
            number=pull.number,
            head_sha=pull.head.sha,
            merge_sha=pull.merge_commit_sha,
            target=pull.base.ref,
            base_sha=pull.base.sha,
            from_fork=self._is_from_fork(pull),
        )

    def _is_from_fork(self, pull: _Pull) -> bool:
        return (
            pull.head.repo is None
            or pull.head.repo.full_name.lower() != self._event.project.lower()
        )

    def _with_our_head(self) -> list[_Pull]:
        event, path = self._event, f"{self._path}/pulls"
        if event.branch is None:
            return []
        if event.owner:
            query: Query = {
                "state": "all",
                "head": f"{event.owner}:{event.branch}",
                "per_page": 100,
            }
            matches = [
                pull
                for pull in self._session.pages(path, _Pull, query=query)
                if pull.head.sha == event.head_sha
            ]
            if matches:
                return matches
        recent: Query = {
            "state": "all",
            "sort": "updated",
            "direction": "desc",
            "per_page": 100,
        }
        pulls = islice(self._session.pages(path, _Pull, query=recent), RECENT_PULLS)
        return [pull for pull in pulls if pull.head.sha == event.head_sha]

    def changed_files(self, number: int) -> list[str] | None:
        """The paths a pull request touches; None if there may be more files than GitHub
        lists.
        """
        files = list(
            self._session.pages(
                f"{self._path}/pulls/{number}/files", _File, query={"per_page": 100}
            )
        )
        if len(files) >= MOST_FILES:
            return None
        names = []
        for file in files:
            names += [file.filename, file.previous_filename]
        return [name for name in names if name]

    def merge_base(self, first: str, second: str) -> str | None:
        commits = f"{quote(first, safe='')}...{quote(second, safe='')}"
        path = f"{self._path}/compare/{commits}"
        return self._session.get(
            path, Commit, query={"per_page": 1}, field="merge_base_commit"
        ).sha

    def parents(self, sha: str) -> list[str] | None:
        path = f"{self._path}/git/commits/{quote(sha, safe='')}"
        return [
            parent.sha
            for parent in self._session.get(path, list[Commit], field="parents")
        ]

    def artifacts(self) -> list[ForgeArtifact]:
        run = f"actions/runs/{quote(self._event.job.run_id, safe='')}/artifacts"
        query = {"per_page": 100}
        artifacts = self._session.pages(
            f"{self._path}/{run}", _Artifact, query=query, field="artifacts"
        )
        page_of_run = f"{self._event.host.server_url}/{self._event.repository}/{run}"
        return [
            ForgeArtifact(
                artifact.id,
                artifact.name,
                artifact.size_in_bytes,
                artifact.expired,
                url=f"{page_of_run}/{artifact.id}",
            )
            for artifact in artifacts
        ]

    def download(self, artifact: ForgeArtifact) -> bytes:
        return self._session.download(
            f"{self._path}/actions/artifacts/{artifact.id}/zip"
        )

    def add_comment(self, number: int, body: str) -> None:
        path = f"{self._path}/issues/{number}/comments"
        written = self._session.send(
            "POST", path, {"body": body}, PostedComment, expect=201, repeatable=False
        )
        # The author is the account of our token. Every publisher reads the comments
        # again after writing, and then also finds the earlier comments of this account.
        if written.user:
            self._login = written.user.login

    def issues(self, label: str) -> list[Issue]:
        """The issues with a label; GitHub's list also contains pull requests, which are
        skipped.
        """
        query: Query = {"labels": label, "state": "all", "per_page": 100}
        issues = self._session.pages(f"{self._path}/issues", _Issue, query=query)
        return [
            Issue(
                issue.number,
                issue.body or "",
                own=self._is_own(issue.user),
                is_open=issue.state == "open",
            )
            for issue in issues
            if issue.pull_request is None
        ]

    def add_issue(self, title: str, body: str, label: str) -> None:
        """Open a new issue; GitHub creates a missing label."""
        sent = {"title": title, "body": body, "labels": [label]}
        written = self._session.send(
            "POST", f"{self._path}/issues", sent, _Issue, expect=201, repeatable=False
        )
        if not self._is_own(written.user):
            author = "nobody"
            if written.user:
                author = written.user.login
            raise ForgeError(
                "the issue's author is {author!r}, but perfgate looks for issues by {login!r}: set {variable} to the "
                "login of the token's account, so that it is found again",
                author=author[:80],
                login=self._login,
                variable=ACCOUNT_VARIABLE,
            )

    def edit_issue(
        self, number: int, body: str, state: Literal["open", "closed"] | None = None
    ) -> None:
        sent = {"body": body, **({"state": state} if state else {})}
        self._session.send(
            "PATCH",
            f"{self._path}/issues/{number}",
            sent,
            dict,
            expect=200,
            repeatable=True,
        )

    def comment_issue(self, number: int, body: str) -> None:
        """Write a comment; GitHub stores comments on issues and on pull requests
        together.
        """
        self.add_comment(number, body)

    def ordered_change(self, number: int) -> OrderedChange:
        pull = self._session.get(f"{self._path}/pulls/{number}", _Pull)
        return OrderedChange(
            number=pull.number,
            head_sha=pull.head.sha,
            base_sha=pull.base.sha,
            is_open=pull.state == "open",
            from_fork=self._is_from_fork(pull),
            author=pull.user.login if pull.user else None,
        )

    def may_push(self, login: str) -> bool:
        """Whether an account may push; GitHub reports the role `maintain` as ``write``
        and `triage` as ``read``.
        """
        path = f"{self._path}/collaborators/{quote(login, safe='')}/permission"
        return self._session.get_unless_refused(
            path, str, refused=404, field="permission"
        ) in ("admin", "write")

    @cached_property
    def _login(self) -> str:
        """The account of the token.

        An app's token may not query it (403): then it is the configured account, or
        else GITHUB_TOKEN's. Comments of other bots are not ours: some bots quote other
        comments, including our marker.
        """
        answer = self._session.get_unless_refused("/user", User, refused=403)
        if answer:
            return answer.login
        return self._event.host.account or ACTIONS_ACCOUNT
