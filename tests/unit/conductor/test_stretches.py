from __future__ import annotations

import math
from collections import Counter

import pytest

from perfgate.conductor.sides.function.stretches import StretchPlan, seconds_of_calls
from perfgate.document.run import TIME_SPENT
from perfgate.document.samples import unpack
from perfgate.protocol import WarmedUp
from tests.fakes.device import FakeDevice
from tests.traps.virtual import HOST, MS, SHAPE, Call, Side, VirtualGate, documents_of, judged, works


def host() -> FakeDevice:
    return FakeDevice(capabilities=HOST)


def stalls(ns: int, *, every: int, longer_ns: int) -> Side:
    """Return a side that stalls in every so many calls of a process."""

    def make() -> Call:
        calls = 0

        def call(device: FakeDevice) -> None:
            nonlocal calls
            calls += 1
            device.launch("mm", ns + (longer_ns if calls % every == 0 else 0))

        return call

    return make


def test_measure_stretches__equal_sides__two_starts_of_equally_many_calls_in_turns() -> None:
    measured, machine = VirtualGate(works(MS), works(MS), device=host).measure_stretches(quads=0)
    assert machine.workers.count("base") == machine.workers.count("head") == 2
    for side in (measured.base, measured.head):
        assert [(one.arm, one.pair, one.worker.moved) for one in side] == [("stretch", 0, None), ("stretch", 1, None)]
        calls = [sum(one.shapes[SHAPE].calls) for one in side]
        assert calls == [1008, 1008]
    quads: dict[int, list[int]] = {}
    for number in (0, 1):
        for quad, sequence in zip(
            *(getattr(measured.base[number].shapes[SHAPE], name) for name in ("quad", "sequence"))
        ):
            quads.setdefault(quad, []).append(sequence % 4)
    assert len(quads) == 16
    # Base is first and last of a quad, or in the middle, as often as not.
    assert Counter(map(tuple, quads.values())) == {(0, 3): 8, (1, 2): 8}


def test_measure_stretches__head_stalls_in_every_200th_call__fails() -> None:
    gate = VirtualGate(works(MS), stalls(MS, every=200, longer_ns=30 * MS), device=host)
    measured, _ = gate.measure()
    assert not measured.failed
    decision = judged(*documents_of(measured))
    assert decision.verdict == "PASS"  # the few calls of pairs do not show it
    gate.measure_stretches(measured, quads=0)
    decision = judged(*documents_of(measured))
    assert decision.verdict == "FAIL"
    assert {c.metric for c in decision.comparisons if c.outcome == "regressed"} == {"latency.mean", "latency.stalls"}


def test_measure_stretches__head_stalls_in_every_500th_call__more_starts_until_it_is_shown() -> None:
    gate = VirtualGate(works(MS), stalls(MS, every=500, longer_ns=25 * MS), device=host)
    measured, machine = gate.measure_stretches(gate.measure()[0], quads=0)
    assert machine.workers.count("head") > 2
    assert judged(*documents_of(measured)).verdict == "FAIL"


def test_measure_stretches__added_to_an_earlier_check__numbers_of_the_second_round() -> None:
    gate = VirtualGate(works(MS), works(MS), device=host, all_looks=True, budget=0.0)
    measured, _ = gate.measure_stretches(quads=48, round_number=1)
    assert [(one.pair, one.round) for one in measured.head] == [(100_000, 1), (100_001, 1)]


@pytest.mark.parametrize(("budget", "starts"), [(6.0, 4), (12.0, 8)], ids=["before", "after"])
def test_measure_stretches__budget_ends_around_the_second_look__none_begins_or_the_third_is_reached(
    budget: float, starts: int
) -> None:
    # Eight quads of a start take 2 s, and the looks are after 2, 4 and 8 starts.
    measured, _ = VirtualGate(works(MS), works(MS), device=host, budget=budget, all_looks=True).measure_stretches(
        quads=0
    )
    assert len(measured.head) == starts


