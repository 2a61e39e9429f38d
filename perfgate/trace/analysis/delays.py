"""Find stragglers: which rank delays the others, by how much and why, from its contribution to the wait of its collectives.

Ranks end a collective together, so the one that spends least time in it came last. Either it was slow itself, or it had left
the previous collective late. The time between two collectives distinguishes these cases without comparing clocks: a rank is
blamed for its excess over the middle rank between the two, but for no more than its lateness relative to the middle rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfgate.document.trace import DelayRow
from perfgate.trace.analysis.rank_table import RankTable, ShareColumns
from perfgate.trace.analysis.ranks import Arrivals
from perfgate.trace.model.arithmetic import IntColumn
from perfgate.trace.model.packed import NO_NUMBER

# Perfgate's own thresholds. A rank is reported only if its blame is at least a hundredth of the job and four times that of the
# middle rank: even among equal ranks one is last in every collective. A rank nearly as late as the last is blamed too.
LEAST, TIMES_THE_MIDDLE, NEARLY = 0.01, 4.0, 0.8
# A rank without a delay far beyond the others' is reported only if it is late more often than chance explains, over all ranks.
_CHANCE = 0.01
# A rank late in at least this share of the steps is slow; in fewer, it had a hiccup.
_MOST_STEPS = 0.5
_NS = 1e9


def delays(tables: Sequence[RankTable], arrived: Arrivals) -> list[DelayRow]:
    """The ranks that the others wait for, the costliest first; empty if all are alike or no collectives were joined."""
    if not arrived.names:
        return []
    columns = [table.shares for table in tables]
    blamed, idle = _blame(columns, arrived)
    totals = np.bincount(arrived.rank, weights=blamed, minlength=len(tables))
    # The job lasts from a rank's first collective to the end of its last: the median over the ranks.
    spans = [int((column.start + column.elapsed).max() - column.start.min()) for column in columns if column.key.size]
    job = float(np.median(spans))
    named = np.flatnonzero(
        (totals >= LEAST * job) & (totals >= TIMES_THE_MIDDLE * np.quantile(totals, 0.5, method="lower"))
    )
    stands_out = _stands_out(arrived, blamed, named, len(tables))
    found = [_delay(int(rank), tables, columns, arrived, blamed, idle, job) for rank in named[stands_out]]
    return sorted(found, key=lambda one: -one.total)


def _stands_out(arrived: Arrivals, blamed: IntColumn, named: npt.NDArray[np.intp], ranks: int) -> npt.NDArray[np.bool_]:
    """The ranks with a delay far beyond the worst of the middle rank, and those that are late more often than by chance."""
    worst = np.zeros(ranks, dtype=np.int64)
    np.maximum.at(worst, arrived.rank, blamed)
    is_late = blamed > 0
    sizes, late = np.bincount(arrived.collective), np.bincount(arrived.collective, weights=is_late)
    chance = (late / np.maximum(sizes, 1))[arrived.collective]
    far = worst[named] >= TIMES_THE_MIDDLE * np.quantile(worst, 0.5, method="lower")
    often = [
        _tail(int(is_late[own].sum()), int(own.sum()), float(chance[own].mean())) * ranks <= _CHANCE
        for own in (arrived.rank == rank for rank in named)
    ]
    either: npt.NDArray[np.bool_] = far | np.array(often, dtype=bool)
    return either


def _tail(least: int, trials: int, chance: float) -> float:
    """The probability of ``least`` or more successes in ``trials`` independent trials with probability ``chance``."""
    return sum(
        math.comb(trials, count) * chance**count * (1 - chance) ** (trials - count)
        for count in range(least, trials + 1)
    )


def _blame(columns: Sequence[ShareColumns], arrived: Arrivals) -> tuple[IntColumn, IntColumn]:
    """Per row of the arrivals: nanoseconds that the rank is blamed for, and the part of its excess spent not computing."""
    offsets = np.cumsum([0, *(column.key.size for column in columns)])
    shares = offsets[arrived.rank] + arrived.share
    own = np.concatenate([column.own for column in columns])[shares]
    computed = np.concatenate([column.computed for column in columns])[shares]
    known = own != NO_NUMBER
    order = np.argsort(arrived.collective, kind="stable")
    begins = np.flatnonzero(np.diff(arrived.collective[order], prepend=-1))
    time, free = np.zeros(own.size, dtype=np.int64), np.zeros(own.size, dtype=np.int64)
    for together in np.split(order, begins[1:]):
        rows = together[known[together]]
        if rows.size < 2:
            continue
        late = arrived.late[rows] - _middle(arrived.late[rows])
        excess = own[rows] - _middle(own[rows])
        blamed = np.where(late >= NEARLY * late.max(initial=0), np.minimum(excess, late), 0)
        time[rows] = np.maximum(blamed, 0)
        idle = own[rows] - computed[rows]
        free[rows] = idle - _middle(idle)
    return time, free


def _middle(values: IntColumn) -> int:
    """The lower median: of two ranks, the faster one is the reference."""
    return int(np.partition(values, (values.size - 1) // 2)[(values.size - 1) // 2])


def _delay(
    rank: int,
    tables: Sequence[RankTable],
    columns: Sequence[ShareColumns],
    arrived: Arrivals,
    blamed: IntColumn,
    idle: IntColumn,
    job: float,
) -> DelayRow:
    rows = np.flatnonzero((arrived.rank == rank) & (blamed > 0))
    time, collective = blamed[rows], arrived.collective[rows]
    step = columns[rank].step[arrived.share[rows]]
    marked = np.unique(np.concatenate([column.step for column in columns]))
    by_name: dict[str, int] = {}
    for number, ns in zip(collective.tolist(), time.tolist()):
        by_name[arrived.names[number]] = by_name.get(arrived.names[number], 0) + ns
    total, worst = int(time.sum()), int(np.argmax(time))
    # A rank counts as late in a step if its delay there is at least a quarter of its worst.
    late_steps = np.unique(step[time >= time.max() / 4])
    steps, of = int((late_steps != NO_NUMBER).sum()), int((marked != NO_NUMBER).sum())
    return DelayRow(
        rank=tables[rank].rank,
        device=tables[rank].device,
        total=total / _NS,
        share=total / job if job else 0.0,
        per_step=total / of / _NS if of else None,
        steps=steps,
        of=of,
        once=steps < _MOST_STEPS * of if of else 2 * int(time[worst]) > total,
        worst=int(time[worst]) / _NS,
        step=None if step[worst] == NO_NUMBER else int(step[worst]),
        collective=max(by_name, key=lambda name: by_name[name]),
        waiting=int(np.bincount(arrived.collective)[collective].max()),
        why="free" if 2 * int(idle[rows].sum()) > total else "computing",
    )
