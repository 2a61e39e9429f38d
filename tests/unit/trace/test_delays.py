"""Faults planted in simulated trainings of many ranks: the right rank is named with its reason, and equal ranks are clean."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from perfgate.document.trace import DelayRow
from perfgate.trace.analysis.delays import delays
from perfgate.trace.analysis.rank_table import reduce_timeline
from perfgate.trace.analysis.ranks import arrivals, slow_stages
from tests.fakes.training import MS, Training


def found(training: Training, *, without: tuple[int, ...] = ()) -> list[DelayRow]:
    timelines = [timeline for timeline in training.timelines() if timeline.rank not in without]
    tables = [reduce_timeline(timeline, f"rank{timeline.rank}") for timeline in timelines]
    return delays(tables, arrivals(tables))


@pytest.mark.parametrize(("ranks", "tensor"), [(2, 2), (8, 8), (64, 8)])
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03])
def test_delays__equal_ranks__nobody_is_named(ranks: int, tensor: int, noise: float) -> None:
    assert found(Training(ranks=ranks, tensor=tensor, noise=noise)) == []


@pytest.mark.parametrize("seed", range(4))
def test_delays__short_recording_of_equal_ranks__nobody_is_named_by_chance(seed: int) -> None:
    assert found(Training(ranks=64, steps=4, layers=2, seed=seed)) == []


@pytest.mark.parametrize(("ranks", "slow"), [(8, 0), (64, 13), (64, 58)])
def test_delays__rank_that_computes_longer__is_named_with_what_it_costs(ranks: int, slow: int) -> None:
    (delay,) = found(Training(ranks=ranks, extra=lambda rank, step, layer: MS if rank == slow else 0.0))
    assert (delay.rank, delay.why, delay.once, delay.waiting) == (slow, "computing", False, 7)
    # A millisecond in each of four layers; the group would have waited for its second slowest anyway.
    assert delay.per_step == pytest.approx(0.004, rel=0.15)
    assert delay.share == pytest.approx(4 / 49, rel=0.2)


def test_delays__long_recording_of_a_rank_that_is_often_late__is_named() -> None:
    often_late = Training(
        ranks=4,
        tensor=4,
        steps=300,
        extra=lambda rank, step, layer: 2 * MS if rank == 2 and (step + layer) % 2 else 0.0,
    )
    (delay,) = found(often_late)
    assert (delay.rank, delay.why, delay.waiting) == (2, "computing", 3)


def test_delays__rank_late_once__is_named_and_not_those_that_wait_with_it() -> None:
    (delay,) = found(Training(extra=lambda rank, step, layer: 15 * MS if (rank, step, layer) == (21, 3, 1) else 0.0))
    assert (delay.rank, delay.once, delay.step) == (21, True, 3)
    assert delay.worst == pytest.approx(0.015, rel=0.05)


def test_delays__device_that_waits_for_its_host__says_so() -> None:
    (delay,) = found(Training(idle=lambda rank, step, layer: 2 * MS if rank == 5 else 0.0))
    assert (delay.rank, delay.why) == (5, "free")


def test_delays__two_slow_ranks_of_different_groups__both_named() -> None:
    slow = found(Training(extra=lambda rank, step, layer: 2 * MS if rank in (3, 42) else 0.0))
    assert {delay.rank for delay in slow} == {3, 42}


def test_delays__kernels_that_name_no_group__one_group_of_all_still_finds_the_rank() -> None:
    training = Training(ranks=8, named=False, extra=lambda rank, step, layer: MS if rank == 6 else 0.0)
    assert [delay.rank for delay in found(training)] == [6]


def test_delays__waits_inside_fused_kernels__the_rank_that_comes_late_to_them() -> None:
    slow = Training(
        ranks=8,
        named=False,
        kernel="MatmulAllReduce",
        kind="fused",
        extra=lambda rank, step, layer: MS if rank == 6 else 0.0,
    )
    assert [(delay.rank, delay.why) for delay in found(slow)] == [(6, "computing")]


def test_delays__a_rank_that_was_not_recorded__the_others_are_judged() -> None:
    training = Training(extra=lambda rank, step, layer: MS if rank == 13 else 0.0)
    assert [delay.rank for delay in found(training, without=(12, 40))] == [13]


def test_arrivals__more_ranks_than_the_group_has__are_not_joined() -> None:
    tables = []
    for timeline in Training(ranks=16, tensor=8).timelines():
        assert timeline.collective_kernels is not None
        alike = tuple(one._replace(group=one.group[:2], ranks=()) for one in timeline.collective_kernels)
        tables.append(reduce_timeline(replace(timeline, collective_kernels=alike), "file"))
    arrived = arrivals(tables)
    assert (arrived.names, arrived.unjoined > 0) == ([], True)


def test_slow_stages__stage_that_computes_longer__is_named_beside_the_middle_one() -> None:
    timelines = Training(
        ranks=16, tensor=4, extra=lambda rank, step, layer: 2 * MS if rank // 4 == 2 else 0.0
    ).timelines()
    tables = [
        reduce_timeline(replace(one, groups={"pp": tuple(range((one.rank or 0) % 4, 16, 4))}), "file")
        for one in timelines
    ]
    (slow,) = slow_stages(tables)
    assert (slow.stage, slow.behind) == (2, pytest.approx(0.2, rel=0.1))
