"""The page with the spans of a recording over time."""

from __future__ import annotations

from pathlib import Path

from perfgate.document.timeline import DrawnTimeline
from perfgate.errors import UsageError
from perfgate.flows.shared.trees import label_of
from perfgate.flows.trace.trace import Choice, choose, notes_of, several_recordings
from perfgate.trace.pages.timeline import drawn_timeline


def trace_timeline(path: Path, choice: Choice) -> list[DrawnTimeline]:
    """Every chosen timeline with events. Raises UsageError if none has any."""
    chosen = choose(path, choice)
    several = several_recordings(chosen)
    pages = []
    for pick in chosen:
        timeline = pick.timeline
        if len(timeline.events):
            label = label_of(pick.recording.path.name, timeline, several)
            pages.append(
                drawn_timeline(
                    timeline.events, label, notes_of([pick]), timeline.readings
                )
            )
    if not pages:
        raise UsageError(
            "{path}: no timeline with events was recorded; tables of steps or totals alone have no spans",
            path=path,
        )
    return pages
