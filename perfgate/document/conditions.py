"""The conditions under which a step was measured: values of two runs compare only if
these are alike.
"""

from __future__ import annotations

from perfgate.document.records import FrozenStruct
from perfgate.document.run import FROM_PROFILE, RunDocument, StepResult

# If a worker waited for a CPU for this share of a step or longer, the machine was busy
# during the step.
BUSY = 0.1
_RECORDED = "recorded"


# A store holds thousands of them, which the garbage collector need not visit: they
# refer to no other object.
class StepConditions(FrozenStruct, kw_only=True, gc=False):
    """How a step of a workload was measured.

    ``procedure`` is the length of the measurements and their clock, or ``recorded``. It
    is empty if this is not known, if the step failed, or if the code changed while it
    was measured. ``after`` are the steps that ran before in its process: they matter to
    numbers of a young process alone. ``waited`` is as in the step's result.
    """

    workload: str
    step: int
    procedure: str
    after: str = ""
    waited: float | None = None

    @property
    def is_busy(self) -> bool:
        return self.waited is not None and self.waited >= BUSY

    def compares_with(
        self, other: StepConditions | None, *, of_young_process: bool
    ) -> bool:
        """Whether values of the two were measured by the same procedure; unknown
        conditions are not comparable.
        """
        if other is None or not self.procedure or self.procedure != other.procedure:
            return False
        return not of_young_process or self.after == other.after


def conditions_of(run: RunDocument) -> list[StepConditions]:
    """The conditions of every step of a run."""
    is_intact = run.source.seal is None or not run.source.seal.broken
    is_recorded = run.session.command == FROM_PROFILE
    conditions: dict[tuple[str, int], StepConditions] = {}
    for step in run.checklist.steps:
        is_valid = is_intact and step.status not in ("error", "invalid")
        entry = StepConditions(
            workload=step.workload,
            step=step.number,
            procedure=_procedure(step, is_recorded=is_recorded) if is_valid else "",
            after=",".join(map(str, step.procedure.after)) if step.procedure else "",
            waited=step.waited,
        )
        conditions.setdefault((step.workload, step.number), entry)
    return list(conditions.values())


def _procedure(step: StepResult, *, is_recorded: bool) -> str:
    if is_recorded:
        return _RECORDED
    if step.procedure is None:
        return ""
    length = "quick" if step.procedure.quick else "full"
    return f"{length} {step.procedure.clock}"
