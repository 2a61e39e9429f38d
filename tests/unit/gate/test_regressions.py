"""Regressions by cause, as decision.json lists it: ranked, with its cost, and derived from the documents alone."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.document.comparison import Paired
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.explanation import OperatorDelta, Part
from perfgate.document.history import History
from perfgate.judging.gate.decide import decide
from tests.fakes.documents import (
    explained,
    make_comparison,
    make_counter,
    make_decision,
    make_operator_test,
    make_run,
    suggestions,
)
from tests.fakes.records import changed

SLOWER = make_comparison("latency.low", outcome="regressed", delta=0.068, interval=(0.059, 0.077))
COPIES = make_counter("counters.copies", 0, 1, parts=[Part(name="aten::clone", base=0, head=1, line="model.py:91")])
ADDED = make_counter(
    "counters.framework_ops", 40, 64, parts=[Part(name="aten::add", base=12, head=36, line="model.py:88")]
)


def named(decision: DecisionDocument) -> list[tuple[list[str], list[str]]]:
    return [
        (
            [decision.explained.causes[number].op for number in one.causes],
            [decision.comparisons[number].metric for number in one.comparisons],
        )
        for one in decision.explained.regressions
    ]


def test_regressions__times_of_one_call__the_one_that_decides_leads_not_the_largest() -> None:
    others = [make_comparison(name, outcome="regressed", delta=0.3) for name in ("latency.p50", "latency.p99")]
    decision = make_decision("FAIL", comparisons=[*others, SLOWER])
    assert [comparison.metric for comparison in decision.comparisons] == ["latency.low", "latency.p50", "latency.p99"]
    assert named(decision) == [([], ["latency.low", "latency.p50", "latency.p99"])]


def test_regressions__time_and_counts_of_two_lines__the_one_that_explains_the_time_leads() -> None:
    unexplained = make_comparison("latency.low", shape="short", outcome="regressed", delta=0.02, interval=(0.01, 0.03))
    decision = make_decision("FAIL", comparisons=[COPIES, unexplained, ADDED], suggestions=suggestions())
    assert named(decision) == [
        ([], ["latency.low"]),
        (["aten::add"], ["counters.framework_ops"]),
        (["aten::clone"], ["counters.copies"]),
    ]
    assert [one.suggestion for one in decision.explained.regressions] == [None, 0, None]
    assert [one.accepts for one in decision.explained.regressions] == [
        ["latency.low"],
        ["counters.framework_ops"],
        ["counters.copies"],
    ]


BREAK = make_counter(
    "counters.graph_breaks", 0, 1, parts=[Part(name="data-dependent branch", base=0, head=1, line="model.py:12")]
)


@pytest.mark.parametrize("seconds", [3e-4, 5e-4], ids=["a part of the slowdown", "more than all of it"])
def test_regressions__graph_break_and_operators_that_follow_from_it__the_break_leads(seconds: float) -> None:
    # A call of 1 ms takes 0.4 ms longer. The profiler may add to an operator that a broken graph no longer hides.
    slower = make_comparison(
        "latency.low", outcome="regressed", base=0.001, head=0.0014, delta=0.4, interval=(0.3, 0.5)
    )
    summed = make_counter(
        "counters.framework_ops", 6, 7, parts=[Part(name="aten::sum", base=0, head=1, line="model.py:11")]
    )
    # It is counted on the line of the break, and is not all that the break costs.
    compared = make_counter(
        "counters.allocations", 8, 9, parts=[Part(name="aten::gt", base=0, head=1, line="model.py:12")]
    )
    counts = [
        OperatorDelta(workload="encoder", shape="long", op=op, base_count=0, head_count=1, line=line)
        for op, line in (("aten::sum", "model.py:11"), ("aten::gt", "model.py:12"))
    ]
    times = [
        OperatorDelta(workload="encoder", shape="long", op=op, base=0.0, head=added, seconds=added)
        for op, added in (("aten::sum", seconds), ("aten::gt", 5e-5))
    ]
    decision = make_decision(
        "FAIL", comparisons=[summed, compared, slower, BREAK], operator_changes=counts, operator_times=times
    )
    broken, added = decision.explained.regressions
    assert named(decision) == [
        (["data-dependent branch", "aten::gt"], ["latency.low", "counters.graph_breaks", "counters.allocations"]),
        (["aten::sum"], ["counters.framework_ops"]),
    ]
    assert (broken.apart, added.apart) == (None, seconds)


def test_regressions__graph_break_and_an_operator_that_takes_longer__the_break_explains_the_call() -> None:
    slower = make_comparison(
        "latency.low", outcome="regressed", base=0.001, head=0.0014, delta=0.4, interval=(0.3, 0.5)
    )
    tested = make_operator_test("aten::sum", base=1e-5, head=3.16e-4)
    decision = make_decision(
        "FAIL", comparisons=[slower, BREAK], operator_changes=[], operator_times=[], operator_tests=[tested]
    )
    assert named(decision) == [(["data-dependent branch"], ["latency.low", "counters.graph_breaks"])]


def test_regressions__slower_call_that_nothing_explains__leads_a_count_that_costs_little() -> None:
    slower = make_comparison("latency.low", shape="short", outcome="regressed", base=0.001, head=0.0014, delta=0.4)
    times = [OperatorDelta(workload="encoder", shape="long", op="aten::clone", base=0.0, head=1e-6, seconds=1e-6)]
    clones = [
        OperatorDelta(
            workload="encoder", shape="long", op="aten::clone", base_count=0, head_count=1, line="model.py:91"
        )
    ]
    decision = make_decision("FAIL", comparisons=[COPIES, slower], operator_changes=clones, operator_times=times)
    assert named(decision) == [([], ["latency.low"]), (["aten::clone"], ["counters.copies"])]
    assert [one.apart for one in decision.explained.regressions] == [None, 1e-6]


def test_regressions__count_where_no_call_is_slower__the_slowdown_that_is_still_possible() -> None:
    unchanged = make_comparison("latency.low", interval=(-0.004, 0.009))
    assert [one.at_most for one in make_decision("FAIL", comparisons=[unchanged, COPIES]).explained.regressions] == [
        0.009
    ]
    undecided = msgspec.structs.replace(SLOWER, outcome="inconclusive")
    (one,) = make_decision("FAIL", comparisons=[undecided, COPIES]).explained.regressions
    assert one.at_most is None
    assert one.slower == [1]


def test_comparisons__any_order__worst_first_then_better_then_undecided() -> None:
    better = make_comparison("latency.p99", outcome="improved", delta=-0.2, interval=(-0.3, -0.1))
    undecided = make_comparison("latency.p50", outcome="inconclusive", delta=0.02, interval=(-0.1, 0.2))
    same = make_comparison("latency.p90")
    made = make_decision("FAIL", comparisons=[same, undecided, better, COPIES, SLOWER])
    assert [c.metric for c in made.comparisons] == [
        "latency.low",
        "counters.copies",
        "latency.p99",
        "latency.p50",
        "latency.p90",
    ]


def test_regressions__altered_in_a_decision__made_again_from_the_documents() -> None:
    decided = decide(make_run("base"), make_run("head", slowdown=0.1), policy=Policy(), history=History())
    assert decided.explained.regressions
    altered = changed(decided, regressions=[], comparisons=decided.comparisons[::-1])
    again = explained(altered)
    assert again.explained.regressions == decided.explained.regressions


def test_accepts__number_of_a_program_that_reads_like_a_pattern__alone_and_not_at_a_place() -> None:
    def number(job: str) -> Paired:
        return make_comparison(
            "number.test_forward[8]", workload=job, shape="", outcome="regressed", delta=0.1, evidence="quad"
        )

    (alone,) = make_decision("FAIL", comparisons=[number("first")]).explained.regressions
    assert alone.accepts == ["number.test_forward[8]"]
    both = make_decision("FAIL", comparisons=[number("first"), number("second")])
    assert [one.accepts for one in both.explained.regressions] == [[], []]
