"""Our one comment on a change request: the marker it is found by, its hidden state and length, and how it is posted.

No forge can replace a text "if nobody else did", so every publisher does the same until nothing is left to do: look,
write or edit, look again. Creating overwrites nothing: of several comments the one with the lowest number stays and gets
the text of the newest run, and the others are deleted. An edit can overwrite that of a newer run whose own look was over;
so after an edit everybody waits a moment before looking, and the newer run repairs it. What remains is an older run that
hangs for longer than SETTLE_SECONDS between its look and its edit.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import msgspec

from perfgate.document.decision import Verdict
from perfgate.errors import ForgeError, ForgeGoneError, ForgeUnansweredError
from perfgate.judging.forge.forge import CiEvent, Comment, Forge, Sleep

# GitHub takes 65,536 characters (error "Body is too long"), GitLab 1,000,000.
MAX_CHARACTERS = 60_000
# What a renderer may use of it: the hidden lines are added here.
TEXT_BUDGET = MAX_CHARACTERS - 5_000
# How long the hidden lines may get by the metrics of the numbered causes.
_MOST_METRICS = 4_000
ROUNDS = 12
WRITES = 3
SETTLE_SECONDS = 2.0

_MARKER, _STATE = "sticky", "state"
_END = " -->"

# A verdict that says something about the code.
Decided = Literal["PASS", "FAIL"]
Posted = Literal["created", "updated", "kept"]
State = TypeVar("State", bound=msgspec.Struct)


# --- hidden lines, which issues have too


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
    return f"<!-- perfgate:{kind} {written}{_END}"


def read_state_line(body: str, kind: str, record: type[State]) -> State | None:
    """What the second line of a text says; None where there is none that can be read."""
    lines, start = body.splitlines(), f"<!-- perfgate:{kind} "
    if len(lines) < 2 or not (lines[1].startswith(start) and lines[1].endswith(_END)):
        return None
    try:
        return msgspec.json.decode(lines[1][len(start) : -len(_END)], type=record)
    except (msgspec.DecodeError, RecursionError):
        return None


def without_commands(lines: Sequence[str]) -> list[str]:
    """The lines of a text so that none is a command to the forge.

    A line that starts with a slash is one to GitLab, executed with our token's rights (docs.gitlab.com, "Quick actions"), and
    to the bots of many projects on Gitee and GitCode: a character of no width stands before it.
    """
    return ["\u200b" + line if line.lstrip().startswith("/") else line for line in lines]


# --- the comment's text


class CommentState(msgspec.Struct, frozen=True, kw_only=True):
    """What a comment knows about itself, in its hidden second line.

    ``run`` and ``attempt`` order comments of one change request: forges count runs upwards, and a repeated run keeps
    its number. ``decided`` is the last PASS or FAIL, also where the newest verdict is neither. ``accepts`` are, for each cause
    that the comment numbers, the metrics that accept it.
    """

    run: int
    attempt: int
    head: str
    verdict: Verdict
    decided: Decided | None = None
    accepts: list[list[str]] = []

    def is_older_than(self, state: CommentState) -> bool:
        """Whether this state must not overwrite the other."""
        return (self.run, self.attempt) < (state.run, state.attempt)


def marker(key: str) -> str:
    return marker_line(_MARKER, key)


def can_hold(accepts: list[list[str]]) -> bool:
    """Whether the hidden lines have room for these metrics."""
    state = CommentState(run=0, attempt=0, head="", verdict="FAIL", accepts=accepts)
    return len(state_line(_STATE, state)) <= _MOST_METRICS


def state_of(event: CiEvent, verdict: Verdict, accepts: list[list[str]]) -> CommentState:
    return CommentState(
        run=int(event.run_id),
        attempt=event.run_attempt,
        head=event.head_sha,
        verdict=verdict,
        decided=_decided(verdict, None),
        accepts=accepts,
    )


def find_own(comments: list[Comment], first_line: str) -> list[Comment]:
    """Our comments that begin with a line, the oldest first. Anyone can write the marker, so the author counts."""
    ours = [comment for comment in comments if comment.own and begins_with(comment.body, first_line)]
    return sorted(ours, key=lambda comment: comment.id)


def read_state(body: str) -> CommentState | None:
    return read_state_line(body, _STATE, CommentState)


def compose(text: str, state: CommentState, first_line: str) -> str:
    """A rendered comment as it is posted: marker, state, text; short enough, and without commands."""
    lines = without_commands(text.splitlines())
    if lines and lines[0] == first_line:
        lines = lines[1:]
    hidden = [first_line, state_line(_STATE, state)]
    body = "\n".join([*hidden, *lines]) + "\n"
    if len(body) <= MAX_CHARACTERS:
        return body
    title = [line[:500] for line in lines if line.startswith("#")][:1]
    too_long = (
        f"The whole comment has {len(body)} characters, more than a forge takes. "
        "It stands as `comment.md` in the artifact of the measuring job."
    )
    return "\n".join([*hidden, *title, "", too_long]) + "\n"


def _decided(verdict: Verdict, last: Decided | None) -> Decided | None:
    return verdict if verdict in ("PASS", "FAIL") else last


def _turn_line(first_line: str, verdict: str) -> str:
    """The first line of the reply that tells people of a verdict that turned; ``first_line`` is the comment's."""
    return first_line.removesuffix(_END) + f" turned={verdict}{_END}"


def _find_turns(comments: list[Comment], first_line: str) -> list[tuple[Comment, Decided]]:
    """Our replies about verdicts that turned, the oldest first, each with the verdict it tells."""
    verdicts: tuple[Decided, ...] = ("PASS", "FAIL")
    turns = [(reply, verdict) for verdict in verdicts for reply in find_own(comments, _turn_line(first_line, verdict))]
    return sorted(turns, key=lambda turn: turn[0].id)


