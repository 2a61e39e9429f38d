"""The conditions under which a step was measured: values of two runs compare only if these are alike."""

from __future__ import annotations

import msgspec

from perfgate.document.run import RunDocument

# If a worker waited for a CPU for this share of a step or longer, the step's times are also those of a busy machine.
BUSY = 0.1
_QUICK = {True: "quick", False: "full", None: "unknown"}


# A store holds thousands of them, which the garbage collector need not visit: they refer to nothing.
class StepConditions(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a step of a workload was measured.

    ``procedure`` is ``quick`` or ``full`` and the steps that ran in the workload's process up to and including this one,
    because each leaves something behind: code that it imported, memory that the allocator keeps. It is empty if the step
    failed or the code changed while it was measured. ``waited`` is as in the step's result.
    """

    workload: str
    step: int
    procedure: str
    waited: float | None = None

    @property
    def is_busy(self) -> bool:
        return self.waited is not None and self.waited >= BUSY

    def compares_with(self, other: StepConditions | None) -> bool:
        """Whether values of the two were measured by the same procedure; unknown conditions compare with nothing."""
        return other is not None and bool(self.procedure) and self.procedure == other.procedure


def conditions_of(run: RunDocument) -> list[StepConditions]:
    """The conditions of every step of a run, in the order in which the steps ran."""
    is_intact = run.seal is None or not run.seal.broken
    quick = {workload.name: _QUICK[workload.quick] for workload in run.workloads}
    before: dict[str, set[int]] = {}
    conditions: dict[tuple[str, int], StepConditions] = {}
    for step in run.steps:
        ran = before.setdefault(step.workload, set())
        # One that failed may have ended the process; one without time did not run.
        if step.status != "error" and (step.status != "unavailable" or step.duration):
            ran.add(step.number)
        is_valid = is_intact and step.status not in ("error", "invalid")
        procedure = f"{quick.get(step.workload, _QUICK[None])} {','.join(map(str, sorted(ran)))}" if is_valid else ""
        conditions.setdefault(
            (step.workload, step.number),
            StepConditions(workload=step.workload, step=step.number, procedure=procedure, waited=step.waited),
        )
    return list(conditions.values())
