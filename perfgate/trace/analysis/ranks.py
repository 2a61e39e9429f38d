"""Compare the ranks of a job: their own time, without waits, and their arrival at collectives."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.document.trace import SlowRankRow, SlowStageRow
from perfgate.trace.analysis.rank_table import RankTable
from perfgate.trace.model.arithmetic import IntColumn
from perfgate.trace.model.events import KIND_CODES, NO_CORRELATION, NO_TEXT, EventKind, EventTable
from perfgate.trace.model.packed import NO_NUMBER

# Perfgate's own thresholds: a rank is slow if its own time is a twentieth above the median of its stage, which needs two ranks.
SLOW_RANK = 1.05
FEWEST_RANKS = 2


class Arrivals(NamedTuple):
    """The arrival of each rank at each collective.

    All ranks of a collective end it together, so it is aligned at its end: the rank that spent least time in it came last, and
    its delay does not depend on the ranks' clocks. Columns with one entry per share of a rank in a collective: positions of
    ``rank`` and ``collective``, and ``late``, nanoseconds after the first rank. Columns with one entry per collective, in time
    order: its name in ``names``, ``skew``, nanoseconds from the first rank to the last, and the rank that was ``last``.
    ``clock`` is the lead of each rank's clock over the first one's; None if no collective joins the two. ``share`` is the
    position of each row among the shares of its rank. ``unjoined`` is the number of collectives left out because they seem to
    have more ranks than their group: the recordings do not distinguish their groups.
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


# A rank, its own time as a ratio to that of the middle rank, and the part that grew most.
ComparedRank = tuple[RankTable, float, str]


def ranks_by_lag(tables: Iterable[RankTable]) -> list[ComparedRank]:
    """Every rank compared with the middle one of its stage, the furthest behind first; empty if too few are comparable.

    All ranks of a job take equally long, because the early ones wait in collectives. Times without that wait are compared.
    """
    stages: dict[int | None, list[tuple[RankTable, float]]] = defaultdict(list)
    for table in tables:
        if (own := table.own) is not None:
            stages[table.stage].append((table, own))
    ranks = [rank for timed in stages.values() for rank in _behind_the_middle(timed)]
    return sorted(ranks, key=lambda rank: -rank[1])


def _behind_the_middle(timed: Sequence[tuple[RankTable, float]]) -> Iterator[ComparedRank]:
    # Of two ranks, the faster one is the reference.
    middle = statistics.median_low([own for _, own in timed]) if len(timed) >= FEWEST_RANKS else 0.0
    if middle:
        parts = {}
        for name in ("computing", "free"):
            known = [time for table, _ in timed if (time := getattr(table, name)) is not None]
            parts[name] = statistics.median_low(known) if known else 0.0
        for table, own in timed:
            part = max(parts, key=lambda name: (getattr(table, name) or 0.0) - parts[name])
            yield table, own / middle, part


def slow_stages(tables: Iterable[RankTable]) -> list[SlowStageRow]:
    """The stages that hold the pipeline up, because they compute longer than the middle one, the slowest first.

    Empty if they are alike or fewer than two were recorded.
    """
    times: dict[int, list[float]] = defaultdict(list)
    for table in tables:
        if table.stage is not None and table.computing:
            times[table.stage].append(table.computing)
    computing = {stage: statistics.median(found) for stage, found in times.items()}
    middle = statistics.median_low(computing.values()) if len(computing) >= FEWEST_RANKS else 0.0
    slow = [
        SlowStageRow(stage=stage, behind=time / middle - 1.0, computing=time / 1e9)
        for stage, time in computing.items()
        if middle and time > SLOW_RANK * middle
    ]
    return sorted(slow, key=lambda row: -row.behind)


def slow_ranks(tables: Iterable[RankTable]) -> list[SlowRankRow]:
    """The ranks that the others wait for, the slowest first; empty if all are alike or too few can be compared."""
    return [
        SlowRankRow(rank=table.rank, device=table.device, behind=lag - 1.0, part=part)
        for table, lag, part in ranks_by_lag(tables)
        if lag > SLOW_RANK
    ]


def arrivals(tables: Sequence[RankTable]) -> Arrivals:
    """Join the ranks' shares in every collective; collectives with a single recorded rank are left out."""
    columns = [table.shares for table in tables]
    sizes = [column.key.size for column in columns]
    rank = np.repeat(np.arange(len(tables)), sizes)
    share = np.concatenate([np.zeros(0, np.int64), *map(np.arange, sizes)]).astype(np.int64)
    key, name, ranks, start, elapsed = (
        np.concatenate([np.zeros(0, np.int64), *(getattr(column, field) for column in columns)])
        for field in ("key", "name", "ranks", "start", "elapsed")
    )
    _, collective, counts = np.unique(key, return_inverse=True, return_counts=True)
    crowded = (counts[collective] > ranks) & (ranks != NO_NUMBER)
    # By collective, then by rank; within a rank by its own clock.
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
    # The last rank of a collective is in its last row by lateness.
    ends = np.append(begins[1:], of.size) - 1
    last = rank[np.lexsort((late, of))[ends]]
    clock = _clocks(rank, of, start + elapsed, len(tables), begins.size)
    place = np.argsort(np.argsort(start[begins], kind="stable"), kind="stable")
    order = np.argsort(place)
    names = [tables[one].names[code] for one, code in zip(rank[begins].tolist(), name[begins].tolist())]
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


def _clocks(rank: IntColumn, collective: IntColumn, end: IntColumn, ranks: int, collectives: int) -> list[int | None]:
    """The lead of each clock over the first rank's: the median over collectives that both joined, else via other ranks."""
    by_rank = np.argsort(rank, kind="stable")
    rows = np.split(by_rank, np.searchsorted(rank[by_rank], np.arange(1, ranks)))
    by_collective = np.append(np.searchsorted(collective, np.arange(collectives)), collective.size)
    known, true = np.zeros(collectives, dtype=bool), np.zeros(collectives, dtype=np.int64)
    shared = np.zeros(ranks, dtype=np.int64)  # the number of known collectives of each rank
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
    """The computing and communicating intervals of ranks, two tracks a rank, on the clock of the first; a rank without an
    entry in ``clock`` keeps its own."""
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
        shares = table.shares
        own = np.array([names.setdefault(name, len(names)) for name in table.names], dtype=np.int64)
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