# --- posting


@dataclass(frozen=True)
class PostTexts:
    """What else is written: the reply when a verdict turned from one to another, and a second comment that must stay."""

    turned: Callable[[Decided, Decided], str]
    double: str


@dataclass(frozen=True)
class Post:
    """What became of a comment, and whether a reply told people that the verdict turned."""

    outcome: Posted
    replied: bool = False


def post(
    forge: Forge, number: int, text: str, state: CommentState, first_line: str, *, sleep: Sleep, texts: PostTexts
) -> Post:
    """Create or update our comment on a change request, and reply when a PASS turned into a FAIL or back."""
    return _Posting(forge, number, text, state, first_line, sleep, texts).run()


@dataclass
class _Posting:
    """One publisher at work: what it wants to stand there, and what it has done so far."""

    forge: Forge
    number: int
    text: str
    now: CommentState
    first_line: str
    sleep: Sleep
    texts: PostTexts
    last: Decided | None = None
    outcome: Posted = "kept"
    written: bool = False
    edited: int | None = None
    unanswered: int = 0
    stands: Decided | None = None

    def run(self) -> Post:
        for _ in range(ROUNDS):
            ours = find_own(self.forge.comments(self.number), self.first_line)
            if not ours and self.written:
                # Somebody deleted it at once, or the forge shows it later: twice would be worse than not at all.
                return self._end()
            if not ours:
                self.outcome = "created"
                self.written = self._write(self._body())
            elif self._settle(*ours):
                return self._end()
        raise ForgeError(
            f"the comment on change request {self.number} was changed {ROUNDS} times while this job set it; run it again"
        )

    def _write(self, body: str) -> bool:
        """Write a new comment; False where no word came back, so that we look before doing it once more."""
        try:
            self.forge.add_comment(self.number, body)
        except ForgeUnansweredError as error:
            self._bear(error)
            self.sleep(SETTLE_SECONDS)
            return False
        return True

    def _bear(self, error: ForgeUnansweredError) -> None:
        """Let it pass that no word came back, but not a third time."""
        self.unanswered += 1
        if self.unanswered == WRITES:
            raise error

    def _settle(self, stays: Comment, *duplicates: Comment) -> bool:
        """Do the next thing there is to do; True where nothing was left."""

        def run_and_attempt(comment: Comment) -> tuple[int, int]:
            state = read_state(comment.body)
            return (state.run, state.attempt) if state else (-1, -1)

        newest = max((stays, *duplicates), key=run_and_attempt)
        stands = read_state(newest.body)
        if stands is not None and self.now.is_older_than(stands):
            self.outcome = "kept"
            self.stands = stands.decided
            if newest is not stays:
                self._edit(stays, newest.body)
                return False
        elif not self.written or self._is_to_edit(stays, is_alone=not duplicates):
            # What stood here before us; when we look again after no word came back, some of it may be ours.
            if stands is not None and stands != self.now and not self.written:
                self.last = stands.decided
                self.now = msgspec.structs.replace(self.now, decided=_decided(self.now.verdict, self.last))
            if self._edit(stays, self._body()):
                self.outcome = "created" if self.outcome == "created" else "updated"
                self.written, self.edited, self.stands = True, stays.id, self.now.decided
            return False
        for duplicate in duplicates:
            self._delete(duplicate)
        return not duplicates

    def _body(self) -> str:
        return compose(self.text, self.now, self.first_line)

    def _is_to_edit(self, stays: Comment, *, is_alone: bool) -> bool:
        """Whether the comment that stays has an older text, or beside others another one of this run."""
        state = read_state(stays.body)
        if state is None:
            return stays.id != self.edited
        is_other = stays.id != self.edited and stays.body.strip() != self._body().strip()
        return state.is_older_than(self.now) or (is_other and not is_alone)

    def _edit(self, comment: Comment, body: str) -> bool:
        """Replace a text, and give others the time to do it too; False where the comment is gone."""
        try:
            self.forge.edit_comment(self.number, comment.id, body)
        except ForgeGoneError:
            return False
        except ForgeUnansweredError as error:
            self._bear(error)
            return False
        self.sleep(SETTLE_SECONDS)
        return True

    def _delete(self, comment: Comment) -> None:
        try:
            self.forge.delete_comment(self.number, comment.id)
        except ForgeError:
            # Not every token may delete. Without the marker it is not found again.
            with contextlib.suppress(ForgeGoneError, ForgeUnansweredError):
                self.forge.edit_comment(self.number, comment.id, self.texts.double + "\n")

    def _end(self) -> Post:
        # An edit notifies nobody, so a verdict that turned gets a comment of its own.
        # A newer run that wrote over ours saw no turn any more, so it is for us to tell as long as its verdict is the same.
        last, now = self.last, self.now.decided
        if not self.written or last is None or now is None or now == last or now != self.stands:
            return Post(self.outcome)
        return Post(self.outcome, replied=self._tell(last, now))

    def _tell(self, last: Decided, now: Decided) -> bool:
        """Reply that the verdict turned, unless a publisher at the same time did: one reply, whoever was first."""
        self.unanswered, tried = 0, False
        while True:
            turns = _find_turns(self.forge.comments(self.number), self.first_line)
            if turns and turns[-1][1] == now:
                self._delete_repeated(turns)
                return tried
            tried = True
            if self._write(f"{_turn_line(self.first_line, now)}\n{self.texts.turned(last, now)}\n"):
                self._delete_repeated(_find_turns(self.forge.comments(self.number), self.first_line))
                return True

    def _delete_repeated(self, turns: list[tuple[Comment, Decided]]) -> None:
        for (_, before), (reply, verdict) in itertools.pairwise(turns):
            if verdict == before:
                self._delete(reply)
