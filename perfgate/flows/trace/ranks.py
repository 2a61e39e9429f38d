"""``perfgate trace ranks``: who delays the others, by the small tables that all recordings are reduced to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.document.trace import (
    DelayRow,
    EarlyEnd,
    LeftOutRecording,
    RankRow,
    RanksDocument,
    SkewRow,
    SlowLinkRow,
    SlowRankRow,
    SlowStageRow,
)
from perfgate.errors import DocumentError
from perfgate.flows.trace.executors import Cluster
from perfgate.flows.trace.gathering import gather_tables
from perfgate.flows.trace.places import Place
from perfgate.trace.analysis.delays import Delay, delays
from perfgate.trace.analysis.links import links_between, slow_links
from perfgate.trace.analysis.rank_table import RankTable
from perfgate.trace.analysis.ranks import Arrivals, arrivals, slow_ranks, slow_stages

_NS = 1e9
_MISSING = 64  # the most missing ranks to name
_SKEWS = 100  # the most collectives to list


class Ranks(NamedTuple):
    """The tables of all ranks, ordered by rank, their arrivals at collectives, and the resulting document."""

    tables: list[RankTable]
    arrivals: Arrivals
    document: RanksDocument


def trace_ranks(
    places: Sequence[Place],
    *,
    say: Callable[[str], None],
    workers: int | None = None,
    on: Cluster | None = None,
    strict: bool = False,
) -> Ranks:
    """All ranks below folders, and the slow ones among them; unreadable recordings are listed.

    Raises UsageError without a recording, ClusterRefusedError if the cluster ``on`` cannot be used, and DocumentError if no
    recording can be read, or any cannot and ``strict`` is set.
    """
    gathered = gather_tables(places, workers=workers, on=on, say=say)
    left_out = gathered.left_out
    if left_out and (strict or not gathered.reduced):
        raise DocumentError(left_out[0].reason)
    tables = [table for one in gathered.reduced for table in one.tables]
    tables.sort(key=lambda table: (table.rank is None, table.rank or 0, table.device or 0))
    arrived = arrivals(tables)
    return Ranks(tables, arrived, ranks_document(", ".join(map(str, places)), tables, arrived, left_out))


def ranks_document(
    path: str, tables: list[RankTable], arrived: Arrivals, left_out: Sequence[LeftOutRecording] = ()
) -> RanksDocument:
    """The answers about the ranks below the folders that ``path`` names."""
    worst = np.argsort(-arrived.skew, kind="stable")[:_SKEWS]
    links = links_between(tables)
    return RanksDocument(
        path=path,
        slow_ranks=[
            SlowRankRow(rank=table.rank, device=table.device, behind=behind - 1.0, part=part)
            for table, behind, part in slow_ranks(tables)
        ],
        slow_links=[
            SlowLinkRow(
                source=link.source,
                target=link.target,
                link=link.link,
                operation=link.operation,
                group=link.group,
                size=link.size,
                bandwidth=link.bandwidth,
                middle=middle,
            )
            for link, middle in slow_links(links)
        ],
        links=len(links),
        collectives=len(arrived.names),
        skew=float(np.median(arrived.skew)) / _NS if arrived.names else None,
        skews=[
            SkewRow(
                number=number,
                name=arrived.names[number],
                skew=int(arrived.skew[number]) / _NS,
                last=tables[int(arrived.last[number])].rank,
            )
            for number in worst.tolist()
        ],
        ranks=[_row(table, *_arrival(arrived, place)) for place, table in enumerate(tables)],
        delays=[_delay_row(delay) for delay in delays(tables, arrived)],
        slow_stages=[
            SlowStageRow(stage=stage, behind=behind - 1.0, computing=computing / _NS)
            for stage, behind, computing in slow_stages(tables)
        ],
        unjoined=arrived.unjoined,
        left_out=list(left_out),
        missing=_missing(tables),
        ended_early=list(_ended_early(tables)),
    )


def _delay_row(delay: Delay) -> DelayRow:
    return DelayRow(
        rank=delay.table.rank,
        device=delay.table.device,
        total=delay.total / _NS,
        share=delay.share,
        per_step=_seconds(delay.per_step),
        steps=delay.steps,
        of=delay.of,
        once=delay.is_once,
        worst=delay.worst / _NS,
        step=delay.step,
        collective=delay.collective,
        waiting=delay.waiting,
        why=delay.why,
    )


def _missing(tables: Sequence[RankTable]) -> list[int]:
    """The first missing ranks of the job, if at least half of its ranks were recorded: else a selection was intended."""
    recorded = {table.rank for table in tables if table.rank is not None}
    world = max((table.world or 0 for table in tables), default=0)
    if 2 * len(recorded) < world:
        return []
    return [rank for rank in range(world) if rank not in recorded][:_MISSING]


def _ended_early(tables: Sequence[RankTable]) -> Iterator[EarlyEnd]:
    """The ranks with an earlier last step than most."""
    ends = [(table, max(numbers)) for table in tables if (numbers := _numbers(table))]
    usual, count = Counter(last for _, last in ends).most_common(1)[0] if ends else (0, 0)
    for table, last in ends:
        if last < usual and count > 1:
            yield EarlyEnd(rank=table.rank, device=table.device, last=last)


def _numbers(table: RankTable) -> list[int]:
    return [step.number for step in table.steps if step.number is not None]


def _arrival(arrived: Arrivals, place: int) -> tuple[float | None, float | None]:
    """A rank's mean delay behind the first rank at its collectives, and the share of them that it reaches last."""
    own = arrived.rank == place
    if not own.any():
        return None, None
    last = arrived.last[arrived.collective[own]] == place
    return float(arrived.late[own].mean()) / _NS, float(last.mean())


def _row(table: RankTable, late: float | None, last: float | None) -> RankRow:
    waiting = table.waiting
    wait, transit, idle = (
        part / waiting.elapsed if waiting.elapsed and part is not None else None
        for part in (waiting.wait, waiting.transit, waiting.idle)
    )
    return RankRow(
        rank=table.rank,
        device=table.device,
        path=table.path,
        steps=len(table.steps),
        own=_seconds(table.own),
        computing=_seconds(table.computing),
        exposed=_seconds(table.exposed),
        fused=_seconds(table.fused) or None,
        free=_seconds(table.free),
        bubble=_seconds(table.bubble),
        wait_share=wait,
        transit_share=transit,
        idle_share=idle,
        late=late,
        last=last,
        stage=table.stage,
        experts=_seconds(table.experts),
    )


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / _NS
