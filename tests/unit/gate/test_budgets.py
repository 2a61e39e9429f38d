"""Absolute budgets: kept, broken by the change, broken before, or not shown."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import numpy as np
import pytest

from perfgate.document.budget import Budget
from perfgate.document.comparison import Bound, Comparison
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.job import JobKind
from perfgate.document.message import quote
from perfgate.document.run import RunDocument, StepResult, Value
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.head_rules import broken_metrics, compare_bound
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.bounds import HeadNumbers
from perfgate.judging.gate.evidence.index import RunIndex
from perfgate.judging.gate.evidence.tolerance import tolerance
from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.fakes.jobs import SETTINGS, Does, job_documents
from tests.fakes.records import changed
from tests.unit.gate.builders import sides
from tests.wording import text_of, worded

CONTEXT = CommentContext(marker="<!-- perfgate:v1:demo -->")
NO_CHANGE = [1.0 + 0.0005 * (-1) ** pair for pair in range(14)]
P99 = Budget(metric="latency.p99", bound=0.02, at_most=True)


def with_value(run: RunDocument, value: float | None, metric: str = "latency.p99", **fields: Any) -> RunDocument:
    labels = {"shape": "long", **fields.pop("labels", {})}
    reason = "not estimable" if value is None else None
    found = Value(metric=metric, value=value, labels=labels, reason=reason, **fields)
    return changed(run, steps=[StepResult(number=1, slug="latency", workload="encoder", status="ok", values=[found])])


def bounds(base: RunDocument, head: RunDocument, policy: Policy) -> list[Bound]:
    return list(map(compare_bound, HeadNumbers.of(RunIndex(base), RunIndex(head), policy).bounded))


def compared(base: RunDocument, head: RunDocument, *budgets: Budget) -> Comparison:
    (found,) = bounds(base, head, Policy(budgets=list(budgets)))
    return found


def judged(base: RunDocument, head: RunDocument, *budgets: Budget) -> DecisionDocument:
    return decide(base, head, policy=Policy(budgets=list(budgets)), history=History())


def test_budget__kept__unchanged_beside_its_bound() -> None:
    base, head = sides(NO_CHANGE)
    found = compared(base, with_value(head, 0.015, interval=(0.014, 0.016)), P99)
    assert (found.outcome, found.gating, found.bound, found.head) == ("unchanged", True, 0.02, 0.015)


def test_budget__broken_by_the_head_alone__fails_and_the_title_says_by_how_much() -> None:
    base, head = sides(NO_CHANGE)
    base, head = with_value(base, 0.015), with_value(head, 0.025, interval=(0.024, 0.026))
    decision = judged(base, head, P99)
    assert (decision.verdict, worded(decision.reasons)) == ("FAIL", ["regressed: encoder/long latency.p99"])
    comment = render_comment(decision, CONTEXT)
    assert "FAIL – P99 latency of `encoder/long` is 25.0 ms, 25.0 % above the budget of 20.0 ms" in comment


def test_budget__broken_by_the_base_too__warns() -> None:
    base, head = sides(NO_CHANGE)
    decision = judged(with_value(base, 0.025), with_value(head, 0.025), P99)
    assert (decision.verdict, worded(decision.reasons)) == ("WARN", ["doubtful: encoder/long latency.p99"])


def test_budget__interval_holds_the_bound__not_shown_either_way() -> None:
    base, head = sides(NO_CHANGE)
    found = compared(base, with_value(head, 0.021, interval=(0.019, 0.023)), P99)
    assert (found.outcome, found.gating) == ("inconclusive", False)


def test_budget__no_value_but_a_lower_end_beyond__broken_all_the_same() -> None:
    base, head = sides(NO_CHANGE)
    found = compared(base, with_value(head, None, interval=(0.03, None)), P99)
    assert (found.outcome, found.head) == ("regressed", 0.03)


def test_budget__nothing_measured__inconclusive_by_name_and_says_which_step_would() -> None:
    base, head = sides(NO_CHANGE)
    decision = judged(base, changed(head, steps=[]), P99)
    assert (decision.verdict, worded(decision.reasons)) == ("INCONCLUSIVE", ["not judged: encoder/long latency.p99"])
    assert "step 1 did not measure this value" in (text_of(decision.comparisons[0].reason))


def with_turns(run: RunDocument, *values: float) -> RunDocument:
    found = [
        Value(
            metric="latency.p99",
            value=value,
            interval=(value * 0.99, value * 1.01),
            labels={"shape": "long", **({"repeat": str(turn)} if turn > 1 else {})},
        )
        for turn, value in enumerate(values, start=1)
    ]
    return changed(run, steps=[StepResult(number=1, slug="latency", workload="encoder", status="ok", values=found)])


def test_budget__broken_in_one_turn_of_two__the_machine_stalled() -> None:
    base, head = sides(NO_CHANGE)
    found = compared(with_turns(base, 0.01), with_turns(head, 0.7, 0.012), P99)
    assert (found.outcome, found.head) == ("unchanged", 0.012)


def test_budget__broken_in_every_turn__broken_and_the_mildest_is_said() -> None:
    base, head = sides(NO_CHANGE)
    base, head = with_turns(base, 0.01, 0.01), with_turns(head, 0.7, 0.03, 0.2)
    found = compared(base, head, P99)
    assert (found.outcome, found.gating, found.head) == ("regressed", True, 0.03)
    assert broken_metrics(HeadNumbers.of(RunIndex(base), RunIndex(head), Policy(budgets=[P99])).bounded, "encoder") == {
        "latency.p99"
    }
    assert (
        broken_metrics(HeadNumbers.of(RunIndex(base), RunIndex(head), Policy(budgets=[P99])).bounded, "another")
        == set()
    )


def test_budget__base_breaks_it_in_one_turn__nobody_is_blamed() -> None:
    base, head = sides(NO_CHANGE)
    found = compared(with_turns(base, 0.01, 0.05), with_turns(head, 0.7, 0.03), P99)
    assert (found.outcome, found.gating) == ("inconclusive", False)


def test_budget__at_least__below_it_breaks() -> None:
    base, head = sides(NO_CHANGE)
    floor = Budget(metric="throughput.median", bound=1000.0, at_most=False)
    assert compared(base, with_value(head, 900.0, "throughput.median"), floor).outcome == "regressed"
    assert compared(base, with_value(head, 1100.0, "throughput.median"), floor).outcome == "unchanged"


def test_budget__rate__takes_only_values_of_that_rate() -> None:
    base, head = sides(NO_CHANGE)
    at_50 = msgspec.structs.replace(P99, rate=50.0)
    assert compared(base, with_value(head, 0.03), at_50).outcome == "inconclusive"
    found = compared(base, with_value(head, 0.03, labels={"rate": "50"}), at_50)
    assert (found.outcome, text_of(found.reason)) == ("regressed", "at 50 calls per second")


def test_budget__pattern_of_another_workload__says_nothing_of_this_one() -> None:
    base, head = sides(NO_CHANGE)
    other = msgspec.structs.replace(P99, workload="decoder*")
    assert bounds(base, with_value(head, 1.0), Policy(budgets=[other])) == []


@pytest.mark.parametrize(
    ("tolerances", "expected"),
    [
        ({}, 0.005),
        ({"latency.*": 0.5}, 0.5),
        ({"latency.*": 0.5, "latency.low": 0.2}, 0.2),
        ({"latency.low": 0.2, "latency.low@encoder": 0.3}, 0.3),
        ({"latency.low@encoder": 0.3, "latency.low@encoder/l*": 0.4}, 0.4),
        ({"latency.low@decoder": 0.3}, 0.005),
        ({"latency.*@encoder/long": 0.6, "latency.low": 0.2}, 0.2),
    ],
)
def test_tolerance__patterns__the_one_that_says_most_counts(tolerances: dict[str, float], expected: float) -> None:
    assert tolerance(Policy(tolerances=tolerances), "latency.low", ShapePlace("encoder", "long")) == expected


def test_tolerance__operator_whose_name_looks_like_a_pattern__is_taken_by_name() -> None:
    name = "ops.count:kernel<float, [3]>@2"
    assert tolerance(Policy(tolerances={name: 0.7}), name, ShapePlace("encoder", "long")) == 0.7


def test_sla__at_a_rate__held_against_the_calls_of_that_rate_alone() -> None:
    base, head = sides(NO_CHANGE)
    promised = [msgspec.structs.replace(head.workloads[0], sla_p99=0.02, sla_rate=50.0)]
    head = msgspec.structs.replace(head, workloads=promised)
    alone = with_value(head, 0.03, interval=(0.029, 0.031))
    # A closed loop says nothing of 50 calls a second.
    (silent,) = bounds(base, alone, Policy())
    assert (silent.outcome, silent.gating, silent.head) == ("inconclusive", True, None)
    (found,) = bounds(base, with_value(head, 0.03, interval=(0.029, 0.031), labels={"rate": "50"}), Policy())
    assert (found.metric, found.outcome, text_of(found.reason)) == ("sla.p99", "regressed", "at 50 calls per second")


@pytest.mark.parametrize("left", [[], [Value(metric="latency.p99", value=None, reason=quote("needs 662 calls"))]])
def test_sla__no_value__inconclusive_by_its_name(left: list[Value]) -> None:
    base, head = (
        msgspec.structs.replace(run, workloads=[msgspec.structs.replace(run.workloads[0], sla_p99=0.02)])
        for run in sides(NO_CHANGE)
    )
    step = StepResult(number=1, slug="latency", workload="encoder", status="ok", values=left)
    decision = judged(base, changed(head, steps=[step]))
    assert (decision.verdict, worded(decision.reasons)) == ("INCONCLUSIVE", ["not judged: encoder/long sla.p99"])
    comment = render_comment(decision, CONTEXT)
    assert "INCONCLUSIVE – P99 against the SLA of `encoder/long` could not be judged: " in comment


def test_sla__one_side_no_longer_says_it__inconclusive_by_its_name() -> None:
    base, head = sides(NO_CHANGE)
    base = msgspec.structs.replace(base, workloads=[msgspec.structs.replace(base.workloads[0], sla_p99=0.02)])
    decision = judged(base, with_value(head, 0.03))
    assert (decision.verdict, worded(decision.reasons)) == ("INCONCLUSIVE", ["missing: encoder sla.p99 (head)"])


RATE = Budget(metric="batch.throughput", bound=100.0, at_most=False)


def with_rates(run: RunDocument, *turns: dict[str, float]) -> RunDocument:
    """Return a run that swept the batch sizes, once or in several turns."""
    found = [
        Value(
            metric="batch.throughput",
            value=rate,
            labels={"shape": "long", "batch": size, **({"repeat": str(number)} if number > 1 else {})},
        )
        for number, rates in enumerate(turns, start=1)
        for size, rate in rates.items()
    ]
    return changed(run, steps=[StepResult(number=5, slug="batch", workload="encoder", status="ok", values=found)])


WHOLE, BROKEN, LEFT = {"8": 500.0, "16": 500.0}, {"8": 500.0, "16": 50.0}, {"8": 500.0}


def test_budget__base_stopped_the_sweep_earlier__judged_by_what_the_head_has() -> None:
    base, head = sides(NO_CHANGE)
    decision = judged(with_rates(base, LEFT), with_rates(head, WHOLE, WHOLE), RATE)
    assert (decision.verdict, decision.gaps.missing) == ("PASS", [])


# --- numbers of jobs


JOB_NUMBERS: dict[JobKind, str] = {"server": "serving.ttft", "ranks": "ranks.step", "command": "command.seconds"}


def of_job(kind: JobKind, slowdown: float, *budgets: Budget, turns: bool = True) -> DecisionDocument:
    base, head = job_documents(SETTINGS[kind], Does(), Does(slowdown))
    if not turns:
        name = JOB_NUMBERS[kind]
        base, head = (
            changed(
                run,
                turns=[
                    msgspec.structs.replace(turn, values={k: v for k, v in turn.values.items() if k != name})
                    for turn in run.jobs.turns
                ],
                records=[
                    msgspec.structs.replace(job, numbers=[one for one in job.numbers if one.metric != name])
                    for job in run.jobs.records
                ],
            )
            for run in (base, head)
        )
    return judged(base, head, *budgets)


def typical(kind: JobKind) -> float:
    base, _ = job_documents(SETTINGS[kind], Does(), Does())
    return float(np.median([turn.values[JOB_NUMBERS[kind]] for turn in base.jobs.turns]))


@pytest.mark.parametrize(
    ("slowdown", "factor", "outcome", "gating", "verdict"),
    [
        (0.0, 1.1, "unchanged", True, "PASS"),
        (0.2, 1.1, "regressed", True, "FAIL"),
        # The base breaks it too.
        (0.0, 0.9, "inconclusive", False, "WARN"),
    ],
)
@pytest.mark.parametrize("kind", get_args(JobKind))
def test_budget__number_of_a_job__judged_by_its_typical_turn(
    kind: JobKind, slowdown: float, factor: float, outcome: str, gating: bool, verdict: str
) -> None:
    name = JOB_NUMBERS[kind]
    budget = Budget(metric=name, bound=factor * typical(kind), at_most=True)
    decision = of_job(kind, slowdown, budget)
    (found,) = [row for row in decision.comparisons if isinstance(row, Bound)]
    assert (found.metric, found.outcome, found.gating, found.bound) == (name, outcome, gating, budget.bound)
    assert decision.verdict == verdict
    assert name in "".join(worded(decision.reasons)) or verdict == "PASS"
    assert (f'"{name}@{found.workload}" = ' in render_comment(decision, CONTEXT)) == (verdict == "FAIL")


@pytest.mark.parametrize("kind", get_args(JobKind))
def test_budget__number_that_no_turn_of_a_job_has__undecided_by_name(kind: JobKind) -> None:
    budget = Budget(metric=JOB_NUMBERS[kind], bound=1.0, at_most=True)
    decision = of_job(kind, 0.0, budget, turns=False)
    assert decision.verdict == "INCONCLUSIVE"
    assert budget.metric in "".join(worded(decision.reasons))


@pytest.mark.parametrize(("workload", "verdict"), [("*", "PASS"), ("other", "PASS"), ("chat", "INCONCLUSIVE")])
def test_budget__of_calls_of_workloads__concerns_a_job_only_by_name(workload: str, verdict: str) -> None:
    budget = Budget(metric="latency.p99", bound=1.0, at_most=True, workload=workload)
    assert of_job("server", 0.0, budget).verdict == verdict
