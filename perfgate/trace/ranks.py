"""Many ranks beside each other: which one the others wait for, which link between two is slow, and who comes late."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.trace.analysis import IntColumn
from perfgate.trace.events import KIND_CODES, NO_CORRELATION, NO_TEXT, EventKind, EventTable
from perfgate.trace.rank_table import LinkTotal, RankTable

# Perfgate's own marks: a rank that takes a twentieth longer on its own than the middle one, a link at half of its kind's
# middle bandwidth. Fewer of a kind have no middle to speak of.
SLOW_RANK, SLOW_LINK = 1.05, 0.5
FEWEST_RANKS, FEWEST_LINKS = 2, 3
LOCAL = "LOCAL"  # a rank's copies to itself


class SlowRank(NamedTuple):
    """A rank, by how much it is behind the middle one of all (a ratio of times on its own), and the part that grew most."""

    table: RankTable
    behind: float
    part: str


class SlowLink(NamedTuple):
    """A link and the middle bandwidth of its kind, bytes a second."""

    link: LinkTotal
    middle: float


class Arrivals(NamedTuple):
    """When each rank came to each collective.

    All ranks of a collective end it together, so it is aligned at its end: who spent least time in it came last, and by how
    much does not depend on the ranks' clocks. Columns with an entry a share of a rank in a collective: positions of ``rank``
    and ``collective``, and ``late``, nanoseconds after the first rank. Columns with an entry a collective, in the order of
    time: its name in ``names``, ``skew``, nanoseconds from the first rank to the last, and which rank was ``last``.
    ``clock`` is by how much each rank's clock is ahead of the first one's; None where no collective joins the two.
    """

    rank: IntColumn
    collective: IntColumn
    late: IntColumn
    names: list[str]
    skew: IntColumn
    last: IntColumn
    clock: list[int | None]


def ranks_by_lag(tables: Iterable[RankTable]) -> list[SlowRank]:
    """Every rank beside the middle one, who is furthest behind first; none where too few can be compared.

    All ranks of a job take equally long, because the early ones wait in collectives: compared is what each takes without that.
    """
    timed = [(table, own) for table in tables if (own := table.own) is not None]
    # Of two the faster one is the measure.
    middle = statistics.median_low([own for _, own in timed]) if len(timed) >= FEWEST_RANKS else 0.0
    if not middle:
        return []
    parts = {name: _middle(getattr(table, name) for table, _ in timed) for name in ("computing", "free")}
    ranks = [
        SlowRank(table, own / middle, max(parts, key=lambda name: (getattr(table, name) or 0.0) - parts[name]))
        for table, own in timed
    ]
    return sorted(ranks, key=lambda rank: -rank.behind)


def slow_ranks(tables: Iterable[RankTable], *, behind: float = SLOW_RANK) -> list[SlowRank]:
    """The ranks that the others wait for, the slowest first; none where all are alike, or too few can be compared."""
    return [rank for rank in ranks_by_lag(tables) if rank.behind > behind]


def slow_links(tables: Iterable[RankTable], *, share: float = SLOW_LINK) -> list[SlowLink]:
    """The links that carry far less than others of their kind, the slowest first."""
    kinds: dict[str, list[LinkTotal]] = defaultdict(list)
    for table in tables:
        for link in table.links:
            if link.link != LOCAL and link.source != link.target and link.size > 0 and link.transit > 0:
                kinds[link.link].append(link)
    slow = []
    for links in kinds.values():
        if len(links) >= FEWEST_LINKS:
            middle = statistics.median(link.bandwidth for link in links)
            slow += [SlowLink(link, middle) for link in links if link.bandwidth < share * middle]
    return sorted(slow, key=lambda one: one.link.bandwidth / one.middle)


def arrivals(tables: Sequence[RankTable]) -> Arrivals:
    """Put the ranks' shares in every collective beside each other; one that a single rank took part in is left out."""
    columns = [table.shares.columns() for table in tables]
    rank = np.repeat(np.arange(len(tables)), [column[0].size for column in columns])
    key, name, start, elapsed = (np.concatenate([np.zeros(0, np.int64), *parts]) for parts in zip(*columns))
    _, collective, counts = np.unique(key, return_inverse=True, return_counts=True)
    # By collective, then by rank; a rank's own order is that of its clock.
    taking = np.flatnonzero(counts[collective] > 1)
    taking = taking[np.lexsort((rank[taking], collective[taking]))]
    rank, name, start, elapsed, collective = (column[taking] for column in (rank, name, start, elapsed, collective))
    begins = np.flatnonzero(np.diff(collective, prepend=-1))
    of = np.cumsum(np.diff(collective, prepend=-1) != 0) - 1
    if not begins.size:
        nothing = np.zeros(0, dtype=np.int64)
        return Arrivals(nothing, nothing, nothing, [], nothing, nothing, [None] * len(tables))
    late = np.maximum.reduceat(elapsed, begins)[of] - elapsed
    # The last rank of a collective is the last of its rows by lateness.
    ends = np.append(begins[1:], of.size) - 1
    last = rank[np.lexsort((late, of))[ends]]
    clock = _clocks(rank, of, start + elapsed, len(tables), begins.size)
    place = np.argsort(np.argsort(start[begins], kind="stable"), kind="stable")
    order = np.argsort(place)
    names = [tables[one].shares.names[code] for one, code in zip(rank[begins].tolist(), name[begins].tolist())]
    return Arrivals(
        rank=rank,
        collective=place[of],
        late=late,
        names=[names[one] for one in order.tolist()],
        skew=np.maximum.reduceat(late, begins)[order],
        last=last[order],
        clock=clock,
    )


