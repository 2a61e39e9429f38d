from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from perfgate.conductor.sides.function.plan import FEWEST_QUADS, MOST_QUADS, draw_plans, seconds_of_sure_pairs
from perfgate.conductor.sides.function.workload import PairedMeasurement
from perfgate.config import GateSettings
from perfgate.document.comparison import Paired
from perfgate.document.decision import Policy
from perfgate.document.run import TIME_SPENT
from perfgate.document.samples import BlockColumns, Replicate, pack, unpack
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.text.messages import word
from tests.fakes.device import FakeDevice
from tests.fakes.processor import FakeProcessor, no_processor
from tests.traps.virtual import MS, SHAPE, WORKLOAD, Block, Call, Machine, Side, VirtualGate, works
from tests.unit.gate.builders import pairs_of

FOUR_LOOKS = Policy(looks=[2, 4, 6, 8])


def test_draw_plans__same_seed_and_workload__same_plan_another_seed_another() -> None:
    first = draw_plans(7, "encoder", pairs=8, aa_pairs=5, first_look=8, round_number=0, draw=0, resident=False)
    assert first == draw_plans(7, "encoder", pairs=8, aa_pairs=5, first_look=8, round_number=0, draw=0, resident=False)
    assert first != draw_plans(8, "encoder", pairs=8, aa_pairs=5, first_look=8, round_number=0, draw=0, resident=False)
    assert first != draw_plans(7, "decoder", pairs=8, aa_pairs=5, first_look=8, round_number=0, draw=0, resident=False)


def test_draw_plans__counts__as_asked_numbered_in_running_order() -> None:
    plans = draw_plans(7, "encoder", pairs=14, aa_pairs=7, first_look=8, round_number=0, draw=0, resident=False)
    assert [plan.number for plan in plans] == list(range(21))
    assert sum(plan.arm == "ab" for plan in plans) == 14
    assert sum(plan.arm == "aa" for plan in plans) == 7
    assert {len(plan.second_leads) for plan in plans} == {MOST_QUADS}
    assert len({plan.layout_seed for plan in plans}) == 21
    assert {plan.arm for plan in plans[15:]} == {"ab"}  # the noise floor is known after the first look
    assert [plan.arm for plan in plans[:15]] != sorted(plan.arm for plan in plans[:15])  # arms are mixed


def test_draw_plans__many_seeds__no_side_is_favoured() -> None:
    """1000 coins each: within five standard deviations of one half."""
    plans = [
        plan
        for seed in range(50)
        for plan in draw_plans(seed, "w", pairs=15, aa_pairs=5, first_look=8, round_number=0, draw=0, resident=False)
    ]
    assert 421 < sum(plan.second_starts for plan in plans) < 579
    quads = [lead for plan in plans for lead in plan.second_leads]
    assert sum(quads) * 2 == len(quads)


def test_draw_plans__starts_and_leads__as_many_of_either_side_in_every_four_pairs_and_every_pair() -> None:
    for seed in range(20):
        plans = draw_plans(seed, "w", pairs=16, aa_pairs=8, first_look=8, round_number=0, draw=0, resident=False)
        for arm in ("ab", "aa"):
            starts = [plan.second_starts for plan in plans if plan.arm == arm]
            assert {sum(starts[first : first + 4]) for first in range(0, len(starts), 4)} == {2}
        leads = [plan.second_leads for plan in plans]
        assert {sum(one[quad : quad + 2]) for one in leads for quad in range(0, MOST_QUADS, 2)} == {1}


def test_draw_plans__second_round__other_lots_and_pair_numbers_of_its_own() -> None:
    first = draw_plans(7, "encoder", pairs=8, aa_pairs=5, first_look=8, round_number=0, draw=0, resident=False)
    second = draw_plans(7, "encoder", pairs=8, aa_pairs=5, first_look=8, round_number=1, draw=0, resident=False)
    assert not {plan.number for plan in first} & {plan.number for plan in second}
    assert [plan.layout_seed for plan in second] != [plan.layout_seed for plan in first]


