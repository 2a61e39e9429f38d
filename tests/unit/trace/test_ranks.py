"""Ranks beside each other: who comes late to a collective, and by how much each clock is ahead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfgate.trace.analysis.rank_table import MOST_STRETCHES, RankTable, reduce_timeline
from perfgate.trace.analysis.ranks import arrivals, ranks_timeline
from perfgate.trace.model.events import NO_CORRELATION, EventTableBuilder
from perfgate.trace.model.recording import Collective, CollectiveKernel, Timeline

STREAM = ("device 0", "stream 7")


def table(rank: int, *shares: tuple[str, str, int, int]) -> RankTable:
    """A rank whose shares have a group, a name, a start and a length."""
    collectives = tuple(
        Collective(name, "collective", group, 1, start, length, None, None, None)
        for group, name, start, length in shares
    )
    return reduce_timeline(Timeline(rank, 0, EventTableBuilder().table(), collectives=collectives), "folder")


def test_reduce__parts_of_collectives_that_were_not_recorded__none_and_not_zero() -> None:
    timed = Collective("hcom_allReduce__1_0_1", "collective", None, 1, 0, 100, None, 30, None)

    def shares(*collectives: Collective) -> object:
        events = EventTableBuilder().table()
        found = reduce_timeline(Timeline(0, 0, events, collectives=collectives), "folder")
        shares = found.in_collectives
        return shares.transit, shares.wait, shares.idle

    assert shares(timed, timed) == (None, 0.3, None)
    assert shares(timed, timed._replace(wait_ns=None)) == (None, None, None)


@given(data=st.data(), ranks=st.integers(2, 5), count=st.integers(1, 8))
def test_arrivals__any_clocks_and_any_lateness__both_found(data: st.DataObject, ranks: int, count: int) -> None:
    clock = [0, *(data.draw(st.integers(-(10**12), 10**12)) for _ in range(1, ranks))]
    late = [[data.draw(st.integers(0, 10**6)) for _ in range(count)] for _ in range(ranks)]
    start = 10**15
    tables = [
        table(
            rank,
            *(
                (
                    "17",
                    f"hcom_allReduce__17_{one}_1",
                    start + clock[rank] + one * 10**8 + late[rank][one],
                    10**7 - late[rank][one],
                )
                for one in range(count)
            ),
        )
        for rank in range(ranks)
    ]
    found = arrivals(tables)
    assert found.clock == clock
    first = np.min(late, axis=0)
    expected = {(rank, one): late[rank][one] - first[one] for rank in range(ranks) for one in range(count)}
    rows = zip(found.rank.tolist(), found.collective.tolist(), found.late.tolist())
    assert {(rank, one): value for rank, one, value in rows} == expected
    assert found.skew.tolist() == [max(row[one] for row in late) - first[one] for one in range(count)]
    for one, last in enumerate(found.last.tolist()):
        assert late[last][one] == max(row[one] for row in late)


def test_arrivals__groups_that_share_a_rank__clocks_are_joined_through_it() -> None:
    tables = [
        table(0, ("a", "x", 100, 50)),
        table(1, ("a", "x", 1_100, 50), ("b", "y", 2_000, 10)),
        table(2, ("b", "y", 7_000, 10)),
        table(3, ("c", "z", 9_000, 10)),  # alone in its group
    ]
    found = arrivals(tables)
    assert found.clock == [0, 1_000, 6_000, None]
    assert len(found.names) == 2


def test_arrivals__collectives_of_one_name__the_first_with_the_first() -> None:
    tables = [table(rank, ("a", "x", 100, 50 + rank), ("a", "x", 500, 60 - rank)) for rank in range(2)]
    assert arrivals(tables).skew.tolist() == [1, 1]


def test_arrivals__no_collectives__nothing() -> None:
    found = arrivals([table(0), table(1)])
    assert (found.names, found.clock) == ([], [None, None])


def test_reduce__kernels_of_a_collective_without_a_table__joined_where_all_ran_them_as_often() -> None:
    def rank(number: int, *starts: int) -> RankTable:
        builder = EventTableBuilder()
        for start in starts:
            builder.add(
                start, 100 - start % 50, track=STREAM, name="ncclAllReduce", kind="comm", correlation=NO_CORRELATION
            )
        return reduce_timeline(Timeline(number, 0, builder.table()), "file")

    assert arrivals([rank(0, 0, 1_000), rank(1, 10, 1_020)]).skew.tolist() == [10, 20]
    assert arrivals([rank(0, 0, 1_000), rank(1, 10)]).names == []


@pytest.mark.parametrize("named", [True, False], ids=["groups named", "kernels alone"])
def test_arrivals__collective_in_the_queue_as_the_recording_began__is_no_part_of_the_sequence(named: bool) -> None:
    def rank(number: int, *lengths: int, queued: bool = False) -> RankTable:
        builder = EventTableBuilder()
        runs = []
        if queued:
            builder.add(-900, 70, track=STREAM, name="ncclAllReduce", kind="comm", correlation=5)
            runs.append((-900, 70))
        for place, length in enumerate(lengths):
            end, correlation = 1000 * place + 500, 10 + place
            builder.add(end - 400, 10, track=("1", "1"), name="launch", kind="runtime", correlation=correlation)
            builder.add(end - length, length, track=STREAM, name="ncclAllReduce", kind="comm", correlation=correlation)
            runs.append((end - length, length))
        described = None
        if named:
            described = tuple(
                CollectiveKernel("ncclAllReduce", "allreduce", "0", (0, 1), 2, start, length, None)
                for start, length in runs
            )
        return reduce_timeline(Timeline(number, 0, builder.table(), collective_kernels=described), "file")

    found = arrivals([rank(0, 50, 90, 60), rank(1, 50, 20, 60, queued=True)])
    assert found.skew.tolist() == [0, 70, 0]
    assert found.last.tolist()[1] == 1
    assert found.clock == [0, 0]


def test_reduce__more_stretches_than_are_kept__the_shortest_gaps_are_closed() -> None:
    builder, at = EventTableBuilder(), 0
    for number in range(MOST_STRETCHES + 100):
        builder.add(at, 10, track=STREAM, name="gemm", kind="compute", correlation=NO_CORRELATION)
        at += 10 + (1 if number % 50 == 3 else 5)
    reduced = reduce_timeline(Timeline(0, 0, builder.table()), "file")
    busy = reduced.stretches
    assert busy.start.size == MOST_STRETCHES
    assert (busy.start[0], busy.end[-1]) == (0, builder.table().end.max())
    assert (busy.start[1:] - busy.end[:-1]).min() >= 1
    assert int((busy.start[1:] - busy.end[:-1] == 1).sum()) == pytest.approx(102, abs=1)


def test_ranks_timeline__clock_ahead__drawn_when_it_was() -> None:
    tables = [table(0, ("a", "hcom_allReduce__1_0_1", 100, 50)), table(1, ("a", "hcom_allReduce__1_0_1", 1_120, 30))]
    events = ranks_timeline(tables, arrivals(tables).clock)
    assert events.tracks == (
        ("rank 0", "computing"),
        ("rank 0", "collectives"),
        ("rank 1", "computing"),
        ("rank 1", "collectives"),
    )
    assert events.end.tolist() == [150, 150]
    assert events.duration.tolist() == [50, 30]
