"""Our one comment on a change request: its marker, hidden state and maximum length, and
the posting of it.

No forge offers compare-and-swap for comments, so every publisher repeats one loop until
the state is settled: read, write or edit, read again. Creating a comment never
overwrites another: of several, the lowest number stays and gets the text of the newest
run; the others are deleted. An edit can overwrite the edit of a newer run that has
already done its last read; therefore every publisher waits a moment after an edit
before it reads again, and the newer run repairs the text. The remaining race is an
older run that hangs for longer than SETTLE_SECONDS between its read and its edit.
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
# The renderer's share of it; the rest is for the hidden lines added here.
TEXT_BUDGET = MAX_CHARACTERS - 5_000
# Longest state line, in characters; the metrics of the numbered causes dominate it.
_MOST_METRICS = 4_000
ROUNDS = 12
WRITES = 3
SETTLE_SECONDS = 2.0

_MARKER, _STATE = "sticky", "state"
_END = " -->"

# The verdicts that judge the code.
Decided = Literal["PASS", "FAIL"]
Posted = Literal["created", "updated", "kept"]
State = TypeVar("State", bound=msgspec.Struct)


# --- hidden lines, shared with issues


def marker_line(kind: str, key: str) -> str:
    """The first line of a text of a kind.

    ``key`` distinguishes several gates of one repository.
    """
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return f"<!-- perfgate:{kind} v1 key={digest}{_END}"


def begins_with(body: str, first_line: str) -> bool:
    """Whether a text begins with a line; forges may convert line endings."""
    return body.partition("\n")[0].rstrip("\r") == first_line


def state_line(kind: str, state: msgspec.Struct) -> str:
    """The second line of a text; angle brackets are escaped so that no name can end the
    HTML comment.
    """
    written = (
        msgspec.json.encode(state)
        .decode()
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
    )
    return f"<!-- perfgate:{kind} {written}{_END}"


def read_state_line(body: str, kind: str, record: type[State]) -> State | None:
    """The state in the second line of a text; None if it is missing or malformed."""
    lines, start = body.splitlines(), f"<!-- perfgate:{kind} "
    if len(lines) < 2 or not (lines[1].startswith(start) and lines[1].endswith(_END)):
        return None
    try:
        return msgspec.json.decode(lines[1][len(start) : -len(_END)], type=record)
    except (msgspec.DecodeError, RecursionError):
        return None


def without_commands(lines: Sequence[str]) -> list[str]:
    """Neutralize lines that a forge would execute as commands, by a zero-width space
    before the slash.

    GitLab executes a line that starts with a slash with our token's rights
    (docs.gitlab.com, "Quick actions"), and so do the bots of many projects on Gitee and
    GitCode.
    """
    return [
        "\u200b" + line if line.lstrip().startswith("/") else line for line in lines
    ]


# --- the comment's text


class CommentState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a comment, stored in its hidden second line.

    ``run`` and ``attempt`` order comments of one change request: forges count runs
    upwards, and a repeated run keeps its number. ``decided`` is the last PASS or FAIL,
    even if the newest verdict is neither. ``accepts`` holds, for each numbered cause of
    the comment, the metrics to accept for it.
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


def state_of(
    event: CiEvent, verdict: Verdict, accepts: list[list[str]]
) -> CommentState:
    return CommentState(
        run=int(event.job.run_id),
        attempt=event.job.run_attempt,
        head=event.head_sha,
        verdict=verdict,
        decided=_decided(verdict, None),
        accepts=accepts,
    )


def find_own(comments: list[Comment], first_line: str) -> list[Comment]:
    """Our comments that begin with a line, oldest first.

    Anyone can write the marker, so the author is checked too.
    """
    ours = [
        comment
        for comment in comments
        if comment.own and begins_with(comment.body, first_line)
    ]
    return sorted(ours, key=lambda comment: comment.id)


def read_state(body: str) -> CommentState | None:
    return read_state_line(body, _STATE, CommentState)


def compose(text: str, state: CommentState, first_line: str) -> str:
    """The body to post: marker, state, text; within MAX_CHARACTERS and without
    commands.
    """
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
    if verdict in ("PASS", "FAIL"):
        return verdict
    return last


def _turn_line(first_line: str, verdict: str) -> str:
    """The first line of the reply that announces a changed verdict; ``first_line`` is
    the comment's.
    """
    return first_line.removesuffix(_END) + f" turned={verdict}{_END}"


def _find_turns(
    comments: list[Comment], first_line: str
) -> list[tuple[Comment, Decided]]:
    """Our replies about changed verdicts, oldest first, each with the verdict it
    announces.
    """
    verdicts: tuple[Decided, ...] = ("PASS", "FAIL")
    turns = []
    for verdict in verdicts:
        replies = find_own(comments, _turn_line(first_line, verdict))
        turns += [(reply, verdict) for reply in replies]
    return sorted(turns, key=lambda turn: turn[0].id)


# --- posting


def post(
    forge: Forge,
    number: int,
    text: str,
    state: CommentState,
    first_line: str,
    *,
    sleep: Sleep,
    turned: Callable[[Decided, Decided], str],
    double: str,
) -> Posted:
    """Create or update our comment on a change request, and reply when the verdict
    changes between PASS and FAIL.

    ``turned`` words that reply from the verdicts before and now; ``double`` is the body
    of a duplicate that cannot be deleted.
    """
    return _Posting(forge, number, text, state, first_line, sleep, turned, double).run()


@dataclass
class _Posting:
    """One publisher at work: the comment it wants, and its progress so far."""

    forge: Forge
    number: int
    text: str
    now: CommentState
    first_line: str
    sleep: Sleep
    turned: Callable[[Decided, Decided], str]
    double: str
    last: Decided | None = None
    outcome: Posted = "kept"
    written: bool = False
    edited: int | None = None
    unanswered: int = 0
    stands: Decided | None = None

    def run(self) -> Posted:
        for _ in range(ROUNDS):
            ours = find_own(self.forge.comments(self.number), self.first_line)
            # Deleted at once, or the forge lists it late: a duplicate would be worse
            # than no comment.
            is_unlisted = not ours and self.written
            if is_unlisted or (ours and self._settle(*ours)):
                self._announce_turn()
                return self.outcome
            if not ours:
                self.outcome = "created"
                self.written = self._write(self._body())
        raise ForgeError(
            "the comment on change request {number} was changed {rounds} times while this job was writing it; run it "
            "again",
            number=self.number,
            rounds=ROUNDS,
        )

    def _write(self, body: str) -> bool:
        """Write a new comment; False if the forge did not answer, so that the caller
        reads again before a retry.
        """
        try:
            self.forge.add_comment(self.number, body)
        except ForgeUnansweredError as error:
            self._bear(error)
            self.sleep(SETTLE_SECONDS)
            return False
        return True

    def _bear(self, error: ForgeUnansweredError) -> None:
        """Tolerate an unanswered write, but raise at the third."""
        self.unanswered += 1
        if self.unanswered == WRITES:
            raise error

    def _settle(self, stays: Comment, *duplicates: Comment) -> bool:
        """Do the next pending change; True if none was left."""

        def run_and_attempt(comment: Comment) -> tuple[int, int]:
            state = read_state(comment.body)
            if state:
                return (state.run, state.attempt)
            return (-1, -1)

        newest = max((stays, *duplicates), key=run_and_attempt)
        stands = read_state(newest.body)
        if stands is not None and self.now.is_older_than(stands):
            self.outcome = "kept"
            self.stands = stands.decided
            if newest is not stays:
                self._edit(stays, newest.body)
                return False
        elif not self.written or self._is_to_edit(stays, is_alone=not duplicates):
            # The state before our first write. After an unanswered write the text may
            # be ours; then it equals ``now``.
            if stands is not None and stands != self.now and not self.written:
                self.last = stands.decided
                self.now = msgspec.structs.replace(
                    self.now, decided=_decided(self.now.verdict, self.last)
                )
            if self._edit(stays, self._body()):
                self.outcome = "created" if self.outcome == "created" else "updated"
                self.written = True
                self.edited = stays.id
                self.stands = self.now.decided
            return False
        for duplicate in duplicates:
            self._delete(duplicate)
        return not duplicates

    def _body(self) -> str:
        return compose(self.text, self.now, self.first_line)

    def _is_to_edit(self, stays: Comment, *, is_alone: bool) -> bool:
        """Whether the comment that stays has an older text, or, among duplicates, a
        different one of this run.
        """
        state = read_state(stays.body)
        if state is None:
            return stays.id != self.edited
        is_other = (
            stays.id != self.edited and stays.body.strip() != self._body().strip()
        )
        return state.is_older_than(self.now) or (is_other and not is_alone)

    def _edit(self, comment: Comment, body: str) -> bool:
        """Replace a text and wait for concurrent edits; False if the comment is gone or
        the forge did not answer.
        """
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
            # Not every token may delete. Without the marker the comment is not found
            # again.
            with contextlib.suppress(ForgeGoneError, ForgeUnansweredError):
                self.forge.edit_comment(self.number, comment.id, self.double + "\n")

    def _announce_turn(self) -> None:
        """Announce a changed verdict in a reply, unless a concurrent publisher did;
        duplicate replies are deleted.

        An edit sends no notification, so a changed verdict gets a separate comment. A
        newer run that overwrote our text saw no change, so we announce it as long as
        the newer verdict is the same.
        """
        last, now = self.last, self.now.decided
        if (
            not self.written
            or last is None
            or now is None
            or now == last
            or now != self.stands
        ):
            return
        self.unanswered = 0
        is_written = False
        while True:
            turns = _find_turns(self.forge.comments(self.number), self.first_line)
            if is_written or (turns and turns[-1][1] == now):
                for (_, before), (reply, verdict) in itertools.pairwise(turns):
                    if verdict == before:
                        self._delete(reply)
                return
            is_written = self._write(
                f"{_turn_line(self.first_line, now)}\n{self.turned(last, now)}\n"
            )
