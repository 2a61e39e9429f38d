"""Operators, modules and functions that ``[gate.tolerance]`` names fail the gate by their own paired times."""

from __future__ import annotations

import msgspec
import numpy as np

from perfgate.document.comparison import Comparison
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.run import RunDocument
from perfgate.judging.gate.compare.operators import judge_subroutines
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.work_table import WorkTable
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD
from tests.unit.gate.test_operators import measured
from tests.wording import worded

POLICY = Policy(looks=[16, 32], tolerances={"op.*": 0.05, "op.aten::copy_": 0.5, "op.aten::t@other": 0.0})
SLOWER = {"aten::mm": 1.1}


def outcomes(found: list[Comparison], outcome: str) -> set[str]:
    return {comparison.metric for comparison in found if comparison.outcome == outcome}


def test_judge_subroutines__tenth_of_an_operator_with_3_percent_of_the_call__found_in_95_of_100_gates() -> None:
    gates = [
        judge_subroutines(WorkTable(Evidence(*measured(pairs=32, seed=seed, slower=SLOWER))), POLICY, 0.01, spoiled=())
        for seed in range(100)
    ]
    assert sum("op.aten::mm" in outcomes(found, "regressed") for found in gates) >= 95


def test_judge_subroutines__unchanged__an_alarm_in_1_of_100_gates_at_most() -> None:
    gates = [
        judge_subroutines(WorkTable(Evidence(*measured(pairs=16, seed=seed))), POLICY, 0.01, spoiled=())
        for seed in range(100)
    ]
    assert sum(bool(outcomes(found, "regressed")) for found in gates) <= 2


def test_judge_subroutines__no_tolerance_names_one__nothing_is_judged() -> None:
    assert (
        judge_subroutines(
            WorkTable(Evidence(*measured(pairs=32, slower=SLOWER))),
            Policy(tolerances={"latency.*": 0.1}),
            0.01,
            spoiled=(),
        )
        == []
    )


def test_judge_subroutines__tolerances_of_one_and_of_all__the_nearer_one() -> None:
    found = judge_subroutines(
        WorkTable(Evidence(*measured(pairs=32, slower={"aten::copy_": 1.3, "aten::mm": 1.3}))), POLICY, 0.01, spoiled=()
    )
    assert outcomes(found, "regressed") == {"op.aten::mm"}
    (copied,) = [comparison for comparison in found if comparison.metric == "op.aten::copy_"]
    assert (copied.tolerance, copied.gating, copied.unit, copied.evidence) == (0.5, True, "s", "pair")


def decided(base: RunDocument, head: RunDocument, policy: Policy = POLICY) -> DecisionDocument:
    return decide(base, head, policy=policy, history=History())


def test_decide__one_operator_slower__the_gate_fails_where_it_is_judged_and_passes_where_not() -> None:
    base, head = measured(pairs=32, slower={"aten::mm": 1.2})
    decision = decided(base, head)
    assert (decision.verdict, worded(decision.reasons)) == (
        "FAIL",
        [f"regressed: {WORKLOAD}/{SHAPE} op.aten::mm"],
    )
    assert decided(base, head, Policy(looks=[16, 32])).verdict == "PASS"


# Of a call of 1 ms; whatever runs in it runs within the model.
PARTS = {"module.Net": 1e-3, "module.Net.layers.*": 6e-4, "function.model.py:Net.mask": 3e-5}
OF_PYTHON = Policy(looks=[16, 32], tolerances={"module.*": 0.05, "function.*": 0.05, "module.Net": 0.5})


def with_parts(slower: dict[str, float], *, pairs: int = 32, seed: int = 1) -> dict[str, RunDocument]:
    """Return both sides with modules and functions, of which the head's take so many times as long."""
    lot = np.random.default_rng(seed)
    return {
        side: changed(
            document,
            replicates=[
                msgspec.structs.replace(
                    one,
                    profile=msgspec.structs.replace(
                        one.profile,
                        subroutines={
                            SHAPE: {
                                name: time
                                * float(lot.lognormal(sigma=0.03))
                                * (slower.get(name, 1) if side == "head" else 1)
                                for name, time in PARTS.items()
                            }
                        },
                    ),
                )
                for one in document.pairs.replicates
            ],
        )
        for side, document in zip(("base", "head"), measured(pairs=pairs))
    }


def test_judge_subroutines__function_with_3_percent_of_the_call_is_a_tenth_slower__found_by_name() -> None:
    gates = [with_parts({"function.model.py:Net.mask": 1.1}, seed=seed) for seed in range(40)]
    found = [
        outcomes(judge_subroutines(WorkTable(Evidence(**gate)), policy=OF_PYTHON, alpha=0.01, spoiled=()), "regressed")
        for gate in gates
    ]
    assert found.count({"function.model.py:Net.mask"}) >= 38


def test_judge_subroutines__unchanged__nothing_regressed() -> None:
    gates = [with_parts({}, seed=seed) for seed in range(40)]
    assert not any(
        outcomes(judge_subroutines(WorkTable(Evidence(**gate)), policy=OF_PYTHON, alpha=0.01, spoiled=()), "regressed")
        for gate in gates
    )


def test_judge_subroutines__tolerance_of_functions_alone__modules_are_not_judged() -> None:
    documents = with_parts({"module.Net.layers.*": 1.3})
    policy = Policy(looks=[16, 32], tolerances={"function.*": 0.05})
    assert [
        c.metric for c in judge_subroutines(WorkTable(Evidence(**documents)), policy=policy, alpha=0.01, spoiled=())
    ] == ["function.model.py:Net.mask"]
    # Operators, which nobody judges, may be missing then.
    assert decided(**documents, policy=policy).verdict == "PASS"


def test_decide__function_that_the_change_removed__no_matter_of_its_time() -> None:
    documents = with_parts({})
    documents["head"] = without(documents["head"], "function.model.py:Net.mask")
    decision = decided(**documents, policy=OF_PYTHON)
    assert (decision.verdict, decision.gaps.missing) == ("PASS", [])


def without(run: RunDocument, name: str, pairs: set[int] | None = None) -> RunDocument:
    """Return a side without the times of a subroutine, or of all where the name is empty, in some pairs or in all."""
    kept = {SHAPE: {one: time for one, time in PARTS.items() if one != name}} if name else {}
    return changed(
        run,
        replicates=[
            msgspec.structs.replace(one, profile=msgspec.structs.replace(one.profile, subroutines=kept))
            if pairs is None or one.pair in pairs
            else one
            for one in run.pairs.replicates
        ],
    )
