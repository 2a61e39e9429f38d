"""Which operators the comment names, in which order, and when it keeps silent about time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from perfgate.document.decision import Regression
from perfgate.document.explanation import Cause, OperatorDelta
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.view.summary import Summary
from tests.causes.comments import cause_of, title
from tests.fakes.documents import (
    make_comparison,
    make_counter,
    make_decision,
    make_operator_test,
    operator_changes,
    regressed_counters,
    regressed_time,
)


def causes(**fields) -> list[Cause]:
    return make_decision("FAIL", **fields).explained.causes


def test_causes__counts_and_trace__one_entry_per_operator() -> None:
    found = causes(comparisons=regressed_time() + regressed_counters(), operator_changes=operator_changes())
    assert [(cause.op, cause.base_count, cause.head_count, cause.line) for cause in found] == [
        ("aten::add", 12, 36, "model.py:88"),
        ("aten::clone", 0, 1, "model.py:91"),
    ]
    assert [round(cause.more_time or 0, 6) for cause in found] == [0.0019, 0.0004]


def test_causes__traces_alone__say_how_often_and_not_how_long() -> None:
    more = OperatorDelta(workload="encoder", shape="long", op="aten::add", base_count=12, head_count=36)
    comparisons = regressed_time() + regressed_counters()
    decision = make_decision("FAIL", comparisons=comparisons, operator_changes=[more], operator_times=[])
    assert {cause.more_time for cause in decision.explained.causes} == {None}
    assert decision.comparisons[0].cause is None


def test_causes__what_is_timed_otherwise__moves_with_the_call_of_its_place() -> None:
    instructions = make_comparison("hardware.instructions", unit="1", outcome="regressed", base=10.0, head=12.0)
    elsewhere = make_comparison("hardware.instructions", unit="1", outcome="regressed", shape="short")
    same = make_comparison("latency.std", outcome="unchanged")
    comparisons = [instructions, elsewhere, same, *regressed_time(), *regressed_counters()]
    found = make_decision("FAIL", comparisons=comparisons, operator_changes=operator_changes())
    call = next(c.cause for c in found.comparisons if c.metric == "latency.low")
    assert call is not None
    timed_otherwise = {(c.metric, c.shape): c.cause for c in found.comparisons if c.metric.startswith("hardware.")}
    assert timed_otherwise == {("hardware.instructions", "long"): call, ("hardware.instructions", "short"): None}
    assert [c.cause for c in found.comparisons if c.metric == "latency.std"] == [None]


def test_causes__only_improvements__nothing_to_explain() -> None:
    assert causes(comparisons=[make_counter("counters.copies", 3, 1)], operator_changes=[]) == []


def test_causes__same_change_in_two_shapes__is_listed_once() -> None:
    counters = [make_counter("ops.count:aten::add", 1, 9, shape=shape) for shape in ("short", "long")]
    decision = make_decision("FAIL", comparisons=counters, operator_changes=[])
    assert [cause.same_as for cause in decision.explained.causes] == [None, 0]
    ((_, places),) = Summary(decision, "markdown").causes
    assert places == ("encoder/short", "encoder/long")


def test_cause_of__counter__is_its_largest_part() -> None:
    comparisons = regressed_counters()
    decision = make_decision("FAIL", comparisons=comparisons, operator_changes=[])
    assert [decision.explained.causes[c.cause].op for c in decision.comparisons[:3] if c.cause is not None] == [
        "aten::add",
        "aten::clone",
        "aten::clone",
    ]


@pytest.mark.parametrize(("lost", "named"), [(0.0003, True), (0.00004, False)])
def test_comment__slower_call_and_one_slower_operator__the_operator_is_the_cause_where_it_explains_enough(
    lost: float, named: bool
) -> None:
    slower = make_comparison(outcome="regressed", base=0.001, head=0.0014, delta=0.4, interval=(0.3, 0.5))
    operator = make_operator_test("Relu", base=0.00001, head=0.00001 + lost)
    decision = make_decision("FAIL", comparisons=[slower], operator_tests=[operator])
    comment = render_comment(decision, CommentContext(marker="<!-- perfgate -->"))
    row = next(line for line in comment.splitlines() if line.startswith("| **FAIL** | fast-path"))
    assert (cause_of(row, comment) == "`Relu` takes 300 µs longer at `model.py:41`") == named


def test_title__same_cause_in_two_shapes__worded_by_the_numbers_of_its_own_shape() -> None:
    times = [make_comparison("latency.low", shape=shape, outcome="regressed", cause=0) for shape in ("short", "long")]
    decision = make_decision("FAIL", comparisons=times)
    (worst,) = [c.shape for c in [Summary(decision, "plain").worst] if c is not None]
    other = "long" if worst == "short" else "short"
    own = Cause(workload="encoder", shape=worst, op="aten::std", line="model.py:10", more_time=3e-6, rank=0)
    larger = replace(own, shape=other, more_time=2.4e-5)
    regression = Regression(causes=[0, 1], comparisons=[0, 1], slower=[0, 1])
    explained = replace(decision.explained, causes=[larger, own], regressions=[regression])
    text = render_comment(replace(decision, explained=explained), CommentContext(marker="<!-- perfgate -->"))
    assert "takes 3.00 µs longer at `model.py:10`" in title(text)
