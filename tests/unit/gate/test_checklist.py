"""The checklist of both sides, number by number: what it compares, how sure it is, and that it decides nothing."""

from __future__ import annotations

import math

import msgspec
import pytest

from perfgate.document.budget import Budget
from perfgate.document.decision import DecisionDocument, Policy, StepComparison
from perfgate.document.history import History
from perfgate.document.run import ErrorDetail, RunDocument, StepResult, Value
from perfgate.judging.gate.decide import decide
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.stats.summary import ratio_interval
from tests.unit.gate.builders import SHAPE, WORKLOAD, counters, sides

UNCHANGED = [1.0 + 0.0005 * (-1) ** pair for pair in range(16)]


def value(metric: str, number: float | None, **fields: object) -> Value:
    return msgspec.convert({"metric": metric, "value": number, "labels": {"shape": SHAPE}, **fields}, Value)


def with_steps(run: RunDocument, *values: Value, number: int = 5, slug: str = "batch") -> RunDocument:
    step = StepResult(number=number, slug=slug, workload=WORKLOAD, status="ok", values=list(values))
    return msgspec.structs.replace(run, counters=[counters({"aten::add": 1})], steps=[*run.steps, step])


def judged(before: list[Value], after: list[Value], policy: Policy | None = None, **step: object) -> DecisionDocument:
    base, head = sides(UNCHANGED)
    of_step = {"number": 5, "slug": "batch", **step}
    return decide(
        with_steps(base, *before, **of_step),  # type: ignore[arg-type]
        with_steps(head, *after, **of_step),  # type: ignore[arg-type]
        policy=policy or Policy(),
        history=History(),
    )


def row_of(decision: DecisionDocument, metric: str) -> StepComparison:
    (row,) = [row for row in decision.checklist if (row.metric, row.shape) == (metric, SHAPE)]
    return row


def test_checklist__number_of_both_sides__its_difference_and_interval() -> None:
    before = value("throughput.median", 100.0, interval=(98.0, 103.0), confidence=0.95)
    after = value("throughput.median", 80.0, interval=(79.0, 82.0), confidence=0.9)
    row = row_of(judged([before], [after], number=1, slug="latency"), "throughput.median")
    assert (row.base, row.head, row.delta, row.confidence, row.paired) == (100.0, 80.0, -0.2, 0.9, False)
    assert row.interval is not None
    assert row.interval[0] < -0.2 < row.interval[1] < 0


def test_checklist__number_that_pairs_compare__theirs() -> None:
    slow = [value("latency.p50", 0.02)]
    row = row_of(judged([value("latency.p50", 0.01)], slow, number=1, slug="latency"), "latency.p50")
    assert row.paired
    assert row.delta == pytest.approx(0.0, abs=0.001)
    assert row.tolerance == 0.02


def test_checklist__number_of_one_side__no_difference_and_a_dash() -> None:
    decision = judged([value("batch.knee", 8.0)], [value("batch.knee", None)])
    row = row_of(decision, "batch.knee")
    assert (row.base, row.head, row.delta, row.interval) == (8.0, None, None, None)
    assert "| 5 | batch knee · `encoder/long` | 8 | – | – | – | – |" in render_comment(
        decision, CommentContext(marker="<!-- perfgate -->")
    )


def test_checklist__far_worse_number_that_nobody_named__informs() -> None:
    far_worse = [value("batch.knee", 64.0), value("batch.best", 1.0)]
    decision = judged([value("batch.knee", 8.0), value("batch.best", 64.0)], far_worse)
    assert decision.verdict == "PASS"
    assert row_of(decision, "batch.knee").delta == 7.0
    assert not any(comparison.metric.startswith("batch.") for comparison in decision.comparisons)


def test_checklist__limit_of_the_checklist__stands_beside_the_number() -> None:
    numbers = [value("utilization.busy", 0.9)]
    row = row_of(judged(numbers, numbers, number=2, slug="utilization"), "utilization.busy")
    assert (row.bound, row.at_most) == (0.8, False)


def test_checklist__budget__comes_before_the_limit() -> None:
    policy = Policy(budgets=[Budget(metric="utilization.busy", bound=0.95, at_most=False)])
    numbers = [value("utilization.busy", 0.99)]
    row = row_of(judged(numbers, numbers, policy, number=2, slug="utilization"), "utilization.busy")
    assert (row.bound, row.at_most) == (0.95, False)


@pytest.mark.parametrize(("number", "slug", "verdict"), [(8, "precision", "PASS"), (4, "top_ops", "INCONCLUSIVE")])
def test_decide__step_that_failed__matters_where_it_decides(number: int, slug: str, verdict: str) -> None:
    base, head = (msgspec.structs.replace(run, counters=[counters({"aten::add": 1})]) for run in sides(UNCHANGED))
    error = ErrorDetail(kind="exception", message="RuntimeError: no kernel")
    failed = StepResult(number=number, slug=slug, workload=WORKLOAD, status="error", error=error)
    decision = decide(base, msgspec.structs.replace(head, steps=[failed]), policy=Policy(), history=History())
    assert decision.verdict == verdict
    assert decision.steps[-1].status == "error"


def test_decide__step_that_failed_and_a_limit_is_about__inconclusive() -> None:
    base, head = (msgspec.structs.replace(run, counters=[counters({"aten::add": 1})]) for run in sides(UNCHANGED))
    failed = StepResult(
        number=5, slug="batch", workload=WORKLOAD, status="error", error=ErrorDetail(kind="exception", message="x")
    )
    policy = Policy(tolerances={"batch.knee": 0.0})
    decision = decide(base, msgspec.structs.replace(head, steps=[failed]), policy=policy, history=History())
    assert decision.verdict == "INCONCLUSIVE"


def test_ratio_interval__lopsided_ends__added_in_squares_end_by_end() -> None:
    ends = ratio_interval((10.0, (9.0, 12.0)), (20.0, (19.0, 23.0)))
    assert ends is not None
    assert ends[0] == pytest.approx(math.log(2) - math.hypot(math.log(20 / 19), math.log(12 / 10)))
    assert ends[1] == pytest.approx(math.log(2) + math.hypot(math.log(23 / 20), math.log(10 / 9)))


@pytest.mark.parametrize("ends", [None, (None, 12.0), (0.0, 12.0)])
def test_ratio_interval__an_end_that_nobody_knows__none(ends: tuple[float | None, float | None] | None) -> None:
    assert ratio_interval((10.0, ends), (20.0, (19.0, 23.0))) is None