def _clocks(rank: IntColumn, collective: IntColumn, end: IntColumn, ranks: int, collectives: int) -> list[int | None]:
    """By how much each clock is ahead of the first rank's: the median over what both ended together, or through others."""
    by_rank = np.argsort(rank, kind="stable")
    rows = np.split(by_rank, np.searchsorted(rank[by_rank], np.arange(1, ranks)))
    by_collective = np.append(np.searchsorted(collective, np.arange(collectives)), collective.size)
    known, true = np.zeros(collectives, dtype=bool), np.zeros(collectives, dtype=np.int64)
    shared = np.zeros(ranks, dtype=np.int64)  # how many known collectives each rank took part in
    clock: list[int | None] = [None] * ranks
    while None in clock:
        left = [one for one in range(ranks) if clock[one] is None]
        one = max(left, key=lambda rank: int(shared[rank]))
        if known.any() and not shared[one]:
            break
        own = rows[one]
        both = known[collective[own]]
        ahead = int(np.median(end[own][both] - true[collective[own]][both])) if both.any() else 0
        clock[one] = ahead
        new = collective[own][~both]
        true[new], known[new] = end[own][~both] - ahead, True
        for begin, after in zip(by_collective[new].tolist(), by_collective[new + 1].tolist()):
            shared[rank[begin:after]] += 1
    return clock


def ranks_timeline(tables: Sequence[RankTable], clock: Sequence[int | None]) -> EventTable:
    """When the ranks computed and communicated, two tracks a rank, by the clock of the first one; by its own, where ``clock``
    does not know it."""
    names: dict[str, int] = {"computing": 0}
    tracks: list[tuple[str, str]] = []
    columns: dict[str, list[IntColumn]] = defaultdict(list)

    def add(track: str, kind: EventKind, start: IntColumn, duration: IntColumn, name: IntColumn) -> None:
        columns["start"].append(start)
        columns["duration"].append(duration)
        columns["name"].append(name)
        columns["track"].append(np.full(start.size, len(tracks), dtype=np.int64))
        columns["kind"].append(np.full(start.size, KIND_CODES[kind], dtype=np.int64))
        tracks.append((track, "computing" if kind == "compute" else "collectives"))

    for table, ahead in zip(tables, clock):
        label = f"rank {table.rank}" if table.rank is not None else f"device {table.device}"
        busy = table.stretches
        add(
            label,
            "compute",
            busy.start - (ahead or 0),
            busy.end - busy.start,
            np.zeros(busy.start.size, dtype=np.int64),
        )
        _, codes, start, elapsed = table.shares.columns()
        own = np.array([names.setdefault(name, len(names)) for name in table.shares.names], dtype=np.int64)
        add(label, "comm", start - (ahead or 0), elapsed, own[codes] if own.size else codes)
    joined = {name: np.concatenate([np.zeros(0, np.int64), *parts]) for name, parts in columns.items()}
    nothing = np.zeros(joined["start"].size, dtype=np.int64)
    return EventTable(
        **joined,
        correlation=nothing + NO_CORRELATION,
        group=joined["name"],
        request=nothing + NO_TEXT,
        shape=nothing + NO_TEXT,
        names=tuple(names),
        tracks=tuple(tracks),
    )


def _middle(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return statistics.median_low(known) if known else 0.0
