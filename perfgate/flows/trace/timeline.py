"""The page with the spans of a recording over time."""

from __future__ import annotations

from pathlib import Path

from perfgate.document.timeline import DrawnTimeline
from perfgate.errors import UsageError
from perfgate.flows.shared.trees import label_of
from perfgate.flows.trace.trace import Choice, choose, notes_of, numbered
from perfgate.trace.pages.timeline import drawn_timeline


def trace_timeline(path: Path, choice: Choice) -> list[DrawnTimeline]:
    """Every chosen timeline with events. Raises UsageError if none has any."""
    chosen = [pick for pick in choose(path, choice) if len(pick.timeline.events)]
    several = len(chosen) > 1
    labels = numbered(
        label_of(pick.recording.path.name, pick.timeline, several) for pick in chosen
    )
    pages = []
    for pick, label in zip(chosen, labels):
        timeline = pick.timeline
        pages.append(
            drawn_timeline(timeline.events, label, notes_of([pick]), timeline.readings)
        )
    if not pages:
        raise UsageError(
            "{path}: no timeline with events was recorded; tables of steps or totals alone have no spans",
            path=path,
        )
    return pages
