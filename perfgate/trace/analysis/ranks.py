"""Many ranks beside each other: which one takes longer on its own, and when each comes to its collectives."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.trace.analysis.rank_table import RankTable, ShareColumns
from perfgate.trace.model.arithmetic import IntColumn
from perfgate.trace.model.events import KIND_CODES, NO_CORRELATION, NO_TEXT, EventKind, EventTable

# Perfgate's own mark: a rank that takes a twentieth longer on its own than the middle one of its stage. Fewer have no middle.
SLOW_RANK = 1.05
FEWEST_RANKS = 2
_ANY = 1 << 62  # ranks of a group that does not say how many it has


class SlowRank(NamedTuple):
    """A rank, by how much it is behind the middle one of all (a ratio of times on its own), and the part that grew most."""

    table: RankTable
    behind: float
    part: str


class Arrivals(NamedTuple):
    """When each rank came to each collective.

    All ranks of a collective end it together, so it is aligned at its end: who spent least time in it came last, and by how
    much does not depend on the ranks' clocks. Columns with an entry a share of a rank in a collective: positions of ``rank``
    and ``collective``, and ``late``, nanoseconds after the first rank. Columns with an entry a collective, in the order of
    time: its name in ``names``, ``skew``, nanoseconds from the first rank to the last, and which rank was ``last``.
    ``clock`` is by how much each rank's clock is ahead of the first one's; None where no collective joins the two. ``share`` is
    where each row stands among the shares of its rank. ``unjoined`` is how many collectives were left out because more ranks
    seem to be in them than their group has: the recordings do not tell their groups apart.
    """

    rank: IntColumn
    collective: IntColumn
    share: IntColumn
    late: IntColumn
    names: list[str]
    skew: IntColumn
    last: IntColumn
    clock: list[int | None]
    unjoined: int = 0


def ranks_by_lag(tables: Iterable[RankTable]) -> list[SlowRank]:
    """Every rank beside the middle one of its stage, who is furthest behind first; none where too few can be compared.

    All ranks of a job take equally long, because the early ones wait in collectives: compared is what each takes without that.
    """
    stages: dict[int | None, list[tuple[RankTable, float]]] = defaultdict(list)
    for table in tables:
        if (own := table.own) is not None:
            stages[table.stage].append((table, own))
    ranks = [rank for timed in stages.values() for rank in _behind_the_middle(timed)]
    return sorted(ranks, key=lambda rank: -rank.behind)


def _behind_the_middle(timed: Sequence[tuple[RankTable, float]]) -> Iterator[SlowRank]:
    # Of two the faster one is the measure.
    middle = statistics.median_low([own for _, own in timed]) if len(timed) >= FEWEST_RANKS else 0.0
    if middle:
        parts = {name: _middle(getattr(table, name) for table, _ in timed) for name in ("computing", "free")}
        for table, own in timed:
            part = max(parts, key=lambda name: (getattr(table, name) or 0.0) - parts[name])
            yield SlowRank(table, own / middle, part)


class SlowStage(NamedTuple):
    """A stage of the pipeline that computes longer than the middle one (a ratio), and how long: nanoseconds of a step."""

    stage: int
    behind: float
    computing: float


def slow_stages(tables: Iterable[RankTable], *, behind: float = SLOW_RANK) -> list[SlowStage]:
    """The stages that hold the pipeline up, the slowest first; none where they are alike, or fewer than two were recorded."""
    times: dict[int, list[float]] = defaultdict(list)
    for table in tables:
        if table.stage is not None and table.computing:
            times[table.stage].append(table.computing)
    computing = {stage: statistics.median(found) for stage, found in times.items()}
    middle = statistics.median_low(computing.values()) if len(computing) >= FEWEST_RANKS else 0.0
    slow = [
        SlowStage(stage, time / middle, time) for stage, time in computing.items() if middle and time > behind * middle
    ]
    return sorted(slow, key=lambda one: -one.behind)


def slow_ranks(tables: Iterable[RankTable], *, behind: float = SLOW_RANK) -> list[SlowRank]:
    """The ranks that the others wait for, the slowest first; none where all are alike, or too few can be compared."""
    return [rank for rank in ranks_by_lag(tables) if rank.behind > behind]


def arrivals(tables: Sequence[RankTable]) -> Arrivals:
    """Put the ranks' shares in every collective beside each other; one that a single rank took part in is left out."""
    columns = [table.shares.unpacked() for table in tables]
    sizes = [column.key.size for column in columns]
    rank = np.repeat(np.arange(len(tables)), sizes)
    share = np.concatenate([np.zeros(0, np.int64), *map(np.arange, sizes)]).astype(np.int64)
    key, name, start, elapsed = (
        np.concatenate([np.zeros(0, np.int64), *(getattr(column, field) for column in columns)])
        for field in ("key", "name", "start", "elapsed")
    )
    most = np.concatenate([np.zeros(0, np.int64), *(_sizes(table, column) for table, column in zip(tables, columns))])
    _, collective, counts = np.unique(key, return_inverse=True, return_counts=True)
    crowded = counts[collective] > most
    # By collective, then by rank; a rank's own order is that of its clock.
    taking = np.flatnonzero((counts[collective] > 1) & ~crowded)
    taking = taking[np.lexsort((rank[taking], collective[taking]))]
    unjoined = np.unique(collective[crowded]).size
    rank, share, name, start, elapsed, collective = (
        column[taking] for column in (rank, share, name, start, elapsed, collective)
    )
    begins = np.flatnonzero(np.diff(collective, prepend=-1))
    of = np.cumsum(np.diff(collective, prepend=-1) != 0) - 1
    if not begins.size:
        nothing = np.zeros(0, dtype=np.int64)
        return Arrivals(nothing, nothing, nothing, nothing, [], nothing, nothing, [None] * len(tables), unjoined)
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
        share=share,
        late=late,
        names=[names[one] for one in order.tolist()],
        skew=np.maximum.reduceat(late, begins)[order],
        last=last[order],
        clock=clock,
        unjoined=unjoined,
    )


def _sizes(table: RankTable, columns: ShareColumns) -> IntColumn:
    """How many ranks can be in the collective of each share."""
    sizes = [len(group.ranks) or group.size or _ANY for group in table.shares.groups]
    return np.array(sizes, dtype=np.int64)[columns.group] if sizes else np.zeros(0, dtype=np.int64)


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
        shares = table.shares.unpacked()
        own = np.array([names.setdefault(name, len(names)) for name in table.shares.names], dtype=np.int64)
        add(label, "comm", shares.start - (ahead or 0), shares.elapsed, own[shares.name] if own.size else shares.name)
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
