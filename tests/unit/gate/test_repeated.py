"""Numbers of the checklist that a tolerance names: the rule of pairs over their repetitions, and nothing without them."""

from __future__ import annotations

import numpy as np
import pytest

from perfgate.document.comparison import EvidenceUnit, Paired
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.run import REPEAT, RunDocument, StepResult, Value
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.tolerance import metrics_in_turns, repeated_metrics
from perfgate.judging.gate.look import Look
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, counters, sides

UNCHANGED = [1.0 + 0.0005 * (-1) ** pair for pair in range(16)]
NAMED = Policy(tolerances={"graph.speedup": 0.02})


def steps(numbers: list[float | None], metric: str = "graph.speedup") -> list[StepResult]:
    values = [
        Value(metric=metric, value=number, labels={"shape": SHAPE, **({REPEAT: str(turn)} if turn > 1 else {})})
        for turn, number in enumerate(numbers, start=1)
    ]
    return [StepResult(number=9, slug="graph", workload=WORKLOAD, status="ok", values=values)]


def documents(before: list[float | None], after: list[float | None]) -> tuple[RunDocument, RunDocument]:
    base, head = (changed(run, counters=[counters({"aten::add": 1})]) for run in sides(UNCHANGED))
    return (
        changed(base, steps=steps(before)),
        changed(head, steps=steps(after)),
    )


def judged(before: list[float | None], after: list[float | None], policy: Policy = NAMED) -> DecisionDocument:
    return decide(*documents(before, after), policy=policy, history=History())


def repeated(decision: DecisionDocument) -> Paired:
    return named(decision, "turn")


def named(decision: DecisionDocument, evidence: EvidenceUnit) -> Paired:
    (metric,) = repeated_metrics(decision.procedure.policy)
    paired = [c for c in decision.comparisons if isinstance(c, Paired)]
    (comparison,) = [c for c in paired if (c.metric, c.evidence) == (metric, evidence)]
    return comparison


def around(level: float, turns: int = 16) -> list[float | None]:
    return [level * (1 + 0.002 * ((turn * 7) % 5 - 2)) for turn in range(turns)]


def test_compare_repeated__less_speedup_turn_by_turn__fails_as_everything_else() -> None:
    decision = judged(around(1000.0), around(900.0))
    comparison = repeated(decision)
    assert (decision.verdict, comparison.outcome, comparison.pairs) == ("FAIL", "regressed", 16)
    assert comparison.delta == pytest.approx(-0.1, abs=0.01)
    assert comparison.interval is not None
    assert comparison.interval[0] < -0.1 < comparison.interval[1] < 0


def test_compare_repeated__more_speedup__improved() -> None:
    assert repeated(judged(around(1000.0), around(1100.0))).outcome == "improved"


def test_compare_repeated__the_same__unchanged_and_passes() -> None:
    decision = judged(around(1000.0), around(1000.0))
    assert (decision.verdict, repeated(decision).outcome) == ("PASS", "unchanged")


def test_compare_repeated__nobody_names_it__not_judged() -> None:
    decision = judged(around(1000.0), around(900.0), Policy(tolerances={"graph.*": 0.02}))
    assert decision.verdict == "PASS"
    assert not any(isinstance(c, Paired) and c.evidence == "turn" for c in decision.comparisons)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (around(1000.0), [], "gate.bound-not-measured"),
        ([], [], "gate.bound-not-measured"),
        (around(1000.0), [*around(1000.0)[:-1], None], "gate.bound-not-measured"),
        (around(1000.0), around(1000.0)[:-3], "gate.repetitions-differ"),
        ([0.0], [3.0], "gate.no-ratio"),
    ],
)
def test_compare_repeated__evidence_left_out__decides_nothing(
    before: list[float | None], after: list[float | None], said: str
) -> None:
    decision = judged(before, after)
    comparison = repeated(decision)
    assert decision.verdict == "INCONCLUSIVE"
    assert comparison.reason is not None
    assert (comparison.outcome, comparison.reason.code) == ("inconclusive", said)


def test_look__named_number_measured_once__more_turns_would_help_and_more_pairs_would_not() -> None:
    look = Look(*documents([1000.0], [900.0]), NAMED, workload=WORKLOAD)
    assert look.repetitions_would_help()
    assert not look.more_pairs_would_help()


def test_repeated_metrics__what_pairs_or_counts_compare__none_of_it() -> None:
    names = {
        "batch.knee@encoder/*": 0.0,
        "latency.p50": 0.1,
        "counters.syncs": 0.0,
        "latency.p90": 0.1,
        "memory.*": 0.1,
    }
    assert repeated_metrics(Policy(tolerances=names)) == ("batch.knee", "latency.p90")
    assert metrics_in_turns(Policy(tolerances=names)) == ("batch.knee",)


