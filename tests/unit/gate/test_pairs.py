"""From blocks to one number a pair."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from perfgate.document.comparison import Comparison
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.samples import BlockColumns, Replicate
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.blocks import deciding_clock
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.pairs import paired_effects, pairs_of
from perfgate.judging.gate.evidence.process import compare_fast_paths, fast_path, statistics
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, columns, replicate, sides
from tests.wording import text_of


def test_statistics__equal_calls_of_10_ms__every_location_is_10_ms() -> None:
    found = statistics(columns(0.01))
    assert math.exp(found.fast_path.p10) == pytest.approx(0.01)
    assert np.exp(found.fast_path.fastest) == pytest.approx([0.01, 0.01])
    assert math.exp(found.p50) == pytest.approx(0.01)
    assert found.gap == pytest.approx(0.0, abs=1e-12)


def test_statistics__3_us_between_calls__gap_is_3_us() -> None:
    assert statistics(columns(0.001, gap=3e-6)).gap == pytest.approx(3e-6)


def test_statistics__chosen_quads__only_their_calls_count() -> None:
    blocks = columns(0.01, blocks=8)
    assert len(statistics(blocks, frozenset({0, 2})).fast_path.fastest) == 2
    assert statistics(blocks, frozenset({0})).cpu.size == 40


def effects_of(base: Sequence[Replicate], head: Sequence[Replicate], place: ShapePlace) -> dict[str, PairedEffect]:
    return paired_effects(pairs_of(base, head)[place.workload], place)


def test_paired_effects__calls_too_few_for_a_p99__pool_pairs_until_there_are_100() -> None:
    base, head = sides([1.1] * 9, blocks=2)  # 40 calls a process: three pairs have 120
    effects = effects_of(base.pairs.replicates, head.pairs.replicates, ShapePlace(WORKLOAD, SHAPE))
    assert effects["latency.p99"].differences.values == pytest.approx([math.log(1.1)] * 3)


def test_paired_effects__never_100_calls__no_p99() -> None:
    base, head = sides([1.1] * 2, blocks=2)
    effects = effects_of(base.pairs.replicates, head.pairs.replicates, ShapePlace(WORKLOAD, SHAPE))
    assert "latency.p99" not in effects


def test_paired_effects__p99__of_cpu_time() -> None:
    base, head = sides([1.0] * 8, cpu=0.02, blocks=4, calls=200)
    effects = effects_of(base.pairs.replicates, head.pairs.replicates, ShapePlace(WORKLOAD, SHAPE))
    assert np.expm1(effects["latency.p99"].differences.values[0]) == pytest.approx(1.0)


def test_paired_effects__head_four_percent_slower__log_ratio_a_pair() -> None:
    base, head = sides([1.04] * 8)
    effects = effects_of(base.pairs.replicates, head.pairs.replicates, ShapePlace(WORKLOAD, SHAPE))
    assert effects["latency.low"].differences.values == pytest.approx([math.log(1.04)] * 8)
    assert effects["latency.low"].base == pytest.approx(0.01)


def test_paired_effects__gap_of_one_percent_of_a_call__effect_is_one_percent() -> None:
    base, head = sides([1.0] * 8, gaps=(0.0, 0.0001))
    effects = effects_of(base.pairs.replicates, head.pairs.replicates, ShapePlace(WORKLOAD, SHAPE))
    assert np.expm1(effects["throughput.gap"].differences.values) == pytest.approx([0.01] * 8)


def test_paired_effects__pair_without_its_second_member__left_out() -> None:
    firsts = [replicate(0, "ab", "first", 0.01), replicate(1, "ab", "first", 0.01)]
    seconds = [replicate(1, "ab", "second", 0.02)]
    effects = effects_of(firsts, seconds, ShapePlace(WORKLOAD, SHAPE))
    assert effects["latency.low"].differences.values == pytest.approx([math.log(2.0)])


def test_paired_effects__other_workload__nothing() -> None:
    base, head = sides([1.0] * 8)
    assert effects_of(base.pairs.replicates, head.pairs.replicates, ShapePlace("other", SHAPE)) == {}


def quads(seed: int, *, level: float = 1e-3, count: int = 4, calls: int = 20, drift: float = 0.0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [
        level * (1 + drift * number) * (1 + random.exponential(0.05, calls)) for number in range(count)
    ]  # fmt: skip


def test_fast_path__one_to_hundred_ms__tenth_percentile_of_all_and_of_each_quad_and_its_fastest() -> None:
    calls = np.arange(1, 101) / 1000
    found = fast_path([calls[:50], calls[50:]])
    assert math.exp(found.p10) == pytest.approx(0.0109)  # numpy's linear quantile
    assert np.exp(found.fastest) == pytest.approx([0.001, 0.051])
    assert np.exp(found.low) == pytest.approx([0.0059, 0.0559])


def test_compare_fast_paths__three_locations_disagree__the_middle_one_counts() -> None:
    # Slower by 1 % is the fastest call of every quad, by 2 % its low ones, by 3 % those of all calls.
    first = fast_path([np.array([1.0, *[1.1] * 19])] * 3)
    second = first._replace(fastest=first.fastest + 0.01, low=first.low + 0.02, p10=first.p10 + 0.03)
    assert compare_fast_paths(first, second)[0] == pytest.approx(0.02)


def test_compare_fast_paths__every_call_four_percent_slower__four_percent() -> None:
    first = quads(1)
    effect, _ = compare_fast_paths(fast_path(first), fast_path([1.04 * quad for quad in first]))
    assert effect == pytest.approx(math.log(1.04))


def test_compare_fast_paths__sides_swapped__effect_changes_sign_and_weight_stays() -> None:
    first, second = fast_path(quads(1)), fast_path(quads(2, drift=0.1))
    effect, weight = compare_fast_paths(first, second)
    assert compare_fast_paths(second, first) == pytest.approx((-effect, weight))


def test_compare_fast_paths__quads_that_disagree__weigh_less() -> None:
    _, calm = compare_fast_paths(fast_path(quads(1)), fast_path(quads(2)))
    _, disturbed = compare_fast_paths(fast_path(quads(1)), fast_path(quads(2, drift=0.3)))
    assert disturbed < 0.5 * calm


def test_compare_fast_paths__one_quad__weighs_as_pairs_do_among_each_other() -> None:
    _, weight = compare_fast_paths(fast_path(quads(1, count=1)), fast_path(quads(2, count=1)))
    assert weight == pytest.approx(1 / 0.007)


CALL = 0.01
PAIRS = 16


def blocks(*, waited: float = 0.0, slept: float = 0.0, source: str = "thread_cpu") -> BlockColumns:
    """Return blocks of calls that compute for 10 ms, and wait for a CPU or sleep for so many times as long."""
    made = columns(CALL * (1 + waited + slept), cpu=CALL)
    delays = [round(CALL * waited * (count + 1) * 1e9) for count in made.calls]
    return msgspec.structs.replace(
        made,
        conductor=msgspec.structs.replace(made.conductor, run_delay_ns=delays),
        times=msgspec.structs.replace(made.times, cpu_source=source),
    )


def unseen(found: BlockColumns) -> BlockColumns:
    """Blocks without what the conductor saw of them."""
    return msgspec.structs.replace(found, conductor=msgspec.structs.replace(found.conductor, seen_ns=[]))


def twice_counted(found: BlockColumns, *, of: int = 4) -> BlockColumns:
    """Blocks of which the first ``of`` seem to have waited for longer than they took."""
    delays = [
        2 * seen if block < of else delay
        for block, (seen, delay) in enumerate(zip(found.conductor.seen_ns, found.conductor.run_delay_ns))
    ]
    return msgspec.structs.replace(found, conductor=msgspec.structs.replace(found.conductor, run_delay_ns=delays))


@pytest.mark.parametrize(
    ("base", "head", "clock"),
    [
        (blocks(), blocks(), "wall"),
        (blocks(waited=0.015), blocks(waited=0.015), "wall"),
        (blocks(waited=0.3), blocks(waited=0.3), "cpu"),
        (blocks(waited=0.3), blocks(waited=0.3, slept=0.05), "cpu"),
        (blocks(waited=0.3), blocks(waited=0.3, slept=0.2), "awake"),
        (blocks(waited=0.3, slept=0.2), blocks(waited=0.3), "awake"),
        (blocks(waited=0.3, slept=3.0), blocks(waited=0.3, slept=3.0), "awake"),
        (blocks(waited=0.3, source="device"), blocks(waited=0.3, source="device"), "device"),
        (blocks(source="device"), blocks(source="device"), "device"),
        (unseen(blocks(waited=0.3, source="device")), blocks(waited=0.3, source="device"), "device"),
        (columns(CALL), columns(CALL), "wall"),  # a kernel that does not say
        (blocks(waited=0.3), unseen(blocks(waited=0.3)), None),
        (unseen(blocks(waited=0.3)), blocks(waited=0.3), None),
        (unseen(blocks(waited=0.3)), unseen(blocks(waited=0.3)), "wall"),  # nothing tells that they waited
        (twice_counted(blocks(waited=0.7)), blocks(waited=0.7), None),
        (twice_counted(blocks(waited=0.7), of=2), blocks(waited=0.7), "cpu"),
    ],
)
def test_deciding_clock__what_workers_waited_and_computed(
    base: BlockColumns, head: BlockColumns, clock: str | None
) -> None:
    assert deciding_clock([base], [head]) == clock


def busy(
    replicates: Sequence[Replicate],
    *,
    seed: int,
    work: float = 1.0,
    slept: float = 0.0,
    told: float = 1.0,
    waits: float = 1.0,
) -> list[Replicate]:
    """Return processes that waited for a CPU, each for a share of its own between 10 and 60 %, ``waits`` times as long.

    They say that they computed for ``told`` times as long as they did.
    """
    lot = np.random.default_rng(seed)
    jitter = lot.normal(0.0, 0.003, len(replicates))
    return [
        msgspec.structs.replace(
            one, shapes={shape: _busy(share * waits, work * (1 + own), slept, told) for shape in one.shapes}
        )
        for one, share, own in zip(replicates, lot.uniform(0.1, 0.6, len(replicates)), jitter)
    ]


def _busy(share: float, work: float, slept: float, told: float) -> BlockColumns:
    made = columns(CALL * (work + share + slept), cpu=CALL * work * told)
    return msgspec.structs.replace(
        made, conductor=msgspec.structs.replace(made.conductor, run_delay_ns=[round(CALL * share * 21 * 1e9)] * 4)
    )


def decided(**of_head: float) -> DecisionDocument:
    base, head = sides([1.0] * PAIRS)
    base = changed(base, replicates=busy(base.pairs.replicates, seed=1))
    head = changed(head, replicates=busy(head.pairs.replicates, seed=2, **of_head))
    return decide(base, head, policy=Policy(looks=[PAIRS]), history=History())


def compared(decision: DecisionDocument, metric: str) -> Comparison:
    (found,) = [comparison for comparison in decision.comparisons if comparison.metric == metric]
    return found


def test_decide__equal_work_on_a_busy_machine__unchanged_by_cpu_time_and_the_wall_beside_it() -> None:
    decision = decided()
    assert decision.verdict == "PASS"
    low, wall = compared(decision, "latency.low"), compared(decision, "latency.wall")
    assert (low.clock, low.outcome, low.gating) == ("cpu", "unchanged", True)
    assert (wall.clock, wall.outcome, wall.gating) == ("wall", "inconclusive", False)
    assert low.base == pytest.approx(CALL, rel=0.01)
    assert wall.base > 1.1 * CALL


def test_decide__more_work_on_a_busy_machine__found_by_cpu_time() -> None:
    decision = decided(work=1.05)
    low = compared(decision, "latency.low")
    assert (decision.verdict, low.clock, low.outcome) == ("FAIL", "cpu", "regressed")
    assert low.delta == pytest.approx(0.05, abs=0.005)


def test_decide__calls_that_sleep_on_a_busy_machine__found_by_the_turnaround() -> None:
    decision = decided(slept=0.06)
    assert compared(decision, "latency.low").outcome == "unchanged"
    assert compared(decision, "throughput.turnaround").outcome == "regressed"
    assert decision.verdict == "FAIL"


def test_decide__head_whose_cpu_clock_misses_what_it_does_more__found_by_the_turnaround() -> None:
    decision = decided(work=1.08, told=1 / 1.08)
    assert compared(decision, "latency.low").outcome == "unchanged"
    assert compared(decision, "throughput.turnaround").outcome == "regressed"
    assert decision.verdict == "FAIL"


def test_decide__head_whose_cpu_clock_misses_more__what_the_conductor_saw_decides() -> None:
    decision = decided(work=1.3, told=1 / 1.3)
    low = compared(decision, "latency.low")
    assert (low.clock, low.outcome, decision.verdict) == ("awake", "regressed", "FAIL")


@pytest.mark.parametrize("sleeps", ["base", "head"])
def test_decide__the_scheduler_favours_the_side_that_sleeps__no_clock_believes_it(sleeps: str) -> None:
    """A side that sleeps a third of a call waits less for CPUs, and is faster on the wall though it takes as long."""
    runs = dict(zip(("base", "head"), sides([1.0] * PAIRS)))
    for seed, (side, run) in enumerate(runs.items()):
        dozes = side == sleeps
        replicates = busy(
            run.pairs.replicates,
            seed=seed,
            work=0.67 if dozes else 1.0,
            slept=0.33 if dozes else 0.0,
            waits=0.5 if dozes else 1.0,
        )
        runs[side] = changed(run, replicates=replicates)
    decision = decide(runs["base"], runs["head"], policy=Policy(looks=[PAIRS]), history=History())
    assert compared(decision, "latency.low").clock == "awake"
    assert compared(decision, "latency.wall").outcome == "inconclusive"
    moved = {c.metric: c.outcome for c in decision.comparisons if c.outcome in ("improved", "regressed")}
    assert moved == {}
    # The tail is by CPU time, of which the side that sleeps has less.
    assert text_of(compared(decision, "latency.p99").reason).startswith("calls of base and head compute for different")


def test_decide__waiting_counted_twice__no_turnaround_and_no_verdict_rather_than_a_nanosecond() -> None:
    base, head = sides([1.0] * PAIRS)
    base = changed(base, replicates=busy(base.pairs.replicates, seed=1))
    broken = [
        msgspec.structs.replace(one, shapes={shape: twice_counted(blocks) for shape, blocks in one.shapes.items()})
        for one in busy(head.pairs.replicates, seed=2)
    ]
    decision = decide(base, changed(head, replicates=broken), policy=Policy(looks=[PAIRS]), history=History())
    assert "throughput.turnaround" not in {comparison.metric for comparison in decision.comparisons}
    low = compared(decision, "latency.low")
    assert (low.outcome, low.delta, low.interval) == ("inconclusive", None, None)
    assert text_of(low.reason).startswith("workers waited for CPUs, and the scheduler favours a side that sleeps")
    assert decision.verdict == "INCONCLUSIVE"


def test_decide__idle_machine__the_wall_alone() -> None:
    base, head = sides([1.0] * PAIRS)
    decision = decide(base, head, policy=Policy(looks=[PAIRS]), history=History())
    assert compared(decision, "latency.low").clock == "wall"
    assert "latency.wall" not in {comparison.metric for comparison in decision.comparisons}


def test_decide__base_against_base_on_a_busy_machine__floors_by_the_same_clock() -> None:
    base, head = sides([1.0] * PAIRS)
    base = changed(base, replicates=busy(base.pairs.replicates, seed=1))
    head = changed(head, replicates=busy(head.pairs.replicates, seed=2))
    floors = {
        floor.metric: floor for floor in decide(base, head, policy=Policy(), history=History()).measured.noise_floors
    }
    assert floors["latency.low"].clock == "cpu"
    assert floors["latency.low"].floor < 0.01
    assert "latency.wall" not in floors


def test_pairs_of__a_process_listed_twice_and_out_of_order__counts_once_in_the_order_of_measuring() -> None:
    base, head = sides([1.01, 1.02, 1.03])
    whole = pairs_of(base.pairs.replicates, head.pairs.replicates)[WORKLOAD]
    doubled = [*reversed(base.pairs.replicates), *base.pairs.replicates]
    assert pairs_of(doubled, head.pairs.replicates)[WORKLOAD] == whole
