from __future__ import annotations

import msgspec
import numpy as np
import pytest

from perfgate.document.explanation import Explanation, OperatorDelta
from perfgate.document.run import OUTSIDE_OPERATORS, OperatorRow, RunDocument
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.operators import compare_operators, valid
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.work_table import TimedParts, WorkTable
from perfgate.judging.gate.explain.operators import operator_times
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, counters, sides

# Seconds of self time in a call of 10 ms: the one that regresses below is 3 % of it.
TIMES = {
    "aten::addmm": 5e-3,
    "aten::_scaled_dot_product_flash_attention_for_cpu": 2e-3,
    "aten::gelu": 1e-3,
    "aten::copy_": 0.8e-3,
    "aten::native_layer_norm": 0.5e-3,
    "aten::mm": 0.3e-3,
    "aten::add": 0.2e-3,
    "aten::index_select": 0.1e-3,
    "aten::view": 0.06e-3,
    "aten::transpose": 0.06e-3,
    "aten::t": 0.01e-3,
}
# What was seen from pair to pair on a busy core: 4 %.
SPREAD = 0.04


def measured(
    *, pairs: int = 12, spread: float = SPREAD, seed: int = 1, slower: dict[str, float] | None = None
) -> tuple[RunDocument, RunDocument]:
    """Return both sides with operators; ``slower`` maps an operator to head/base of its time, 1 unless told."""
    factors = slower or {}
    lot = np.random.default_rng(seed)
    base, head = sides([1.0] * pairs, aa_ratios=())

    def times(side: RunDocument, ratios: dict[str, float]) -> RunDocument:
        replicates = [
            msgspec.structs.replace(
                replicate,
                profile=msgspec.structs.replace(
                    replicate.profile,
                    operators={
                        SHAPE: {
                            op: time * ratios.get(op, 1.0) * float(np.exp(lot.normal(0, spread / np.sqrt(2))))
                            for op, time in TIMES.items()
                        }
                    },
                ),
            )
            for replicate in side.pairs.replicates
        ]
        return changed(side, replicates=replicates)

    return times(base, {}), times(head, factors)


def profiled(base: RunDocument, head: RunDocument) -> list[TimedParts]:
    return WorkTable(Evidence(base, head)).operators


def named(tests: list[OperatorDelta]) -> set[tuple[str, str]]:
    return {(test.op, test.outcome) for test in tests if test.outcome in ("regressed", "improved")}


def test_compare_operators__same_ratio_in_every_pair__effect_interval_share_and_outcome() -> None:
    base, head = measured(pairs=10, spread=0.0, slower={"aten::mm": 1.1, "aten::gelu": 0.9})
    tests = {test.op: test for test in compare_operators(profiled(base, head))}

    slow = tests["aten::mm"]
    assert (slow.base, slow.head, slow.delta) == (0.3e-3, 0.33e-3, 0.1)
    assert slow.interval == (0.1, 0.1)
    assert slow.share == pytest.approx(0.3 / 10.03)
    assert (slow.pairs, slow.outcome) == (10, "regressed")
    # One of ten tested operators: the smallest p-value counts tenfold.
    assert slow.q == pytest.approx(10 * 2**-10, rel=1e-6)
    assert (tests["aten::gelu"].delta, tests["aten::gelu"].outcome) == (-0.1, "improved")
    assert {test.outcome for op, test in tests.items() if op not in ("aten::mm", "aten::gelu")} == {"unchanged"}


def test_compare_operators__most_seconds_lost_first() -> None:
    base, head = measured(spread=0.0, slower={"aten::mm": 1.1, "aten::addmm": 1.03, "aten::gelu": 0.9})
    tests = compare_operators(profiled(base, head))

    assert [test.op for test in tests[:2]] == ["aten::addmm", "aten::mm"]  # 150 and 30 microseconds
    assert tests[-1].op == "aten::gelu"


def test_compare_operators__below_half_a_percent_of_the_time__left_out() -> None:
    base, head = measured(slower={"aten::t": 2.0})
    assert "aten::t" not in {test.op for test in compare_operators(profiled(base, head))}


def test_compare_operators__change_below_two_percent__not_named_however_sure() -> None:
    base, head = measured(spread=0.0, slower={"aten::mm": 1.019})
    (test,) = (test for test in compare_operators(profiled(base, head)) if test.op == "aten::mm")

    assert test.q < 0.05
    assert test.outcome == "unchanged"


def test_compare_operators__too_noisy_to_say__inconclusive() -> None:
    base, head = measured(pairs=8, spread=0.3)
    assert "inconclusive" in {test.outcome for test in compare_operators(profiled(base, head))}


def test_compare_operators__fewer_than_six_pairs__nothing_tested() -> None:
    assert compare_operators(profiled(*measured(pairs=5))) == []
    assert len(compare_operators(profiled(*measured(pairs=6)))) == 10


def test_compare_operators__pairs_without_operators__nothing_tested() -> None:
    assert compare_operators(profiled(*sides([1.0] * 12))) == []


def test_compare_operators__times_of_the_shape_are_invalid__nothing_tested() -> None:
    assert valid(profiled(*measured()), {ShapePlace(WORKLOAD, SHAPE)}) == []


def test_compare_operators__operator_of_one_side_only__is_for_the_counters() -> None:
    base, head = measured()
    without = [
        msgspec.structs.replace(
            replicate,
            profile=msgspec.structs.replace(
                replicate.profile,
                operators={SHAPE: {op: t for op, t in replicate.profile.operators[SHAPE].items() if op != "aten::mm"}},
            ),
        )
        for replicate in head.pairs.replicates
    ]
    tested = {test.op for test in compare_operators(profiled(base, changed(head, replicates=without)))}
    assert tested == TIMES.keys() - {"aten::mm", "aten::t"}


