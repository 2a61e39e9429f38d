"""One comment of ours on a change request in the end, whoever else writes, edits or deletes there at the same time.

No forge can replace a text "if nobody else did", so every publisher does the same until nothing is left to do: look,
write or edit, look again. Creating overwrites nothing: of several comments the one with the lowest number stays and gets
the text of the newest run, and the others are deleted. An edit can overwrite that of a newer run whose own look was over;
so after an edit everybody waits a moment before looking, and the newer run repairs it. What remains is an older run that
hangs for longer than SETTLE_SECONDS between its look and its edit.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from perfgate.errors import ForgeError, ForgeGoneError, ForgeUnansweredError
from perfgate.judging.forge.comment import (
    CommentState,
    Decided,
    compose,
    decided,
    find_own,
    find_turns,
    read_state,
    turn_line,
)
from perfgate.judging.forge.forge import Comment, Forge
from perfgate.judging.forge.limits import Sleep

Posted = Literal["created", "updated", "kept"]

ROUNDS = 12
WRITES = 3
SETTLE_SECONDS = 2.0


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


class _Posting:
    """One publisher at work: what it wants to stand there, and what it has done so far."""

    def __init__(
        self,
        forge: Forge,
        number: int,
        text: str,
        state: CommentState,
        first_line: str,
        sleep: Sleep,
        texts: PostTexts,
    ) -> None:
        self._forge = forge
        self._number = number
        self._text = text
        self._now = state
        self._first_line = first_line
        self._sleep = sleep
        self._texts = texts
        self._last: Decided | None = None
        self._outcome: Posted = "kept"
        self._written = False
        self._edited: int | None = None
        self._unanswered = 0
        self._stands: Decided | None = None

    def run(self) -> Post:
        for _ in range(ROUNDS):
            ours = find_own(self._look(), self._first_line)
            if not ours and self._written:
                # Somebody deleted it at once, or the forge shows it later: twice would be worse than not at all.
                return self._end()
            if not ours:
                self._outcome = "created"
                self._written = self._write(compose(self._text, self._now, self._first_line))
            elif self._settle(*ours):
                return self._end()
        raise ForgeError(
            f"the comment on change request {self._number} was changed {ROUNDS} times while this job set it; run it again"
        )

    def _look(self) -> list[Comment]:
        return self._forge.comments(self._number)

    def _write(self, body: str) -> bool:
        """Write a new comment; False where no word came back, so that we look before doing it once more."""
        try:
            self._forge.add_comment(self._number, body)
        except ForgeUnansweredError as error:
            self._bear(error)
            self._sleep(SETTLE_SECONDS)
            return False
        return True

    def _bear(self, error: ForgeUnansweredError) -> None:
        """Let it pass that no word came back, but not a third time."""
        self._unanswered += 1
        if self._unanswered == WRITES:
            raise error

    def _settle(self, stays: Comment, *duplicates: Comment) -> bool:
        """Do the next thing there is to do; True where nothing was left."""
        newest = max((stays, *duplicates), key=lambda comment: _order(read_state(comment.body)))
        stands = read_state(newest.body)
        if stands is not None and self._now.is_older_than(stands):
            self._outcome = "kept"
            self._stands = stands.decided
            if newest is not stays:
                self._edit(stays, newest.body)
                return False
        elif not self._written or self._is_stale(stays) or (duplicates and self._is_of_this_run(stays)):
            self._remember(stands)
            if self._edit(stays, compose(self._text, self._now, self._first_line)):
                self._outcome = "created" if self._outcome == "created" else "updated"
                self._written, self._edited, self._stands = True, stays.id, self._now.decided
            return False
        for duplicate in duplicates:
            self._delete(duplicate)
        return not duplicates

    def _is_stale(self, stays: Comment) -> bool:
        state = read_state(stays.body)
        return stays.id != self._edited if state is None else state.is_older_than(self._now)

    def _is_of_this_run(self, stays: Comment) -> bool:
        text = compose(self._text, self._now, self._first_line)
        return stays.id != self._edited and read_state(stays.body) is not None and stays.body.strip() != text.strip()

    def _remember(self, before: CommentState | None) -> None:
        """Keep what was decided before us; of what stands when we look again after no word came back, some may be ours."""
        if before is not None and before != self._now and not self._written:
            self._last = before.decided
            self._now = msgspec.structs.replace(self._now, decided=decided(self._now.verdict, self._last))

    def _edit(self, comment: Comment, body: str) -> bool:
        """Replace a text, and give others the time to do it too; False where the comment is gone."""
        try:
            self._forge.edit_comment(self._number, comment.id, body)
        except ForgeGoneError:
            return False
        except ForgeUnansweredError as error:
            self._bear(error)
            return False
        self._sleep(SETTLE_SECONDS)
        return True

    def _delete(self, comment: Comment) -> None:
        try:
            self._forge.delete_comment(self._number, comment.id)
        except ForgeError:
            # Not every token may delete. Without the marker it is not found again.
            with contextlib.suppress(ForgeGoneError, ForgeUnansweredError):
                self._forge.edit_comment(self._number, comment.id, self._texts.double + "\n")

    def _end(self) -> Post:
        # An edit notifies nobody, so a verdict that turned gets a comment of its own.
        # A newer run that wrote over ours saw no turn any more, so it is for us to tell as long as its verdict is the same.
        last, now = self._last, self._now.decided
        if not self._written or last is None or now is None or now == last or now != self._stands:
            return Post(self._outcome)
        return Post(self._outcome, replied=self._tell(last, now))

    def _tell(self, last: Decided, now: Decided) -> bool:
        """Reply that the verdict turned, unless a publisher at the same time did: one reply, whoever was first."""
        self._unanswered, tried = 0, False
        while True:
            turns = find_turns(self._look(), self._first_line)
            if turns and turns[-1][1] == now:
                self._delete_repeated(turns)
                return tried
            tried = True
            if self._write(f"{turn_line(self._first_line, now)}\n{self._texts.turned(last, now)}\n"):
                self._delete_repeated(find_turns(self._look(), self._first_line))
                return True

    def _delete_repeated(self, turns: list[tuple[Comment, Decided]]) -> None:
        for (_, before), (reply, verdict) in itertools.pairwise(turns):
            if verdict == before:
                self._delete(reply)


def _order(state: CommentState | None) -> tuple[int, int]:
    return (state.run, state.attempt) if state else (-1, -1)
