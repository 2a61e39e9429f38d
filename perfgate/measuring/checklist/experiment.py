"""Experiments: calls that the workload does not make itself, which a step tries to measure their gain.

Another precision, layout, batch size or shape, a compiled twin, copies side by side: the workload was not written for them,
so their exceptions are reasons for a missing value and never errors of the workload. A step first makes the workload's own
call with ``own_call``, and an exception there is the workload's error. The conductor counts on it too: a step that fails in
a process in which an experiment ran, or kills that process, is repeated in a fresh one without experiments.
"""

from __future__ import annotations

import os
import traceback
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from perfgate.document.message import Message, ReasonedError, reason_of
from perfgate.errors import PerfgateError
from perfgate.measuring.checklist.mistakes import one_line
from perfgate.measuring.checklist.outcome import StepOutcome, unavailable
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.counting.tally import SourceLines
from perfgate.system.processes import kill_descendants, running_below

_MAX_LINE = 300

Result = TypeVar("Result")


class ExperimentError(ReasonedError):
    """An experiment ended without a result; the error has the reason."""


class TimeUpError(BaseException):
    """A time limit around an experiment is over; the code that set it gives the reason.

    Not an Exception, so that no code in between handles it.
    """


class FailedExperiment(NamedTuple):
    """Why an experiment has no result; ``raised`` is True for an exception that is not perfgate's own."""

    reason: Message
    raised: bool = False
    out_of_memory: bool = False


def experiment(
    context: StepContext, run: Callable[[], Result], *, failing: str | None = None
) -> Result | FailedExperiment:
    """The result of ``run``, or why there is none: the exception, as ``{error}`` of the message ``failing`` if one is given.

    An ExperimentError brings its own reason. Everything else that is raised counts as failure, SystemExit included. The
    processes that a failed experiment started, such as compilers, are ended here, so that they are not taken for the
    workload's. If the conductor disabled experiments after one broke its process, the reason is the conductor's.
    """
    if context.experiments.refusal is not None:
        return FailedExperiment(context.experiments.refusal)
    before = set(running_below(os.getpid()))
    try:
        context.experiments.announce()
        return run()
    except (KeyboardInterrupt, TimeUpError):
        raise
    except ExperimentError as error:
        failed = FailedExperiment(error.reason)
    except BaseException as error:  # noqa: BLE001 - compilers and models that were not written for it raise anything
        reason = described(error, context)
        reason = Message(failing, {"error": reason}) if failing else reason
        failed = FailedExperiment(
            reason, raised=True, out_of_memory=context.device.is_out_of_memory(error)
        )
        context.experiments.failures.append(reason)
    # The exception is gone by now, and with it the tensors that its frames held.
    kill_descendants(spare=before)
    return failed


def outcome_of(
    context: StepContext, measure: Callable[[], StepOutcome], *, failing: str
) -> StepOutcome:
    """The outcome of a step that is one experiment; unavailable if it fails."""
    measured = experiment(context, measure, failing=failing)
    if isinstance(measured, FailedExperiment):
        return unavailable(measured.reason)
    return measured


def own_call(context: StepContext, shape: str) -> None:
    """Make one call as the workload makes it and wait for it. Its exceptions are the workload's errors."""
    context.workload.caller(shape)()
    context.device.synchronize()


def described(error: BaseException, context: StepContext) -> Message:
    """An exception with the code that raised it: a line of the project, or a module of someone else's."""
    if isinstance(error, PerfgateError):
        return reason_of(error)
    where = "?"
    for frame, line in deque(traceback.walk_tb(error.__traceback__), maxlen=1):
        of_project = SourceLines(context.root).at(frame.f_code.co_filename, line)
        module = str(frame.f_globals.get("__name__") or frame.f_code.co_filename)
        # Deeper names belong to generated code or are of no use to the reader.
        where = of_project or ".".join(module.split(".")[:2])
    return Message(
        "experiment.raised", {"error": one_line(error)[:_MAX_LINE], "where": where}
    )
