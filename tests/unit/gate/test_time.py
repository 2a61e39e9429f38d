"""What time comparisons of one job share among themselves, and what each keeps to itself: the error and the noise floor."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from perfgate.catalogue.lookup import FAMILIES, FAST_PATHS
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.run import RunDocument
from perfgate.document.samples import Replicate
from perfgate.judging.gate.compare.effects import resolutions
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import Rules, numbers_of
from perfgate.judging.gate.look import Look
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, sides
from tests.wording import text_of

TEN_PAIRS = Policy(looks=[10])
NO_CHANGE = [1.0 + 0.0005 * (-1) ** pair for pair in range(14)]


def judged(base: RunDocument, head: RunDocument, policy: Policy) -> DecisionDocument:
    return decide(base, head, policy=policy, history=History())


def of_metric(decision: DecisionDocument, metric: str, shape: str = SHAPE) -> Comparison:
    return next(c for c in decision.comparisons if (c.metric, c.shape) == (metric, shape))


def test_decide__all_of_ten_pairs_slower__enough_for_a_large_part_of_the_error_and_not_for_a_small_one() -> None:
    """Ten of ten has the chance 1/1024: below the 0.6 % of the fast path, above the 0.05 % of the gap."""
    slower = judged(*sides([1.05] * 10), TEN_PAIRS)
    assert of_metric(slower, "latency.low").outcome == "regressed"
    assert of_metric(slower, "latency.p50").outcome == "inconclusive"

    longer_gaps = judged(*sides([1.0] * 10, gaps=(1e-6, 0.0004)), TEN_PAIRS)
    assert of_metric(longer_gaps, "throughput.gap").outcome == "inconclusive"
    assert longer_gaps.verdict != "FAIL"


def test_decide__fast_path__has_the_effect_of_each_pair_by_the_clock_that_decides() -> None:
    ratios, aa_ratios = [1.05, 1.04, 1.06, 1.05] * 4, [1.01, 0.99] * 4
    decision = judged(*sides(ratios, aa_ratios=aa_ratios), Policy())
    low = of_metric(decision, "latency.low")
    assert low.effects == pytest.approx([ratio - 1 for ratio in ratios], abs=1e-6)
    assert low.delta == pytest.approx(np.median(low.effects), abs=1e-3)
    (floor,) = [floor for floor in decision.measured.noise_floors if floor.metric == "latency.low"]
    assert floor.effects == pytest.approx([ratio - 1 for ratio in aa_ratios], abs=1e-6)
    paired = [c for c in decision.comparisons if isinstance(c, Paired)]
    assert not any(c.effects for c in paired if c.metric not in FAST_PATHS)


def test_families__their_parts__make_up_the_whole_error() -> None:
    assert sum(family.share for family in FAMILIES.values() if family.gating) == pytest.approx(1.0)


def test_decide__noise_floor_of_one_shape_above_its_limit__the_other_shape_is_unchanged() -> None:
    wobbling = [1.08, 1 / 1.08, 1.08, 1 / 1.08, 1.08, 1 / 1.08, 1.0]
    quiet, noisy = sides(NO_CHANGE), sides(NO_CHANGE, aa_ratios=wobbling)
    decision = judged(*(with_second_shape(*runs) for runs in zip(noisy, quiet)), Policy())

    floors = {floor.shape: floor.floor for floor in decision.measured.noise_floors if floor.metric == "latency.low"}
    assert floors[SHAPE] > 0.02 > floors["second"]
    assert of_metric(decision, "latency.low").outcome == "inconclusive"
    assert "noise floor" in (text_of(of_metric(decision, "latency.low").reason))
    assert of_metric(decision, "latency.low", "second").outcome == "unchanged"


def test_decide__noise_floor_above_a_limit_by_what_seven_pairs_may_show_by_chance__no_reason_to_refuse_it() -> None:
    wobbling = [1.035, 1 / 1.035, 1.035, 1 / 1.035, 1.035, 1 / 1.035, 1.0]
    decision = judged(*sides(NO_CHANGE, aa_ratios=wobbling), Policy())

    (floor,) = [floor.floor for floor in decision.measured.noise_floors if floor.metric == "latency.low"]
    assert 0.02 < floor < 0.036
    assert of_metric(decision, "latency.low").outcome == "unchanged"


def with_second_shape(run: RunDocument, other: RunDocument) -> RunDocument:
    """Return a run that also measured another run's shape, in the same pairs."""

    def both(replicate: Replicate, another: Replicate) -> Replicate:
        return msgspec.structs.replace(replicate, shapes={**replicate.shapes, "second": another.shapes[SHAPE]})

    workloads = [msgspec.structs.replace(run.workloads[0], shapes=[SHAPE, "second"])]
    replicates = [both(*pair) for pair in zip(run.pairs.replicates, other.pairs.replicates)]
    return changed(run, workloads=workloads, replicates=replicates)


