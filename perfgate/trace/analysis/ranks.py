"""Compare the ranks of a job: their own time, without waits, their arrival at
collectives, and the links between them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.document.trace import SlowLinkRow, SlowRankRow, SlowStageRow
from perfgate.trace.analysis.rank_table import RankTable, ShareColumns
from perfgate.trace.model.arithmetic import NO_NUMBER, IntColumn
from perfgate.trace.model.events import (
    KIND_CODES,
    EventTable,
    EventTableBuilder,
    joined_events,
)
from perfgate.trace.model.recording import RankLink

# Perfgate's own thresholds: a rank is slow if its own time is a twentieth above the
# median of its stage, which needs two ranks.
SLOW_RANK = 1.05
FEWEST_RANKS = 2
_NO_SHARES = ShareColumns(*[np.zeros(0, dtype=np.int64)] * len(ShareColumns._fields))


# A rank, the ratio of its own time to the middle rank's, and the part that grew most.
ComparedRank = tuple[RankTable, float, str]
# Perfgate's own thresholds: a link at half of the median bandwidth of comparable links.
# Fewer links have no meaningful median, smaller transfers are dominated by latency, and
# sizes are comparable within a factor of four.
SLOW_LINK, FEWEST_LINKS, SMALLEST, ALIKE = 0.5, 3, 1e6, 4.0
LOCAL = "LOCAL"  # a rank's copies to itself
# The global rank at a position in a group.
_Members = Mapping[tuple[str | None, int], int]


class Arrivals(NamedTuple):
    """The arrival of each rank at each collective.

    All ranks of a collective end it together, so it is aligned at its end: the rank
    that spent least time in it came last, and its delay does not depend on the ranks'
    clocks.
    """

    # One entry per share of a rank in a collective: positions, and nanoseconds after
    # the first rank.
    rank: IntColumn
    collective: IntColumn
    share: IntColumn  # among the shares of its rank
    late: IntColumn
    # One entry per collective, in time order: its name, nanoseconds from the first rank
    # to the last, and the last rank.
    names: list[str]
    skew: IntColumn
    last: IntColumn
    clock: list[
        int | None
    ]  # the lead of each rank's clock over the first rank's; None if no collective joins the two
    # collectives with more ranks than their group: the recordings do not distinguish
    # their groups
    unjoined: int = 0


def ranks_by_lag(tables: Iterable[RankTable]) -> list[ComparedRank]:
    """Every rank compared with the middle one of its stage, the furthest behind first;
    empty if too few are comparable.

    All ranks of a job take equally long, because early ranks wait in collectives. Times
    without that wait are compared.
    """
    stages: dict[int | None, list[tuple[RankTable, float]]] = defaultdict(list)
    for table in tables:
        own = table.typical("own_ns")
        if own is not None:
            stages[table.stage].append((table, own))
    ranks: list[ComparedRank] = []
    for timed in stages.values():
        ranks += _behind_the_middle(timed)
    return sorted(ranks, key=lambda rank: -rank[1])


def _behind_the_middle(
    timed: Sequence[tuple[RankTable, float]],
) -> Iterator[ComparedRank]:
    if len(timed) < FEWEST_RANKS:
        return
    # Of two ranks, the faster is the reference.
    middle = statistics.median_low([own for _, own in timed])
    if not middle:
        return
    # A step with a known own time has both parts.
    computing = [table.typical("computing_ns") or 0.0 for table, _ in timed]
    free = [table.typical("free_ns") or 0.0 for table, _ in timed]
    middle_computing = statistics.median_low(computing)
    middle_free = statistics.median_low(free)
    for place, (table, own) in enumerate(timed):
        part = "computing"
        if free[place] - middle_free > computing[place] - middle_computing:
            part = "free"
        yield table, own / middle, part


def slow_stages(tables: Iterable[RankTable]) -> list[SlowStageRow]:
    """The stages that hold the pipeline up, because they compute longer than the middle
    one, the slowest first.

    Empty if they are alike or fewer than two were recorded.
    """
    times: dict[int, list[float]] = defaultdict(list)
    for table in tables:
        computing_ns = table.typical("computing_ns")
        if table.stage is not None and computing_ns:
            times[table.stage].append(computing_ns)
    if len(times) < FEWEST_RANKS:
        return []
    computing = {
        stage: statistics.median(of_stage) for stage, of_stage in times.items()
    }
    middle = statistics.median_low(computing.values())
    slow = []
    for stage, time in computing.items():
        if time > SLOW_RANK * middle:
            slow.append(
                SlowStageRow(
                    stage=stage, behind=time / middle - 1.0, computing=time / 1e9
                )
            )
    return sorted(slow, key=lambda row: -row.behind)


def slow_ranks(tables: Iterable[RankTable]) -> list[SlowRankRow]:
    """The ranks that the others wait for, the slowest first; empty if all are alike or
    too few can be compared.
    """
    rows = []
    for table, lag, part in ranks_by_lag(tables):
        if lag > SLOW_RANK:
            rows.append(
                SlowRankRow(
                    rank=table.rank, device=table.device, behind=lag - 1.0, part=part
                )
            )
    return rows


class _JoinedShares(NamedTuple):
    """The shares of all ranks in collectives that several ranks recorded: by
    collective, then by rank, then by its clock.

    ``unjoined`` is the number of collectives left out because they have more ranks than
    their group.
    """

    rank: IntColumn
    collective: IntColumn
    share: IntColumn
    name: IntColumn
    start: IntColumn
    elapsed: IntColumn
    unjoined: int


def arrivals(tables: Sequence[RankTable]) -> Arrivals:
    """Join the ranks' shares in every collective; collectives with a single recorded
    rank are left out.
    """
    shares = _joined(tables)
    rank, elapsed = shares.rank, shares.elapsed
    borders = np.diff(shares.collective, prepend=-1)
    begins = np.flatnonzero(borders)
    of = np.cumsum(borders != 0) - 1
    if not begins.size:
        nothing = np.zeros(0, dtype=np.int64)
        no_clocks: list[int | None] = [None] * len(tables)
        return Arrivals(
            nothing,
            nothing,
            nothing,
            nothing,
            [],
            nothing,
            nothing,
            no_clocks,
            shares.unjoined,
        )
    late = np.maximum.reduceat(elapsed, begins)[of] - elapsed
    # The last rank of a collective is in its last row by lateness.
    ends = np.append(begins[1:], of.size) - 1
    last = rank[np.lexsort((late, of))[ends]]
    order = np.argsort(shares.start[begins], kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    names = []
    for row in begins[order].tolist():
        names.append(tables[int(rank[row])].names[int(shares.name[row])])
    return Arrivals(
        rank=rank,
        collective=place[of],
        share=shares.share,
        late=late,
        names=names,
        skew=np.maximum.reduceat(late, begins)[order],
        last=last[order],
        clock=_clocks(rank, of, shares.start + elapsed, len(tables), begins.size),
        unjoined=shares.unjoined,
    )


def _joined(tables: Sequence[RankTable]) -> _JoinedShares:
    columns = [table.shares for table in tables]
    sizes = [column.key.size for column in columns]
    rank = np.repeat(np.arange(len(tables)), sizes)
    share = np.arange(rank.size) - np.searchsorted(rank, rank)
    every = ShareColumns(*map(np.concatenate, zip(_NO_SHARES, *columns)))
    _, collective, counts = np.unique(
        every.key, return_inverse=True, return_counts=True
    )
    recorded = counts[collective]
    crowded = (recorded > every.ranks) & (every.ranks != NO_NUMBER)
    rows = np.flatnonzero((recorded > 1) & ~crowded)
    rows = rows[np.lexsort((rank[rows], collective[rows]))]
    return _JoinedShares(
        rank=rank[rows],
        collective=collective[rows],
        share=share[rows],
        name=every.name[rows],
        start=every.start[rows],
        elapsed=every.elapsed[rows],
        unjoined=np.unique(collective[crowded]).size,
    )


def _clocks(
    rank: IntColumn, collective: IntColumn, end: IntColumn, ranks: int, collectives: int
) -> list[int | None]:
    """The lead of each clock over the first rank's: the median over collectives that
    both joined, else via other ranks.
    """
    by_rank = np.argsort(rank, kind="stable")
    rows = np.split(by_rank, np.searchsorted(rank[by_rank], np.arange(1, ranks)))
    borders = np.append(
        np.searchsorted(collective, np.arange(collectives)), collective.size
    )
    present = np.zeros(collectives, dtype=bool)
    true_end = np.zeros(collectives, dtype=np.int64)
    shared = np.zeros(
        ranks, dtype=np.int64
    )  # the number of known collectives of each rank
    clock: list[int | None] = [None] * ranks
    while None in clock:
        unplaced = [place for place, lead in enumerate(clock) if lead is None]
        place = max(unplaced, key=lambda rank: int(shared[rank]))
        if present.any() and not shared[place]:
            break
        own = rows[place]
        in_own = collective[own]
        both = present[in_own]
        lead = 0
        if both.any():
            lead = int(np.median(end[own][both] - true_end[in_own][both]))
        clock[place] = lead
        new = in_own[~both]
        true_end[new] = end[own][~both] - lead
        present[new] = True
        for number in new.tolist():
            shared[rank[borders[number] : borders[number + 1]]] += 1
    return clock


def ranks_timeline(
    tables: Sequence[RankTable], clock: Sequence[int | None]
) -> EventTable:
    """The computing and communicating intervals of ranks, two tracks a rank, on the
    clock of the first; a rank without an entry in ``clock`` keeps its own.
    """
    events = EventTableBuilder().table()
    for table, lead in zip(tables, clock):
        label = f"device {table.device}"
        if table.rank is not None:
            label = f"rank {table.rank}"
        ahead = lead or 0
        busy, shares = table.stretches, table.shares
        computing = EventTable(
            start=busy.start - ahead,
            duration=busy.end - busy.start,
            track=np.array(0),
            name=np.array(0),
            kind=np.array(KIND_CODES["compute"]),
            group=np.array(0),
            names=("computing",),
            tracks=((label, "computing"),),
        )
        collectives = EventTable(
            start=shares.start - ahead,
            duration=shares.elapsed,
            track=np.array(0),
            name=shares.name,
            kind=np.array(KIND_CODES["comm"]),
            group=shares.name,
            names=tuple(table.names),
            tracks=((label, "collectives"),),
        )
        events = joined_events(joined_events(events, computing), collectives)
    return events


def links_between(tables: Sequence[RankTable]) -> list[RankLink]:
    """All links between different ranks with traffic, positions in groups replaced by
    global ranks if those are known.
    """
    members = _members(tables)
    links = []
    for table in tables:
        for link in table.links:
            carries = link.size_bytes > 0 and link.transit_ns > 0
            if carries and link.link != LOCAL and link.source != link.target:
                links.append(_by_global_ranks(link, table, members))
    return links


def _members(tables: Sequence[RankTable]) -> _Members:
    """The members that the recordings name; recordings that contradict each other give
    none.
    """
    ranks: dict[tuple[str | None, int], set[int]] = defaultdict(set)
    for table in tables:
        if table.rank is not None:
            for link in table.links:
                ranks[link.group, link.source].add(table.rank)
    return {
        place: min(candidates)
        for place, candidates in ranks.items()
        if len(candidates) == 1
    }


def _by_global_ranks(link: RankLink, table: RankTable, members: _Members) -> RankLink:
    source = table.rank
    if source is None:
        source = members.get((link.group, link.source))
    target = members.get((link.group, link.target))
    if target is None:
        target = _by_lists(table, link)
    if source is None or target is None:
        return link
    return link._replace(source=source, target=target, group=None)


def _by_lists(table: RankTable, link: RankLink) -> int | None:
    """The only rank at the target's position in the groups that have this rank at the
    source's; None if there are several.
    """
    fits = set()
    for ranks in table.groups:
        if (
            max(link.source, link.target) < len(ranks)
            and ranks[link.source] == table.rank
        ):
            fits.add(ranks[link.target])
    return fits.pop() if len(fits) == 1 else None


def slow_links(
    links: Iterable[RankLink], *, share: float = SLOW_LINK
) -> list[SlowLinkRow]:
    """The links far slower than others of their kind in the same sort of operation at
    similar size, the slowest first.
    """
    comparable: dict[tuple[str, str], list[RankLink]] = defaultdict(list)
    for link in links:
        if link.size_bytes >= SMALLEST and link.bandwidth is not None:
            comparable[link.link, link.operation].append(link)
    slow = []
    for comparable_links in comparable.values():
        for link in comparable_links:
            bandwidth = link.bandwidth or 0.0
            middle = _middle_bandwidth(link, comparable_links)
            if middle is not None and bandwidth < share * middle:
                row = SlowLinkRow(
                    source=link.source,
                    target=link.target,
                    link=link.link,
                    operation=link.operation,
                    group=link.group,
                    size=link.size_bytes,
                    bandwidth=bandwidth,
                    middle=middle,
                )
                slow.append(row)
    return sorted(slow, key=lambda row: row.bandwidth / row.middle)


def _middle_bandwidth(
    link: RankLink, comparable_links: Sequence[RankLink]
) -> float | None:
    """The median bandwidth of links that carried similar sizes; None if they are too
    few.
    """
    least, most = link.size_bytes / ALIKE, link.size_bytes * ALIKE
    bandwidths = [
        candidate.bandwidth or 0.0
        for candidate in comparable_links
        if least <= candidate.size_bytes <= most
    ]
    if len(bandwidths) < FEWEST_LINKS:
        return None
    return statistics.median(bandwidths)
