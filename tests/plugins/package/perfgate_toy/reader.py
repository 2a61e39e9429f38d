"""A format that nobody writes: one kernel a line, as start and duration in nanoseconds, stream and name."""

from __future__ import annotations

from pathlib import Path

from perfgate.errors import DocumentError
from perfgate.trace import EventTableBuilder, Recording, Timeline

READS = "*.toytrace"
PRIORITY = 0


def recognises(path: Path) -> bool:
    return path.suffix == ".toytrace"


def read(path: Path) -> Recording:
    builder = EventTableBuilder()
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            start, duration, stream, name = line.split(maxsplit=3)
            times = int(start), int(duration)
        except ValueError as error:
            raise DocumentError(f"{path}: line {number} is no event: {error}; record it again") from error
        builder.add(*times, track=("toy", stream), name=name, kind="compute")
    return Recording(path, "toy", (Timeline(None, 0, builder.table()),))
