"""Work of one side, from exact counters, traces, profiles and recordings, as one kind
of row.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple, TypeAlias

from perfgate.catalogue.names import (
    FRAMEWORK_OPS,
    RANKS_COLLECTIVES,
    RANKS_ELEMENTS,
    RANKS_OPERATORS,
    RANKS_SYNCS,
)
from perfgate.document.alignment import DEVICE, Work
from perfgate.document.job import JobProfile, ProfiledLine, RankCounts, Turn
from perfgate.document.lines import file_of
from perfgate.document.run import CallRow, CounterSet, KernelTimes
from perfgate.judging.gate.evidence.changed_code import ChangedCode

# The counters of single operators are named after them.
OPERATOR_COUNT = "ops.count:"


class CountedSide:
    """The exact counters of a shape on one side, and the work behind each."""

    def __init__(self, counters: CounterSet) -> None:
        self.counters = counters
        self.values = counters.values
        # How often a call runs each operator.
        self.calls = {operator.op: operator.count for operator in counters.ops}
        self.rows = _counted_work(counters)

    @cached_property
    def work(self) -> dict[str, dict[str, list[Work]]]:
        """The places that add to a counter, by counter and operator."""
        table: dict[str, dict[str, list[Work]]] = defaultdict(lambda: defaultdict(list))
        for row in self.rows:
            table[row.aspect][row.operator].append(row)
        return table

    def of(self, metric: str, operator: str) -> list[Work]:
        """The places at which an operator adds to a counter."""
        return self.work[metric].get(operator, [])

    def located(self, metric: str) -> list[Work]:
        """All places that add to a counter."""
        return list(chain.from_iterable(self.work[metric].values()))

    def is_exact(self, metric: str) -> bool:
        """Whether a counter is equal in all calls and processes."""
        return metric not in self.counters.unstable

    def ends(self, metric: str) -> tuple[int, int] | None:
        """The least and the most of a counter; None if its calls differ by an unknown
        amount.
        """
        if self.is_exact(metric):
            return self.values[metric], self.values[metric]
        return self.counters.ranges.get(metric)


def _counted_work(counters: CounterSet) -> list[Work]:
    """The places that add to the exact counters of a shape.

    Without places there are the operators' counts, each with the line that runs it most
    often.
    """
    rows = []
    for site in counters.sites:
        row = Work(
            operator=site.name,
            amount=site.count,
            calls=site.count,
            inputs=site.tensor,
            line=site.line,
            code=site.code,
            aspect=site.metric,
            varies=site.between is not None,
        )
        rows.append(row)
    if rows:
        return rows
    for operator in counters.ops:
        if not operator.view:
            row = Work(
                operator=operator.op,
                amount=operator.count,
                calls=operator.count,
                line=operator.line,
                aspect=FRAMEWORK_OPS,
            )
            rows.append(row)
    return rows


def traced_work(rows: Iterable[CallRow]) -> list[Work]:
    """The seconds of a traced call, by operator, inputs and line, and of Python
    functions.
    """
    work = []
    for row in rows:
        entry = Work(
            operator=row.op,
            amount=row.self_time,
            calls=row.count,
            inputs=row.inputs,
            line=row.line,
            code=row.code,
            kind=row.kind,
        )
        work.append(entry)
    return work


def calls_by_line(rows: Iterable[Work]) -> list[Work]:
    """The calls of operators from each line, added up over their inputs."""
    calls: dict[tuple[str, str | None, str | None], float] = defaultdict(float)
    for row in rows:
        calls[row.operator, row.line, row.code] += row.calls
    work = []
    for (operator, line, code), count in calls.items():
        work.append(
            Work(operator=operator, amount=count, calls=count, line=line, code=code)
        )
    return work


def total(rows: Iterable[Work]) -> float:
    return sum(row.amount for row in rows)


# --- kernels of a recorded step


KERNELS_TIME = "kernels.time"
MATRIX_TIME = "kernels.mac_time"
VECTOR_TIME = "kernels.vec_time"


class KernelSums:
    """The seconds of the kernels of a step: in all, and in which a unit of the cores
    computed, by operator and inputs.
    """

    def __init__(self, times: KernelTimes) -> None:
        self.times = times
        # As the recording adds them up; None if it does not count a unit.
        self.totals = {MATRIX_TIME: times.mac, VECTOR_TIME: times.vec}

    def of(self, aspect: str) -> dict[str, float]:
        """The seconds of an aspect, by operator and inputs."""
        amounts = {}
        for kernel in self.times.rows:
            by_aspect = {
                KERNELS_TIME: kernel.seconds,
                MATRIX_TIME: kernel.mac,
                VECTOR_TIME: kernel.vec,
            }
            seconds = by_aspect[aspect]
            if seconds is not None:
                name = f"{kernel.op} [{kernel.inputs}]" if kernel.inputs else kernel.op
                amounts[name] = seconds
        return amounts

    def counts(self, unit: str) -> bool:
        """Whether the time of a unit was counted."""
        return self.totals[unit] is not None or bool(self.of(unit))


# --- profiled steps of ranks


# Reads one number of a tensor, for which the host waits.
_SYNC = "aten::_local_scalar_dense"


class RankOperator(NamedTuple):
    """An operator of one rank."""

    operator: str
    rank: int


# The amounts of work of all ranks in a step, by aspect, operator and rank.
StartWork: TypeAlias = Mapping[str, Mapping[RankOperator, float]]


def work_of_start(ranks: Iterable[RankCounts]) -> StartWork:
    """The work of a step of one start; the operators by name without the reads of
    single numbers.
    """
    amounts: dict[str, dict[RankOperator, float]] = defaultdict(dict)
    for rank in ranks:
        counts: list[tuple[str, str, float]] = [
            (RANKS_OPERATORS, "operators", rank.operators),
            (RANKS_SYNCS, _SYNC, rank.syncs),
        ]
        for collective in rank.collectives:
            counts.append((RANKS_COLLECTIVES, collective.name, collective.count))
            counts.append((RANKS_ELEMENTS, collective.name, collective.elements))
        for name, calls in rank.by_name.items():
            if name != _SYNC:
                counts.append((OPERATOR_COUNT, name, calls))
        for aspect, operator, times in counts:
            amounts[aspect][RankOperator(operator, rank.rank or 0)] = times / rank.steps
    return amounts


# --- communication in profiled steps of ranks


def profiled_starts(turns: Iterable[Turn]) -> list[list[RankCounts]]:
    """The counts of every start; empty if a rank could not be profiled."""
    starts = [turn.counts for turn in turns if turn.counts]
    for start in starts:
        if any(not rank.steps for rank in start):
            return []
    return starts


def exposed(start: Iterable[RankCounts]) -> float:
    """The seconds of the rank with the least: any excess of the others is waiting for
    it.
    """
    return min(rank.exposed for rank in start)


def skew(start: Sequence[RankCounts]) -> float:
    """The difference between the longest and the shortest wait of a rank."""
    return max(rank.exposed for rank in start) - exposed(start)


# --- profiles of jobs, per unit of the job's work

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
    """The operators of a unit of work, by caller and name; the heaviest of several with
    the same key.
    """
    operators: dict[CalledOperator, Work] = {}
    for operator in profile.operators:
        function = ProjectFunction(file_of(operator.line), operator.function)
        error = 0.0  # the standard error of the seconds, if its calls are alike
        if profile.operator_units:
            error = operator.spread * math.sqrt(operator.calls / profile.operator_units)
        work = Work(
            operator=operator.name,
            amount=operator.seconds,
            calls=operator.calls,
            line=operator.line or None,
            kind=DEVICE if operator.on_device else "",
            error=error,
        )
        operators.setdefault(CalledOperator(function, operator.name), work)
    return operators


def lines_with_more_calls(
    base: JobProfile | None, head: JobProfile | None, code: ChangedCode
) -> dict[str, str]:
    """The line of the project at which each operator is called more often than before:
    a changed one of the function.

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
