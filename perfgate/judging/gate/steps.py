"""The steps of the head's checklist, one of each number: a step that did not run has a reason."""

from __future__ import annotations

import msgspec

from perfgate.catalogue.lookup import CARDS
from perfgate.catalogue.records import GATE_STEP
from perfgate.document.decision import StepSummary
from perfgate.document.message import Message
from perfgate.document.run import FROM_PROFILE, RunDocument

LEFT_OUT = "left_out"


def summarize_steps(head: RunDocument) -> list[StepSummary]:
    """The steps of every workload with a checklist; step 20 is the decision itself."""
    steps = [msgspec.convert(step, StepSummary, from_attributes=True) for step in head.steps]
    measured: dict[str, set[int]] = {}
    for step in head.steps:
        measured.setdefault(step.workload, set()).add(step.number)
    for workload, numbers in measured.items():
        missing = [number for number in CARDS if number not in numbers and number != GATE_STEP]
        steps += [_left_out(head, workload, number) for number in missing]
    return steps


def _left_out(head: RunDocument, workload: str, number: int) -> StepSummary:
    return StepSummary(
        number=number,
        slug=CARDS[number].slug,
        workload=workload,
        status=LEFT_OUT,
        reason=Message(_why(head, workload, number)),
    )


def _why(head: RunDocument, workload: str, number: int) -> str:
    if head.session.command == FROM_PROFILE:
        return "gate.step-not-recorded"
    asked = {step for record in head.workloads if record.name == workload for step in record.steps}
    return "gate.step-not-asked" if asked and number not in asked else "gate.step-without-result"