def test_decide__conductor_saw_some_pairs_only__no_turnaround_rather_than_one_of_those() -> None:
    base, head = (
        changed(run, replicates=[seen_from_outside(replicate) for replicate in run.pairs.replicates])
        for run in sides([1.05] * 14)
    )
    assert of_metric(judged(base, head, Policy()), "throughput.turnaround").pairs == 14

    third = head.pairs.replicates[3]
    unseen = msgspec.structs.replace(
        third,
        shapes={
            SHAPE: msgspec.structs.replace(
                third.shapes[SHAPE], conductor=msgspec.structs.replace(third.shapes[SHAPE].conductor, seen_ns=[])
            )
        },
    )
    head = changed(head, replicates=[*head.pairs.replicates[:3], unseen, *head.pairs.replicates[4:]])
    decision = judged(base, head, Policy())
    assert "throughput.turnaround" not in {comparison.metric for comparison in decision.comparisons}
    assert decision.verdict != "PASS"


def seen_from_outside(replicate: Replicate) -> Replicate:
    blocks = replicate.shapes[SHAPE]
    per_call = [
        (end - start) // calls for start, end, calls in zip(blocks.worker.start_ns, blocks.worker.end_ns, blocks.calls)
    ]
    seen = [duration * (calls + 1) for duration, calls in zip(per_call, blocks.calls)]
    return msgspec.structs.replace(
        replicate,
        shapes={
            SHAPE: msgspec.structs.replace(blocks, conductor=msgspec.structs.replace(blocks.conductor, seen_ns=seen))
        },
    )


def test_more_pairs_would_help__workloads_to_come__a_regression_must_survive_their_correction() -> None:
    documents = sides([1.05] * 10)
    assert not Look(*documents, TEN_PAIRS, workload=WORKLOAD).more_pairs_would_help()
    assert Look(*documents, TEN_PAIRS, workload=WORKLOAD, to_come=9).more_pairs_would_help()


# Pairs that alternate around no change: 16 of them exclude 1 % where they differ by 0.3 %, and only 2 % where by 1.3 %.
QUIET, NOISY = [1.003, 0.997] * 8, [1.013, 0.987] * 8


@pytest.mark.parametrize(("ratios", "excluded"), [(QUIET, 0.01), (NOISY, 0.02)])
def test_decide__unchanged__says_what_is_excluded(ratios: list[float], excluded: float) -> None:
    base, head = sides(ratios)
    low = of_metric(judged(base, head, Policy()), "latency.low")
    assert (low.outcome, low.excluded) == ("unchanged", excluded)
    # Where only the larger margin is excluded, it is worth going on.
    assert Look(base, head, Policy(), workload=WORKLOAD).more_pairs_would_help() == (excluded == 0.02)


def test_decide__margin_asked_for__the_larger_one_is_not_enough() -> None:
    low = of_metric(judged(*sides(NOISY), Policy(ok_margin=0.01)), "latency.low")
    assert (low.outcome, low.excluded) == ("inconclusive", None)


@pytest.mark.parametrize(("moved", "outcome"), [(True, "regressed"), (None, "regressed"), (False, "unchanged")])
def test_decide__slower_by_less_than_luck_of_one_layout__regresses_where_layouts_move_or_nothing_is_said(
    moved: bool | None, outcome: str
) -> None:
    base, head = (
        changed(
            run,
            replicates=[
                msgspec.structs.replace(one, worker=msgspec.structs.replace(one.worker, moved=moved))
                for one in run.pairs.replicates
            ],
        )
        for run in sides([1.008] * 16)
    )
    low = of_metric(judged(base, head, Policy()), "latency.low")
    assert (low.outcome, low.tolerance) == (outcome, 0.01 if moved is False else 0.005)


def _resolutions(ratios: list[float]):
    base, head = sides(ratios)
    decision = decide(base, head, policy=Policy(), history=History())
    evidence = Evidence(base, head)
    numbers = numbers_of(evidence, Rules(decision.procedure.policy))
    resolved = resolutions(numbers, evidence.timed_seconds, decision)
    return decision, {entry.metric: entry for entry in resolved}


def test_resolutions__known_effects__spread_and_smallest_of_the_decision() -> None:
    # Effects -2, -1, 0, 1, 2 times 1 %, four times over: Hodges-Lehmann 0, median distance 1 %, robust spread 1.4826 %.
    decision, found = _resolutions([math.exp(step / 100) for step in (-2, -1, 0, 1, 2)] * 4)
    low = found["latency.low"]
    assert low.pairs == 20
    assert low.spread == pytest.approx(math.expm1(0.014826), rel=1e-3)
    comparison = next(one for one in decision.comparisons if one.metric == "latency.low")
    assert low.smallest == comparison.detectable
    # By the boundary in use, and as so few may be alike, they need nine standard errors; a single test of many needs four.
    assert 8 < math.log1p(low.smallest) / (0.014826 / math.sqrt(20)) < 9
    # 4 blocks of 20 calls of 10 ms on each side, 20 pairs.
    assert low.timed == pytest.approx(32.0, rel=1e-3)


def test_resolutions__8_pairs__no_slowdown_would_have_been_shown() -> None:
    _, found = _resolutions([1.001, 0.999] * 4)
    assert found["latency.low"].smallest is None


def test_resolutions__a_slower_head__no_spread_and_the_luck_of_code_is_what_can_be_seen() -> None:
    _, found = _resolutions([1.05] * 16)
    # 2.51 sd of 0.2 %, where 0.6 % of equal code lies; the tolerance is 0.5 %.
    assert found["latency.low"].smallest == pytest.approx(0.00504, rel=1e-3)
