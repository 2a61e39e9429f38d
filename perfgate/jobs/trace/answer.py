"""``perfgate trace REC``: how busy the device is, what costs most, and which line of the host is behind it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from perfgate.document.trace import AnswerDocument, AnswerTimeline
from perfgate.jobs.trace.job import (
    Choice,
    ChosenTimeline,
    choose,
    format_of,
    gap_timeline,
    notes_of,
    top_timeline,
)
from perfgate.trace.analysis import overlap_length, union
from perfgate.trace.events import DEVICE_KINDS, EventTable

_NS = 1e9
_SHOWN = 3


def trace_answer(path: Path, choice: Choice) -> AnswerDocument:
    """The first look at every chosen timeline. Raises UsageError and DocumentError, with what to do."""
    chosen = choose(path, choice)
    limited = replace(choice, limit=choice.limit or _SHOWN)
    return AnswerDocument(
        format=format_of(chosen), timelines=[_answer(pick, limited) for pick in chosen], notes=notes_of(chosen)
    )


def _answer(pick: ChosenTimeline, choice: Choice) -> AnswerTimeline:
    communication, exposed = _communication(pick.timeline.events)
    return AnswerTimeline(
        gaps=gap_timeline(pick, choice, False, 0),
        top=top_timeline(pick, choice, "type", False, None),
        communication=communication,
        exposed=exposed,
    )


def _communication(events: EventTable) -> tuple[float | None, float | None]:
    """Seconds in which collectives ran, and in which they ran alone."""
    if not events.is_kind(*DEVICE_KINDS).any():
        return None, None
    sending, computing = (union(events.of_kind(kind).intervals) for kind in ("comm", "compute"))
    return sending.length / _NS, (sending.length - overlap_length(sending, computing)) / _NS