@pytest.mark.parametrize(
    ("base_ns", "head_ns", "title"),
    [
        (1000, 1060, r"FAIL – .*6\.0 % slower"),
        (1060, 1000, r"PASS – .*5\.7 % faster"),
        (1000, 1000, r"PASS – "),
    ],
)
def test_measure_pairs__to_the_comment__the_verdict_rests_on_the_clock_alone(
    base_ns: int, head_ns: int, title: str
) -> None:
    decision = VirtualGate(works(base_ns * 1000), works(head_ns * 1000)).decide()

    assert {type(comparison) for comparison in decision.comparisons} == {Paired}
    first_line = next(
        line
        for line in render_comment(decision, CommentContext(marker="<!-- perfgate -->")).splitlines()
        if line.startswith("## ")
    )
    assert re.search(title, first_line), first_line


def test_measure_pairs__sides__every_replicate_holds_the_calls_of_its_own_side() -> None:
    measured, machine = VirtualGate(works(1 * MS), works(2 * MS), aa_pairs=3).measure()

    assert {call_ns(replicate) for replicate in measured.base} == {1 * MS}
    assert {call_ns(replicate) for replicate in measured.head} == {2 * MS}
    assert {(replicate.arm, replicate.member) for replicate in measured.head} == {("ab", "second")}
    of_twins = [replicate for replicate in measured.base if replicate.arm == "aa"]
    assert sorted(replicate.member for replicate in of_twins) == ["first"] * 3 + ["second"] * 3
    assert machine.workers.count("head") == 12
    assert machine.workers.count("base") == 12 + 2 * 3


def test_measure_pairs__pairs_run_before__the_plan_goes_on_where_they_ended() -> None:
    whole, _ = VirtualGate(works(MS), works(MS), aa_pairs=2, policy=FOUR_LOOKS, all_looks=True).measure()
    rest, _ = VirtualGate(works(MS), works(MS), aa_pairs=2, policy=FOUR_LOOKS, all_looks=True).measure(first=5)
    assert [one.pair for one in whole.head if one.pair >= 5] == [one.pair for one in rest.head]
    assert whole.begun == rest.begun == 10
    assert 0 < rest.seconds < whole.seconds


def test_measure_pairs__order__abba_or_baab_and_who_starts_as_the_lot_says() -> None:
    gate = VirtualGate(works(MS), works(MS), aa_pairs=2, quads=4)
    _, machine = gate.measure()

    plans = draw_plans(1, WORKLOAD, pairs=12, aa_pairs=2, first_look=12, round_number=0, draw=0, resident=False)
    pairs = blocks_by_pair(machine)
    assert len(pairs) == len(plans)
    for number, (plan, blocks) in enumerate(zip(plans, pairs)):
        started = [2 * number + 1, 2 * number + 2]
        first, second = reversed(started) if plan.second_starts else started
        order = [block.worker for block in blocks]
        for quad, second_leads in enumerate(plan.second_leads[:4]):
            expected = [second, first, first, second] if second_leads else [first, second, second, first]
            assert order[4 * quad : 4 * quad + 4] == expected
        if plan.arm == "ab":
            assert machine.workers[second - 1] == "head"
    leads = [lead for plan in plans for lead in plan.second_leads]
    assert len(set(leads)) == len({plan.second_starts for plan in plans}) == 2  # the lot says both


def test_measure_pairs__layout__another_before_every_quad_and_the_same_on_both_sides() -> None:
    _, machine = VirtualGate(works(MS), works(MS), aa_pairs=2, quads=3).measure()

    quads = [machine.moves[first : first + 2] for first in range(0, len(machine.moves), 2)]
    assert [one.blocks for one, _ in quads] == list(range(0, len(machine.blocks), 4))
    for one, other in quads:
        assert (one.blocks, one.seed) == (other.blocks, other.seed)
        assert {one.worker, other.worker} == {block.worker for block in machine.blocks[one.blocks : one.blocks + 4]}
    assert len({one.seed for one, _ in quads}) == len(quads)


@pytest.mark.parametrize(("load", "quads"), [(0.0, 4), (0.5, 14), (60.0, MOST_QUADS)])
def test_measure_pairs__number_of_quads_unset__as_many_as_the_start_is_worth(load: float, quads: int) -> None:
    # A quad takes 47 ms and a pair two loads and 0.1 s to start.
    measured, _ = VirtualGate(works(MS), works(MS), quads=None, load=load).measure()

    assert set(measured.head[0].shapes[SHAPE].quad) == set(range(4))
    assert {max(replicate.shapes[SHAPE].quad) + 1 for replicate in measured.head[1:]} == {quads}


