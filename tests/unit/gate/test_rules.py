"""Rules that hold the head alone: gating limits, expected kernels and budgets, beside a base and without one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perfgate.document.budget import Budget
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.message import quote
from perfgate.document.run import CorrectnessResult, ErrorDetail, RunDocument, ShapeKernels, StepResult, Value
from perfgate.judging.gate.compare.head_rules import broken_metrics
from perfgate.judging.gate.decide import decide, decide_alone
from perfgate.judging.gate.evidence.bounds import HeadNumbers, bounded_metrics
from perfgate.judging.gate.evidence.index import RunIndex
from perfgate.judging.gate.verdict import exit_code
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.render.html import render_html
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, sides
from tests.wording import worded

NO_CHANGE = [1.0 + 0.0005 * (-1) ** pair for pair in range(14)]
KERNEL_TIME = Policy(limits={"ops.kernel_time.warning": 0.05})
FLASH = Policy(kernels=["FlashAttention*"])
NAMES = ("MatMulV2", "flash_attention_score")


def with_ops(
    run: RunDocument, longest: float | None = 0.01, names: tuple[str, ...] = NAMES, **fields: Any
) -> RunDocument:
    """Return a run whose step 4 says how long the longest single run took, and what ran."""
    labels = {"shape": SHAPE}
    value = Value(
        metric="ops.kernel_time", value=longest, labels=labels, reason=quote("not there") if longest is None else None
    )
    kernels = [ShapeKernels(shape=SHAPE, names=list(names), longest="MatMulV2", **fields)] if names else []
    step = StepResult(number=4, slug="top_ops", workload=WORKLOAD, status="ok", values=[value], kernels=kernels)
    return changed(run, steps=[step])


def alone(head: RunDocument, policy: Policy) -> DecisionDocument:
    return decide_alone(head, policy=policy)


def beside(base: RunDocument, head: RunDocument, policy: Policy) -> DecisionDocument:
    return decide(base, head, policy=policy, history=History())


def title(decision: DecisionDocument, language: Any = "en") -> str:
    text = render_comment(decision, CommentContext(marker="<!-- perfgate -->", language=language))
    return next(line for line in text.splitlines() if line.startswith("## "))


def test_limit__longest_kernel_beyond_it__fails_beside_a_base_and_without_one_and_the_title_names_the_rule() -> None:
    base, head = sides(NO_CHANGE)
    base, head = with_ops(base), with_ops(head, 0.08)
    for decision in (beside(base, head, KERNEL_TIME), alone(head, KERNEL_TIME)):
        assert (decision.verdict, exit_code(decision)) == ("FAIL", 1)
        assert worded(decision.reasons) == ["regressed: encoder/long ops.kernel_time.warning"]
        assert title(decision) == (
            "## ❌ perfgate: FAIL – longest single run of a kernel of `encoder/long` is 80.0 ms, 60.0 % above the limit of "
            "50.0 ms (`ops.kernel_time.warning`: a single run of `MatMulV2`)"
        )


def test_limit__kept__passes() -> None:
    base, head = sides(NO_CHANGE)
    assert beside(base, with_ops(head), KERNEL_TIME).verdict == "PASS"
    decision = alone(with_ops(head), KERNEL_TIME)
    assert (decision.verdict, exit_code(decision)) == ("PASS", 0)
    assert title(decision) == "## ✅ perfgate: PASS – 1 rule of perfgate.toml met"


def test_limit__base_beyond_it_too__warns_beside_it_and_fails_alone() -> None:
    base, head = sides(NO_CHANGE)
    assert beside(with_ops(base, 0.08), with_ops(head, 0.08), KERNEL_TIME).verdict == "WARN"
    assert alone(with_ops(head, 0.08), KERNEL_TIME).verdict == "FAIL"


@pytest.mark.parametrize(
    "damaged",
    [
        lambda run: changed(run, steps=[]),
        lambda run: with_ops(run, None),
        lambda run: changed(run, steps=[msgspec.structs.replace(run.checklist.steps[0], values=[])]),
    ],
)
def test_limit__value_is_missing__inconclusive_by_name(damaged: Any) -> None:
    base, head = sides(NO_CHANGE)
    head = damaged(with_ops(head, 0.08))
    for decision in (beside(base, head, KERNEL_TIME), alone(head, KERNEL_TIME)):
        assert (decision.verdict, exit_code(decision)) == ("INCONCLUSIVE", 3)
        assert worded(decision.reasons) == ["not judged: encoder/long ops.kernel_time.warning"]
        assert "could not be checked against perfgate.toml (`ops.kernel_time.warning`)" in title(decision)


def test_limit__share_of_one_class__takes_the_values_of_that_class_alone() -> None:
    _, head = sides(NO_CHANGE)
    values = [
        Value(metric="ops.share", value=share, labels={"shape": SHAPE, "class": group})
        for group, share in (("copy", 0.1), ("conv_matmul", 0.9))
    ]
    step = StepResult(number=4, slug="top_ops", workload=WORKLOAD, status="ok", values=values)
    head = changed(head, steps=[step])
    assert alone(head, Policy(limits={"ops.share.copy.severe": 0.3})).verdict == "PASS"
    assert alone(head, Policy(limits={"ops.share.copy.severe": 0.05})).verdict == "FAIL"


def test_limit__at_least__below_it_fails() -> None:
    _, head = sides(NO_CHANGE)
    value = Value(metric="utilization.busy", value=0.4, labels={"shape": SHAPE})
    step = StepResult(number=2, slug="utilization", workload=WORKLOAD, status="ok", values=[value])
    decision = alone(changed(head, steps=[step]), Policy(limits={"utilization.busy.severe": 0.5}))
    assert decision.verdict == "FAIL"
    assert "is 40.0 %, 20.0 % below the limit of 50.0 % (`utilization.busy.severe`)" in title(decision)


def test_limit__beyond_it__measured_again_as_a_budget_is() -> None:
    base, head = sides(NO_CHANGE)
    assert broken_metrics(
        HeadNumbers.of(RunIndex(base), RunIndex(with_ops(head, 0.08)), KERNEL_TIME).bounded, WORKLOAD
    ) == {"ops.kernel_time"}
    assert bounded_metrics(KERNEL_TIME) == {"ops.kernel_time"}
    steady = with_ops(head, 0.08)
    again = Value(metric="ops.kernel_time", value=0.01, labels={"shape": SHAPE, "repeat": "2"})
    step = msgspec.structs.replace(steady.checklist.steps[0], values=[*steady.checklist.steps[0].values, again])
    assert beside(base, changed(steady, steps=[step]), KERNEL_TIME).verdict == "PASS"


def test_expected_kernel__missing__fails_beside_a_base_and_without_one_and_the_title_names_it() -> None:
    base, head = sides(NO_CHANGE)
    base, head = with_ops(base, names=("FlashAttentionScore",)), with_ops(head)
    for decision in (beside(base, head, FLASH), alone(head, FLASH)):
        assert (decision.verdict, exit_code(decision)) == ("FAIL", 1)
        assert worded(decision.reasons) == ["regressed: encoder ops.expected_kernels"]
        assert title(decision) == (
            "## ❌ perfgate: FAIL – no kernel named `FlashAttention*` ran, as `perfgate.toml` expects; most similar names: "
            "`flash_attention_score` (`encoder`)"
        )
    assert "期望的 kernel `FlashAttention*` 没有运行" in title(alone(head, FLASH), "zh")


def test_expected_kernel__ran_in_one_of_the_shapes__kept() -> None:
    _, head = sides(NO_CHANGE)
    head = with_ops(head, names=("FlashAttentionScore",))
    more = ShapeKernels(shape="short", names=["MatMulV2"])
    step = msgspec.structs.replace(head.checklist.steps[0], kernels=[*head.checklist.steps[0].kernels, more])
    assert alone(changed(head, steps=[step]), FLASH).verdict == "PASS"


@pytest.mark.parametrize("fields", [{"names": ()}, {"left_out": 3}])
def test_expected_kernel__names_are_missing__inconclusive(fields: Any) -> None:
    base, head = sides(NO_CHANGE)
    head = with_ops(head, **fields)
    for decision in (beside(base, head, FLASH), alone(head, FLASH)):
        assert (decision.verdict, exit_code(decision)) == ("INCONCLUSIVE", 3)
        assert worded(decision.reasons) == ["not judged: encoder ops.expected_kernels"]


def test_budget__no_base__the_head_alone_is_held_to_it() -> None:
    _, head = sides(NO_CHANGE)
    budget = Policy(budgets=[Budget(metric="ops.kernel_time", bound=0.02, at_most=True)])
    assert alone(with_ops(head, 0.01), budget).verdict == "PASS"
    decision = alone(with_ops(head, 0.03), budget)
    assert (decision.verdict, exit_code(decision)) == ("FAIL", 1)
    assert "is 30.0 ms, 50.0 % above the budget of 20.0 ms" in title(decision)


def test_alone__wrong_output__fails_though_every_rule_is_kept() -> None:
    _, head = sides(NO_CHANGE)
    wrong = CorrectnessResult(workload=WORKLOAD, shape=SHAPE, status="failed", message="cosine 0.2")
    decision = alone(changed(with_ops(head), correctness=[wrong]), KERNEL_TIME)
    assert decision.verdict == "FAIL"


def test_alone__a_step_failed__measuring_failed() -> None:
    _, head = sides(NO_CHANGE)
    error = ErrorDetail(kind="exception", message="RuntimeError: boom")
    broken = StepResult(
        number=2, slug="utilization", workload=WORKLOAD, status="error", reason=quote("boom"), error=error
    )
    head = with_ops(head)
    decision = alone(changed(head, steps=[*head.checklist.steps, broken]), KERNEL_TIME)
    assert (decision.verdict, exit_code(decision)) == ("INCONCLUSIVE", 4)


def test_alone__no_workload__inconclusive() -> None:
    _, head = sides(NO_CHANGE)
    assert alone(msgspec.structs.replace(head, workloads=[]), KERNEL_TIME).verdict == "INCONCLUSIVE"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_alone__comment_and_page__name_no_base(language: Any) -> None:
    _, head = sides(NO_CHANGE)
    decision = alone(with_ops(head, 0.08), KERNEL_TIME)
    comment = render_comment(decision, CommentContext(marker="<!-- perfgate -->", language=language))
    assert "0f1e2d3c4" in comment
    for untrue in ("without a commit", "testbed identical", "noise floor", "baseline accept", "pairs"):
        assert untrue not in comment.split("<details>")[0]
    assert "ops.kernel_time.warning" in render_html(decision, None, head, language)


def test_policy__limit_that_cannot_gate__refused() -> None:
    with pytest.raises(ValueError, match="is known that could gate"):
        Policy(limits={"graph.recompiles.warning": 1.0})
