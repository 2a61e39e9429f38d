"""Instructions, cycles and cache misses of a call, compared over the pairs where both sides have them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from perfgate.document.comparison import Comparison
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.files import misfit
from perfgate.document.history import History
from perfgate.document.run import RunDocument
from perfgate.document.samples import Replicate
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.look import Look
from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, sides
from tests.wording import text_of, worded

replace = msgspec.structs.replace
PAIRS = 16
NO_CHANGE = [1.0 + 0.0005 * (-1) ** pair for pair in range(PAIRS)]
CALL = 1_000_000
POLICY = Policy(looks=[PAIRS])


def counting(
    run: RunDocument,
    *,
    work: float = 1.0,
    cycles: float = 1.0,
    spread: float = 0.0002,
    seed: int = 1,
    source: str = "thread_cpu",
) -> RunDocument:
    """Return a run whose processes execute ``work`` times a million instructions a call, in ``cycles`` as many cycles."""
    lot = np.random.default_rng(seed)
    return changed(
        run,
        replicates=[_counting(one, work * (1 + lot.normal(0, spread)), cycles, source) for one in run.pairs.replicates],
    )


def _counting(one: Replicate, work: float, cycles: float, source: str) -> Replicate:
    columns = one.shapes[SHAPE]
    counts = [round(CALL * work * (calls + 1)) for calls in columns.calls]
    return replace(
        one,
        shapes={
            SHAPE: replace(
                columns,
                times=replace(columns.times, cpu_source=source),
                worker=replace(
                    columns.worker,
                    instructions=counts,
                    cycles=[round(count * cycles) for count in counts],
                    cache_misses=[round(count * cycles / 1000) for count in counts],
                ),
            )
        },
    )


def both(
    ratios: Sequence[float] = NO_CHANGE, source: str = "thread_cpu", spread: float = 0.0002, **of_head: float
) -> tuple[RunDocument, RunDocument]:
    base, head = sides(ratios)
    return (
        counting(base, source=source, spread=spread),
        counting(head, seed=2, source=source, spread=spread, **of_head),
    )


def judged(base: RunDocument, head: RunDocument) -> DecisionDocument:
    return decide(base, head, policy=POLICY, history=History())


def compared(decision: DecisionDocument, metric: str = "hardware.instructions") -> Comparison:
    (found,) = [comparison for comparison in decision.comparisons if comparison.metric == metric]
    return found


def test_decide__two_percent_more_instructions_in_the_same_time__fails_by_name() -> None:
    decision = judged(*both(work=1.02))
    assert decision.verdict == "FAIL"
    assert worded(decision.reasons) == [f"regressed: {WORKLOAD}/{SHAPE} hardware.instructions"]
    instructions = compared(decision)
    assert (instructions.outcome, instructions.gating, instructions.unit) == ("regressed", True, "1")
    assert (instructions.base, instructions.head) == pytest.approx((CALL, 1.02 * CALL), rel=0.001)
    assert "2.0 % more" in render_comment(decision, CommentContext(marker="<!-- m -->"))


@pytest.mark.parametrize("spread", [0.0, 0.0002])
def test_decide__equal_instructions__unchanged(spread: float) -> None:
    decision = judged(*both(spread=spread))
    assert decision.verdict == "PASS"
    assert compared(decision).outcome == "unchanged"


def test_decide__less_than_tolerated__passes() -> None:
    decision = judged(*both(work=1.004))
    assert (decision.verdict, compared(decision).outcome) == ("PASS", "unchanged")


def test_decide__cycles_and_cache_misses__stand_beside_and_fail_nothing() -> None:
    decision = judged(*both(cycles=1.3))
    assert decision.verdict == "PASS"
    for metric in ("hardware.cycles", "hardware.cache_misses"):
        beside = compared(decision, metric)
        assert (beside.outcome, beside.gating) == ("regressed", False)


def test_decide__undecided_instructions__stop_no_pass() -> None:
    decision = judged(*both(spread=0.1))
    assert compared(decision).outcome == "inconclusive"
    assert decision.verdict == "PASS"


def test_decide__more_instructions_in_less_time__only_inform() -> None:
    decision = judged(*both([0.9 * ratio for ratio in NO_CHANGE], work=1.02))
    instructions = compared(decision)
    assert (instructions.outcome, instructions.gating) == ("regressed", False)
    assert text_of(instructions.reason) == "calls take less time"
    assert decision.verdict == "PASS"


def test_decide__host_that_waits_for_a_device__instructions_only_inform() -> None:
    runs = both(source="device", work=1.02)
    decision = judged(*runs)
    assert (compared(decision).outcome, compared(decision).gating) == ("regressed", False)
    assert decision.verdict == "PASS"
    assert not Look(*runs, POLICY, workload=WORKLOAD).more_pairs_would_help()


def test_decide__nobody_counts__nothing_compared_and_nothing_missing() -> None:
    decision = judged(*sides(NO_CHANGE))
    assert not any(comparison.metric.startswith("hardware.") for comparison in decision.comparisons)
    assert (decision.verdict, decision.gaps.missing) == ("PASS", [])


@pytest.mark.parametrize("side", ["base", "head"])
@pytest.mark.parametrize("pairs", [{3}, set(range(PAIRS))])
def test_decide__instructions_taken_from_pairs_of_one_side__inconclusive(side: str, pairs: set[int]) -> None:
    runs = dict(zip(("base", "head"), both(work=1.02)))
    runs[side] = changed(runs[side], replicates=[_silent(one, pairs) for one in runs[side].pairs.replicates])
    decision = judged(runs["base"], runs["head"])
    assert decision.verdict == "INCONCLUSIVE"
    assert worded(decision.reasons) == [f"missing: {WORKLOAD}/{SHAPE} instructions ({side})"]


def _silent(one: Replicate, pairs: set[int]) -> Replicate:
    if one.pair not in pairs:
        return one
    return replace(
        one, shapes={SHAPE: replace(one.shapes[SHAPE], worker=replace(one.shapes[SHAPE].worker, instructions=[]))}
    )


def test_misfit__counts_of_some_blocks_or_below_zero__refused() -> None:
    columns = both()[0].pairs.replicates[0].shapes[SHAPE]
    assert misfit(columns) is None
    assert misfit(replace(columns, worker=replace(columns.worker, cycles=columns.worker.cycles[1:]))) == (
        "a column of what was seen of 4 blocks has another length"
    )
    assert misfit(replace(columns, worker=replace(columns.worker, cache_misses=[-1, 0, 0, 0]))) == "a count below zero"
