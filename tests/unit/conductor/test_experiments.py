"""An experiment that ends its process, or never ends, costs its own values and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.conductor.sides.checklist import checklist
from perfgate.conductor.sides.checklist.checklist import ChecklistPlan
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.document.run import StepResult, Value
from perfgate.judging.report.text.messages import word
from tests.unit.conductor.conftest import Measure, reference_to

# What copying the model does, and the words that stand at what compiling a copy would have told.
ENDINGS = [
    pytest.param("copy_raises", "ReluctantError", marks=pytest.mark.slow),
    pytest.param("copy_exits", "SystemExit: not me", marks=pytest.mark.slow),
    pytest.param("copy_takes_memory", "can't allocate memory", marks=pytest.mark.slow),
    pytest.param("copy_exits_hard", "exited with code 7", marks=pytest.mark.slow),
    ("copy_segfaults", "killed by SIGSEGV"),
]


def _value(step: StepResult, metric: str) -> Value:
    return next(value for value in step.values if value.metric == metric)


def _expect_no_error(steps: list[StepResult]) -> None:
    assert [(step.number, step.error) for step in steps] == [(step.number, None) for step in steps]


@pytest.mark.parametrize(("name", "words"), ENDINGS)
def test_run_checklist__experiment_ends_in_any_way__its_step_says_why_and_the_run_is_measured(
    measure: Measure, name: str, words: str
) -> None:
    findings = measure(name, steps=(9, 7))

    _expect_no_error(findings.steps)
    after, compiling = findings.steps
    assert compiling.status == "unavailable"
    assert compiling.reason is not None
    assert words in word(compiling.reason)
    assert (after.number, after.status) == (7, "ok")
    assert {check.status for check in findings.correctness} == {"not_checked"}


@pytest.mark.slow
def test_run_checklist__experiment_hangs__the_step_is_repeated_without(measure: Measure) -> None:
    findings = measure("copy_hangs", steps=(9,), step_timeout=10)

    _expect_no_error(findings.steps)
    assert "took longer than 10 s" in word(findings.steps[0].reason or "")


def test_run_checklist__experiment_spends_the_time_of_informing_steps__its_end_is_the_reason(
    bench: Bench, checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checklist, "INFORMING_SECONDS", 0.0)
    plan = ChecklistPlan((7,), tmp_path, informing=(9,))

    _, compiling = checklist.run_checklist(bench, checkout, reference_to("copy_segfaults"), plan).steps

    assert compiling.status == "unavailable"
    assert "killed by SIGSEGV" in word(compiling.reason or "")


def test_run_checklist__experiment_crashes__what_the_step_measures_of_the_workload_itself_is_there(
    measure: Measure,
) -> None:
    (precision,) = measure("autocast_segfaults", steps=(8,)).steps

    assert precision.error is None
    assert _value(precision, "precision.low_share").value == 0.0
    speedup = _value(precision, "precision.speedup")
    assert speedup.reason is not None
    assert "killed by SIGSEGV" in word(speedup.reason)


def test_run_checklist__workload_itself_fails__stays_an_error_whether_or_not_there_are_experiments(
    measure: Measure,
) -> None:
    findings = measure("call_raises", steps=(8, 9, 13, 14))

    assert [step.status for step in findings.steps] == ["error"] * 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spoilt_raises", "spoilt_segfaults"])
def test_run_checklist__experiment_spoils_the_process__output_is_checked_in_a_fresh_one(
    measure: Measure, name: str
) -> None:
    findings = measure(name, steps=(7, 9))

    _expect_no_error(findings.steps)
    assert {check.status for check in findings.correctness} == {"not_checked"}


@pytest.mark.slow
def test_run_checklist__copying_takes_too_long__the_reason_is_the_time(measure: Measure) -> None:
    (graph,) = measure("copy_hangs", steps=(9,)).steps

    assert graph.error is None
    assert "TimeUp" not in word(graph.reason or "")
