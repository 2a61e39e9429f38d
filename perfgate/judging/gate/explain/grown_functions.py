"""The functions of a project that take longer in the sampled profile of a job."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perfgate.document.lines import split_line
from perfgate.document.profile import JobProfile, ProfiledLine
from perfgate.document.run import CodeChange
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.evidence.profiled_work import ProjectFunction, lines_by_function
from perfgate.judging.gate.explain.sampled_growth import is_sure

_LARGEST_SHARE = 0.9
# Above this share of base's time, waiting is background waiting.
_BACKGROUND = 0.5


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
            time = cls(time.cpu + line.cpu, time.waited + line.waited, time.samples + line.samples)
        return time

    def variance(self, total_cpu: float) -> float:
        """The variance of the sum, if samples are alike and of a Poisson process.

        The CPU time of all functions together is measured; samples only divide it, so that most of it spreads less.
        """
        if not self.samples:
            return 0.0
        share = min(self.cpu / total_cpu, _LARGEST_SHARE) if total_cpu > 0 else 0.0
        return (self.cpu * math.sqrt(1 - share) + self.waited) ** 2 / self.samples

    def growth(self, after: _Time, stretch: float) -> float:
        """The seconds that are added; waits may grow by ``stretch`` anyway."""
        return after.cpu - self.cpu + max(0.0, after.waited - self.waited * stretch)


def grown_functions(base: JobProfile, head: JobProfile, changes: Sequence[CodeChange]) -> list[GrownFunction]:
    """The functions that take longer beyond the spread of their samples, most first, each with its line that grew most."""
    # Background waits last longer if the work takes longer.
    stretch = max(1.0, head.seconds / base.seconds) if base.seconds > 0 else 1.0
    code = ChangedCode(changes, head.functions)
    functions_of_base = lines_by_function(base)
    grown: list[GrownFunction] = []
    for function, lines in lines_by_function(head).items():
        base_lines = functions_of_base.get(function, [])
        before, after = _Time.of(base_lines), _Time.of(lines)
        is_expected = _is_changed(lines, changes) or _is_called_by_change(lines, code)
        if not is_expected and before.waited > _BACKGROUND * base.seconds:
            before, after = before._replace(waited=0.0), after._replace(waited=0.0)
        seconds = before.growth(after, stretch)
        error = math.sqrt(before.variance(base.cpu) + after.variance(head.cpu))
        if is_sure(seconds, error, is_expected=is_expected):
            grown.append(GrownFunction(function, seconds, _most_grown_line(base_lines, lines, stretch)))
    return sorted(grown, key=lambda growth: (-growth.seconds, growth.function))


def _is_called_by_change(lines: Iterable[ProfiledLine], code: ChangedCode) -> bool:
    origins = [code.origin(line.line) for line in lines]
    return any(origin is not None and origin.reach == "caller" for origin in origins)


def _is_changed(lines: Iterable[ProfiledLine], changes: Iterable[CodeChange]) -> bool:
    """Whether the change touches a function, by the lines of it that ran."""
    numbers = [split_line(line.line) for line in lines]
    for change in changes:
        first, last = change.begins or change.first, change.ends or change.last
        if any(file == change.file and first <= number <= last for file, number in numbers):
            return True
    return False


def _most_grown_line(base: Sequence[ProfiledLine], head: Sequence[ProfiledLine], stretch: float) -> str:
    """The line with the text that lost most time."""
    before, after = _times_by_code(base), _times_by_code(head)

    def growth(line: ProfiledLine) -> float:
        return before.get(line.code, _Time()).growth(after[line.code], stretch)

    return max(head, key=growth).line


def _times_by_code(lines: Iterable[ProfiledLine]) -> dict[str, _Time]:
    by_code: dict[str, list[ProfiledLine]] = defaultdict(list)
    for line in lines:
        by_code[line.code].append(line)
    return {code: _Time.of(of_code) for code, of_code in by_code.items()}
