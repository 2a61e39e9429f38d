"""An improvement is news: it is said, and proposed as what the next change is held to."""

from __future__ import annotations

from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.fakes.documents import make_comparison, make_counter, make_decision

CONTEXT = CommentContext(marker="<!-- perfgate:v1:demo -->")
FASTER = make_comparison("latency.p99", outcome="improved", base=0.020, head=0.012, delta=-0.4, interval=(-0.42, -0.38))


def test_comment__improvement__proposed_as_the_new_baseline() -> None:
    text = render_comment(make_decision(verdict="PASS", comparisons=[FASTER]), CONTEXT)
    assert (
        "**Better than the base**: P99 latency of `encoder/long` 40.0 % faster (38.0 to 42.0 %): 20.0 → 12.0 ms" in text
    )
    assert "`perfgate baseline record` on main stores it" in text


def test_comment__counter_that_hardly_improved__is_not_called_no_change() -> None:
    fewer = make_counter("counters.bytecodes", 1_000_000, 999_900)
    text = render_comment(make_decision(verdict="PASS", comparisons=[fewer]), CONTEXT)
    assert "Python bytecodes per call of `encoder/long` under 0.1 % fewer (1,000,000 → 999,900)" in text


def test_comment__improvement_beside_a_failure__keeps_to_the_table() -> None:
    worse = make_comparison("latency.low", outcome="regressed", base=0.01, head=0.02, delta=1.0)
    text = render_comment(make_decision(verdict="FAIL", comparisons=[FASTER, worse]), CONTEXT)
    assert "Better than the base" not in text
