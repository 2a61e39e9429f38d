"""Sides that stay loaded for several pairs, as on an accelerator: their starts, and the luck of these in the gate."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import msgspec
import numpy as np
import pytest

from perfgate.conductor.sides.function.plan import MOST_RESIDENT_PAIRS, draw_plans, pairs_of_start
from perfgate.document.decision import Policy
from perfgate.document.decision import PowerCap as PowerCapShares
from perfgate.document.run import RunDocument
from perfgate.document.samples import AA_PAIRS_OF_A_START, Replicate
from perfgate.protocol import ProfileRequest, SizeBlockRequest, TrySizesRequest
from tests.fakes.device import FakeDevice
from tests.fakes.power import PowerCap
from tests.fakes.records import changed
from tests.traps.virtual import MS, SHAPE, Side, VirtualGate, documents_of, judged, works

THREE_LOOKS = Policy(looks=[8, 16, 32])
LOAD_SECONDS = 8.0


def lucky(ns: int, *, luck: float, seed: int) -> Side:
    """A side with calls of this length, in each process longer or shorter by luck of its own."""
    lot = np.random.default_rng(seed)

    def start_process() -> object:
        took = round(ns * float(np.exp(luck * lot.standard_normal())))
        return lambda device: device.launch("mm", took)

    return start_process  # type: ignore[return-value]


def noisy_device() -> FakeDevice:
    return FakeDevice(noise=0.005)


def starts_of(replicates: list[Replicate], arm: str) -> list[int]:
    return [replicate.start for replicate in replicates if replicate.arm == arm and replicate.start is not None]


@pytest.mark.parametrize(
    ("start_seconds", "pair_seconds", "pairs"), [(0.1, 1.0, 1), (9.5, 1.0, 3), (36.0, 1.0, 6), (9000.0, 0.5, 16)]
)
def test_pairs_of_start__time_of_loading__as_many_as_are_most_informative(
    start_seconds: float, pair_seconds: float, pairs: int
) -> None:
    assert pairs_of_start(start_seconds=start_seconds, pair_seconds=pair_seconds) == pairs <= MOST_RESIDENT_PAIRS


def test_draw_plans__resident_sides__base_against_base_comes_first() -> None:
    plans = draw_plans(1, "w", pairs=16, aa_pairs=7, first_look=8, resident=True, round_number=0, draw=0)

    assert [plan.arm for plan in plans] == ["aa"] * 7 + ["ab"] * 16


def test_measure_pairs__resident_sides__both_load_once_for_several_pairs() -> None:
    gate = VirtualGate(
        works(MS), works(MS), policy=THREE_LOOKS, load=LOAD_SECONDS, all_looks=True, budget=1000, resident=True
    )

    measured, machine = gate.measure()

    of_head, of_base = starts_of(measured.head, "ab"), starts_of(measured.base, "ab")
    assert of_head == of_base == sorted(of_head)
    assert len(of_head) == 32
    # A start takes 2 x 8 s here, where loads do not overlap, and 2 s of warming up; a pair takes 0.6 s.
    # The first look rests on three starts.
    assert list(Counter(of_head).values()) == [3, 3, 5, 5, 5, 5, 5, 1]
    of_floor = starts_of(measured.base, "aa")
    assert len(of_floor) == 8
    assert len(set(of_floor)) == 1
    assert len(machine.workers) == 2 * (len(set(of_head)) + 1)


@pytest.mark.parametrize("request_type", [TrySizesRequest, SizeBlockRequest, ProfileRequest])
def test_measure_pairs__resident_side_ends_after_the_blocks_of_a_pair__the_next_pair_loads_anew(
    request_type: type[msgspec.Struct],
) -> None:
    """Batch sizes and profiles only inform: what they cost must not be a pair."""
    gate = VirtualGate(
        works(MS),
        works(MS),
        policy=Policy(looks=[8]),
        load=LOAD_SECONDS,
        resident=True,
        profiled=True,
        has_sizes=True,
        dies_of=request_type,
    )

    measured, machine = gate.measure()

    assert machine.deaths == 1
    assert measured.failed == []
    assert len(measured.head) == 8


@pytest.mark.parametrize(("room", "most_alive"), [(4, 4), (3, 2), (None, 2)])
def test_measure_pairs__resident_sides__the_next_two_load_meanwhile_if_the_device_holds_all_four(
    room: int | None, most_alive: int
) -> None:
    gate = VirtualGate(
        works(MS), works(MS), policy=Policy(looks=[1]), aa_pairs=1, load=LOAD_SECONDS, resident=True, room=room
    )
    measured, machine = gate.measure()
    assert not measured.failed
    assert machine.most_alive == most_alive


def test_measure_pairs__device_holds_one_process__each_side_loads_in_every_pair_and_none_beside_another() -> None:
    gate = VirtualGate(
        works(MS),
        works(MS),
        policy=Policy(looks=[8]),
        load=LOAD_SECONDS,
        all_looks=True,
        budget=1000,
        resident=True,
        lone=True,
    )

    measured, machine = gate.measure()

    assert not measured.failed
    assert machine.most_alive == 1
    of_head, of_base = starts_of(measured.head, "ab"), starts_of(measured.base, "ab")
    assert of_head == of_base == sorted(set(of_head))
    assert len(machine.workers) == 2 * (len(of_head) + AA_PAIRS_OF_A_START)
    first = machine.workers[2 * AA_PAIRS_OF_A_START :: 2]
    assert first.count("base") == first.count("head") == 4
    for replicates in (measured.base, measured.head):
        assert replicates[-1].shapes[SHAPE].quad == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(("head", "verdict"), [(MS, "PASS"), (MS * 1.03, "FAIL")])
def test_decide__device_holds_one_process__equal_code_passes_and_three_percent_fail(head: float, verdict: str) -> None:
    gate = VirtualGate(
        lucky(MS, luck=0.002, seed=1),
        lucky(round(head), luck=0.002, seed=2),
        device=noisy_device,
        policy=THREE_LOOKS,
        load=LOAD_SECONDS,
        budget=1000,
        resident=True,
        lone=True,
    )

    assert gate.decide().verdict == verdict


def test_measure_stretches__device_holds_one_process__none() -> None:
    measured, machine = VirtualGate(
        works(MS), works(MS), policy=THREE_LOOKS, resident=True, lone=True
    ).measure_stretches(quads=0)

    assert not measured.failed
    assert not [replicate for replicate in measured.head if replicate.arm == "stretch"]
    assert not machine.workers


def test_measure_stretches__resident_sides__one_stretch_has_the_quads_of_a_look() -> None:
    measured, _ = VirtualGate(works(MS), works(MS), policy=THREE_LOOKS, resident=True).measure_stretches(quads=0)

    (stretch,) = [replicate for replicate in measured.head if replicate.arm == "stretch"]
    assert len(set(stretch.shapes[SHAPE].quad)) == 16
    assert sum(stretch.shapes[SHAPE].calls) >= 1000


def test_measure_pairs__sides_on_the_cpu__no_start_is_shared() -> None:
    measured, _ = VirtualGate(works(MS), works(MS), policy=THREE_LOOKS).measure()

    assert {replicate.start for replicate in (*measured.base, *measured.head)} == {None}


@pytest.mark.parametrize(("head", "verdict"), [(MS, "PASS"), (MS * 1.03, "FAIL")])
def test_decide__resident_sides_with_luck__equal_code_passes_and_three_percent_fail(head: float, verdict: str) -> None:
    gate = VirtualGate(
        lucky(MS, luck=0.002, seed=1),
        lucky(round(head), luck=0.002, seed=2),
        device=noisy_device,
        policy=THREE_LOOKS,
        load=LOAD_SECONDS,
        budget=1000,
        resident=True,
    )

    assert gate.decide().verdict == verdict


def test_decide__all_pairs_of_one_start__their_common_luck_is_no_regression() -> None:
    """Pairs that agree on 3 % fail the gate; the same pairs of a single start show the luck of two processes."""
    gate = VirtualGate(works(MS), works(round(MS * 1.03)), device=noisy_device, policy=THREE_LOOKS, resident=True)
    measured, _ = gate.measure()
    apart = judged(*documents_of(measured), policy=THREE_LOOKS)
    for replicates in (measured.base, measured.head):
        replicates[:] = [msgspec.structs.replace(replicate, start=0) for replicate in replicates]

    together = judged(*documents_of(measured), policy=THREE_LOOKS)

    assert (apart.verdict, together.verdict) == ("FAIL", "INCONCLUSIVE")


def test_measure_pairs__resident_sides__every_pair_has_its_own_blocks() -> None:
    measured, _ = VirtualGate(
        works(MS), works(MS), policy=THREE_LOOKS, load=LOAD_SECONDS, all_looks=True, resident=True, quads=3
    ).measure()

    ends = [replicate.shapes["default"] for replicate in measured.head]
    assert all(len(blocks.worker.start_ns) == 6 for blocks in ends)
    for earlier, later in itertools.pairwise(ends):
        assert later.worker.start_ns[0] != earlier.worker.start_ns[0]


@pytest.mark.parametrize("side", [0, 1])
def test_decide__starts_left_out_on_an_accelerator__evidence_is_missing(side: int) -> None:
    """Without them the pairs of one start would pass for independent ones."""
    measured, _ = VirtualGate(works(MS), works(MS), device=noisy_device, policy=THREE_LOOKS, resident=True).measure()
    documents = [on_an_accelerator(run) for run in documents_of(measured)]
    assert judged(documents[0], documents[1], policy=THREE_LOOKS).gaps.missing == []
    without = [msgspec.structs.replace(replicate, start=None) for replicate in documents[side].pairs.replicates]
    documents[side] = changed(documents[side], replicates=without)

    decision = judged(documents[0], documents[1], policy=THREE_LOOKS)

    assert decision.verdict == "INCONCLUSIVE"
    assert {entry.metric for entry in decision.gaps.missing} == {"start"}


def on_an_accelerator(run: RunDocument) -> RunDocument:
    return msgspec.structs.replace(run, testbed=msgspec.structs.replace(run.testbed, device_kind="cuda"))


def test_decide__at_the_power_limit_in_every_block__passes() -> None:
    def hot_device() -> FakeDevice:
        return FakeDevice(noise=0.005, launch_ns=5_000, launch_jitter=0.2, cap=PowerCap(heat=0.8))

    gate = VirtualGate(
        works(MS), works(MS), device=hot_device, policy=THREE_LOOKS, load=LOAD_SECONDS, budget=1000, resident=True
    )

    decision = gate.decide()

    assert decision.verdict == "PASS"
    assert decision.measured.power_cap == PowerCapShares(base=1.0, head=1.0)


def test_measure_pairs__resident_sides__kernels_of_every_quad_are_profiled() -> None:
    def call(device: FakeDevice) -> None:
        device.launch("mm", 800_000)
        device.launch("relu", 200_000)

    measured, _ = VirtualGate(lambda: call, lambda: call, policy=THREE_LOOKS, resident=True, quads=3).measure()

    for replicate in (*measured.base, *measured.head):
        kernels = replicate.kernels["default"]
        assert kernels.quad == [0, 1, 2]
        assert [ns / calls for ns, calls in zip(kernels.busy_ns, kernels.calls)] == [1_000_000] * 3
        assert [(row.name, row.count, row.ns) for row in kernels.rows] == [("mm", 1, 800_000), ("relu", 1, 200_000)]
    assert len({work for replicate in measured.head for work in replicate.kernels["default"].work}) == 1


def test_measure_pairs__card_idled_between_pairs__works_before_the_next_block() -> None:
    """The conductor is held up after every pair, as by a look."""
    gate = VirtualGate(works(MS), works(MS), policy=THREE_LOOKS, resident=True, quads=3)

    _, prompt = gate.measure()
    _, held_up = dataclasses.replace(gate, pause_seconds=0.1).measure()

    assert {wake.seconds for wake in prompt.wakes} == set()
    # Of twelve pairs in four starts; the first pair of a start finds the card warm.
    assert len(held_up.wakes) == 8
    assert all(0.2 <= wake.seconds < 0.25 for wake in held_up.wakes)


def test_measure_pairs__resident_sides_load_longer_than_foreseen__the_sure_looks_end_in_time() -> None:
    gate = VirtualGate(works(MS), works(MS), policy=THREE_LOOKS, load=120.0, all_looks=True, budget=60, resident=True)

    measured, machine = gate.measure()

    starts = set(starts_of(measured.head, "ab"))
    assert len(starts) == 1
    # Base against base and the first start take 240 s each here, where loads do not overlap, and nothing begins after 300 s.
    assert 480 < machine.now_ns() / 1e9 < 500