@pytest.mark.parametrize(("metric", "delta"), [("throughput.median", -0.107), ("latency.p90", 0.12)])
def test_compare_repeated__named_number_of_the_samples__fails_by_the_pairs_without_any_turn(
    metric: str, delta: float
) -> None:
    base, head = sides([1.12 + 0.0005 * (-1) ** pair for pair in range(16)])
    runs = (changed(run, counters=[counters({"aten::add": 1})]) for run in (base, head))
    decision = decide(*runs, policy=Policy(tolerances={metric: 0.05, "latency.*": 0.5}), history=History())
    comparison = named(decision, "pair")
    assert (decision.verdict, comparison.outcome, comparison.pairs) == ("FAIL", "regressed", 16)
    assert comparison.delta == pytest.approx(delta, abs=0.002)


@pytest.mark.parametrize(("slowdown", "outcome"), [(0.17, "regressed"), (0.0, "unchanged")])
def test_compare_repeated__throughput_by_noisy_pairs__decided_by_the_second_look(slowdown: float, outcome: str) -> None:
    """A sixth less throughput was undecided after 100 seconds of turns; 16 pairs that differ by 5 % show it."""
    generator = np.random.default_rng(17)
    policy = Policy(tolerances={"throughput.median": 0.05, "latency.*": 1.0})
    found = []
    for _ in range(12):
        base, head = sides(np.exp(generator.normal(-np.log1p(-slowdown), 0.05, 16)).tolist())
        found.append(named(decide(base, head, policy=policy, history=History()), "pair").outcome)
    assert found.count(outcome) >= (12 if slowdown else 10)
    assert "improved" not in found
    assert "regressed" not in found or slowdown


@pytest.mark.parametrize(("metric", "pairs_help"), [("throughput.median", True), ("graph.speedup", False)])
def test_look__named_number_undecided__waited_for_where_it_comes_from(metric: str, pairs_help: bool) -> None:
    """It was not measured on by pairs, nor by turns, if its samples are those of the pairs: the gate was INCONCLUSIVE."""
    noisy = [1.0 + 0.06 * (-1) ** pair for pair in range(8)]
    base, head = documents(around(1000.0, 4), around(900.0, 4))
    base, head = (changed(run, replicates=of.pairs.replicates) for run, of in zip((base, head), sides(noisy)))
    policy = Policy(tolerances={metric: 0.05, "latency.*": 0.5, "throughput.gap": 0.5})
    decision = decide(base, head, policy=policy, history=History())
    assert named(decision, "pair" if pairs_help else "turn").outcome == "inconclusive"
    assert decision.verdict == "INCONCLUSIVE"
    look = Look(base, head, policy, workload=WORKLOAD)
    assert (look.more_pairs_would_help(), look.repetitions_would_help()) == (pairs_help, not pairs_help)


def test_compare_repeated__undecided__says_how_many_turns_would_do_and_what_these_would_have_shown() -> None:
    comparison = repeated(judged([1000.0, 1010.0, 990.0] * 3, [1000.0, 980.0, 1005.0] * 3))
    assert comparison.outcome == "inconclusive"
    assert comparison.pairs == 9
    assert (comparison.pairs_needed or 0) > 9
    shown = repeated(judged([1000.0, 1010.0, 990.0] * 6, [1000.0, 980.0, 1005.0] * 6)).detectable
    assert shown is not None
    assert NAMED.tolerances["graph.speedup"] < shown < 0.1


def drifts(level: float) -> list[float | None]:
    return [level + 0.001 * ((turn * 7) % 5 - 2) for turn in range(16)]


@pytest.mark.parametrize(
    ("after", "outcome", "delta"), [(0.06, "regressed", 0.06), (0.0, "unchanged", 0.0), (-0.06, "improved", -0.06)]
)
def test_compare_repeated__drift_around_nothing__compared_by_what_calls_become(
    after: float, outcome: str, delta: float
) -> None:
    base, head = (
        changed(run, steps=steps(numbers, "latency.drift"))
        for run, numbers in zip(documents([], []), (drifts(0.0), drifts(after)))
    )
    comparison = repeated(decide(base, head, policy=Policy(tolerances={"latency.drift": 0.02}), history=History()))
    assert comparison.outcome == outcome
    assert comparison.delta == pytest.approx(delta, abs=0.002)
    assert comparison.base == pytest.approx(0.0, abs=0.001)
    assert comparison.head == pytest.approx(after, abs=0.002)
