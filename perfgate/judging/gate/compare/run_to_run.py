"""The numbers of stored runs of main next to main's level, without a verdict.

Two runs were measured on different days, so a difference of their times is not evidence about the code. A number is
placed in the prediction interval for one more version of the level (``stored.py``); an exact counter is
the same as in the earlier run or it differs.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perfgate.document.site import BesideLevel, Position
from perfgate.document.trend import TrendSeries
from perfgate.judging.gate.compare.main_level import LEVEL, MIN_RUNS, prediction_interval
from perfgate.judging.gate.evidence.checklist import median
from perfgate.judging.gate.evidence.values import rounded


def beside_level(series: TrendSeries, value: float | None, level: Sequence[float]) -> BesideLevel:
    """A number of a run next to its level; ``level`` are the level's versions without the run itself."""
    interval = prediction_interval(level, series.metric)
    return BesideLevel(
        series=series,
        value=value,
        versions=len(level),
        typical=rounded(median(level, series.metric)) if level else None,
        interval=interval,
        confidence=rounded(2 * LEVEL - 1) if interval else None,
        position=_position(value, interval, len(level)),
    )


def _position(value: float | None, interval: tuple[float, float] | None, versions: int) -> Position:
    if value is None:
        return "unknown"
    if interval is None:
        if versions >= MIN_RUNS:
            return "no_spread"
        return "unknown"
    low, high = interval
    if value < low:
        return "below"
    if value > high:
        return "above"
    return "inside"


def run_to_run(series: TrendSeries, before: float | None, value: float | None, level: Sequence[float]) -> BesideLevel:
    """A number of two runs; ``level`` are the versions of the earlier run's level without the later run's.

    It is empty if the runs are of two testbeds; then they are not compared.
    """
    placed = beside_level(series, value, level)
    position: Position = placed.position
    if before is None or value is None:
        position = "unknown"
    elif level and series.is_exact:
        position = "same" if before == value else "differs"
    return replace(placed, before=before, position=position)
