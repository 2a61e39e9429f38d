"""Our one comment on a change request: found again by marker and author, edited in place, never by an older run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, Optional

import msgspec

from perfgate.document.decision import Verdict
from perfgate.judging.forge.forge import CiEvent, Comment, Forge

# GitHub takes 65,536 characters (error "Body is too long"), GitLab 1,000,000.
MAX_CHARACTERS = 60_000
# What a renderer may use of it: the hidden lines are added here.
TEXT_BUDGET = MAX_CHARACTERS - 1_000

_STATE_START, _STATE_END = "<!-- perfgate:state ", " -->"

Posted = Literal["created", "updated", "kept"]


class CommentState(msgspec.Struct, frozen=True, kw_only=True):
    """What a comment knows about itself, in its hidden second line.

    ``run`` and ``attempt`` order comments of one change request: forges count runs upwards, and a repeated run keeps
    its number. ``decided`` is the last PASS or FAIL, also where the newest verdict is neither.
    """

    run: int
    attempt: int
    head: str
    verdict: Verdict
    decided: Optional[Literal["PASS", "FAIL"]] = None

    def is_older_than(self, other: CommentState) -> bool:
        """Return whether this state must not overwrite the other."""
        return (self.run, self.attempt) < (other.run, other.attempt)


@dataclass(frozen=True)
class Post:
    """What became of a comment, and whether a reply told people that the verdict turned."""

    outcome: Posted
    replied: bool = False


def marker(key: str) -> str:
    """Return the first line of our comment. ``key`` tells several gates on one repository apart."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return f"<!-- perfgate:sticky v1 key={digest} -->"


def state_of(event: CiEvent, verdict: Verdict) -> CommentState:
    """Return the state of a comment made for an event."""
    return CommentState(
        run=int(event.run_id),
        attempt=event.run_attempt,
        head=event.head_sha,
        verdict=verdict,
        decided=_decided(verdict, None),
    )


def find_own(comments: list[Comment], first_line: str) -> Optional[Comment]:
    """Return our newest comment. Anyone can write the marker, so the author counts too."""
    ours = [c for c in comments if c.own and c.body.partition("\n")[0].rstrip("\r") == first_line]
    return max(ours, key=lambda comment: comment.id) if ours else None


def read_state(body: str) -> Optional[CommentState]:
    """Return the state a comment carries; None for one without a state that can be read."""
    lines = body.splitlines()
    if len(lines) < 2 or not (lines[1].startswith(_STATE_START) and lines[1].endswith(_STATE_END)):
        return None
    try:
        return msgspec.json.decode(lines[1][len(_STATE_START) : -len(_STATE_END)], type=CommentState)
    except (msgspec.DecodeError, RecursionError):
        return None


def compose(text: str, state: CommentState, first_line: str) -> str:
    """Return a rendered comment as it is posted: marker, state, text; short enough, and without commands.

    A line that starts with a slash is a command to GitLab, executed with our token's rights (docs.gitlab.com, "Quick
    actions"): a character of no width stands before it.
    """
    lines = text.splitlines()
    if lines and lines[0] == first_line:
        lines = lines[1:]
    lines = ["\u200b" + line if line.lstrip().startswith("/") else line for line in lines]
    hidden = [first_line, _STATE_START + msgspec.json.encode(state).decode() + _STATE_END]
    body = "\n".join([*hidden, *lines]) + "\n"
    return (
        body if len(body) <= MAX_CHARACTERS else "\n".join([*hidden, *_title(lines), "", _too_long(len(body))]) + "\n"
    )


def post(forge: Forge, number: int, text: str, state: CommentState, first_line: str) -> Post:
    """Create or update our comment on a change request, and reply when a PASS turned into a FAIL or back."""
    existing = find_own(forge.comments(number), first_line)
    if existing is None:
        forge.add_comment(number, compose(text, state, first_line))
        return Post("created")
    before = read_state(existing.body)
    if before is not None and state.is_older_than(before):
        return Post("kept")
    last = before.decided if before else None
    now = msgspec.structs.replace(state, decided=_decided(state.verdict, last))
    forge.edit_comment(number, existing.id, compose(text, now, first_line))
    # An edit notifies nobody, so a verdict that turned gets a comment of its own.
    turned = last is not None and now.decided != last
    if turned:
        forge.add_comment(number, _reply(last or "", now))
    return Post("updated", replied=turned)


def _decided(verdict: Verdict, last: Optional[Literal["PASS", "FAIL"]]) -> Optional[Literal["PASS", "FAIL"]]:
    return verdict if verdict in ("PASS", "FAIL") else last


def _title(lines: list[str]) -> list[str]:
    return [line[:500] for line in lines if line.startswith("#")][:1]


def _too_long(length: int) -> str:
    return (
        f"The whole comment has {length} characters, more than a forge takes. "
        "It stands as `comment.md` in the artifact of the measuring job."
    )


def _reply(last: str, now: CommentState) -> str:
    return (
        f"perfgate: **{last} → {now.verdict}** with `{now.head[:12]}`; the comment of perfgate above has the numbers.\n"
    )
