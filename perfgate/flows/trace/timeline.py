"""The page with the spans of a recording over time."""

from __future__ import annotations

from pathlib import Path

from perfgate.document.timeline import DrawnTimeline
from perfgate.errors import UsageError
from perfgate.flows.shared.flame import label_of
from perfgate.flows.trace.job import Choice, choose
from perfgate.trace.pages.timeline import drawn_timeline


def trace_timeline(path: Path, choice: Choice) -> list[DrawnTimeline]:
    """Every chosen timeline with events. Raises UsageError if none has any."""
    chosen = choose(path, choice)
    several = len({pick.recording.path for pick in chosen}) > 1
    drawn = [
        drawn_timeline(
            pick.timeline.events,
            label_of(pick.recording.path.name, pick.timeline, several),
            pick.recording.notes,
        )
        for pick in chosen
        if len(pick.timeline.events)
    ]
    if not drawn:
        raise UsageError(f"{path}: no timeline with events was recorded; tables of steps or totals alone have no spans")
    return drawn
