from __future__ import annotations

import msgspec
import pytest

from perfgate.document.decision import Comparison, DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.message import Message
from perfgate.document.run import RunDocument
from perfgate.judging.gate.decide import Look, decide
from perfgate.judging.gate.required import Required
from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.unit.gate.builders import SHAPE, WORKLOAD, sides, stretches_of

EQUAL = [1.0] * 16


def documents(**stretches: object) -> tuple[RunDocument, RunDocument]:
    base, head = sides(EQUAL, call=0.001)
    firsts, seconds = stretches_of(**stretches)  # type: ignore[arg-type]
    return (
        msgspec.structs.replace(base, replicates=[*base.replicates, *firsts]),
        msgspec.structs.replace(head, replicates=[*head.replicates, *seconds]),
    )


def decided(base: RunDocument, head: RunDocument, required: Required = Required()) -> DecisionDocument:  # noqa: B008
    return decide(base, head, policy=Policy(), history=History(), required=required)


def row(decision: DecisionDocument, metric: str) -> Comparison:
    return next(c for c in decision.comparisons if c.metric == metric)


def title(decision: DecisionDocument) -> str:
    comment = render_comment(decision, CommentContext(marker="<!-- perfgate -->"))
    return next(line for line in comment.splitlines() if "–" in line)


def test_decide__equal_stretches__mean_unchanged_and_no_row_of_stalls() -> None:
    decision = decided(*documents())
    assert decision.verdict == "PASS"
    mean = row(decision, "latency.mean")
    assert (mean.outcome, mean.excluded, mean.pairs, mean.starts) == ("unchanged", 0.05, 16, 2)
    assert "latency.stalls" not in {c.metric for c in decision.comparisons}


def test_decide__head_stalls_30_ms_in_every_50th_call__fails_and_is_told_as_a_tail() -> None:
    decision = decided(*documents(stalls=((0, 0.0), (50, 0.03))))
    assert decision.verdict == "FAIL"
    stalls = row(decision, "latency.stalls")
    assert (stalls.outcome, stalls.base, stalls.head) == ("regressed", 0.0, 0.02)
    assert stalls.reason == Message(
        "gate.rare-slow-calls", {"every": 50, "seconds": 0.03, "how": Message("gate.stall-computing")}
    )
    assert row(decision, "latency.mean").delta == pytest.approx(0.6, rel=0.01)
    assert "about 1 call in 50 takes 30.0 ms longer than the median call" in title(decision)


def test_decide__both_sides_stall_alike__unchanged() -> None:
    decision = decided(*documents(stalls=((50, 0.03), (50, 0.03))))
    assert decision.verdict == "PASS"
    stalls = row(decision, "latency.stalls")
    assert (stalls.outcome, stalls.gating, stalls.delta) == ("inconclusive", False, 0.0)


def test_decide__uniformly_slower__the_mean_fails_without_stalls() -> None:
    decision = decided(*documents(ratio=1.1))
    assert row(decision, "latency.mean").outcome == "regressed"
    assert "latency.stalls" not in {c.metric for c in decision.comparisons}


def test_decide__calls_just_above_the_limit_of_a_stall__no_regression_while_the_mean_stays() -> None:
    decision = decided(*documents(stalls=((50, 0.00195), (50, 0.00205)), calls=100))
    assert decision.verdict == "PASS"
    assert row(decision, "latency.stalls").outcome == "inconclusive"


def test_decide__stalls_in_few_quads__undecided_and_the_title_of_the_pass_names_the_bound() -> None:
    decision = decided(*documents(stalls=((0, 0.0), (1000, 0.08))))
    assert decision.verdict == "PASS"
    mean = row(decision, "latency.mean")
    assert mean.outcome == "inconclusive"
    assert mean.interval is not None
    assert mean.interval[1] > 0.05
    assert "mean call may be up to" in title(decision)


def test_look__stalls_in_few_quads__more_stretches_would_help_until_all_are_measured() -> None:
    leaning = documents(stalls=((0, 0.0), (300, 0.08)))
    assert Look(*leaning, Policy(), workload=WORKLOAD).more_calls_would_help()
    assert not Look(*leaning, Policy(), workload=WORKLOAD).more_pairs_would_help()
    whole = documents(stalls=((0, 0.0), (300, 0.08)), starts=8)
    assert not Look(*whole, Policy(), workload=WORKLOAD).more_calls_would_help()
    assert not Look(*documents(), Policy(), workload=WORKLOAD).more_calls_would_help()


def test_decide__stretches_left_out__inconclusive_by_name() -> None:
    base, head = documents()
    without = msgspec.structs.replace(head, replicates=[r for r in head.replicates if r.arm != "stretch"])
    decision = decided(base, without)
    assert decision.verdict == "INCONCLUSIVE"
    assert [(m.metric, m.shape, m.side) for m in decision.missing] == [("latency.mean", SHAPE, "head")]
    neither = msgspec.structs.replace(base, replicates=[r for r in base.replicates if r.arm != "stretch"])
    assert decided(neither, without).verdict == "PASS"
    decision = decided(neither, without, Required(stretches=True))
    assert [(m.metric, m.side) for m in decision.missing] == [("latency.mean", "both")]


def test_decide__one_of_two_starts_left_out_on_both_sides__inconclusive() -> None:
    base, head = (
        msgspec.structs.replace(run, replicates=[r for r in run.replicates if (r.arm, r.pair) != ("stretch", 1)])
        for run in documents()
    )
    assert [m.metric for m in decided(base, head).missing] == ["latency.mean"]