def test_measure_pairs__layouts_by_luck_a_tenth_slower__a_pair_has_many() -> None:
    def lucky() -> Call:
        calls = itertools.count()
        # Two blocks of 20 calls and one unrecorded are of one layout.
        return lambda device: device.launch("mm", MS + next(calls) // 42 % 2 * MS // 10)

    measured, _ = VirtualGate(works(MS), lucky, quads=None).measure()
    assert {max(replicate.shapes[SHAPE].quad) + 1 for replicate in measured.head[2:]} == {MOST_QUADS}


def test_measure_pairs__blocks__are_collected_in_the_order_they_ran() -> None:
    measured, machine = VirtualGate(works(MS), works(2 * MS), aa_pairs=0, quads=2).measure()

    for blocks, base, head in zip(blocks_by_pair(machine), measured.base, measured.head):
        for side, replicate in (("base", base), ("head", head)):
            columns = replicate.shapes[SHAPE]
            assert columns.sequence == [place for place, block in enumerate(blocks) if block.side == side]
            assert columns.quad == [0, 0, 1, 1]


@pytest.mark.parametrize(("head_ns", "pairs"), [(1 * MS, 12), (2 * MS, 24)])
def test_measure_pairs__enough__unchanged_ends_at_the_first_look_a_regression_at_the_second(
    head_ns: int, pairs: int
) -> None:
    gate = VirtualGate(works(1 * MS), works(head_ns), policy=Policy(looks=[12, 24, 36]))
    assert len(gate.measure()[0].head) == pairs


def test_measure_pairs__budget_spent__two_looks_and_no_third() -> None:
    gate = VirtualGate(works(MS), works(MS), policy=FOUR_LOOKS, aa_pairs=1, all_looks=True, budget=0.01)
    assert len(gate.measure()[0].head) == 4


def test_measure_pairs__budget_left__every_look() -> None:
    gate = VirtualGate(works(MS), works(MS), policy=FOUR_LOOKS, aa_pairs=1, all_looks=True, budget=1000)
    assert len(gate.measure()[0].head) == 8


@pytest.mark.parametrize(
    ("needed", "last_pair_before", "pairs"),
    [
        pytest.param(None, 4, 5, id="nobody knows how many decide"),
        pytest.param(7, 4, 5, id="more than the next look has"),
        pytest.param(6, 4, 6, id="the next look decides, and no other begins"),
        pytest.param(6, 1, 4, id="it would take longer than the budget"),
        pytest.param(6, 2, 6, id="it takes no longer than the budget"),
    ],
)
def test_measure_pairs__budget_spent_after_the_second_look__goes_on_once_if_the_next_decides(
    needed: int | None, last_pair_before: int, pairs: int
) -> None:
    probe = VirtualGate(works(MS), works(MS), policy=FOUR_LOOKS, aa_pairs=0, all_looks=True)
    ends = [blocks[-1].began_ns / 1e9 for blocks in blocks_by_pair(probe.measure()[1])]
    gate = replace(probe, budget=ends[last_pair_before], pairs_needed=lambda: needed)
    assert len(gate.measure()[0].head) == pairs


def test_measure_pairs__deadline_between_pairs__none_begins_after_it_and_what_is_there_stays() -> None:
    probe = VirtualGate(works(MS), works(MS), policy=FOUR_LOOKS, aa_pairs=0, all_looks=True)
    begins = [blocks[0].began_ns / 1e9 for blocks in blocks_by_pair(probe.measure()[1])]
    gate = VirtualGate(works(MS), works(MS), policy=FOUR_LOOKS, aa_pairs=0, all_looks=True, deadline=begins[2])

    measured, _ = gate.measure()

    assert len(measured.head) == len(measured.base) == 3
    assert measured.failed == []


@pytest.mark.parametrize("call", [300 * MS, 2600 * MS])
def test_measure_pairs__slow_calls__the_two_sure_looks_take_no_longer_than_was_estimated(call: int) -> None:
    """The estimate that refuses a workload and the loop that would measure it must not drift apart."""
    gate = VirtualGate(works(call), works(call), policy=Policy(), budget=1.0, quads=None, load=1.0, all_looks=True)
    measured, machine = gate.measure()

    assert len(measured.head) == 16
    settings = GateSettings(aa_pairs=gate.aa_pairs)
    estimate = seconds_of_sure_pairs(
        settings, call_seconds=call / 1e9, start_seconds=gate.load, resident=False, parked=False, lone=False
    )
    assert 0.7 * estimate < machine.now_ns() / 1e9 <= 1.05 * estimate
    assert {calls for replicate in measured.head for calls in replicate.shapes[SHAPE].calls} == {1}


@pytest.mark.parametrize(
    ("load", "resident", "seconds"), [(0.5, False, 19.4), (20.0, False, 487.4), (8.0, True, 76.0), (30.0, True, 208.0)]
)
def test_seconds_of_sure_pairs__fast_calls__loading_counts(load: float, resident: bool, seconds: float) -> None:
    """On a CPU two pairs share the loads of both sides; resident sides load at once, for as many pairs as are worth it."""
    estimate = seconds_of_sure_pairs(
        GateSettings(), call_seconds=0.002, start_seconds=load, resident=resident, parked=False, lone=False
    )

    assert estimate == pytest.approx(seconds, abs=0.05)


@pytest.mark.parametrize(("head", "verdict"), [(1000, "PASS"), (1100, "FAIL"), (4000, "FAIL")])
def test_measure_pairs__slow_calls__decided_by_a_quad_a_pair(head: int, verdict: str) -> None:
    gate = VirtualGate(works(1000 * MS), works(head * MS), policy=Policy(), budget=1.0, quads=None)
    assert gate.decide().verdict == verdict


def test_measure_pairs__deadline_before_the_first_pair__a_failure_and_inconclusive() -> None:
    gate = VirtualGate(works(MS), works(MS), deadline=0.0)

    measured, _ = gate.measure()

    assert (measured.base, measured.head) == ([], [])
    assert [failed.error.message for failed in measured.failed] == [TIME_SPENT]
    assert gate.decide().verdict == "INCONCLUSIVE"


def failing(*processes: int) -> Side:
    """Return a side whose processes of these numbers cannot make a call."""
    number = iter(range(1000))

    def make() -> Call:
        fails = next(number) in processes

        def call(device: FakeDevice) -> None:
            if fails:
                raise RuntimeError("out of licences")
            device.launch("mm", MS)

        return call

    return make


def test_measure_pairs__three_failures_in_a_row__ends_and_names_them() -> None:
    measured, _ = VirtualGate(works(MS), failing(2, 3, 4), aa_pairs=0).measure()

    assert len(measured.head) == 2
    assert [failed.error.message for failed in measured.failed] == ["RuntimeError: out of licences"] * 3
    assert [failed.pair for failed in measured.failed] == [2, 3, 4]


def test_measure_pairs__failures_with_a_success_between__goes_on() -> None:
    measured, _ = VirtualGate(works(MS), failing(2, 3, 5, 6), aa_pairs=0).measure()

    assert [failed.pair for failed in measured.failed] == [2, 3, 5, 6]
    assert len(measured.head) == len(measured.base) == 8


def holding(room: int) -> Side:
    """Return a side whose processes keep a model each on a device that has room for so many."""

    def make() -> Call:
        model = object()

        def call(device: FakeDevice) -> None:
            device.held.add(model)  # type: ignore[attr-defined]
            if len(device.held) > room:  # type: ignore[attr-defined]
                raise MemoryError("tried to allocate 40 GiB")
            device.launch("mm", MS)

        return call

    return make


def device_of_models() -> FakeDevice:
    device = FakeDevice()
    device.held = set()  # type: ignore[attr-defined]
    return device


def test_measure_pairs__room_for_one_model__says_that_a_pair_holds_both() -> None:
    measured, _ = VirtualGate(holding(1), holding(1), device=device_of_models, aa_pairs=0, resident=True).measure()

    assert {failed.error.kind for failed in measured.failed} == {"memory"}
    (message,) = {word(failed.error.message) for failed in measured.failed}
    assert message.startswith(
        "base and head do not fit into the memory of fake together, and a pair needs both at once: "
    )
    assert "tried to allocate 40 GiB" in message


def test_measure_pairs__room_for_no_model__the_error_is_of_one_side() -> None:
    measured, _ = VirtualGate(holding(0), holding(0), device=device_of_models, aa_pairs=0).measure()
    assert not any("together" in word(failed.error.message) for failed in measured.failed)
    assert {failed.error.kind for failed in measured.failed} == {"memory"}


def test_measure_pairs__servers__renewed_after_half_a_first_look_each_with_other_hashes() -> None:
    gate = VirtualGate(works(MS), works(MS), policy=FOUR_LOOKS, aa_pairs=2, all_looks=True)
    _, machine = gate.measure()
    # Two of the first look are base against base: of ten plans each server has two.
    assert len(machine.servers) == len(set(machine.servers)) == 5


def test_measure_pairs__last_pair_of_the_only_look__no_server_is_started_for_it_alone() -> None:
    gate = VirtualGate(works(MS), works(MS), policy=Policy(looks=[5]), aa_pairs=0)
    assert list(gate.measure()[1].forked_by.values()) == [4, 6]


@pytest.mark.parametrize(("start_up", "served"), [(0.0, [4, 4, 4, 4, 4]), (0.3, [8, 8, 4]), (600.0, [20])])
def test_measure_pairs__servers_that_start_slowly__take_over_when_they_are_ready(
    start_up: float, served: list[int]
) -> None:
    gate = VirtualGate(works(MS), works(MS), policy=FOUR_LOOKS, aa_pairs=2, all_looks=True, start_up=start_up)
    assert list(gate.measure()[1].forked_by.values()) == served


def test_measure_pairs__head_twenty_times_slower__both_sides_run_blocks_of_four_times_its_own() -> None:
    """50 calls fill a block of the base, 3 one of the head: with 50 a pair would last twenty times as long."""
    _, machine = VirtualGate(works(MS // 5), works(4 * MS), aa_pairs=0).measure()
    assert {(block.side, block.calls) for block in machine.blocks} == {("base", 12), ("head", 12)}


def test_measure_pairs__profiled_pairs__the_first_twelve_of_base_and_head_in_the_first_round_alone() -> None:
    gate = VirtualGate(
        works(MS), works(MS), policy=Policy(looks=[8, 16]), aa_pairs=7, quads=1, all_looks=True, profiled=True
    )
    measured, _ = gate.measure()
    again, _ = gate.measure(round_number=1)

    assert [replicate.pair for replicate in measured.head if replicate.profile.operators] == numbers(measured)[:12]
    assert {bool(replicate.profile.operators) for replicate in measured.base if replicate.arm == "aa"} == {False}
    assert not any(replicate.profile.operators for replicate in [*again.base, *again.head])


def test_measure_pairs__nothing_to_name_at_first__profiled_from_the_look_that_finds_something() -> None:
    looks = iter([False, True, False])
    gate = VirtualGate(
        works(MS), works(MS), policy=FOUR_LOOKS, aa_pairs=1, quads=1, all_looks=True, profiled=True,
        needs_names=lambda: next(looks, False),
    )  # fmt: skip
    measured, _ = gate.measure()

    assert [replicate.pair for replicate in measured.head if replicate.profile.operators] == numbers(measured)[2:]


def test_measure_pairs__one_look_and_something_to_name_on_the_way__two_thirds_are_profiled() -> None:
    looks = iter([False, True])
    gate = VirtualGate(
        works(MS), works(MS), policy=Policy(looks=[12]), aa_pairs=0, quads=1, profiled=True,
        needs_names=lambda: next(looks, False),
    )  # fmt: skip
    measured, _ = gate.measure()

    assert [replicate.pair for replicate in measured.head if replicate.profile.operators] == numbers(measured)[4:]


def test_measure_pairs__kernel_that_sometimes_does_not_say_who_waited__is_quoted_on_no_block() -> None:
    waits = VirtualGate(works(MS), works(MS), aa_pairs=0, run_delay=lambda now: now // 10).measure()[0]
    silent = VirtualGate(
        works(MS), works(MS), aa_pairs=0, run_delay=lambda now: None if now % 3 == 0 else now // 10
    ).measure()[0]

    for replicate in waits.head:
        columns = replicate.shapes[SHAPE]
        shares = np.array(columns.conductor.run_delay_ns) / np.array(columns.conductor.seen_ns)
        assert shares == pytest.approx(0.1, rel=0.001)
    lengths = {len(replicate.shapes[SHAPE].conductor.run_delay_ns) for replicate in [*silent.base, *silent.head]}
    assert lengths == {0}


def test_measure_pairs__hardware_counters__in_the_blocks_of_both_sides() -> None:
    measured, _ = VirtualGate(works(MS), works(MS), aa_pairs=0, counters=FakeProcessor().counters()).measure()
    for replicate in (*measured.base, *measured.head):
        assert set(replicate.shapes[SHAPE].worker.instructions) == {3000}
    assert measured.uncounted is None


def test_measure_pairs__no_hardware_counters__no_columns_and_said_why() -> None:
    measured, _ = VirtualGate(works(MS), works(MS), aa_pairs=0, counters=no_processor().counters()).measure()
    assert all(replicate.shapes[SHAPE].worker.instructions == [] for replicate in (*measured.base, *measured.head))
    assert measured.uncounted is not None
    assert measured.uncounted.endswith("this machine has no hardware counters (a virtual machine?)")


def test_measure_pairs__books__cpu_time_of_a_block_and_of_the_time_between_are_the_workers_own() -> None:
    def busy() -> Call:
        return lambda device: device.host_works(MS)

    measured, _ = VirtualGate(works(MS), busy, aa_pairs=0, quads=2).measure()

    head = measured.head[0].shapes[SHAPE]
    assert head.conductor.used_ns == [MS * (calls + 1) for calls in head.calls]
    assert head.conductor.out_of_turn_ns == [0] * 4
    base = measured.base[0].shapes[SHAPE]
    assert base.conductor.used_ns == [0] * 4  # its device works, not the host
    assert sum(head.conductor.waited_ns) > 0


def test_measure_pairs__clock_of_the_cpu_without_resolution__fewest_quads_and_no_warning() -> None:
    def timeless(blocks: BlockColumns) -> BlockColumns:
        return msgspec.structs.replace(
            blocks, times=msgspec.structs.replace(blocks.times, cpu=pack([0] * blocks.times.cpu.count))
        )

    measured, _ = VirtualGate(works(MS), works(MS), aa_pairs=0, quads=None, reported=timeless).measure()
    assert not measured.failed
    assert len(set(measured.head[0].shapes[SHAPE].quad)) == FEWEST_QUADS


def test_measure_pairs__samples_that_cannot_be_unpacked__a_failed_pair_and_no_end_of_the_job() -> None:
    def cut(blocks: BlockColumns) -> BlockColumns:
        return msgspec.structs.replace(
            blocks,
            times=msgspec.structs.replace(blocks.times, cpu=msgspec.structs.replace(blocks.times.cpu, data="cut")),
        )

    measured, _ = VirtualGate(works(MS), works(MS), aa_pairs=0, reported=cut).measure()
    assert {failed.error.kind for failed in measured.failed} == {"protocol"}
    assert "cannot be unpacked" in word(measured.failed[0].error.message)


def numbers(measured: PairedMeasurement) -> list[int]:
    return [replicate.pair for replicate in measured.head]


def call_ns(replicate: Replicate) -> int:
    return int(np.median(unpack(replicate.shapes[SHAPE].times.wall)))


def blocks_by_pair(machine: Machine) -> list[Sequence[Block]]:
    """Return the blocks of each pair: workers start two by two."""
    pairs: defaultdict[int, list[Block]] = defaultdict(list)
    for block in machine.blocks:
        pairs[(block.worker - 1) // 2].append(block)
    return [pairs[number] for number in sorted(pairs)]


def test_draw_plans__another_draw__other_layouts_for_the_same_pairs() -> None:
    first, again, other = (
        draw_plans(7, "w", pairs=16, aa_pairs=7, first_look=8, draw=draw, round_number=0, resident=False)
        for draw in (0, 0, 1)
    )
    assert first == again
    assert [plan.number for plan in other] == [plan.number for plan in first]
    assert [plan.layout_seed for plan in other] != [plan.layout_seed for plan in first]


def test_give_up__pairs_of_unlucky_layouts__left_out_and_counted() -> None:
    base, head = pairs_of([1.0] * 8)
    measured = PairedMeasurement(base=base, head=head)
    measured.give_up()
    assert (measured.base, measured.head, measured.given_up) == ([], [], 15)
