"""Find the steps of the checklist and run one; the only place of this wing where any exception becomes a result."""

from __future__ import annotations

import math
import traceback

from perfgate.document.run import ErrorDetail, StepResult, Value
from perfgate.errors import MeasuringError
from perfgate.measuring.checklist import steps as members
from perfgate.measuring.checklist.step import Step, StepContext, StepOutcome
from perfgate.plugins import load_members


def find_steps() -> dict[int, Step]:
    """Return every step in ``steps/`` by its number, in order.

    Raises ImportError where a member cannot be imported, and ValueError where two claim one number.
    """
    found: dict[int, Step] = {}
    for module in load_members(members):
        step: Step = module.STEP
        number = step.card.number
        if number in found:
            raise ValueError(f"{module.__name__} and {type(found[number]).__module__} both measure step {number}")
        found[number] = step
    return dict(sorted(found.items()))


def run_step(step: Step, context: StepContext) -> tuple[StepResult, StepOutcome | None]:
    """Run one step and return its result, and its outcome where it has one.

    An exception becomes status ``error`` with its type, text and traceback: never a number, never the end of the run.
    """
    started = context.device.clock_ns()
    try:
        outcome = step.measure(context)
        _refuse_illegal(outcome)
    except Exception as error:  # noqa: BLE001  user code may raise anything
        return _failed(step, context, error, started), None
    return _succeeded(step, context, outcome, started), outcome


def _succeeded(step: Step, context: StepContext, outcome: StepOutcome, started: int) -> StepResult:
    return StepResult(
        number=step.card.number,
        slug=step.card.slug,
        workload=context.workload.name,
        status=outcome.status,
        reason=outcome.reason,
        values=outcome.values,
        findings=outcome.findings,
        samples=outcome.samples,
        kernels=outcome.kernels,
        duration=_seconds_since(started, context),
    )


def _failed(step: Step, context: StepContext, error: Exception, started: int) -> StepResult:
    message = "".join(traceback.format_exception_only(type(error), error)).strip()
    detail = ErrorDetail(
        kind="memory" if context.device.is_out_of_memory(error) else "exception",
        message=message,
        traceback="".join(traceback.format_exception(type(error), error, error.__traceback__)),
    )
    return StepResult(
        number=step.card.number,
        slug=step.card.slug,
        workload=context.workload.name,
        status="error",
        reason=message,
        error=detail,
        duration=_seconds_since(started, context),
    )


def _seconds_since(started: int, context: StepContext) -> float:
    return (context.device.clock_ns() - started) / 1e9


def _refuse_illegal(outcome: StepOutcome) -> None:
    if outcome.reason is None and outcome.status not in ("ok", "attention"):
        raise MeasuringError(f"the step ended as {outcome.status} without a reason; every such outcome needs one")
    for value in outcome.values:
        _refuse_illegal_value(value)


def _refuse_illegal_value(value: Value) -> None:
    ends = value.interval or ()
    numbers = [number for number in (value.value, *ends) if number is not None]
    if not all(math.isfinite(number) for number in numbers):
        raise MeasuringError(
            f"{value.metric} came out as {value.value} with interval {value.interval}; not a finite number"
        )
    if value.value is None and value.reason is None:
        raise MeasuringError(f"{value.metric} has neither a value nor a reason why it is missing")
