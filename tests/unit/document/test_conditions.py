"""Under which conditions values of two runs compare."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.document.conditions import StepConditions, conditions_of
from perfgate.document.message import quote
from perfgate.document.run import RunDocument, StepResult, StepStatus
from perfgate.document.seal import Seal
from tests.each import each
from tests.unit.document.minimal import minimal_run


def step(number: int, status: StepStatus = "ok", *, workload: str = "encoder", duration: float = 1.0) -> StepResult:
    return StepResult(number=number, slug="step", workload=workload, status=status, duration=duration, waited=0.01)


def run_of(*steps: StepResult, quick: bool | None = True, seal: Seal | None = None) -> RunDocument:
    run = minimal_run()
    workloads = [msgspec.structs.replace(workload, quick=quick) for workload in run.workloads]
    return msgspec.structs.replace(run, steps=list(steps), workloads=workloads, seal=seal)


def of_memory(run: RunDocument) -> StepConditions:
    (conditions,) = [entry for entry in conditions_of(run) if entry.step == 17]
    return conditions


# What a check runs before step 17, and what a run of main runs in the order of a check.
CHECK = (step(1), step(4), step(5), step(17))
MAIN = (step(1), step(4), step(5), step(17), step(9), step(16))


@each(
    "other, compares",
    [
        (run_of(*MAIN), True),
        (run_of(step(4), step(1), step(5), step(17)), True),
        (run_of(step(9, workload="other"), *CHECK), True),
        (run_of(step(1), step(4), step(5), step(9), step(17)), False),
        (run_of(step(1), step(4), step(17)), False),
        # One that failed ended the process that would have kept what it left behind.
        (run_of(step(1), step(4), step(5, "error"), step(17)), False),
        (run_of(step(1), step(4), step(5, "unavailable", duration=0.0), step(17)), False),
        (run_of(step(1), step(4), step(5, "unavailable"), step(17)), True),
        (run_of(*CHECK, quick=False), False),
        (run_of(*CHECK, quick=None), False),
        (run_of(step(1), step(4), step(5), step(17, "invalid")), False),
        (run_of(*CHECK, seal=Seal(entries=1, before="a", after="a")), True),
        (run_of(*CHECK, seal=Seal(entries=1, before="a", after="b")), False),
    ],
)
def test_conditions__other_run__compares_if_the_same_steps_ran_before_in_its_process(
    other: RunDocument, compares: bool
) -> None:
    assert of_memory(run_of(*CHECK)).compares_with(of_memory(other)) is compares


def test_conditions__failed_step__compares_with_nothing_not_even_itself() -> None:
    failed = of_memory(run_of(step(17, "error")))
    assert not failed.compares_with(failed)
    assert not failed.compares_with(None)


def test_conditions__step_listed_twice__described_once() -> None:
    result = msgspec.structs.replace(step(5), reason=quote("again"))
    assert [entry.step for entry in conditions_of(run_of(step(4), step(5), result))] == [4, 5]


@pytest.mark.parametrize(("waited", "is_busy"), [(None, False), (0.099, False), (0.1, True)])
def test_conditions__worker_waited_for_a_cpu__busy_from_a_tenth_on(waited: float | None, is_busy: bool) -> None:
    assert StepConditions(workload="w", step=1, procedure="quick 1", waited=waited).is_busy is is_busy
