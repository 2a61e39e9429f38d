"""``perfgate trace ranks``: the ranks that delay the others, by the small tables that
all recordings are reduced to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.document.message import Message
from perfgate.document.trace import (
    EarlyEnd,
    LeftOutRecording,
    RankArrival,
    RankRow,
    RanksDocument,
    RecordingGaps,
    RepeatedRank,
    SkewRow,
)
from perfgate.errors import DocumentError
from perfgate.flows.trace.executors import Cluster
from perfgate.flows.trace.gathering import Place, doubts_about, gather_tables
from perfgate.trace.analysis.delays import delays
from perfgate.trace.analysis.rank_table import RankTable
from perfgate.trace.analysis.ranks import (
    Arrivals,
    arrivals,
    links_between,
    slow_links,
    slow_ranks,
    slow_stages,
)
from perfgate.trace.model.arithmetic import seconds

_NS = 1e9
_MISSING = 64  # the most missing ranks to name
_SKEWS = 100  # the most collectives to list
_FEWEST = 2  # ranks with the same last step, to call it the usual one


class Ranks(NamedTuple):
    """The tables of all ranks, ordered by rank, their arrivals at collectives, and the
    resulting document.
    """

    tables: list[RankTable]
    arrivals: Arrivals
    document: RanksDocument


def trace_ranks(
    places: Sequence[Place],
    *,
    say: Callable[[str], None],
    workers: int | None,
    on: Cluster | None = None,
    strict: bool = False,
) -> Ranks:
    """All ranks below folders, and the slow ranks among them; unreadable recordings are
    listed.

    Raises UsageError without a recording, ClusterRefusedError if the cluster ``on``
    cannot be used, and DocumentError if no recording can be read, or any cannot and
    ``strict`` is set.
    """
    gathered = gather_tables(places, workers=workers, on=on, say=say)
    if gathered.left_out and (strict or not gathered.reduced):
        raise DocumentError(gathered.left_out[0].reason)
    tables = []
    for recording in gathered.reduced:
        tables += recording.tables
    tables.sort(
        key=lambda table: (table.rank is None, table.rank or 0, table.device or 0)
    )
    tables, repeated = _one_of_each(tables)
    arrived = arrivals(tables)
    path = ", ".join(map(str, places))
    document = ranks_document(
        path, tables, arrived, gathered.left_out, repeated=repeated
    )
    return Ranks(tables, arrived, document)


def _one_of_each(
    tables: Sequence[RankTable],
) -> tuple[list[RankTable], list[RepeatedRank]]:
    """One recording of each rank; the others are cycles of one process, or the ranks
    are wrong.

    A recording counts once, although its stored table may lie in a folder below it.
    """
    first: dict[int, str] = {}
    repeats: dict[int, list[str]] = defaultdict(list)
    seen: set[tuple[str, int | None, int | None]] = set()
    chosen = []
    for table in tables:
        timeline = table.path, table.rank, table.device
        if timeline in seen:
            continue
        seen.add(timeline)
        if table.rank is None or first.setdefault(table.rank, table.path) == table.path:
            chosen.append(table)
        elif table.path not in repeats[table.rank]:
            repeats[table.rank].append(table.path)
    repeated = [
        RepeatedRank(rank=rank, chosen=first[rank], others=paths)
        for rank, paths in repeats.items()
    ]
    return chosen, repeated


def ranks_document(
    path: str,
    tables: list[RankTable],
    arrived: Arrivals,
    left_out: Sequence[LeftOutRecording],
    *,
    repeated: Sequence[RepeatedRank],
) -> RanksDocument:
    """The answers about the ranks below the folders that ``path`` names."""
    links = links_between(tables)
    skew = float(np.median(arrived.skew)) / _NS if arrived.names else None
    gaps = RecordingGaps(
        left_out=list(left_out),
        repeated=list(repeated),
        missing=_missing(tables),
        ended_early=list(_ended_early(tables)),
    )
    return RanksDocument(
        path=path,
        slow_ranks=slow_ranks(tables),
        slow_links=slow_links(links),
        links=len(links),
        collectives=len(arrived.names),
        skew=skew,
        skews=_skews(tables, arrived),
        ranks=[_row(table, arrived, place) for place, table in enumerate(tables)],
        delays=delays(tables, arrived),
        slow_stages=slow_stages(tables),
        unjoined=arrived.unjoined,
        gaps=gaps,
        notes=[*_unnamed(tables), *doubts_about(tables)],
    )


def _unnamed(tables: Sequence[RankTable]) -> Iterator[Message]:
    """A note on recordings of which neither content nor name gives the rank, if their
    rows cannot be told apart.
    """
    paths_of_device: dict[int | None, set[str]] = defaultdict(set)
    for table in tables:
        if table.rank is None:
            paths_of_device[table.device].add(table.path)
    most = max(map(len, paths_of_device.values()), default=0)
    if most > 1:
        paths = sorted(set().union(*paths_of_device.values()))
        yield Message(
            "notes.ranks-unnamed",
            {"count": len(paths), "path": paths[0]},
        )


def _skews(tables: Sequence[RankTable], arrived: Arrivals) -> list[SkewRow]:
    """The collectives with the largest skews, the worst first."""
    rows = []
    for number in np.argsort(-arrived.skew, kind="stable")[:_SKEWS].tolist():
        last = tables[int(arrived.last[number])].rank
        skew = int(arrived.skew[number]) / _NS
        rows.append(
            SkewRow(number=number, name=arrived.names[number], skew=skew, last=last)
        )
    return rows


def _missing(tables: Sequence[RankTable]) -> list[int]:
    """The first missing ranks of the job, if at least half of its ranks were recorded:
    else a selection was intended.
    """
    recorded = {table.rank for table in tables} - {None}
    world = max([table.world or 0 for table in tables], default=0)
    if 2 * len(recorded) < world:
        return []
    missing = [rank for rank in range(world) if rank not in recorded]
    return missing[:_MISSING]


def _ended_early(tables: Sequence[RankTable]) -> Iterator[EarlyEnd]:
    """The ranks with an earlier last step than most."""
    ends = {}
    for place, table in enumerate(tables):
        if table.steps:
            ends[place] = max([step.number or 0 for step in table.steps])
    for usual, count in Counter(ends.values()).most_common(1):
        for place, last in ends.items():
            if last < usual and count >= _FEWEST:
                yield EarlyEnd(
                    rank=tables[place].rank, device=tables[place].device, last=last
                )


def _row(table: RankTable, arrived: Arrivals, place: int) -> RankRow:
    return RankRow(
        rank=table.rank,
        device=table.device,
        path=table.path,
        steps=len(table.steps),
        own=seconds(table.typical("own_ns")),
        computing=seconds(table.typical("computing_ns")),
        exposed=seconds(table.typical("exposed_communication_ns")),
        fused=seconds(table.typical("fused_ns")) or None,
        free=seconds(table.typical("free_ns")),
        bubble=seconds(table.typical("bubble_ns")),
        in_collectives=table.in_collectives,
        arrival=_arrival(arrived, place),
        stage=table.stage,
        experts=seconds(table.experts),
    )


def _arrival(arrived: Arrivals, place: int) -> RankArrival | None:
    own = arrived.rank == place
    if not own.any():
        return None
    is_last = arrived.last[arrived.collective[own]] == place
    return RankArrival(
        late=float(arrived.late[own].mean()) / _NS, last=float(is_last.mean())
    )
