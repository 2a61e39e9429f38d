"""The communication of ranks in profiled steps, start by start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perfgate.document.job import RankCounts, Turn


def profiled_starts(turns: Iterable[Turn]) -> list[list[RankCounts]]:
    """The counts of every start; empty if a rank could not be profiled."""
    starts = [turn.counts for turn in turns if turn.counts]
    for start in starts:
        if any(not rank.steps for rank in start):
            return []
    return starts


def exposed(start: Iterable[RankCounts]) -> float:
    """The seconds of the rank with the least: any excess of the others is waiting for it."""
    return min(rank.exposed for rank in start)


def skew(start: Sequence[RankCounts]) -> float:
    """The difference between the longest and the shortest wait of a rank."""
    return max(rank.exposed for rank in start) - exposed(start)