def test_compare_operators__line_of_the_head__from_its_counters() -> None:
    base, head = measured()
    counted = counters({"aten::mm": 1, "aten::add": 4}, lines={"aten::mm": "model.py:12"})
    head = changed(head, counters=[counted])
    lines = {test.op: test.line for test in compare_operators(profiled(base, head))}

    assert lines["aten::mm"] == "model.py:12"
    assert lines["aten::add"] is None


def test_compare_operators__any_positive_number__no_overflow() -> None:
    base, head = measured(pairs=8, slower={"aten::mm": 1e300, "aten::add": 1e-300})
    deltas = {test.op: test.delta for test in compare_operators(profiled(base, head))}
    assert deltas["aten::mm"] > 1e6
    assert deltas["aten::add"] == pytest.approx(-1.0)


def test_compare_operators__order_of_the_documents__same_answer() -> None:
    base, head = measured(slower={"aten::mm": 1.1})
    turned = [changed(side, replicates=side.pairs.replicates[::-1]) for side in (base, head)]
    assert compare_operators(profiled(*turned)) == compare_operators(profiled(base, head))


def test_compare_operators__three_percent_of_the_call_ten_percent_slower__named_in_nine_of_ten() -> None:
    """The call as a whole is 0.3 % slower. Twelve pairs."""
    found = [named(compare_operators(profiled(*measured(seed=seed, slower={"aten::mm": 1.1})))) for seed in range(40)]
    assert sum(("aten::mm", "regressed") in names for names in found) >= 36


def test_compare_operators__eight_pairs_that_agree__enough_to_name_one_of_ten() -> None:
    base, head = measured(pairs=8, spread=0.01, slower={"aten::mm": 1.1})
    assert ("aten::mm", "regressed") in named(compare_operators(profiled(base, head)))


def test_compare_operators__identical_code__at_most_one_gate_in_ten_names_anything() -> None:
    """Two families of false discoveries at 5 % each; where nothing changed, any name is a false one."""
    found = [named(compare_operators(profiled(*measured(seed=seed)))) for seed in range(100)]
    assert sum(bool(names) for names in found) <= 10


def traced(run: RunDocument, **counts: float) -> RunDocument:
    """Return a side whose trace has so many runs a call of these operators, ten times as slow as in the pairs."""
    rows = [
        OperatorRow(
            workload=WORKLOAD, shape=SHAPE, op=f"aten::{op}", kind="host", self_time=10 * TIMES[f"aten::{op}"],
            count=count, share=0.1,
        )
        for op, count in counts.items()
    ]  # fmt: skip
    return changed(run, operators=rows)


def test_compare_operators__one_that_a_side_runs_more_often__is_not_called_slower() -> None:
    base, head = measured(spread=0.0, slower={"aten::copy_": 1.7, "aten::gelu": 1.1})
    base, head = traced(base, copy_=9, gelu=2), traced(head, copy_=25, gelu=2)
    assert named(compare_operators(profiled(base, head))) == {("aten::gelu", "regressed")}


def test_operator_times__one_difference_for_each_operator__the_explanations_before_the_tests() -> None:
    base, head = measured(spread=0.0, slower={"aten::copy_": 1.7, "aten::gelu": 1.1})
    base, head = traced(base, copy_=9, gelu=2), traced(head, copy_=25, gelu=2)
    tests = compare_operators(profiled(base, head))
    part = OperatorDelta(op="aten::copy_", kind="more", seconds=0.0004, base_count=9, head_count=25)
    times = {time.op: time for time in operator_times(profiled(base, head), tests, [explained(part)])}
    assert (times["aten::copy_"].base, times["aten::copy_"].head) == (0.0008, pytest.approx(0.0012))
    (gelu,) = [test for test in tests if test.op == "aten::gelu"]
    assert (times["aten::gelu"].base, times["aten::gelu"].head) == (gelu.base, gelu.head)
    assert times["aten::addmm"].head == times["aten::addmm"].base


def test_operator_times__time_outside_operators_by_another_name__is_its_own_row() -> None:
    base, head = measured(spread=0.0)
    base, head = (
        changed(
            side,
            replicates=[
                msgspec.structs.replace(
                    replicate,
                    profile=msgspec.structs.replace(
                        replicate.profile,
                        operators={SHAPE: {**replicate.profile.operators[SHAPE], OUTSIDE_OPERATORS: 0.001}},
                    ),
                )
                for replicate in side.pairs.replicates
            ],
        )
        for side in (base, head)
    )
    waiting = OperatorDelta(op=".item()", kind="waiting", seconds=0.0003)
    times = {time.op: time for time in operator_times(profiled(base, head), [], [explained(waiting)])}
    assert (times[OUTSIDE_OPERATORS].base, times[OUTSIDE_OPERATORS].head) == (0.001, pytest.approx(0.0013))
    assert ".item()" not in times


def test_operator_times__operator_that_only_one_side_runs__is_zero_on_the_other() -> None:
    base, head = measured(spread=0.1)
    gone = [
        msgspec.structs.replace(
            replicate,
            profile=msgspec.structs.replace(
                replicate.profile,
                operators={
                    SHAPE: {op: time for op, time in replicate.profile.operators[SHAPE].items() if op != "aten::gelu"}
                },
            ),
        )
        for replicate in head.pairs.replicates
    ]
    times = {time.op: time for time in operator_times(profiled(base, changed(head, replicates=gone)), [], [])}
    assert times["aten::gelu"].head == 0.0
    assert times["aten::gelu"].base == pytest.approx(0.001, rel=0.1)


def explained(*parts: OperatorDelta) -> Explanation:
    return Explanation(workload=WORKLOAD, shape=SHAPE, metric="latency.low", measured=0.001, contributions=list(parts))
