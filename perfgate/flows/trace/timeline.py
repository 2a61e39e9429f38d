"""The page with the spans of a recording over time."""

from __future__ import annotations

from pathlib import Path

from perfgate.document.timeline import DrawnTimeline
from perfgate.errors import UsageError
from perfgate.flows.shared.labels import label_of
from perfgate.flows.trace.choice import Choice
from perfgate.flows.trace.job import choose, notes_of
from perfgate.trace.pages.timeline import drawn_timeline


def trace_timeline(path: Path, choice: Choice) -> list[DrawnTimeline]:
    """Every chosen timeline with events. Raises UsageError if none has any."""
    chosen = choose(path, choice)
    several = len({pick.recording.path for pick in chosen}) > 1
    drawn = [
        drawn_timeline(
            pick.timeline.events,
            label_of(pick.recording.path.name, pick.timeline, several),
            notes_of([pick]),
            pick.timeline.readings,
        )
        for pick in chosen
        if len(pick.timeline.events)
    ]
    if not drawn:
        raise UsageError(
            "{path}: no timeline with events was recorded; tables of steps or totals alone have no spans", path=path
        )
    return drawn
