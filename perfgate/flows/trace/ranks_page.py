"""The page of many ranks: heat maps of their steps, arrivals and links, and timelines of some of them by one clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import isnan
from typing import Literal

import numpy as np

from perfgate.document.ranks import DrawnRanks, HeatMap
from perfgate.errors import UsageError
from perfgate.flows.trace.ranks import Ranks
from perfgate.judging.report.text.ranks import rank_name
from perfgate.trace.analysis.links import links_between
from perfgate.trace.analysis.rank_table import RankTable
from perfgate.trace.analysis.ranks import Arrivals, ranks_timeline
from perfgate.trace.pages.timeline import drawn_timeline

_DRAWN = 16  # timelines beside each other by default
_COLUMNS = 500  # of a heat map
_LINKED = 512  # more ranks than these have more pairs than a page can show
_PARTS: dict[Literal["computing", "exposed", "free", "bubble"], str] = {
    "computing": "computing_ns",
    "exposed": "exposed_communication_ns",
    "free": "free_ns",
    "bubble": "bubble_ns",
}


def drawn_ranks(found: Ranks, chosen: Sequence[int]) -> DrawnRanks:
    """The page's content; ``chosen`` are the ranks to draw timelines of, by default the slow ones and the first.

    Raises UsageError if a chosen rank was not recorded.
    """
    tables, arrived = found.tables, found.arrivals
    drawn = _chosen(found, chosen)
    clock = [arrived.clock[place] for place in drawn]
    events = ranks_timeline([tables[place] for place in drawn], clock)
    timeline = drawn_timeline(events, "", of_ranks=True) if len(events) else None
    labels = [rank_name(table.rank, table.device) for table in tables]
    return DrawnRanks(
        document=found.document,
        labels=labels,
        maps=[*_steps(tables), *_late(arrived, len(tables)), *_links(tables)],
        timeline=timeline,
        unaligned=[labels[place] for place, ahead in zip(drawn, clock) if ahead is None] if timeline else [],
    )


def _chosen(found: Ranks, chosen: Sequence[int]) -> list[int]:
    tables = found.tables
    recorded = {table.rank for table in tables}
    if missing := [rank for rank in chosen if rank not in recorded]:
        raise UsageError("rank {rank} was not recorded; `perfgate trace ranks` lists those that were", rank=missing[0])
    if chosen:
        return [place for place, table in enumerate(tables) if table.rank in chosen]
    slow = {(row.rank, row.device) for row in found.document.delays or found.document.slow_ranks}
    first = sorted(range(len(tables)), key=lambda place: (tables[place].rank, tables[place].device) not in slow)
    return sorted(first[:_DRAWN])


def _steps(tables: Sequence[RankTable]) -> Iterator[HeatMap]:
    numbers = sorted({step.number or 0 for table in tables for step in table.steps})
    shown = numbers[-_COLUMNS:]
    by_number = [{step.number: step for step in table.steps} for table in tables]
    for part, field in _PARTS.items():
        times = [[getattr(steps.get(number), field, None) for number in shown] for steps in by_number]
        if any(time for row in times for time in row):
            values = [[None if time is None else time / 1e9 for time in row] for row in times]
            columns = [str(number) for number in shown]
            yield HeatMap(kind=part, columns=columns, values=values, left_out=len(numbers) - len(shown))


def _late(arrived: Arrivals, ranks: int) -> Iterator[HeatMap]:
    if not arrived.names:
        return
    shown = np.sort(np.argsort(-arrived.skew, kind="stable")[:_COLUMNS])
    place = np.full(len(arrived.names), -1)
    place[shown] = np.arange(shown.size)
    late = np.full((ranks, shown.size), np.nan)
    inside = place[arrived.collective] >= 0
    late[arrived.rank[inside], place[arrived.collective[inside]]] = arrived.late[inside] / 1e9
    yield HeatMap(
        kind="late",
        columns=[f"{number + 1} {arrived.names[number]}" for number in shown.tolist()],
        values=[[None if isnan(value) else value for value in row] for row in late.tolist()],
        left_out=len(arrived.names) - shown.size,
    )


def _links(tables: Sequence[RankTable]) -> Iterator[HeatMap]:
    """A map for every kind of link between ranks; all devices of a rank count as one end."""
    carried: dict[tuple[str, int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for link in links_between(tables):
        if link.group is None:
            total = carried[link.link, link.source, link.target]
            total[0] += link.size_bytes
            total[1] += link.transit_ns
    links = {key: size / transit * 1e9 for key, (size, transit) in carried.items()}
    targets = sorted({target for _, _, target in links})
    if len(targets) > _LINKED:
        return
    for kind in sorted({kind for kind, _, _ in links}):
        values = [
            [None if table.rank is None else links.get((kind, table.rank, target)) for target in targets]
            for table in tables
        ]
        yield HeatMap(kind="bandwidth", link=kind, columns=[str(target) for target in targets], values=values)
