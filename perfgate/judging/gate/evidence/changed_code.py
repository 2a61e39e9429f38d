"""The code of the head: its changed places, the text of its lines, and the changed
place behind each line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from perfgate.document.explanation import Origin, Reach
from perfgate.document.job import CalledFunction, ProfiledLine
from perfgate.document.lines import split_line
from perfgate.document.run import CallRow, CodeChange, CounterSite, RunDocument
from perfgate.document.shape import ShapePlace

# If more places than this changed, one that no recorded call reaches is not named: it
# could be any of them.
MOST_ELSEWHERE = 3
# Limits a recursive or forged list of callers.
_MOST_LINES = 1000


class CodeLine(NamedTuple):
    """A line of the head: its text, the changed place behind it, and the chain of
    values in the change that it belongs to.

    The chain is known by its file and first line.
    """

    text: str | None = None
    origin: Origin | None = None
    chain: tuple[str, int] | None = None


class HeadCode:
    """The code of a head, place by place."""

    def __init__(
        self,
        changes: Sequence[CodeChange] = (),
        functions: Mapping[ShapePlace, Sequence[CalledFunction]] | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self.changes = changes
        self._functions = functions or {}
        self._texts = texts or {}
        self._at: dict[ShapePlace, ChangedCode] = {}

    @classmethod
    def of(cls, head: RunDocument) -> HeadCode:
        functions = {
            counters.place: counters.functions for counters in head.checklist.counters
        }
        rows: list[ProfiledLine | CallRow | CounterSite] = []
        for profile in head.jobs.profiles:
            functions[ShapePlace(profile.workload, "")] = profile.functions
            rows += profile.lines
        for account in head.checklist.accounts:
            rows += account.rows
        for counters in head.checklist.counters:
            rows += counters.sites
        return cls(
            head.source.changes,
            functions,
            {row.line: row.code for row in rows if row.line and row.code},
        )

    def at(self, place: ShapePlace) -> ChangedCode:
        """The code, with the calls between functions at a place."""
        if place not in self._at:
            self._at[place] = ChangedCode(
                self.changes, self._functions.get(place, ()), self._texts
            )
        return self._at[place]


class ChangedCode:
    """The changed places of a head, and the functions that its calls ran."""

    def __init__(
        self,
        changes: Sequence[CodeChange],
        functions: Sequence[CalledFunction],
        texts: Mapping[str, str] | None,
    ) -> None:
        self._changes: dict[str, list[CodeChange]] = {}
        for change in changes:
            self._changes.setdefault(change.file, []).append(change)
        # Imported names are mostly used in code that changed too.
        self._all = [change for change in changes if not change.imports] or list(
            changes
        )
        self._functions: dict[str, list[CalledFunction]] = {}
        for function in functions:
            self._functions.setdefault(function.file, []).append(function)
        self._texts = texts or {}
        self._lines: dict[str, CodeLine] = {}

    def line(self, line: str | None) -> CodeLine:
        """Everything about a line, resolved once."""
        if line is None:
            return CodeLine()
        if line not in self._lines:
            origin = self._origin(line)
            if origin is None:
                self._lines[line] = CodeLine(self._text(line))
            else:
                origin = replace(origin, code=self._text(origin.line))
                self._lines[line] = CodeLine(
                    self._text(line), origin, self._chain_of(origin)
                )
        return self._lines[line]

    def is_changed(self, line: str | None) -> bool:
        return self._at(line) is not None

    def touches(self, lines: Iterable[str]) -> bool:
        """Whether the change touches a function, by the lines of it that ran."""
        for line in lines:
            file, number = split_line(line)
            for change in self._changes.get(file, []):
                if (
                    (change.begins or change.first)
                    <= number
                    <= (change.ends or change.last)
                ):
                    return True
        return False

    def of_function(self, line: str) -> str:
        """The first changed line of a function that begins at a line; that line itself
        if the function did not change.
        """
        file, number = split_line(line)
        inside = [
            change.first
            for change in self._changes.get(file, [])
            if change.begins == number
        ]
        if inside:
            return f"{file}:{min(inside)}"
        return line

    def function_around(self, line: str) -> tuple[str, int] | None:
        """The innermost changed function around a line, known by its file and first
        line; None outside of one.
        """
        change = self._in_function(line)
        if change is None or change.begins is None:
            return None
        return change.file, change.begins

    def related(self, line: str | None, other: str | None) -> bool:
        """Whether one of two lines calls the other, or one function holds both."""
        if line is None or other is None:
            return False
        around = self._around(line)
        if around is not None and around == self._around(other):
            return True
        return other in self.callers(line) or line in self.callers(other)

    def callers(self, line: str) -> list[str]:
        """A line and those that call it, the nearest first."""
        lines = [line]
        for at in lines:
            function = self._around(at)
            if function is not None and len(lines) < _MOST_LINES:
                lines += [caller for caller in function.callers if caller not in lines]
        return lines

    def _text(self, line: str) -> str | None:
        """The text of a line: of a changed one from the change, else from the rows that
        name it.
        """
        change = self._at(line)
        if change is not None:
            number = split_line(line)[1] - change.first
            if number < len(change.text) and change.text[number]:
                return change.text[number]
        return self._texts.get(line)

    def _origin(self, line: str) -> Origin | None:
        """The changed place behind a line.

        That is the line itself, else the nearest line that calls it, else one in the
        nearest function around those; if the change touches few places and none of
        these, the first.
        """
        callers = self.callers(line)
        for at in callers:
            change = self._at(at)
            if change is not None:
                return Origin(
                    line=at,
                    reach="line" if at == line else "caller",
                    function=change.function,
                )
        for at in callers:
            change = self._in_function(at)
            if change is not None:
                return _origin_of(change, "function")
        if not self._all or len(self._all) > MOST_ELSEWHERE:
            return None
        return _origin_of(self._all[0], "elsewhere")

    def _chain_of(self, origin: Origin) -> tuple[str, int] | None:
        """The chain of values in the change to which effects with an origin belong;
        None if that is a guess.

        An effect that the change only reaches is attributed to a chain if that is the
        only change that could be behind it.
        """
        change = self._at(origin.line)
        if change is None:
            return None
        if origin.reach in ("line", "caller"):
            # The chain with the shortest statement around the line: a changed loop
            # covers the lines inside it; lines that changed themselves stand for
            # themselves.
            number = split_line(origin.line)[1]
            around = []
            for chain in change.chains:
                for first, last in chain:
                    if first <= number <= last:
                        around.append((last - first, chain[0][0]))
            return (change.file, min(around)[1]) if around else None
        behind = self._all
        if origin.reach == "function":
            behind = [
                other
                for other in self._changes[change.file]
                if other.begins == change.begins
            ]
        if len(behind) != 1 or len(change.chains) != 1:
            return None
        return change.file, change.chains[0][0][0]

    def _at(self, line: str | None) -> CodeChange | None:
        file, number = split_line(line)
        for change in self._changes.get(file, []):
            if change.first <= number <= change.last:
                return change
        return None

    def _in_function(self, line: str) -> CodeChange | None:
        """The change nearest to a line, among those in the innermost changed function
        around it.
        """
        file, number = split_line(line)

        def order(change: CodeChange) -> tuple[int, int]:
            return -(change.begins or 0), abs(change.first - number)

        around = []
        for change in self._changes.get(file, []):
            if change.begins is None or change.ends is None:
                continue
            if change.begins <= number <= change.ends:
                around.append(change)
        return min(around, key=order, default=None)

    def _around(self, line: str) -> CalledFunction | None:
        """The innermost function around a line."""
        file, number = split_line(line)
        around = [
            function
            for function in self._functions.get(file, [])
            if function.first <= number <= function.last
        ]
        return min(
            around, key=lambda function: function.last - function.first, default=None
        )


def _origin_of(change: CodeChange, reach: Reach) -> Origin:
    return Origin(
        line=f"{change.file}:{change.first}", reach=reach, function=change.function
    )
