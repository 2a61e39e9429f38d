"""The changed place behind a line of the head, from the changes and the calls between functions."""

from __future__ import annotations

from collections.abc import Sequence

from perfgate.document.explanation import Origin, Reach
from perfgate.document.lines import split_line
from perfgate.document.profile import CalledFunction
from perfgate.document.run import CodeChange

# If more places than this changed, one that no recorded call reaches is not named: it could be any of them.
MOST_ELSEWHERE = 3
# Limits a recursive or forged list of callers.
_MOST_LINES = 1000


class ChangedCode:
    """The changed places of a head, and the functions that its calls ran."""

    def __init__(self, changes: Sequence[CodeChange], functions: Sequence[CalledFunction] = ()) -> None:
        self._changes: dict[str, list[CodeChange]] = {}
        for change in changes:
            self._changes.setdefault(change.file, []).append(change)
        # Imported names are mostly used in code that changed too.
        self._all = [change for change in changes if not change.imports] or list(changes)
        self._functions: dict[str, list[CalledFunction]] = {}
        for function in functions:
            self._functions.setdefault(function.file, []).append(function)
        self._origins: dict[str, Origin | None] = {}

    def is_changed(self, line: str | None) -> bool:
        return self._at(line) is not None

    def of_function(self, line: str) -> str:
        """The first changed line of a function that begins at a line; that line itself if the function did not change."""
        file, number = split_line(line)
        inside = [change.first for change in self._changes.get(file, []) if change.begins == number]
        if inside:
            return f"{file}:{min(inside)}"
        return line

    def origin(self, line: str | None) -> Origin | None:
        """The changed place behind a line.

        That is the line itself, else the nearest line that calls it, else one in the nearest function around those; if the
        change touches few places and none of these, the first.
        """
        if line is None:
            return None
        if line not in self._origins:
            self._origins[line] = self._origin_of_line(line)
        return self._origins[line]

    def chain_of(self, line: str | None) -> tuple[str, int] | None:
        """The chain of values in the change to which effects at a line belong, by its first line; None if that is a guess.

        An effect that the change only reaches is attributed to a chain if that is the only change that could be behind it.
        """
        origin = self.origin(line)
        change = self._at(origin.line) if origin else None
        if origin is None or change is None:
            return None
        if origin.reach in ("line", "caller"):
            return _chain_around(change, split_line(origin.line)[1])
        behind = self._all
        if origin.reach == "function":
            behind = [other for other in self._changes[change.file] if other.begins == change.begins]
        if len(behind) != 1 or len(change.chains) != 1:
            return None
        return change.file, _first_line(change.chains[0])

    def text(self, line: str | None) -> str | None:
        """The text of a changed line, None of any other."""
        change = self._at(line)
        if change is None:
            return None
        number = split_line(line)[1] - change.first
        if number >= len(change.text):
            return None
        return change.text[number] or None

    def related(self, line: str | None, other: str | None) -> bool:
        """Whether one of two lines calls the other, or one function holds both."""
        if line is None or other is None:
            return False
        around = self._around(line)
        if around is not None and around == self._around(other):
            return True
        return other in self.chain(line) or line in self.chain(other)

    def chain(self, line: str) -> list[str]:
        """A line and those that call it, the nearest first."""
        lines = [line]
        for at in lines:
            function = self._around(at)
            if function is not None and len(lines) < _MOST_LINES:
                lines += [caller for caller in function.callers if caller not in lines]
        return lines

    def _origin_of_line(self, line: str) -> Origin | None:
        chain = self.chain(line)
        for at in chain:
            change = self._at(at)
            if change is not None:
                return Origin(line=at, reach="line" if at == line else "caller", function=change.function)
        for at in chain:
            change = self._in_function(at)
            if change is not None:
                return _origin_of(change, "function")
        if not self._all or len(self._all) > MOST_ELSEWHERE:
            return None
        return _origin_of(self._all[0], "elsewhere")

    def _at(self, line: str | None) -> CodeChange | None:
        file, number = split_line(line)
        for change in self._changes.get(file, []):
            if change.first <= number <= change.last:
                return change
        return None

    def _in_function(self, line: str) -> CodeChange | None:
        """The change nearest to a line, among those in the innermost changed function around it."""
        file, number = split_line(line)

        def order(change: CodeChange) -> tuple[int, int]:
            return -(change.begins or 0), abs(change.first - number)

        around = [change for change in self._changes.get(file, []) if _is_around(change, number)]
        return min(around, key=order, default=None)

    def _around(self, line: str) -> CalledFunction | None:
        """The innermost function around a line."""
        file, number = split_line(line)
        around = [function for function in self._functions.get(file, []) if function.first <= number <= function.last]
        return min(around, key=lambda function: function.last - function.first, default=None)


def _origin_of(change: CodeChange, reach: Reach) -> Origin:
    return Origin(line=f"{change.file}:{change.first}", reach=reach, function=change.function)


def _is_around(change: CodeChange, number: int) -> bool:
    """Whether a line is in the function that a change touches."""
    return change.begins is not None and change.ends is not None and change.begins <= number <= change.ends


def _chain_around(change: CodeChange, number: int) -> tuple[str, int] | None:
    """The chain with the shortest statement around a line.

    A changed loop covers the lines inside it; lines that changed themselves stand for themselves.
    """
    around = []
    for chain in change.chains:
        for first, last in chain:
            if first <= number <= last:
                around.append((last - first, _first_line(chain)))
    if not around:
        return None
    return change.file, min(around)[1]


def _first_line(chain: Sequence[tuple[int, int]]) -> int:
    return chain[0][0]
