"""The labels of timelines in pages that draw several."""

from __future__ import annotations

from pathlib import Path

from perfgate.trace.model.recording import Timeline


def label_of(path: str, timeline: Timeline, several: bool) -> str:
    """E.g. ``minilm-short`` for trace-minilm-short.json.gz, with rank and device if they add information."""
    name = Path(path).name.partition(".json")[0].removesuffix(".zip").removeprefix("trace-")
    return f"{name}, {timeline.label}" if several and timeline.label != "all" else name
