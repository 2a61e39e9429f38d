"""Under which conditions values of two runs compare."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.document.conditions import StepConditions, conditions_of
from perfgate.document.message import quote
from perfgate.document.run import FROM_PROFILE, RunDocument, StepProcedure, StepResult, StepStatus
from perfgate.document.seal import Seal
from tests.each import each
from tests.fakes.records import changed
from tests.unit.document.minimal import minimal_run

QUICK = StepProcedure(quick=True, clock="awake", after=[1])


def step(
    status: StepStatus = "ok", *, number: int = 17, procedure: StepProcedure | None = QUICK, workload: str = "encoder"
) -> StepResult:
    return StepResult(
        number=number, slug="step", workload=workload, status=status, duration=1.0, waited=0.01, procedure=procedure
    )


def run_of(*steps: StepResult, seal: Seal | None = None) -> RunDocument:
    return changed(minimal_run(), steps=list(steps), seal=seal)


def of_memory(run: RunDocument) -> StepConditions:
    (conditions,) = [entry for entry in conditions_of(run) if (entry.workload, entry.step) == ("encoder", 17)]
    return conditions


def procedure(**fields: object) -> StepProcedure:
    return msgspec.structs.replace(QUICK, **fields)


@each(
    "other, compares, of_young_process",
    [
        (run_of(step()), True, True),
        # The order in a document is that of the numbers; what ran before is in the procedure.
        (run_of(step(number=4), step(number=9), step()), True, True),
        (run_of(step(number=9, workload="other"), step()), True, True),
        (run_of(step(procedure=procedure(after=[1, 9]))), True, False),
        (run_of(step(procedure=procedure(after=[]))), True, False),
        (run_of(step(procedure=procedure(quick=False))), False, False),
        (run_of(step(procedure=procedure(clock="wall"))), False, False),
        (run_of(step(procedure=None)), False, False),
        (run_of(step("invalid")), False, False),
        (run_of(step("error")), False, False),
        (run_of(step(), seal=Seal(entries=1, before="a", after="a")), True, True),
        (run_of(step(), seal=Seal(entries=1, before="a", after="b")), False, False),
    ],
)
def test_conditions__other_run__compares_if_its_step_was_measured_alike(
    other: RunDocument, compares: bool, of_young_process: bool
) -> None:
    here, there = of_memory(run_of(step())), of_memory(other)
    assert here.compares_with(there, of_young_process=False) is compares
    assert here.compares_with(there, of_young_process=True) is of_young_process


def test_conditions__recordings__compare_with_each_other_alone() -> None:
    run = run_of(step(procedure=None))
    recorded = of_memory(
        msgspec.structs.replace(run, session=msgspec.structs.replace(run.session, command=FROM_PROFILE))
    )
    assert recorded.compares_with(recorded, of_young_process=False)
    assert not recorded.compares_with(of_memory(run_of(step())), of_young_process=False)


def test_conditions__failed_step__compares_with_nothing_not_even_itself() -> None:
    failed = of_memory(run_of(step("error")))
    assert not failed.compares_with(failed, of_young_process=False)
    assert not failed.compares_with(None, of_young_process=False)


def test_conditions__step_listed_twice__described_once() -> None:
    result = msgspec.structs.replace(step(number=5), reason=quote("again"))
    assert [entry.step for entry in conditions_of(run_of(step(number=4), step(number=5), result))] == [4, 5]


@pytest.mark.parametrize(("waited", "is_busy"), [(None, False), (0.099, False), (0.1, True)])
def test_conditions__worker_waited_for_a_cpu__busy_from_a_tenth_on(waited: float | None, is_busy: bool) -> None:
    assert StepConditions(workload="w", step=1, procedure="quick wall", waited=waited).is_busy is is_busy
