"""Operators that ``[gate.tolerance]`` names fail the gate by their own paired times, whatever the whole call does."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.document.decision import Comparison, DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.run import RunDocument
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.operators import judge_operators
from tests.unit.gate.builders import SHAPE, WORKLOAD
from tests.unit.gate.test_operators import TIMES, measured

POLICY = Policy(looks=[16, 32], tolerances={"op.*": 0.05, "op.aten::copy_": 0.5, "op.aten::t@other": 0.0})
SLOWER = {"aten::mm": 1.1}


def outcomes(found: list[Comparison], outcome: str) -> set[str]:
    return {comparison.metric for comparison in found if comparison.outcome == outcome}


def test_judge_operators__tenth_of_an_operator_with_3_percent_of_the_call__found_in_95_of_100_gates() -> None:
    gates = [judge_operators(*measured(pairs=32, seed=seed, slower=SLOWER), POLICY) for seed in range(100)]
    assert sum("op.aten::mm" in outcomes(found, "regressed") for found in gates) >= 95


def test_judge_operators__unchanged__an_alarm_in_1_of_100_gates_at_most() -> None:
    gates = [judge_operators(*measured(pairs=16, seed=seed), POLICY) for seed in range(100)]
    assert sum(bool(outcomes(found, "regressed")) for found in gates) <= 2


def test_judge_operators__no_tolerance_names_one__nothing_is_judged() -> None:
    assert judge_operators(*measured(pairs=32, slower=SLOWER), Policy(tolerances={"latency.*": 0.1})) == []


def test_judge_operators__tolerances_of_one_and_of_all__the_nearer_one() -> None:
    found = judge_operators(*measured(pairs=32, slower={"aten::copy_": 1.3, "aten::mm": 1.3}), POLICY)
    assert outcomes(found, "regressed") == {"op.aten::mm"}
    (copied,) = [comparison for comparison in found if comparison.metric == "op.aten::copy_"]
    assert (copied.tolerance, copied.gating, copied.unit, copied.method) == (0.5, True, "s", "paired")


def decided(base: RunDocument, head: RunDocument, policy: Policy = POLICY) -> DecisionDocument:
    return decide(base, head, policy=policy, history=History())


def test_decide__one_operator_slower__the_gate_fails_where_it_is_judged_and_passes_where_not() -> None:
    base, head = measured(pairs=32, slower={"aten::mm": 1.2})
    decision = decided(base, head)
    assert (decision.verdict, decision.reasons) == ("FAIL", [f"regressed: {WORKLOAD}/{SHAPE} op.aten::mm"])
    assert decided(base, head, Policy(looks=[16, 32])).verdict == "PASS"


@pytest.mark.parametrize("side", ["base", "head"])
@pytest.mark.parametrize("left_out", ["all", "one operator of one pair", "all of one pair"])
def test_decide__times_of_judged_operators_left_out__named_and_no_pass(side: str, left_out: str) -> None:
    documents = dict(zip(("base", "head"), measured(pairs=32)))
    assert decided(**documents).verdict == "PASS"
    without: dict[str, float] = {op: time for op, time in TIMES.items() if op != "aten::mm"}
    kept = {SHAPE: without} if left_out == "one operator of one pair" else {}
    documents[side] = msgspec.structs.replace(
        documents[side],
        replicates=[
            msgspec.structs.replace(one, operators=kept) if left_out == "all" or one.pair == 3 else one
            for one in documents[side].replicates
        ],
    )
    decision = decided(**documents)
    assert decision.verdict == "INCONCLUSIVE"
    named = "op.aten::mm" if left_out == "one operator of one pair" else "operators"
    assert [(entry.metric, entry.side) for entry in decision.missing] == [(named, side)]


def test_decide__nothing_profiled_on_either_side__named_and_no_pass() -> None:
    base, head = (
        msgspec.structs.replace(
            side, replicates=[msgspec.structs.replace(one, operators={}) for one in side.replicates]
        )
        for side in measured(pairs=32)
    )
    decision = decided(base, head)
    assert [(entry.metric, entry.side) for entry in decision.missing] == [("operators", "both")]
    assert decision.verdict == "INCONCLUSIVE"
