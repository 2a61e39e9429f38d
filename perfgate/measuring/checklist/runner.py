"""Find the steps of the checklist and run one; the only place of this wing that turns
any exception into a result.
"""

from __future__ import annotations

import math

from perfgate.catalogue.records import StepCard
from perfgate.document.message import Message, ReasonedError, as_message
from perfgate.document.run import ErrorDetail, StepResult
from perfgate.errors import MeasuringError
from perfgate.measuring.checklist import steps as members
from perfgate.measuring.checklist.mistakes import ProjectCode, explained, own_traceback
from perfgate.measuring.checklist.step import Step, StepContext, StepOutcome
from perfgate.plugins import STEPS, load_members


def find_steps() -> dict[int, Step]:
    """Every step in ``steps/`` by its number, in order.

    Raises ImportError for a member that cannot be imported, and ValueError if two claim
    one number.
    """
    steps: dict[int, Step] = {}
    for module in load_members(members, STEPS):
        step: Step = module.STEP
        number = step.card.number
        if number in steps:
            raise ValueError(
                f"{module.__name__} and {type(steps[number]).__module__} both measure step {number}"
            )
        steps[number] = step
    return dict(sorted(steps.items()))


def run_step(step: Step, context: StepContext) -> tuple[StepResult, StepOutcome | None]:
    """Run one step and return its result, and its outcome unless it raised.

    An exception becomes status ``error`` with its type, text and traceback: never a
    number, never the end of the run.
    """
    started = context.device.clock_ns()
    try:
        outcome = step.measure(context)
        _refuse_illegal(outcome)
    except Exception as error:  # noqa: BLE001  user code may raise anything
        return _failed(step, context, error, started), None
    return step_result(
        step.card,
        context.workload.name,
        outcome,
        seconds=_seconds_since(started, context),
    ), outcome


def step_result(
    card: StepCard, workload: str, outcome: StepOutcome, *, seconds: float = 0.0
) -> StepResult:
    return StepResult(
        number=card.number,
        slug=card.slug,
        workload=workload,
        status=outcome.status,
        reason=outcome.reason,
        values=outcome.values,
        findings=outcome.findings,
        samples=outcome.samples,
        kernels=outcome.kernels,
        duration=seconds,
    )


def _failed(
    step: Step, context: StepContext, error: Exception, started: int
) -> StepResult:
    message: Message | str
    if isinstance(error, ReasonedError):
        message = error.reason
    else:
        message = explained(
            error, ProjectCode(context.root, device_kind=context.device.kind)
        )
    return StepResult(
        number=step.card.number,
        slug=step.card.slug,
        workload=context.workload.name,
        status="error",
        reason=as_message(message),
        error=ErrorDetail(
            kind="memory" if context.device.is_out_of_memory(error) else "exception",
            message=message,
            traceback=own_traceback(error),
        ),
        duration=_seconds_since(started, context),
    )


def _seconds_since(started: int, context: StepContext) -> float:
    return (context.device.clock_ns() - started) / 1e9


def _refuse_illegal(outcome: StepOutcome) -> None:
    if outcome.absent is not None and outcome.reason is None:
        raise MeasuringError(
            f"the step ended as {outcome.absent} without a reason; every such outcome needs one"
        )
    for value in outcome.values:
        for number in (value.value, *(value.interval or ())):
            if number is not None and not math.isfinite(number):
                raise MeasuringError(
                    f"{value.metric} came out as {value.value} with interval {value.interval}; not a finite number"
                )
        if value.value is None and value.reason is None:
            raise MeasuringError(
                f"{value.metric} has neither a value nor a reason why it is missing"
            )
