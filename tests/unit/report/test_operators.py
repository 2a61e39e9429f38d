"""Tested operators: what the comment names, and what the page shows."""

from __future__ import annotations

from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.render.html import render_html
from tests.fakes.documents import (
    make_comparison,
    make_counter,
    make_decision,
    make_operator_test,
    make_run,
    operator_changes,
    operator_tests,
    regressed_counters,
)

CONTEXT = CommentContext(marker="<!-- perfgate:v1:demo -->")
HEADING = "independently slower (of"


def test_comment__operator_slower_while_the_gate_passes__named_with_interval_share_and_the_whole_call() -> None:
    text = render_comment(make_decision(operator_tests=operator_tests()), CONTEXT)
    assert (
        "<summary>1 operator independently slower (of 4 tested over 12 pairs; informational, cannot fail the gate)</summary>"
        in text
    )
    assert (
        "- `aten::mm` in `encoder/long` at `model.py:41`: 9.8 % slower (8.3 to 11.2 %), 3.1 % of the call; "
        "end to end 0.2 % slower"
    ) in text.splitlines()
    assert "aten::gelu" not in text
    assert "aten::view" not in text


def test_comment__no_operator_slower__no_word_of_them() -> None:
    text = render_comment(make_decision(operator_tests=operator_tests()[1:]), CONTEXT)
    assert HEADING not in text


def test_comment__whole_call_not_compared__only_the_operator() -> None:
    counter = make_counter("counters.copies", 2, 2)
    text = render_comment(make_decision(operator_tests=operator_tests(), comparisons=[counter]), CONTEXT)
    assert "3.1 % of the call\n" in text


def test_comment__whole_call_undecided__said_instead_of_an_estimate() -> None:
    noisy = make_comparison(outcome="inconclusive", delta=-0.024, interval=(-0.43, 0.6))
    text = render_comment(make_decision(operator_tests=operator_tests(), comparisons=[noisy]), CONTEXT)
    assert "3.1 % of the call; end to end undecided\n" in text


def test_comment__operator_runs_more_often__left_to_the_causes() -> None:
    tests = [make_operator_test("aten::add"), make_operator_test("aten::clone"), make_operator_test("aten::mm")]
    decision = make_decision(
        "FAIL", comparisons=regressed_counters(), operator_changes=operator_changes(), operator_tests=tests
    )
    text = render_comment(decision, CONTEXT)
    assert "\n**1 operator independently slower (of 3 tested" in text
    assert "- `aten::mm` in `encoder/long`" in text


def test_comment__many_slower_operators__three_and_how_many_more() -> None:
    tests = [make_operator_test(f"aten::op{number}") for number in range(5)]
    text = render_comment(make_decision(operator_tests=tests), CONTEXT)
    assert "<summary>5 operators independently slower (of" in text
    assert "`aten::op2`" in text
    assert "`aten::op3`" not in text
    assert "- 2 more operators in `report.html`" in text


def test_page__tested_operators__each_has_a_row_with_its_outcome_and_bar() -> None:
    decision = make_decision(operator_tests=operator_tests())
    page = render_html(decision, make_run("base"), make_run(), language="en")
    table = page.partition("Operators tested individually")[2].partition("</section>")[0]

    assert [outcome in table for outcome in (">slower<", ">same<", ">undecided<", ">faster<")] == [True] * 4
    assert table.count('<svg class="bar"') == 4
    assert "9.8 % slower (8.3 to 11.2 %)" in table.replace("\xa0", " ")
    assert "<code>model.py:41</code>" in table


def test_page__no_operators_tested__no_such_table() -> None:
    assert "tested individually" not in render_html(make_decision(), make_run("base"), make_run(), language="en")
