"""A job's slowdown explained by its profiles: the functions of the project that take longer, and their lines.

A profile is sampled, once a side: it names a cause of a slowdown that the turns have shown and never shows one itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from perfgate.document.comparison import Comparison, Paired
from perfgate.document.explanation import Explanation, OperatorDelta
from perfgate.document.lines import split_line
from perfgate.document.message import Message
from perfgate.document.profile import JobProfile, ProfiledLine
from perfgate.document.run import CodeChange, RunDocument
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.explain.kinds import EXPLAINS
from perfgate.judging.gate.explain.profiled_operators import GrownOperator, grown_operators

# A function is believed to take longer if its growth is so many standard errors of its samples: with hundreds of functions
# chance names one in a hundred profiles.
_SURE = 4.0
# For functions that the change touches, or that a changed line calls: they are expected to differ.
_SURE_OF_CHANGED = 2.5
_MOST_FUNCTIONS = 10
_LARGEST_SHARE = 0.9
# A function that waits for so much of the time on the base waits in the background.
_BACKGROUND = 0.5

_Function = tuple[str, str]


class _Time(NamedTuple):
    """The seconds of a unit, and the number of samples behind them."""

    cpu: float = 0.0
    waited: float = 0.0
    samples: int = 0

    def variance(self, total_cpu: float) -> float:
        """That of the sum, if samples are alike and of a Poisson process.

        The CPU time of all functions together is measured; samples only divide it, so that most of it spreads less.
        """
        share = min(self.cpu / total_cpu, _LARGEST_SHARE) if total_cpu > 0 else 0.0
        return (self.cpu * math.sqrt(1 - share) + self.waited) ** 2 / self.samples if self.samples else 0.0


# A function, the seconds that it takes longer, and its line that grew most.
_Growth = tuple[_Function, float, str]


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
    regressed = [comparison for comparison in comparisons if comparison.outcome == "regressed"]
    worse = {comparison.workload for comparison in regressed if isinstance(comparison, Paired)}
    return [job.name for job in head.jobs if job.name in worse]


def missing_profiles(evidence: Evidence, comparisons: Iterable[Comparison]) -> list[Message]:
    """Messages for jobs that got slower without a profile of both sides to name a cause."""
    notes = []
    for workload in slower_jobs(evidence.head.run, comparisons):
        lacking = [
            side
            for side, run in zip(("base", "head"), evidence.runs)
            if all(profile.workload != workload for profile in run.profiles)
        ]
        notes += [Message("notes.no-profile", {"workload": workload, "sides": lacking})] if lacking else []
    return notes


def _explain(base: JobProfile, head: JobProfile, changes: Sequence[CodeChange]) -> list[Explanation]:
    if base.per != head.per:
        return []
    # Background waits last longer if the work takes longer.
    stretch = max(1.0, head.seconds / base.seconds) if base.seconds > 0 else 1.0
    grown = _grown(base, head, stretch, changes)
    total = max(head.cpu - base.cpu, math.fsum(seconds for _, seconds, _ in grown))
    leading = [growth for growth in grown if growth[1] >= EXPLAINS * total][:_MOST_FUNCTIONS]
    operators = grown_operators(base, head, changes)
    parts = _parts(leading, operators)
    if not parts:
        return []
    return [
        Explanation(
            workload=head.workload,
            shape="",
            measured=rounded(max(total, *(part.seconds for part in parts))),
            explained=rounded(
                math.fsum(seconds for _, seconds, _ in leading) or math.fsum(part.seconds for part in parts)
            ),
            contributions=parts,
        )
    ]


def _parts(functions: Sequence[_Growth], operators: Sequence[GrownOperator]) -> list[OperatorDelta]:
    """The functions that take longer, each with its slower operators; else the operators, of whatever function.

    Operators of a device come first: the function that waits for the device takes longer too, and is not to blame.
    """
    total = math.fsum(delta.seconds for _, delta in operators)
    leading = [(operator, delta) for operator, delta in operators if delta.seconds >= EXPLAINS * total]
    on_device = [delta for operator, delta in leading if operator.on_device]
    if not functions or on_device:
        return (on_device or [delta for _, delta in leading])[:_MOST_FUNCTIONS]
    parts = []
    for function, seconds, line in functions:
        name = function[1]
        parts.append(OperatorDelta(op=name, kind="slower", seconds=rounded(seconds), function=name, line=line))
        called = [delta for op, delta in operators if (op.line.rpartition(":")[0], op.function) == function]
        of_function = math.fsum(delta.seconds for delta in called)
        parts += [
            msgspec.structs.replace(delta, line=line or delta.line)
            for delta in called
            if delta.seconds >= EXPLAINS * of_function
        ]
    return parts


def _by_function(lines: Iterable[ProfiledLine]) -> dict[_Function, list[ProfiledLine]]:
    functions: dict[_Function, list[ProfiledLine]] = defaultdict(list)
    for line in lines:
        functions[line.line.rpartition(":")[0], line.function].append(line)
    return functions


def _grown(base: JobProfile, head: JobProfile, stretch: float, changes: Sequence[CodeChange]) -> list[_Growth]:
    """The functions that take longer beyond the spread of their samples, most first, each with its line that grew most."""
    grown = []
    lines_before = _by_function(base.lines)
    code = ChangedCode(changes, head.functions)
    for function, lines in _by_function(head.lines).items():
        before, after = _sum(lines_before.get(function, ())), _sum(lines)
        origins = (code.origin(line.line) for line in lines)
        is_called_by_change = any(origin is not None and origin.reach == "caller" for origin in origins)
        is_expected = _is_changed(lines, changes) or is_called_by_change
        if not is_expected and before.waited > _BACKGROUND * base.seconds:
            before, after = before._replace(waited=0.0), after._replace(waited=0.0)
        seconds = _growth(before, after, stretch)
        error = math.sqrt(before.variance(base.cpu) + after.variance(head.cpu))
        if seconds > (_SURE_OF_CHANGED if is_expected else _SURE) * error:
            grown.append((function, seconds, _line(lines_before.get(function, ()), lines, stretch)))
    return sorted(grown, key=lambda growth: (-growth[1], growth[0]))


def _is_changed(lines: Iterable[ProfiledLine], changes: Iterable[CodeChange]) -> bool:
    """Whether the change touches a function, by the lines of it that ran."""
    numbers = [split_line(line.line) for line in lines]
    for change in changes:
        first, last = change.begins or change.first, change.ends or change.last
        if any(file == change.file and first <= number <= last for file, number in numbers):
            return True
    return False


def _line(base: Sequence[ProfiledLine], head: Sequence[ProfiledLine], stretch: float) -> str:
    """The line with the text that lost most time."""
    before: dict[str, _Time] = {}
    for line in base:
        before[line.code] = _sum([line], before.get(line.code, _Time()))
    after: dict[str, _Time] = {}
    for line in head:
        after[line.code] = _sum([line], after.get(line.code, _Time()))
    return max(head, key=lambda line: _growth(before.get(line.code, _Time()), after[line.code], stretch)).line


def _growth(before: _Time, after: _Time, stretch: float) -> float:
    return after.cpu - before.cpu + max(0.0, after.waited - before.waited * stretch)


def _sum(lines: Iterable[ProfiledLine], start: _Time = _Time()) -> _Time:  # noqa: B008 - it cannot be changed
    cpu, waited, samples = start
    for line in lines:
        cpu, waited, samples = cpu + line.cpu, waited + line.waited, samples + line.samples
    return _Time(cpu, waited, samples)
