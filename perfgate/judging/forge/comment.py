"""The text of our one comment on a change request: the marker it is found by, the hidden state, its length."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

from perfgate.document.decision import Verdict
from perfgate.judging.forge.forge import CiEvent, Comment

# GitHub takes 65,536 characters (error "Body is too long"), GitLab 1,000,000.
MAX_CHARACTERS = 60_000
# What a renderer may use of it: the hidden lines are added here.
TEXT_BUDGET = MAX_CHARACTERS - 1_000

_MARKER, _STATE = "sticky", "state"

# A verdict that says something about the code.
Decided = Literal["PASS", "FAIL"]


class CommentState(msgspec.Struct, frozen=True, kw_only=True):
    """What a comment knows about itself, in its hidden second line.

    ``run`` and ``attempt`` order comments of one change request: forges count runs upwards, and a repeated run keeps
    its number. ``decided`` is the last PASS or FAIL, also where the newest verdict is neither.
    """

    run: int
    attempt: int
    head: str
    verdict: Verdict
    decided: Decided | None = None

    def is_older_than(self, state: CommentState) -> bool:
        """Whether this state must not overwrite the other."""
        return (self.run, self.attempt) < (state.run, state.attempt)


def marker(key: str) -> str:
    """The first line of our comment. ``key`` tells several gates on one repository apart."""
    return marker_line(_MARKER, key)


def state_of(event: CiEvent, verdict: Verdict) -> CommentState:
    return CommentState(
        run=int(event.run_id),
        attempt=event.run_attempt,
        head=event.head_sha,
        verdict=verdict,
        decided=decided(verdict, None),
    )


def find_own(comments: list[Comment], first_line: str) -> list[Comment]:
    """Our comments that begin with a line, the oldest first. Anyone can write the marker, so the author counts."""
    ours = [comment for comment in comments if comment.own and begins_with(comment.body, first_line)]
    return sorted(ours, key=lambda comment: comment.id)


def read_state(body: str) -> CommentState | None:
    """The state a comment carries; None for one without a state that can be read."""
    return read_state_line(body, _STATE, CommentState)


def compose(text: str, state: CommentState, first_line: str) -> str:
    """A rendered comment as it is posted: marker, state, text; short enough, and without commands."""
    lines = without_commands(text.splitlines())
    if lines and lines[0] == first_line:
        lines = lines[1:]
    hidden = [first_line, state_line(_STATE, state)]
    body = "\n".join([*hidden, *lines]) + "\n"
    return (
        body if len(body) <= MAX_CHARACTERS else "\n".join([*hidden, *_title(lines), "", _too_long(len(body))]) + "\n"
    )


def without_commands(lines: Sequence[str]) -> list[str]:
    """The lines of a text so that none is a command to the forge.

    A line that starts with a slash is one to GitLab, executed with our token's rights (docs.gitlab.com, "Quick actions"), and
    to the bots of many projects on Gitee and GitCode: a character of no width stands before it.
    """
    return ["\u200b" + line if line.lstrip().startswith("/") else line for line in lines]


def turn_line(first_line: str, verdict: str) -> str:
    """The first line of the reply that tells people of a verdict that turned; ``first_line`` is the comment's."""
    return first_line.removesuffix(" -->") + f" turned={verdict} -->"


def find_turns(comments: list[Comment], first_line: str) -> list[tuple[Comment, Decided]]:
    """Our replies about verdicts that turned, the oldest first, each with the verdict it tells."""
    verdicts: tuple[Decided, ...] = ("PASS", "FAIL")
    turns = [(reply, verdict) for verdict in verdicts for reply in find_own(comments, turn_line(first_line, verdict))]
    return sorted(turns, key=lambda turn: turn[0].id)


def decided(verdict: Verdict, last: Decided | None) -> Decided | None:
    """The last PASS or FAIL, after one more verdict."""
    return verdict if verdict in ("PASS", "FAIL") else last


def _title(lines: list[str]) -> list[str]:
    return [line[:500] for line in lines if line.startswith("#")][:1]


def _too_long(length: int) -> str:
    return (
        f"The whole comment has {length} characters, more than a forge takes. "
        "It stands as `comment.md` in the artifact of the measuring job."
    )


State = TypeVar("State", bound=msgspec.Struct)

_END = " -->"


def marker_line(kind: str, key: str) -> str:
    """The first line of a text of a kind. ``key`` tells several gates of one repository apart."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return f"<!-- perfgate:{kind} v1 key={digest}{_END}"


def begins_with(body: str, first_line: str) -> bool:
    """Whether a text begins with a line, whatever a forge has made of the line's end."""
    return body.partition("\n")[0].rstrip("\r") == first_line


def state_line(kind: str, state: msgspec.Struct) -> str:
    """The second line of a text, in which no name can end the HTML comment."""
    written = msgspec.json.encode(state).decode().replace("<", "\\u003c").replace(">", "\\u003e")
    return f"{_start(kind)}{written}{_END}"


def read_state_line(body: str, kind: str, record: type[State]) -> State | None:
    """What the second line of a text says; None where there is none that can be read."""
    lines = body.splitlines()
    if len(lines) < 2 or not (lines[1].startswith(_start(kind)) and lines[1].endswith(_END)):
        return None
    try:
        return msgspec.json.decode(lines[1][len(_start(kind)) : -len(_END)], type=record)
    except (msgspec.DecodeError, RecursionError):
        return None


def _start(kind: str) -> str:
    return f"<!-- perfgate:{kind} "
