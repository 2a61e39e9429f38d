"""Clocks that are wrong, as a run and its recording show them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from perfgate.document.history import moment
from perfgate.document.message import Message
from perfgate.document.run import RunDocument

# Clocks that are set over the network agree to seconds; a smaller difference moves no
# run in a history.
CLOCK_SLACK = timedelta(minutes=5)


def clock_notes(run: RunDocument, recorded_at: str) -> list[Message]:
    """The fault of the clock of the machine that measured; ``recorded_at`` is the time
    of recording, ISO 8601.

    A clock that is behind shows only in comparison with the commit: a run may be
    recorded days after it was measured.
    """
    try:
        return list(_notes(run, moment(recorded_at)))
    except ValueError:  # a time that is none is refused elsewhere
        return []


def clock_difference_note(ahead: timedelta) -> list[Message]:
    """A note if the clock of the store is ahead of this machine's, or behind it."""
    if abs(ahead) <= CLOCK_SLACK:
        return []
    code = (
        "notes.store-clock-ahead" if ahead > timedelta() else "notes.store-clock-behind"
    )
    return [Message(code, {"seconds": abs(ahead).total_seconds()})]


def _notes(run: RunDocument, recorded: datetime) -> Iterator[Message]:
    began, ended = moment(run.session.started_at), moment(run.session.finished_at)
    if ended < began:
        yield Message(
            "notes.clock-set-back", {"seconds": (began - ended).total_seconds()}
        )
    if (ahead := max(began, ended) - recorded) > CLOCK_SLACK:
        yield Message("notes.clock-ahead", {"seconds": ahead.total_seconds()})
    committed = run.source.committed_at
    if (
        committed
        and not run.source.dirty
        and (behind := moment(committed) - began) > CLOCK_SLACK
    ):
        yield Message("notes.clock-behind", {"seconds": behind.total_seconds()})
