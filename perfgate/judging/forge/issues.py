"""Our one issue of a repository: found by label, marker and author; its text is
replaced in place, never by an older run.

Two concurrent jobs may each open one; so each looks again after opening, and closes its
own if another is older.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import msgspec

from perfgate.document.trend import TrendState
from perfgate.errors import ForgeError
from perfgate.judging.forge.comment import (
    MAX_CHARACTERS,
    begins_with,
    marker_line,
    read_state_line,
    state_line,
    without_commands,
)
from perfgate.judging.forge.forge import Forge

LABEL = "perfgate"
_MARKER, _STATE = "trend", "trend-state"

IssuePosted = Literal["created", "updated", "kept"]


@dataclass(frozen=True)
class Issue:
    """An issue. ``own`` is true only if the account of our token opened it."""

    number: int
    body: str
    own: bool
    is_open: bool


@runtime_checkable
class IssueForge(Protocol):
    """The additional operations of a forge that can keep an issue. Every method raises
    ForgeError if the forge refuses.
    """

    def issues(self, label: str) -> list[Issue]:
        """All issues with a label, including closed issues, without change requests."""
        ...

    def add_issue(self, title: str, body: str, label: str) -> None:
        """Open a new issue, which notifies people."""
        ...

    def edit_issue(
        self, number: int, body: str, state: Literal["open", "closed"] | None = None
    ) -> None:
        """Replace an issue's text, without a notification, and open or close it if a
        state is given.
        """
        ...

    def comment_issue(self, number: int, body: str) -> None:
        """Write a comment below an issue, which notifies people."""
        ...


class IssueState(msgspec.Struct, frozen=True, kw_only=True):
    """The state in an issue's hidden second line: the run that wrote it, and the trend
    it reported.
    """

    run: int
    attempt: int
    trend: TrendState

    @property
    def written_by(self) -> tuple[int, int]:
        """The run that wrote it; a newer one compares greater."""
        return self.run, self.attempt


def issue_marker(key: str) -> str:
    return marker_line(_MARKER, key)


def keeps_issues(forge: Forge) -> IssueForge:
    if isinstance(forge, IssueForge):
        return forge
    raise ForgeError(
        "perfgate keeps an issue on GitHub and GitLab only; take trend.md of --out on this forge"
    )


def find_own(forge: IssueForge, first_line: str) -> Issue | None:
    """Our oldest issue. Anyone can write the marker and set the label, so the author is
    checked too.
    """
    return next(iter(_all_own(forge, first_line)), None)


def read_state(body: str) -> IssueState | None:
    return read_state_line(body, _STATE, IssueState)


def hidden_lines(state: IssueState, first_line: str) -> list[str]:
    return [first_line, state_line(_STATE, state)]


def text_budget(state: IssueState, first_line: str) -> int:
    return (
        MAX_CHARACTERS
        - sum(len(line) + 1 for line in hidden_lines(state, first_line))
        - 200
    )


def compose(text: str, state: IssueState, first_line: str) -> str:
    """The body to post: marker, state, text without commands.

    Raises ForgeError above the limit, which the renderer observes.
    """
    body = (
        "\n".join(
            [*hidden_lines(state, first_line), *without_commands(text.splitlines())]
        )
        + "\n"
    )
    if len(body) > MAX_CHARACTERS:
        raise ForgeError(
            "the issue has {count} characters, and at most {most} are posted",
            count=len(body),
            most=MAX_CHARACTERS,
        )
    return body


def post_issue(
    forge: IssueForge,
    current: Issue | None,
    *,
    title: str,
    text: str,
    state: IssueState,
    first_line: str,
    news: str | None,
) -> IssuePosted:
    """Open our issue, or replace its text; ``news`` becomes a comment below it, because
    an edit sends no notification.

    A run older than the text's writer has no effect. An issue that people closed is
    reopened only if there is news.
    """
    body = compose(text, state, first_line)
    if current is None:
        forge.add_issue(title, body, LABEL)
        return _settle(forge, body, state, first_line)
    return _replace(forge, current, body, state, news)


def _settle(
    forge: IssueForge, body: str, state: IssueState, first_line: str
) -> IssuePosted:
    """If another job opened an issue before ours, report there and close ours.

    No comment announces the news: opening the two issues has already notified people.
    """
    ours = _all_own(forge, first_line)
    mine = [issue for issue in ours if _writer(issue) == state.written_by]
    if not mine or mine[0] is ours[0]:
        return "created"
    for issue in mine:
        text = f"perfgate opened two issues at once; it reports in #{ours[0].number}.\n"
        forge.edit_issue(issue.number, text, "closed")
    return _replace(forge, ours[0], body, state, None)


def _replace(
    forge: IssueForge, issue: Issue, body: str, state: IssueState, news: str | None
) -> IssuePosted:
    writer = _writer(issue)
    if writer is not None and state.written_by < writer:
        return "kept"
    forge.edit_issue(
        issue.number, body, "open" if news is not None and not issue.is_open else None
    )
    if news is not None and state.written_by != writer:
        forge.comment_issue(
            issue.number, "\n".join(without_commands(news.splitlines())) + "\n"
        )
    return "updated"


def _all_own(forge: IssueForge, first_line: str) -> list[Issue]:
    ours = [
        issue
        for issue in forge.issues(LABEL)
        if issue.own and begins_with(issue.body, first_line)
    ]
    return sorted(ours, key=lambda issue: issue.number)


def _writer(issue: Issue) -> tuple[int, int] | None:
    state = read_state(issue.body)
    if state:
        return state.written_by
    return None
