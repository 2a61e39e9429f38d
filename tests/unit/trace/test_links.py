"""Links between ranks: global ranks from positions in groups, totals once, and slowness among links that are alike."""

from __future__ import annotations

from perfgate.trace.analysis.delays import delays
from perfgate.trace.analysis.rank_table import RankTable, reduce_timeline
from perfgate.trace.analysis.ranks import arrivals, links_between, slow_links
from perfgate.trace.model.events import EventTableBuilder
from perfgate.trace.model.recording import Kernel, RankLink, Timeline

MB = 1e6


def table(
    rank: int, *links: tuple[str, str, int, int, float, float], groups: dict[str, tuple[int, ...]] | None = None
) -> RankTable:
    """A rank with links: operation, group, positions of both ends, megabytes, milliseconds."""
    rows = tuple(
        RankLink(operation, "collective", group, 13, source, target, "HCCS", size * MB, round(time * MB), None)
        for operation, group, source, target, size, time in links
    )
    return reduce_timeline(
        Timeline(rank, 0, EventTableBuilder().table(), rank_links=rows, groups=groups or {}), "folder"
    )


def ends(links: list[RankLink]) -> list[tuple[int, int, str | None]]:
    return [(link.source, link.target, link.group) for link in links]


def test_links__positions_in_groups__global_ranks_as_the_ranks_there_tell() -> None:
    # Ranks 2 and 3 of four are recorded: a group of both, whose hash no list of groups has.
    tables = [
        table(2, ("allreduce-total", "58", 0, 1, 700, 40), ("allreduce-total", "58", 0, 0, 700, 1)),
        table(3, ("allreduce-total", "58", 1, 0, 700, 40)),
    ]
    assert ends(links_between(tables)) == [(2, 3, None), (3, 2, None)]


def test_links__other_end_not_recorded__the_lists_of_groups_tell_it_if_they_allow_one_answer() -> None:
    pipeline = {"pp": (0, 2), "embd": (0, 2), "dp": (2, 3)}
    sent = table(2, ("send-total", "39", 1, 0, 16, 1), groups=pipeline)
    assert ends(links_between([sent])) == [(2, 0, None)]
    unclear = table(2, ("send-total", "39", 0, 1, 16, 1), groups={"dp": (2, 3), "cp": (2, 4)})
    assert ends(links_between([unclear])) == [(0, 1, "39")]


def test_links__total_and_its_parts__counted_once() -> None:
    parts = [(f"allreduce-{part}", "58", 0, 1, 300.0, 20.0) for part in ("top1", "middle", "bottom1", "bottom2")]
    (link,) = links_between([table(0, *parts, ("allreduce-total", "58", 0, 1, 751.6, 40)), table(1)])
    assert link.size_bytes == 751.6 * MB


def test_slow_links__a_few_bytes__no_link_is_slow_by_them() -> None:
    small = [table(rank, ("allgather-total", "a", rank, (rank + 1) % 4, 0.0001, 0.004)) for rank in range(4)]
    latency = table(4, ("allgather-total", "b", 0, 1, 0.0001, 0.04))
    assert slow_links(links_between([*small, latency])) == []


def test_slow_links__a_tenth_of_the_bandwidth_of_its_like__is_named_with_its_bytes() -> None:
    tables = [
        table(rank, ("allreduce-total", "a", rank, (rank + 1) % 4, 800, 400 if rank == 2 else 40)) for rank in range(4)
    ]
    (link,) = slow_links(links_between(tables))
    assert (link.source, link.target, link.size) == (2, 3, 800 * MB)
    assert link.middle / link.bandwidth == 10


def test_slow_links__another_operation_of_small_messages__is_no_measure() -> None:
    large = [table(rank, ("allreduce-total", "a", rank, (rank + 1) % 4, 800, 40)) for rank in range(4)]
    # Two megabytes in a thousand messages: latency, not a broken link.
    chatty = [table(rank, ("alltoall-total", "b", rank % 4, (rank + 1) % 4, 2, 1)) for rank in range(4)]
    assert slow_links(links_between([*large, *chatty])) == []


def test_reduce__kernels_that_dispatch_tokens_by_themselves__are_shares_though_no_table_lists_them() -> None:
    def kernels(late: int) -> list[Kernel]:
        rows = []
        for step in range(3):
            at = step * 1000
            rows.append(Kernel("GroupedMatmul", "GroupedMatmul", "AI_CORE", at, 400 + late))
            rows.append(
                Kernel(
                    "MoeDistributeDispatchV2",
                    "MoeDistributeDispatchV2",
                    "MIX_AIV",
                    at + 400 + late,
                    300 - late,
                    step=step,
                )
            )
        return rows

    tables = [
        reduce_timeline(
            Timeline(rank, 0, EventTableBuilder().table(), kernels=kernels(120 if rank == 3 else 0), collectives=()),
            "folder",
        )
        for rank in range(8)
    ]
    arrived = arrivals(tables)
    assert arrived.names == ["MoeDistributeDispatchV2"] * 3
    (delay,) = delays(tables, arrived)
    assert (delay.rank, delay.why) == (3, "computing")
