"""Find which line of the project called each operator of a trace, by the order in which
a counted call dispatched them.

torch's profiler writes the Python function around an operator and its first line, but
not the line of the call. A call that was counted operator by operator knows the lines;
it dispatched the same operators in the same order.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perfgate.document.run import RowKind
from perfgate.measuring.counting.tally import Dispatched, SourceLines
from perfgate.trace.model.arithmetic import NOTHING_AROUND, IntColumn, Intervals
from perfgate.trace.model.events import KIND_CODES, NO_TEXT, EventTable
from perfgate.trace.model.stacks import Stacks

# The share of a call's dispatched operators, views aside, that must stand in every
# traced call again. In a compiled graph, or if calls vary, the order is unreliable, and
# no line is better than a wrong one.
MATCHING_SHARE = 0.9
_OP, _PYTHON = KIND_CODES["host_op"], KIND_CODES["python"]
_ROW_KINDS: dict[int, RowKind] = {
    _OP: "host",
    KIND_CODES["compute"]: "compute",
    KIND_CODES["copy"]: "copy",
    KIND_CODES["comm"]: "comm",
    KIND_CODES["fused"]: "fused",
}
# The profiler's name of a Python function: file(line of its def): name.
_FUNCTION = re.compile(r"(?P<file>[^<>]+\.py)\((?P<line>\d+)\): (?P<name>\w+)")


class RowKey(NamedTuple):
    """The properties shared by the events of one row of an account."""

    op: str
    kind: RowKind
    inputs: str | None
    line: str | None


class CallLines:
    """The known properties of each event of some calls: its row, and the operator it
    stands for.
    """

    def __init__(
        self, stacks: Stacks, calls: Intervals, order: Sequence[Dispatched], root: Path
    ) -> None:
        self._events = stacks.events
        self._kind: list[int] = stacks.events.kind.tolist()
        self._around: list[int] = stacks.around.tolist()
        self._called_by: list[int] = stacks.called_by.tolist()
        self._folders = [str(root), *sys.path]
        self._project = SourceLines(root)
        self._functions: dict[str, RowKey | None] = {}
        self._operators: dict[int, Dispatched] = {}
        self._lines: dict[int, str] = {}
        self._join(calls, order)

    def row(self, event: int) -> RowKey | None:
        """The row of an event: an operator's or kernel's own, else of the project's
        function around it, if any.
        """
        kind = _ROW_KINDS.get(self._kind[event])
        if kind is not None:
            op = self._events.names[int(self._events.group[event])]
            line = next(
                (
                    self._lines[caller]
                    for caller in self._callers(event)
                    if caller in self._lines
                ),
                None,
            )
            return RowKey(op, kind, self._inputs(event), line)
        while event != NOTHING_AROUND:
            if (
                self._kind[event] == _PYTHON
                and (row := self._function(event)) is not None
            ):
                return row
            event = self._around[event]
        return None

    def runs(self, event: int) -> int:
        """1 for an operator, a kernel or a function of the project, 0 for a library's
        function that runs inside one.
        """
        return int(self._kind[event] in _ROW_KINDS or self._function(event) is not None)

    def operator(self, event: int) -> Dispatched | None:
        """The operator dispatched at an event; None for nested operators and Python."""
        return self._operators.get(event)

    def _join(self, calls: Intervals, order: Sequence[Dispatched]) -> None:
        ops = np.flatnonzero(self._events.is_kind("host_op"))
        if not ops.size or not order:
            return
        ops = ops[np.argsort(self._events.start[ops], kind="stable")]
        began = self._events.start[ops]
        fewest = MATCHING_SHARE * _without_views(order)
        for start, end in zip(calls.start.tolist(), calls.end.tolist()):
            matches = _TracedCall(
                self._events, ops[(began >= start) & (began < end)]
            ).matches(order)
            if _without_views(matches.values()) < fewest:
                self._operators.clear()
                return
            self._operators.update(matches)
        for event, operator in sorted(self._operators.items()):
            if operator.line is not None:
                self._lines[event] = operator.line
                # An operator that only calls others (linear) takes the line of the
                # first of them.
                above = self._around[event]
                while above != NOTHING_AROUND and self._kind[above] == _OP:
                    self._lines.setdefault(above, operator.line)
                    above = self._around[above]

    def _inputs(self, event: int) -> str | None:
        """The form of the inputs: of the dispatched operator or of the operator around
        it, else as in the profile.
        """
        for caller in self._callers(event):
            if caller in self._operators:
                return self._operators[caller].inputs
        shape = int(self._events.shape[event])
        return None if shape == NO_TEXT else self._events.names[shape]

    def _callers(self, event: int) -> Iterator[int]:
        while event != NOTHING_AROUND and self._kind[event] != _PYTHON:
            yield event
            event = self._called_by[event]

    def _function(self, event: int) -> RowKey | None:
        """The row of a Python function of the project, None for all others."""
        name = self._events.names[int(self._events.name[event])]
        if name not in self._functions:
            self._functions[name] = self._function_by_name(name)
        return self._functions[name]

    def _function_by_name(self, name: str) -> RowKey | None:
        match = _FUNCTION.fullmatch(name)
        if match is None:
            return None
        for folder in self._folders:
            # The profiler removes the folder of sys.path from the path of a file.
            file = Path(folder) / match["file"]
            if file.is_file():
                line = self._project.at(str(file), int(match["line"]))
                return RowKey(match["name"], "python", None, line) if line else None
        return None


def _without_views(operators: Iterable[Dispatched]) -> int:
    return sum(not operator.view for operator in operators)


class _TracedCall:
    """The operators of one traced call in time order, among which the dispatched
    operators are searched for.
    """

    def __init__(self, events: EventTable, positions: IntColumn) -> None:
        self._positions: list[int] = positions.tolist()
        self._names = [events.names[code] for code in events.name[positions].tolist()]
        self._starts: list[int] = events.start[positions].tolist()
        self._ends: list[int] = events.end[positions].tolist()
        self._tracks: list[int] = events.track[positions].tolist()

    def matches(self, order: Sequence[Dispatched]) -> dict[int, Dispatched]:
        """The operator dispatched at each position.

        Each operator is the next of its name that no earlier match has run itself.
        Views are looked for between their neighbours only: with gradients off the
        framework makes some of them under another name.
        """
        matches: dict[int, Dispatched] = {}
        busy_until: dict[int, int] = {}
        first, end = 0, len(self._names)
        views = []
        for operator in order:
            if operator.view:
                views.append(operator)
                continue
            match = self._match([operator], first, end, dict(busy_until))
            if match:
                (number,) = match
                matches |= self._match(views, first, number, dict(busy_until))
                busy_until[self._tracks[number]] = self._ends[number]
                first, views = number + 1, []
            matches |= match
        matches |= self._match(views, first, end, busy_until)
        return {
            self._positions[number]: operator for number, operator in matches.items()
        }

    def _match(
        self,
        operators: Sequence[Dispatched],
        first: int,
        last: int,
        busy_until: dict[int, int],
    ) -> dict[int, Dispatched]:
        """Each operator at the number of the next of its name; ``busy_until`` is when a
        track has run the last match.
        """
        matches = {}
        for operator in operators:
            for number in range(first, last):
                start, track = self._starts[number], self._tracks[number]
                if self._names[number] == operator.op and start >= busy_until.get(
                    track, start
                ):
                    matches[number] = operator
                    busy_until[track] = self._ends[number]
                    first = number + 1
                    break
        return matches
