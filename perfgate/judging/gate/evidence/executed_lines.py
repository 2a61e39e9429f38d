"""The lines of Python that the runs of a command execute."""

from __future__ import annotations

from collections.abc import Iterable

from perfgate.document.job import PYTHON_LINES, Turn

# The fewest runs of a side that show whether the count repeats.
FEWEST_COUNTED = 2


def counted_lines(turns: Iterable[Turn]) -> list[int]:
    return [turn.counters[PYTHON_LINES] for turn in turns if PYTHON_LINES in turn.counters]
