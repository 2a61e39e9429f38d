"""Exact counters: nothing is tolerated unless the policy says so, and then no more than it says."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.catalogue.lookup import METRICS
from perfgate.document.decision import Policy
from perfgate.document.history import History
from perfgate.document.run import CounterSite
from perfgate.judging.gate.decide import decide
from tests.fakes.records import changed
from tests.unit.gate.builders import counters, sides

NO_CHANGE = [1.0 + 0.0005 * (-1) ** pair for pair in range(14)]
MANY = 20_000


@pytest.mark.parametrize(
    ("after", "tolerated", "outcome", "verdict"),
    [
        (40, 0.0, "unchanged", "PASS"),
        (41, 0.0, "regressed", "FAIL"),
        (44, 0.1, "unchanged", "PASS"),
        (45, 0.1, "regressed", "FAIL"),
        (39, 0.1, "improved", "PASS"),
    ],
)
def test_decide__operators_of_a_call_beside_what_is_tolerated(
    after: int, tolerated: float, outcome: str, verdict: str
) -> None:
    base, head = sides(NO_CHANGE)
    base = changed(base, counters=[counters({"aten::mm": 40})])
    head = changed(head, counters=[counters({"aten::mm": after})])
    policy = Policy(tolerances={"counters.framework_ops": tolerated})

    decision = decide(base, head, policy=policy, history=History())

    (counted,) = [c for c in decision.comparisons if c.metric == "counters.framework_ops"]
    assert (counted.outcome, counted.tolerance) == (outcome, tolerated)
    assert decision.verdict == verdict


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (1_000, 1_300, "unchanged"),  # 10 µs of Python more
        (1_000, 1_301, "regressed"),
        (20_000, 21_000, "unchanged"),
        (20_000, 21_001, "regressed"),
        (1_000, 700, "unchanged"),
        (1_000, 699, "improved"),
    ],
)
def test_decide__bytecodes__a_helper_function_more_is_no_regression(before: int, after: int, outcome: str) -> None:
    base, head = sides(NO_CHANGE)
    one, other = (
        msgspec.structs.replace(
            counters({"aten::mm": 40}),
            values={"counters.bytecodes": count},
            sites=[CounterSite(metric="counters.bytecodes", name="forward", count=count, line="model.py:8")],
        )
        for count in (before, after)
    )
    base, head = (changed(side, counters=[of]) for side, of in ((base, one), (head, other)))

    decision = decide(base, head, policy=Policy(), history=History())

    (counted,) = [c for c in decision.comparisons if c.metric == "counters.bytecodes"]
    assert counted.outcome == outcome
    assert [part.line for part in counted.parts] == ([] if outcome == "unchanged" else ["model.py:8"])


def test_decide__one_operator_more_and_another_less__only_the_one_that_grew_is_a_cause() -> None:
    base, head = sides([1.0] * 14)
    base = changed(base, counters=[counters({"aten::mm": 1, "aten::add": 5})])
    head = changed(head, counters=[counters({"aten::mm": 7, "aten::add": 3})])

    decision = decide(base, head, policy=Policy(), history=History())

    assert [(cause.op, cause.more_count) for cause in decision.explained.causes] == [("aten::mm", 6)]


@pytest.mark.parametrize(
    ("status", "reason", "verdict"),
    [("not_checked", "gate.nothing-left", "INCONCLUSIVE"), ("passed", "gate.nothing-left-checked", "WARN")],
)
def test_decide__head_without_an_operator__no_improvement_and_only_an_accepted_output_lets_it_pass(
    status: str, reason: str, verdict: str
) -> None:
    base, head = sides([0.5] * 14)
    output = [msgspec.structs.replace(result, status=status) for result in head.checklist.correctness]
    base = changed(base, counters=[counters({"aten::mm": 40, "aten::relu": 2})], correctness=output)
    head = changed(head, counters=[counters({})], correctness=output)

    decision = decide(base, head, policy=Policy(), history=History())

    (counted,) = [c for c in decision.comparisons if c.metric == "counters.framework_ops"]
    assert counted.outcome == "inconclusive"
    assert counted.reason is not None
    assert counted.reason.code == reason
    assert [(part.name, part.base, part.head) for part in counted.parts] == [("aten::mm", 40, 0), ("aten::relu", 2, 0)]
    assert decision.verdict == verdict


@pytest.mark.parametrize("before", [0, 1, 100, 1_000_000])
@pytest.mark.parametrize("name", sorted(name for name, metric in METRICS.items() if metric.gate.allowed_more))
def test_decide__amounts_that_say_nothing__unchanged_from_any_base_either_way(name: str, before: int) -> None:
    """From a base of 0 every share is exceeded by one byte."""
    more = int(METRICS[name].gate.allowed_more)

    def outcome(base_count: int, head_count: int) -> str:
        runs = [
            changed(
                side,
                counters=[
                    msgspec.structs.replace(counted, values={**counted.values, name: count})
                    for counted in [counters({"aten::add": 1})]
                ],
            )
            for side, count in zip(sides([1.0] * 16), (base_count, head_count))
        ]
        decision = decide(*runs, policy=Policy(), history=History())
        return next(one.outcome for one in decision.comparisons if one.metric == name)

    assert outcome(before, before + more) == outcome(before + more, before) == "unchanged"
    assert outcome(before, 2 * before + more + 1) == "regressed"
    assert outcome(before + more + 1, before) == "improved"


def test_decide__document_that_claims_many_thousand_new_operators__each_named_with_its_line() -> None:
    base, head = sides(NO_CHANGE)
    added = {f"aten::new_{number}": 1 for number in range(MANY)}
    lines = {op: f"model.py:{number}" for number, op in enumerate(added, start=1)}
    base = changed(base, counters=[counters({"aten::mm": 1})])
    head = changed(head, counters=[counters({"aten::mm": 1, **added}, lines=lines)])
    decision = decide(base, head, policy=Policy(strict=True), history=History())
    assert len(decision.explained.causes) == MANY
    of_operators = [row for row in decision.comparisons if row.is_of_operator]
    assert [row.parts[0].line for row in of_operators] == [lines[row.parts[0].name] for row in of_operators]
    assert sorted(row.cause for row in of_operators if row.cause is not None) == list(range(MANY))
