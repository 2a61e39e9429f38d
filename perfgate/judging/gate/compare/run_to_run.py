"""The numbers of stored runs of main beside main's level, without a verdict.

Two runs were measured on different days, so a difference of their times says nothing about the code by itself. A number is
placed in the prediction interval for one more version of the level (``gate/stored.py``); an exact counter is that of the
earlier run or it is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perfgate.document.site import BesideLevel, Position
from perfgate.document.trend import TrendSeries
from perfgate.judging.gate.compare.stored import LEVEL, MIN_RUNS, prediction_interval
from perfgate.judging.gate.evidence.numbers import median
from perfgate.judging.gate.evidence.values import rounded


def beside_level(series: TrendSeries, value: float | None, level: Sequence[float]) -> BesideLevel:
    """A number of a run beside the level that the run is on; ``level`` are its versions without the run's own."""
    interval = prediction_interval(level, series.metric)
    position: Position = "unknown"
    if value is not None and interval is not None:
        position = "below" if value < interval[0] else "above" if value > interval[1] else "inside"
    elif value is not None and len(level) >= MIN_RUNS:
        position = "no_spread"
    return BesideLevel(
        series=series,
        value=value,
        versions=len(level),
        typical=rounded(median(level, series.metric)) if level else None,
        interval=interval,
        confidence=rounded(2 * LEVEL - 1) if interval else None,
        position=position,
    )


def run_to_run(series: TrendSeries, before: float | None, value: float | None, level: Sequence[float]) -> BesideLevel:
    """A number of two runs; ``level`` are the versions of the earlier run's level without the later run's.

    It is empty if the runs are of two testbeds, and then nothing is compared.
    """
    placed = beside_level(series, value, level)
    known = before is not None and value is not None
    position: Position = placed.position if known else "unknown"
    if known and level and series.kind == "exact":
        position = "same" if before == value else "differs"
    return msgspec.structs.replace(placed, before=before, position=position)
