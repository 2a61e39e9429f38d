"""The table of work, from profiles of jobs, per unit of the job's work."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple

from perfgate.document.alignment import DEVICE, Work
from perfgate.document.lines import file_of
from perfgate.document.profile import JobProfile, ProfiledLine, ProfiledOperator
from perfgate.judging.gate.evidence.changed_code import ChangedCode

_COLLECTIVE = "c10d::"


class ProjectFunction(NamedTuple):
    """A function of the project."""

    file: str
    name: str


class CalledOperator(NamedTuple):
    """An operator by the function that calls it."""

    function: ProjectFunction
    operator: str


def lines_by_function(profile: JobProfile) -> dict[ProjectFunction, list[ProfiledLine]]:
    functions: dict[ProjectFunction, list[ProfiledLine]] = defaultdict(list)
    for line in profile.lines:
        functions[ProjectFunction(file_of(line.line), line.function)].append(line)
    return functions


def called_operators(profile: JobProfile) -> dict[CalledOperator, Work]:
    """The operators of a unit of work, by caller and name; the heaviest of several with the same key."""
    operators: dict[CalledOperator, Work] = {}
    for operator in profile.operators:
        function = ProjectFunction(file_of(operator.line), operator.function)
        work = _work_of(operator, profile.operator_units)
        operators.setdefault(CalledOperator(function, operator.name), work)
    return operators


def _work_of(operator: ProfiledOperator, units: int) -> Work:
    """The seconds of an operator, with their standard error if its calls are alike."""
    error = 0.0
    if units:
        error = operator.spread * math.sqrt(operator.calls / units)
    return Work(
        operator=operator.name,
        amount=operator.seconds,
        calls=operator.calls,
        line=operator.line or None,
        function=operator.function,
        kind=DEVICE if operator.on_device else "",
        error=error,
    )


def lines_with_more_calls(
    base: JobProfile | None, head: JobProfile | None, code: ChangedCode
) -> dict[str, str]:
    """The line of the project at which each operator is called more often than before: a changed one of the function.

    Collectives have their name in the counts.
    """
    if head is None:
        return {}
    calls_of_base: dict[CalledOperator, float] = {}
    if base is not None:
        calls_of_base = {
            key: work.calls for key, work in called_operators(base).items()
        }
    most: dict[str, float] = {}
    lines = {}
    for key, work in called_operators(head).items():
        more = work.calls - calls_of_base.get(key, 0.0)
        name = work.operator
        if name.startswith(_COLLECTIVE):
            name = name.removeprefix(_COLLECTIVE).rstrip("_")
        if work.line and more > most.get(name, 0.0):
            most[name] = more
            lines[name] = code.of_function(work.line)
    return lines
