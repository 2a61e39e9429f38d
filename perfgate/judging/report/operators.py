"""Operators that were tested one by one, in words: for the comment those that got slower, for the page all of them."""

from __future__ import annotations

from dataclasses import replace

from perfgate.catalogue.names import LATENCY
from perfgate.document.decision import Comparison, OperatorTest
from perfgate.judging.report import format as formats
from perfgate.judging.report import svg
from perfgate.judging.report.headline import named_change
from perfgate.judging.report.summary import Summary
from perfgate.judging.report.view import OperatorView
from perfgate.judging.report.words import Words, phrase, say

_LABELS = {
    "regressed": phrase("slower"),
    "improved": phrase("faster"),
    "unchanged": phrase("same"),
    "inconclusive": phrase("undecided"),
}


def slower_operators(summary: Summary) -> list[OperatorTest]:
    """The operators that got slower by themselves, in the decision's order.

    One that also runs more often, or that the explanation of a slower call names, belongs to the causes.
    """
    counted = {(change.workload, change.shape, change.op) for change in summary.decision.operator_changes}
    counted |= {(c.workload, c.shape, part.name) for c in summary.decision.comparisons for part in c.parts}
    counted |= {
        (explanation.workload, explanation.shape, part.op)
        for explanation in summary.decision.explanations
        for part in explanation.contributions
    }
    return [
        test
        for test in summary.decision.operator_tests
        if test.outcome == "regressed" and (test.workload, test.shape, test.op) not in counted
    ]


def worded_test(test: OperatorTest, summary: Summary) -> OperatorView:
    """One tested operator as the words of a line; ``call`` is the whole call's change, None where unknown."""
    change = named_change(_comparison(test))
    return OperatorView(
        place=change.place,
        base=change.base,
        head=change.head,
        change=change.change,
        pairs=change.pairs,
        confidence=change.confidence,
        op=test.op,
        line=test.line,
        share=formats.percent(test.share),
        call=_whole_call(test, summary),
        label=say(_LABELS[test.outcome]),
        outcome=Words(test.outcome),
    )


def operator_rows(summary: Summary, *, most: int) -> list[OperatorView]:
    """The rows of the page's table, with a bar for every interval."""
    tests = summary.decision.operator_tests[:most]
    scale = svg.scale_of([test.interval for test in tests if test.interval], [])
    return [replace(worded_test(test, summary), bar=_bar(test, scale)) for test in tests]


def _bar(test: OperatorTest, scale: float) -> object:
    return (
        Words("")
        if test.interval is None
        else svg.interval_bar(test.interval, test.delta, None, scale, test.outcome, formats.interval(_comparison(test)))
    )


def _whole_call(test: OperatorTest, summary: Summary) -> Words | None:
    key = (test.workload, test.shape, LATENCY, "paired")
    whole = next((c for c in summary.metrics if (c.workload, c.shape, c.metric, c.method) == key), None)
    if whole is None or whole.delta is None or whole.outcome == "not_comparable":
        return None
    return say("undecided") if whole.outcome == "inconclusive" else formats.directed_percent(whole.delta, whole.unit)


def _comparison(test: OperatorTest) -> Comparison:
    return Comparison(
        workload=test.workload,
        shape=test.shape,
        metric=f"ops.time:{test.op}",
        unit="s",
        better="lower",
        method="paired",
        outcome=test.outcome,
        gating=False,
        base=test.base,
        head=test.head,
        delta=test.delta,
        interval=test.interval,
        confidence=test.confidence,
        pairs=test.pairs,
    )
