"""Find stragglers: which rank delays the others, by how much and why, from its
contribution to the wait of its collectives.

Ranks end a collective together, so the rank that spends least time in it came last.
Either it was slow itself, or it had left the previous collective late. The time between
two collectives distinguishes these cases without comparing clocks: a rank is blamed for
its excess over the middle rank between the two, but for no more than its lateness
relative to the middle rank.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from perfgate.document.trace import DelayRow
from perfgate.trace.analysis.rank_table import RankTable, ShareColumns
from perfgate.trace.analysis.ranks import Arrivals
from perfgate.trace.model.arithmetic import (
    NO_NUMBER,
    IntColumn,
    Mask,
    Positions,
    known_number,
)

# Perfgate's own thresholds. A rank is reported only if its blame is at least a
# hundredth of the job and four times the blame of the middle rank: even among equal
# ranks one is last in every collective. A rank nearly as late as the last is blamed
# too.
LEAST, TIMES_THE_MIDDLE, NEARLY = 0.01, 4.0, 0.8
# A rank without a delay far beyond the others' is reported only if it is late more
# often than chance explains, over all ranks.
_CHANCE = 0.01
# A rank late in at least this share of the steps is slow; in fewer, it had a hiccup.
_MOST_STEPS = 0.5
_NS = 1e9


def delays(tables: Sequence[RankTable], arrived: Arrivals) -> list[DelayRow]:
    """The ranks that the others wait for, the costliest first; empty if all are alike
    or no collectives were joined.
    """
    if not arrived.names:
        return []
    columns = [table.shares for table in tables]
    blame = _blame(columns, arrived)
    totals = np.bincount(arrived.rank, weights=blame.time, minlength=len(tables))
    job = _length_of_job(columns)
    costly = totals >= LEAST * job
    unlike = totals >= TIMES_THE_MIDDLE * np.quantile(totals, 0.5, method="lower")
    candidates = np.flatnonzero(costly & unlike)
    rows = []
    for rank in candidates[
        _stands_out(arrived, blame.time, candidates, len(tables))
    ].tolist():
        rows.append(_delay(rank, tables, columns, arrived, blame, job))
    return sorted(rows, key=lambda row: -row.total)


def _length_of_job(columns: Sequence[ShareColumns]) -> float:
    """From a rank's first collective to the end of its last: the median over the ranks."""
    spans = []
    for column in columns:
        if column.key.size:
            end = column.start + column.elapsed
            spans.append(int(end.max() - column.start.min()))
    return float(np.median(spans))


def _stands_out(
    arrived: Arrivals, blamed: IntColumn, candidates: Positions, ranks: int
) -> Mask:
    """The ranks with a delay far beyond the worst of the middle rank, and those that
    are late more often than by chance.
    """
    worst = np.zeros(ranks, dtype=np.int64)
    np.maximum.at(worst, arrived.rank, blamed)
    stands_out: Mask = worst[candidates] >= TIMES_THE_MIDDLE * np.quantile(
        worst, 0.5, method="lower"
    )
    is_late = blamed > 0
    sizes = np.bincount(arrived.collective)
    late = np.bincount(arrived.collective, weights=is_late)
    chance = (late / np.maximum(sizes, 1))[arrived.collective]
    for place, rank in enumerate(candidates.tolist()):
        own = arrived.rank == rank
        tail = _tail(int(is_late[own].sum()), int(own.sum()), float(chance[own].mean()))
        stands_out[place] |= tail * ranks <= _CHANCE
    return stands_out


def _tail(least: int, trials: int, chance: float) -> float:
    """The probability of ``least`` or more successes in ``trials`` independent trials
    with probability ``chance``.
    """
    # In logarithms, because the binomial coefficients of a long recording exceed any
    # float.
    log_factorial = np.zeros(trials + 1)
    log_factorial[1:] = np.cumsum(np.log(np.arange(1, trials + 1)))
    successes = np.arange(least, trials + 1)
    failures = trials - successes
    log_ways = log_factorial[trials] - log_factorial[successes]
    log_ways -= log_factorial[failures]
    log_likelihood = successes * math.log(chance) + failures * math.log1p(-chance)
    return float(np.exp(log_ways + log_likelihood).sum())


