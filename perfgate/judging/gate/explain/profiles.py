"""A job's slowdown explained by its profiles: the functions of the project that take longer, and their lines.

A profile is sampled, once a side: it names a cause of a slowdown that the turns have shown and never shows one itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from perfgate.document.comparison import Comparison, Paired
from perfgate.document.explanation import Explanation, OperatorDelta
from perfgate.document.message import Message
from perfgate.document.profile import JobProfile
from perfgate.document.run import CodeChange, RunDocument
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.explain.grown_functions import GrownFunction, grown_functions
from perfgate.judging.gate.explain.grown_operators import GrownOperator, grown_operators
from perfgate.judging.gate.explain.kinds import EXPLAINS

_MOST_FUNCTIONS = 10


def explain_jobs(evidence: Evidence, comparisons: Sequence[Comparison]) -> list[Explanation]:
    """For every slower job that both sides profiled, the functions that take longer, most first."""
    base, head = evidence.runs
    before = {profile.workload: profile for profile in base.profiles}
    after = {profile.workload: profile for profile in head.profiles}
    explanations: list[Explanation] = []
    for workload in slower_jobs(head, comparisons):
        if workload in before and workload in after:
            explanations += _explain(before[workload], after[workload], head.source.changes)
    return explanations


def slower_jobs(head: RunDocument, comparisons: Iterable[Comparison]) -> list[str]:
    """The jobs with a number that got worse."""
    worse: set[str] = set()
    for comparison in comparisons:
        if isinstance(comparison, Paired) and comparison.outcome == "regressed":
            worse.add(comparison.workload)
    return [job.name for job in head.jobs if job.name in worse]


def missing_profiles(evidence: Evidence, comparisons: Iterable[Comparison]) -> list[Message]:
    """Messages for jobs that got slower without a profile of both sides to name a cause."""
    base, head = evidence.runs
    profiled_by_base = {profile.workload for profile in base.profiles}
    profiled_by_head = {profile.workload for profile in head.profiles}
    notes: list[Message] = []
    for workload in slower_jobs(head, comparisons):
        sides: list[str] = []
        if workload not in profiled_by_base:
            sides.append("base")
        if workload not in profiled_by_head:
            sides.append("head")
        if sides:
            notes.append(Message("notes.no-profile", {"workload": workload, "sides": sides}))
    return notes


def _explain(base: JobProfile, head: JobProfile, changes: Sequence[CodeChange]) -> list[Explanation]:
    if base.per != head.per:
        return []
    grown = grown_functions(base, head, changes)
    total = max(head.cpu - base.cpu, math.fsum(function.seconds for function in grown))
    functions = [function for function in grown if function.seconds >= EXPLAINS * total][:_MOST_FUNCTIONS]
    parts = _parts(functions, grown_operators(base, head, changes))
    if not parts:
        return []
    of_functions = math.fsum(function.seconds for function in functions)
    explanation = Explanation(
        workload=head.workload,
        shape="",
        measured=rounded(max(total, *(part.seconds for part in parts))),
        explained=rounded(of_functions or math.fsum(part.seconds for part in parts)),
        contributions=parts,
    )
    return [explanation]


def _parts(functions: Sequence[GrownFunction], operators: Sequence[GrownOperator]) -> list[OperatorDelta]:
    """The functions that take longer, each with its slower operators; else the operators, called by any function.

    Operators of a device come first: the function that waits for the device takes longer too, and is not to blame.
    """
    leading = _leading(operators)
    on_device = [operator for operator in leading if operator.on_device]
    if not functions or on_device:
        return [operator.delta for operator in on_device or leading][:_MOST_FUNCTIONS]
    parts: list[OperatorDelta] = []
    for function in functions:
        parts.append(_of_function(function))
        called = [operator for operator in operators if operator.function == function.function]
        for operator in _leading(called):
            line = function.line or operator.delta.line
            parts.append(msgspec.structs.replace(operator.delta, line=line))
    return parts


def _of_function(grown: GrownFunction) -> OperatorDelta:
    name = grown.function.name
    return OperatorDelta(op=name, kind="slower", seconds=rounded(grown.seconds), function=name, line=grown.line)


def _leading(operators: Sequence[GrownOperator]) -> list[GrownOperator]:
    """The operators that add a good part of the total."""
    total = math.fsum(operator.delta.seconds for operator in operators)
    return [operator for operator in operators if operator.delta.seconds >= EXPLAINS * total]
