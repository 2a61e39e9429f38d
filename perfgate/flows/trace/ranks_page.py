"""The page of many ranks: heat maps of their steps, arrivals and links, and timelines
of some of them by one clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from perfgate.document.timeline import DrawnRanks, DrawnTimeline, HeatMap
from perfgate.errors import UsageError
from perfgate.flows.trace.ranks import Ranks
from perfgate.judging.report.text.ranks import rank_name
from perfgate.trace.analysis.rank_table import RankTable
from perfgate.trace.analysis.ranks import Arrivals, links_between, ranks_timeline
from perfgate.trace.model.arithmetic import seconds
from perfgate.trace.model.recording import ProfilerStep
from perfgate.trace.pages.timeline import drawn_timeline

_DRAWN = 16  # timelines on the page by default
_COLUMNS = 500  # of a heat map
_LINKED = 512  # the most ranks for which a page can show all pairs
_PARTS: dict[Literal["computing", "exposed", "free", "bubble"], str] = {
    "computing": "computing_ns",
    "exposed": "exposed_communication_ns",
    "free": "free_ns",
    "bubble": "bubble_ns",
}


def drawn_ranks(ranks: Ranks, chosen: Sequence[int]) -> DrawnRanks:
    """The page's content; ``chosen`` are the ranks to draw timelines of, by default the
    slow ranks and the first.

    Raises UsageError if a chosen rank was not recorded.
    """
    tables, arrived = ranks.tables, ranks.arrivals
    labels = [rank_name(table.rank, table.device) for table in tables]
    shown = _drawn(ranks, chosen)
    clock = [arrived.clock[place] for place in shown]
    events = ranks_timeline([tables[place] for place in shown], clock)
    timeline: DrawnTimeline | None = None
    unaligned: list[str] = []
    if len(events):
        timeline = drawn_timeline(events, "", of_ranks=True)
        unaligned = [labels[place] for place in shown if arrived.clock[place] is None]
    return DrawnRanks(
        document=ranks.document,
        labels=labels,
        maps=[*_steps(tables), *_late(arrived, len(tables)), *_links(tables)],
        timeline=timeline,
        unaligned=unaligned,
    )


def _drawn(ranks: Ranks, chosen: Sequence[int]) -> list[int]:
    """The positions of the tables with a timeline to draw."""
    tables = ranks.tables
    recorded = {table.rank for table in tables}
    for rank in chosen:
        if rank not in recorded:
            raise UsageError(
                "rank {rank} was not recorded; `perfgate trace ranks` lists those that were",
                rank=rank,
            )
    if chosen:
        return [place for place, table in enumerate(tables) if table.rank in chosen]
    rows = ranks.document.delays or ranks.document.slow_ranks
    slow = {(row.rank, row.device) for row in rows}
    slow_first = sorted(
        range(len(tables)),
        key=lambda place: (tables[place].rank, tables[place].device) not in slow,
    )
    return sorted(slow_first[:_DRAWN])


def _steps(tables: Sequence[RankTable]) -> Iterator[HeatMap]:
    """A map for every part of a step that takes any time, with the last steps."""
    by_number: list[dict[int, ProfilerStep]] = []
    numbers: set[int] = set()
    for table in tables:
        steps = {step.number or 0: step for step in table.steps}
        by_number.append(steps)
        numbers.update(steps)
    places = sorted(numbers)[-_COLUMNS:]
    columns = list(map(str, places))
    for part, field in _PARTS.items():
        values: list[list[float | None]] = []
        for steps in by_number:
            values.append(
                [seconds(getattr(steps.get(number), field, None)) for number in places]
            )
        if any(map(any, values)):
            yield HeatMap(
                kind=part,
                columns=columns,
                values=values,
                left_out=len(numbers) - len(places),
            )


def _late(arrived: Arrivals, ranks: int) -> Iterator[HeatMap]:
    if not arrived.names:
        return
    places = np.sort(np.argsort(-arrived.skew, kind="stable")[:_COLUMNS])
    place = np.full(len(arrived.names), -1)
    place[places] = np.arange(places.size)
    late = np.full((ranks, places.size), np.nan)
    inside = place[arrived.collective] >= 0
    late[arrived.rank[inside], place[arrived.collective[inside]]] = (
        arrived.late[inside] / 1e9
    )
    values = late.astype(object)
    values[np.isnan(late)] = None
    columns = [f"{number + 1} {arrived.names[number]}" for number in places.tolist()]
    yield HeatMap(
        kind="late",
        columns=columns,
        values=values.tolist(),
        left_out=len(arrived.names) - places.size,
    )


def _links(tables: Sequence[RankTable]) -> Iterator[HeatMap]:
    """A map for every kind of link between ranks; all devices of a rank count as one
    end.
    """
    carried: dict[tuple[str, int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for link in links_between(tables):
        if link.group is None:
            total = carried[link.link, link.source, link.target]
            total[0] += link.size_bytes
            total[1] += link.transit_ns
    kinds: set[str] = set()
    every_target: set[int] = set()
    bandwidths: dict[tuple[str, int | None, int], float] = {}
    for (kind, source, target), (size, transit) in carried.items():
        kinds.add(kind)
        every_target.add(target)
        bandwidths[kind, source, target] = size / transit * 1e9
    targets = sorted(every_target)
    if len(targets) > _LINKED:
        return
    for kind in sorted(kinds):
        values: list[list[float | None]] = []
        for table in tables:
            values.append(
                [bandwidths.get((kind, table.rank, target)) for target in targets]
            )
        yield HeatMap(
            kind="bandwidth", link=kind, columns=list(map(str, targets)), values=values
        )