class _Blame(NamedTuple):
    """Per row of the arrivals: nanoseconds that the rank is blamed for, and the part of
    its excess spent not computing.
    """

    time: IntColumn
    idle: IntColumn


def _blame(columns: Sequence[ShareColumns], arrived: Arrivals) -> _Blame:
    offsets = np.cumsum([0, *(column.key.size for column in columns)])
    shares = offsets[arrived.rank] + arrived.share
    own = np.concatenate([column.own for column in columns])[shares]
    computed = np.concatenate([column.computed for column in columns])[shares]
    present = own != NO_NUMBER
    order = np.argsort(arrived.collective, kind="stable")
    begins = np.flatnonzero(np.diff(arrived.collective[order], prepend=-1))
    blame = _Blame(
        np.zeros(own.size, dtype=np.int64), np.zeros(own.size, dtype=np.int64)
    )
    for together in np.split(order, begins[1:]):
        rows = together[present[together]]
        if rows.size < 2:
            continue
        late = arrived.late[rows] - _middle(arrived.late[rows])
        excess = own[rows] - _middle(own[rows])
        is_last = late >= NEARLY * late.max(initial=0)
        blame.time[rows] = np.where(is_last, np.minimum(excess, late).clip(min=0), 0)
        idle = own[rows] - computed[rows]
        blame.idle[rows] = idle - _middle(idle)
    return blame


def _middle(values: IntColumn) -> int:
    """The lower median: of two ranks, the faster is the reference."""
    place = (values.size - 1) // 2
    return int(np.partition(values, place)[place])


def _delay(
    rank: int,
    tables: Sequence[RankTable],
    columns: Sequence[ShareColumns],
    arrived: Arrivals,
    blame: _Blame,
    job: float,
) -> DelayRow:
    rows = np.flatnonzero((arrived.rank == rank) & (blame.time > 0))
    time = blame.time[rows]
    total = int(time.sum())
    worst = int(np.argmax(time))
    step = columns[rank].step[arrived.share[rows]]
    steps_of_job = np.unique(np.concatenate([column.step for column in columns]))
    of = int((steps_of_job != NO_NUMBER).sum())
    # A rank counts as late in a step if its delay there is at least a quarter of its
    # worst.
    late_steps = np.unique(step[time >= time.max() / 4])
    steps = int((late_steps != NO_NUMBER).sum())
    share = 0.0
    if job:
        share = total / job
    why: Literal["computing", "free"] = "computing"
    if 2 * int(blame.idle[rows].sum()) > total:
        why = "free"
    row = DelayRow(
        rank=tables[rank].rank,
        device=tables[rank].device,
        total=total / _NS,
        share=share,
        per_step=None,
        steps=steps,
        of=of,
        once=2 * int(time[worst]) > total,
        worst=int(time[worst]) / _NS,
        step=known_number(int(step[worst])),
        collective=_costliest(arrived, rows, time),
        waiting=_most_waiting(arrived, rows),
        why=why,
    )
    if of:
        row = msgspec.structs.replace(
            row, per_step=total / of / _NS, once=steps < _MOST_STEPS * of
        )
    return row


def _most_waiting(arrived: Arrivals, rows: Positions) -> int:
    """The most other ranks in one of the collectives that a rank delays."""
    taking_part = np.bincount(arrived.collective)
    return int(taking_part[arrived.collective[rows]].max()) - 1


def _costliest(arrived: Arrivals, rows: Positions, time: IntColumn) -> str:
    """The name of the collectives that a rank delays most."""
    totals: Counter[str] = Counter()
    for number, ns in zip(arrived.collective[rows].tolist(), time.tolist()):
        totals[arrived.names[number]] += ns
    return max(totals, key=lambda name: totals[name])