def test_measure_stretches__waits_for_a_cpu__no_time_of_a_call() -> None:
    def call(device: FakeDevice) -> None:
        device.launch("mm", MS)
        device.host_ns += 5 * MS
        device.waited_ns += 5 * MS

    measured, _ = VirtualGate(lambda: call, lambda: call, device=host).measure_stretches(quads=0)
    assert set(unpack(measured.head[0].shapes[SHAPE].times.wall).tolist()) == {MS}


@pytest.mark.parametrize("deadline", [math.inf, -1.0])
def test_measure_stretches__calls_of_a_quarter_second__none_even_without_time(deadline: float) -> None:
    measured, _ = VirtualGate(works(300 * MS), works(300 * MS), device=host).measure()
    gate = VirtualGate(works(300 * MS), works(300 * MS), device=host, deadline=deadline)
    _, machine = gate.measure_stretches(measured, quads=0)
    assert "stretch" not in {one.arm for one in measured.base}
    assert not measured.failed
    assert not machine.workers


def test_measure_stretches__only_base_has_calls_of_a_quarter_second__some() -> None:
    gate = VirtualGate(works(300 * MS), works(100 * MS), device=host)
    measured, _ = gate.measure_stretches(gate.measure()[0], quads=0)
    assert "stretch" in {one.arm for one in measured.base}


def test_measure_stretches__deadline_passed__a_failure() -> None:
    measured, _ = VirtualGate(works(MS), works(MS), device=host, deadline=-1.0).measure_stretches(quads=0)
    assert [(one.arm, one.error.message) for one in measured.failed] == [("stretch", TIME_SPENT)]


def test_measure_stretches__head_fails_after_hundreds_of_calls__a_failed_stretch_by_name() -> None:
    def make() -> Call:
        calls = 0

        def call(device: FakeDevice) -> None:
            nonlocal calls
            calls += 1
            if calls > 700:
                raise RuntimeError("the cache is full")
            device.launch("mm", MS)

        return call

    gate = VirtualGate(works(MS), make, device=host)
    measured, _ = gate.measure_stretches(gate.measure()[0], quads=0)
    decision = judged(*documents_of(measured))
    assert decision.verdict == "INCONCLUSIVE"
    assert [failure.what for failure in decision.gaps.failures] == ["stretch 0"]


def test_measure_stretches__an_earlier_job_measured_all__none() -> None:
    measured, _ = VirtualGate(works(MS), works(MS), device=host).measure_stretches(quads=64, round_number=1)
    assert not measured.base


@pytest.mark.parametrize(
    ("seconds", "quads", "calls"),
    [(5e-5, 8, 250), (1e-3, 8, 63), (2e-3, 8, 63), (5e-3, 16, 32), (1e-2, 16, 16), (0.2, 16, 1)],
)
def test_plan__by_the_seconds_of_a_call(seconds: float, quads: int, calls: int) -> None:
    assert StretchPlan.of({"a": seconds}, block_seconds=0.05) == (quads, {"a": calls})


def test_plan__sides_that_stay_loaded__quads_of_two_starts_with_the_calls_of_one() -> None:
    assert StretchPlan.of({"a": 1e-3}, block_seconds=0.05, resident=True) == (16, {"a": 32})


def test_plan__shorter_blocks__fewer_calls() -> None:
    assert StretchPlan.of({"a": 1e-3}, block_seconds=0.005) == (16, {"a": 16})


def test_plan__two_shapes__share_the_seconds() -> None:
    plan = StretchPlan.of({"short": 1e-3, "long": 1e-2}, block_seconds=0.05)
    assert plan == (16, {"short": 32, "long": 8})


def test_seconds_of_calls__quick_shapes_by_their_blocks__slow_ones_share_the_rest() -> None:
    warm = WarmedUp(calls=9, steady=True, call_seconds=0.111, block_calls={"quick": 20, "slow": 3})
    assert seconds_of_calls(warm, 0.02) == pytest.approx({"quick": 0.001, "slow": 0.11})
