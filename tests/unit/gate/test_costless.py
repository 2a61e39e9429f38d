"""Counts that grew: what they are where calls are shown not to be slower, where nothing is shown, and where they are."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from perfgate.catalogue.lookup import METRICS
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.judging.gate.decide import decide
from tests.fakes.records import changed
from tests.unit.gate.builders import counters, sides

UNCHANGED = [1.0 + 0.0005 * (-1) ** pair for pair in range(16)]
NOISY = np.exp(np.random.default_rng(5).normal(0.0, 0.1, 16)).tolist()
SLOWER = [1.1 * factor for factor in UNCHANGED]
FASTER = [0.9 * factor for factor in UNCHANGED]
# What is a fault by itself.
FAULTS = {
    "counters.autograd_ops",
    "counters.deferred_ops",
    "counters.device_copies",
    "counters.fallbacks",
    "counters.format_conversions",
    "counters.graph_breaks",
    "counters.low_precision_ops",
    "counters.recompiles",
    "counters.repeat_saves",
    "counters.syncs",
    "correctness.signature",
    "memory.kept",
    "memory.kept_native",
    "memory.kept_python",
    "ranks.collectives",
    "ranks.syncs",
}


def judged(factors: list[float], name: str, policy: Policy | None = None) -> DecisionDocument:
    base, head = sides(factors)
    before, after = counters({"aten::add": 1}), counters({"aten::add": 1})
    before, after = (
        msgspec.structs.replace(side, values={**side.values, name: n})
        for side, n in ((before, 1), (after, 2 + int(METRICS[name].gate.allowed_more)))
    )
    return decide(
        changed(base, counters=[before]),
        changed(head, counters=[after]),
        policy=policy or Policy(),
        history=History(),
    )


def test_catalogue__what_fails_alone__is_what_is_a_fault_by_itself() -> None:
    assert {name for name, metric in METRICS.items() if metric.gate.fails_alone} == FAULTS


@pytest.mark.parametrize(
    ("factors", "verdict"), [(UNCHANGED, "WARN"), (FASTER, "WARN"), (NOISY, "FAIL"), (SLOWER, "FAIL")]
)
def test_decide__more_allocations__fail_unless_times_are_shown_not_to_be_worse(
    factors: list[float], verdict: str
) -> None:
    decision = judged(factors, "counters.allocations")
    (found,) = [c for c in decision.comparisons if c.metric == "counters.allocations"]
    assert (decision.verdict, found.outcome, found.gating) == (verdict, "regressed", verdict == "FAIL")
    assert found.costless == (verdict == "WARN")


@pytest.mark.parametrize("policy", [Policy(strict=True), Policy(tolerances={"counters.allocations": 0.5})])
def test_decide__more_allocations_that_somebody_bounds__fail(policy: Policy) -> None:
    assert judged(UNCHANGED, "counters.allocations", policy).verdict == "FAIL"


@pytest.mark.parametrize(
    "name", sorted(FAULTS & {n for n in METRICS if METRICS[n].origin.counted} - {"counters.low_precision_ops"})
)
def test_decide__more_of_what_is_a_fault_by_itself__fail(name: str) -> None:
    assert judged(UNCHANGED, name).verdict == "FAIL"


def test_decide__times_taken_away__no_better_than_with_them() -> None:
    base, head = sides(UNCHANGED)
    grown = [counters({"aten::add": 1}), counters({"aten::add": 2})]
    base, head = (changed(side, replicates=[], counters=[count]) for side, count in zip((base, head), grown))
    assert decide(base, head, policy=Policy(), history=History()).verdict == "FAIL"
