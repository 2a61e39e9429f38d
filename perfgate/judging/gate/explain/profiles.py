"""A job's slowdown explained by its profiles: the functions of the project that take
longer, and their lines.

A profile is sampled, once a side: it names a cause of a slowdown that the turns have
shown and never shows one itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from perfgate.document.alignment import Work
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.explanation import Explanation, OperatorDelta
from perfgate.document.job import JobProfile, ProfiledLine
from perfgate.document.message import Message
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.evidence.quads import JobOfSides
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.evidence.work import (
    CalledOperator,
    ProjectFunction,
    called_operators,
    lines_by_function,
)
from perfgate.judging.gate.explain.kinds import EXPLAINS

# A growth is believed from this many standard errors of its samples on: with hundreds
# of functions chance names one in a hundred profiles.
_SURE = 4.0
# For functions and operators that the change touches, or that a changed line calls:
# they are expected to differ.
_SURE_OF_CHANGED = 2.5

# An operator that adds less to a unit is not a cause of a slowdown that a gate can
# detect.
_LEAST_SHARE = 0.01
# With fewer calls the spread is unknown.
_FEWEST_CALLS = 4
# The batching of a server differs from turn to turn, and so does the number of operator
# calls per token. This share of the operators may be called less often on the head than
# all others.
_PACE = 0.1
# Counts that differ by less may come from one more batch.
_SAME_COUNT = 0.05

_LARGEST_SHARE = 0.9
# Above this share of base's time, waiting is background waiting.
_BACKGROUND = 0.5

_MOST_FUNCTIONS = 10


def explain_jobs(
    jobs: Iterable[JobOfSides], comparisons: Sequence[Comparison]
) -> list[Explanation]:
    """For every slower job that both sides profiled, the functions that take longer,
    most first.
    """
    explanations: list[Explanation] = []
    for job in _slower_jobs(jobs, comparisons):
        before = job.base_profile
        after = job.head_profile
        if before is not None and after is not None and before.per == after.per:
            explanations += _explain(before, after, job.code)
    return explanations


def _slower_jobs(
    jobs: Iterable[JobOfSides], comparisons: Iterable[Comparison]
) -> list[JobOfSides]:
    """The jobs with a number that got worse."""
    worse = set()
    for comparison in comparisons:
        if isinstance(comparison, Paired) and comparison.outcome == "regressed":
            worse.add(comparison.workload)
    return [job for job in jobs if job.record.name in worse]


def missing_profiles(
    jobs: Iterable[JobOfSides], comparisons: Iterable[Comparison]
) -> list[Message]:
    """Messages for jobs that got slower without a profile of both sides to name a
    cause.
    """
    notes = []
    for job in _slower_jobs(jobs, comparisons):
        sides = []
        if job.base_profile is None:
            sides.append("base")
        if job.head_profile is None:
            sides.append("head")
        if sides:
            notes.append(
                Message(
                    "notes.no-profile", {"workload": job.record.name, "sides": sides}
                )
            )
    return notes


def _explain(
    base: JobProfile, head: JobProfile, code: ChangedCode
) -> list[Explanation]:
    grown = _grown_functions(base, head, code)
    total = max(head.cpu - base.cpu, math.fsum(function.seconds for function in grown))
    functions = [row for row in grown if row.seconds >= EXPLAINS * total]
    functions = functions[:_MOST_FUNCTIONS]
    parts = _parts(functions, _grown_operators(base, head, code))
    if not parts:
        return []
    seconds = [part.seconds for part in parts]
    of_functions = math.fsum(function.seconds for function in functions)
    explanation = Explanation(
        workload=head.workload,
        shape="",
        measured=rounded(max(total, *seconds)),
        explained=rounded(of_functions or math.fsum(seconds)),
        contributions=parts,
    )
    return [explanation]


def _parts(
    functions: Sequence[GrownFunction], operators: Sequence[GrownOperator]
) -> list[OperatorDelta]:
    """The functions that take longer, each with its slower operators; else the
    operators, called by any function.

    Operators of a device come first: the function that waits for the device takes
    longer too, and is not to blame.
    """
    leading = _leading(operators)
    on_device = [operator for operator in leading if operator.on_device]
    if not functions or on_device:
        return [operator.delta for operator in on_device or leading][:_MOST_FUNCTIONS]
    parts = []
    for grown in functions:
        name = grown.function.name
        part = OperatorDelta(
            op=name,
            kind="slower",
            seconds=rounded(grown.seconds),
            function=name,
            line=grown.line,
        )
        parts.append(part)
        called = [
            operator for operator in operators if operator.function == grown.function
        ]
        for operator in _leading(called):
            line = grown.line or operator.delta.line
            parts.append(replace(operator.delta, line=line))
    return parts


def _leading(operators: Sequence[GrownOperator]) -> list[GrownOperator]:
    """The operators that add a good part of the total."""
    total = math.fsum(operator.delta.seconds for operator in operators)
    return [
        operator for operator in operators if operator.delta.seconds >= EXPLAINS * total
    ]


# --- the functions of the project that take longer


class GrownFunction(NamedTuple):
    """A function, the seconds that it takes longer, and its line that grew most."""

    function: ProjectFunction
    seconds: float
    line: str


class _Time(NamedTuple):
    """The seconds of a unit, and the number of samples behind them."""

    cpu: float = 0.0
    waited: float = 0.0
    samples: int = 0

    @classmethod
    def of(cls, lines: Iterable[ProfiledLine]) -> _Time:
        time = cls()
        for line in lines:
            time = cls(
                time.cpu + line.cpu,
                time.waited + line.waited,
                time.samples + line.samples,
            )
        return time

    def variance(self, total_cpu: float) -> float:
        """The variance of the sum, if samples are alike and of a Poisson process.

        The CPU time of all functions together is measured; samples only divide it, so
        that most of it spreads less.
        """
        if not self.samples:
            return 0.0
        share = 0.0
        if total_cpu > 0:
            share = min(self.cpu / total_cpu, _LARGEST_SHARE)
        return (self.cpu * math.sqrt(1 - share) + self.waited) ** 2 / self.samples

    def growth(self, after: _Time, stretch: float) -> float:
        """The seconds that are added; waits may grow by ``stretch`` anyway."""
        return after.cpu - self.cpu + max(0.0, after.waited - self.waited * stretch)


def _grown_functions(
    base: JobProfile, head: JobProfile, code: ChangedCode
) -> list[GrownFunction]:
    """The functions that take longer beyond the spread of their samples, most first,
    each with its line that grew most.
    """
    # Background waits last longer if the work takes longer.
    stretch = 1.0
    if base.seconds > 0:
        stretch = max(1.0, head.seconds / base.seconds)
    functions_of_base = lines_by_function(base)
    grown = []
    for function, lines in lines_by_function(head).items():
        base_lines = functions_of_base.get(function, [])
        before = _Time.of(base_lines)
        after = _Time.of(lines)
        # Whether the change touches the function, or calls it, by the lines of it that
        # ran.
        origins = [code.line(line.line).origin for line in lines]
        is_expected = code.touches(line.line for line in lines) or any(
            origin is not None and origin.reach == "caller" for origin in origins
        )
        if not is_expected and before.waited > _BACKGROUND * base.seconds:
            before = before._replace(waited=0.0)
            after = after._replace(waited=0.0)
        seconds = before.growth(after, stretch)
        error = math.sqrt(before.variance(base.cpu) + after.variance(head.cpu))
        if _is_sure(seconds, error, is_expected=is_expected):
            grown.append(
                GrownFunction(
                    function, seconds, _most_grown_line(base_lines, lines, stretch)
                )
            )
    return sorted(grown, key=lambda growth: (-growth.seconds, growth.function))


def _most_grown_line(
    base: Sequence[ProfiledLine], head: Sequence[ProfiledLine], stretch: float
) -> str:
    """The line with the text that lost most time."""
    before = _times_by_code(base)
    after = _times_by_code(head)

    def growth(line: ProfiledLine) -> float:
        return before.get(line.code, _Time()).growth(after[line.code], stretch)

    return max(head, key=growth).line


def _times_by_code(lines: Iterable[ProfiledLine]) -> dict[str, _Time]:
    by_code: dict[str, list[ProfiledLine]] = defaultdict(list)
    for line in lines:
        by_code[line.code].append(line)
    return {code: _Time.of(of_code) for code, of_code in by_code.items()}


# --- the operators that take longer, from the traces of one turn a side


class GrownOperator(NamedTuple):
    """An operator of the head, and how much longer it takes in a unit; ``is_changed``
    is whether the change calls it.
    """

    function: ProjectFunction
    on_device: bool
    is_changed: bool
    delta: OperatorDelta


def _grown_operators(
    base: JobProfile, head: JobProfile, code: ChangedCode
) -> list[GrownOperator]:
    """The operators that take longer beyond the spread of their calls, most first; of
    equal operators, a changed one first.

    Base's calls are scaled to the number of head's batches.
    """
    if not base.operator_units or not head.operator_units:
        return []
    before = called_operators(base)
    after = called_operators(head)
    pace = _pace(before, after)
    grown = []
    for key, work in after.items():
        old = before.get(key, Work(work.operator, 0.0, 0.0))
        seconds = work.amount - old.amount * pace
        line = code.of_function(work.line) if work.line else None
        is_changed = code.is_changed(line)
        error = math.hypot(work.error, old.error * pace)
        unit_seconds = base.seconds
        if not work.on_device:
            unit_seconds = min(base.cpu, base.seconds)
        is_large = (
            seconds >= _LEAST_SHARE * unit_seconds
            and work.calls * head.operator_units >= _FEWEST_CALLS
        )
        if is_large and _is_sure(seconds, error, is_expected=is_changed):
            delta = _delta(work, old.calls * pace, seconds, line)
            grown.append(GrownOperator(key.function, work.on_device, is_changed, delta))
    most = max((operator.delta.seconds for operator in grown), default=0.0)

    def order(operator: GrownOperator) -> tuple[bool, float]:
        # Half of the largest is considered equal: a trace is of one turn.
        leads = operator.is_changed and operator.delta.seconds >= most / 2
        return not leads, -operator.delta.seconds

    return sorted(grown, key=order)


def _delta(
    work: Work, base_calls: float, seconds: float, line: str | None
) -> OperatorDelta:
    delta = OperatorDelta(
        op=work.operator, kind="slower", seconds=rounded(seconds), line=line
    )
    if base_calls and work.calls <= (1 + _SAME_COUNT) * base_calls:
        return delta
    return replace(
        delta,
        kind="more" if base_calls else "added",
        base_count=rounded(base_calls),
        head_count=rounded(work.calls),
    )


def _pace(
    before: Mapping[CalledOperator, Work], after: Mapping[CalledOperator, Work]
) -> float:
    """The factor by which a unit of the head makes unchanged calls more often than
    base, as its batches are smaller.
    """
    ratios = []
    for key, work in after.items():
        old = before.get(key)
        if old is not None and old.calls > 0:
            ratios.append(work.calls / old.calls)
    ratios.sort()
    if ratios:
        return ratios[int(_PACE * len(ratios))]
    return 1.0


# --- a growth of sampled work


def _is_sure(growth: float, error: float, *, is_expected: bool) -> bool:
    """Whether work grew beyond the spread of its samples."""
    needed = _SURE_OF_CHANGED if is_expected else _SURE
    return growth > needed * error
