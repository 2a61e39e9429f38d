"""Find which line of the project called each operator of a trace, by the order in which a counted call dispatched them.

torch's profiler writes which Python function an operator ran in and where that function begins, not the line of the call.
A call that was counted operator by operator knows the lines; it dispatched the same operators in the same order.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perfgate.document.message import Message
from perfgate.document.run import RowKind
from perfgate.measuring.counting.tally import Dispatched
from perfgate.trace.analysis import NOTHING_AROUND, IntColumn, Intervals
from perfgate.trace.events import KIND_CODES, NO_TEXT, EventTable
from perfgate.trace.stacks import Stacks

# The share of a call's dispatched operators, views aside, that must be found again in every traced call. Where a graph was
# compiled, or a call does one thing now and another then, their order says nothing, and no line is better than a wrong one.
FOUND_AGAIN = 0.9
_OP, _PYTHON = KIND_CODES["host_op"], KIND_CODES["python"]
_ROW_KINDS: dict[int, RowKind] = {
    _OP: "host",
    KIND_CODES["compute"]: "compute",
    KIND_CODES["copy"]: "copy",
    KIND_CODES["comm"]: "comm",
}
# What the profiler calls a Python function: file(line of its def): name.
_FUNCTION = re.compile(r"(?P<file>[^<>]+\.py)\((?P<line>\d+)\): (?P<name>\w+)")


class RowKey(NamedTuple):
    """What events of one row of an account share."""

    op: str
    kind: RowKind
    inputs: str | None
    line: str | None


class _Function(NamedTuple):
    name: str
    line: str


class CallLines:
    """What is known of each event of some calls: the row it belongs to, and the work that it stands for.

    ``missing`` says why no operator has a line.
    """

    def __init__(self, stacks: Stacks, calls: Intervals, order: Sequence[Dispatched], root: Path) -> None:
        self.missing: Message | None = None
        self._events = stacks.events
        self._kind: list[int] = stacks.events.kind.tolist()
        self._around: list[int] = stacks.around.tolist()
        self._called_by: list[int] = stacks.called_by.tolist()
        self._functions = _Functions(root)
        self._did: dict[int, Dispatched] = {}
        self._line: dict[int, str] = {}
        self._join(calls, order)

    def row(self, at: int) -> RowKey | None:
        """The row of an event: an operator's or kernel's own, else that of the project's function it is in, if any."""
        kind = _ROW_KINDS.get(self._kind[at])
        if kind is not None:
            return RowKey(self._events.names[int(self._events.group[at])], kind, self._inputs(at), self._line_of(at))
        while at != NOTHING_AROUND:
            if self._kind[at] == _PYTHON and (found := self._functions.of(self._name(at))) is not None:
                return RowKey(found.name, "python", None, found.line)
            at = self._around[at]
        return None

    def runs(self, at: int) -> int:
        """1 for what runs its row once, and 0 for what a function of the project only has done for it."""
        return int(self._kind[at] in _ROW_KINDS or self._functions.of(self._name(at)) is not None)

    def did(self, at: int) -> Dispatched | None:
        """What was dispatched at an event; None for what other operators and Python ran."""
        return self._did.get(at)

    def _join(self, calls: Intervals, order: Sequence[Dispatched]) -> None:
        ops = np.flatnonzero(self._events.kind == _OP)
        if not ops.size or not order:
            self.missing = Message("operators.no-calls" if ops.size else "operators.no-host-operators")
            return
        ops = ops[np.argsort(self._events.start[ops], kind="stable")]
        began = self._events.start[ops]
        for start, end in zip(calls.start.tolist(), calls.end.tolist()):
            found = _TracedCall(self._events, ops[(began >= start) & (began < end)]).find(order)
            if sum(not did.view for did in found.values()) < FOUND_AGAIN * sum(not did.view for did in order):
                self.missing = Message("operators.other-order")
                self._did.clear()
                return
            self._did.update(found)
        for at, did in sorted(self._did.items()):
            if did.line is not None:
                self._line[at] = did.line
                self._give_to_callers(at, did.line)

    def _give_to_callers(self, at: int, line: str) -> None:
        """An operator that only calls others (linear) was called from where its first one came from."""
        above = self._around[at]
        while above != NOTHING_AROUND and self._kind[above] == _OP:
            self._line.setdefault(above, line)
            above = self._around[above]

    def _line_of(self, at: int) -> str | None:
        while at != NOTHING_AROUND and self._kind[at] != _PYTHON:
            if at in self._line:
                return self._line[at]
            at = self._called_by[at]
        return None

    def _inputs(self, at: int) -> str | None:
        above = at
        while above != NOTHING_AROUND and self._kind[above] != _PYTHON:
            if above in self._did:
                return self._did[above].inputs
            above = self._called_by[above]
        shape = int(self._events.shape[at])
        return None if shape == NO_TEXT else self._events.names[shape]

    def _name(self, at: int) -> str:
        return self._events.names[int(self._events.name[at])]


class _Functions:
    """Tells which of the Python functions that the profiler names are the project's."""

    def __init__(self, root: Path) -> None:
        # torch is imported there; here only where something is measured.
        from perfgate.measuring.counting.source_lines import SourceLines

        self._folders = [str(root), *sys.path]
        self._lines = SourceLines(root)
        self._known: dict[str, _Function | None] = {}

    def of(self, name: str) -> _Function | None:
        if name not in self._known:
            self._known[name] = self._find(name)
        return self._known[name]

    def _find(self, name: str) -> _Function | None:
        match = _FUNCTION.fullmatch(name)
        if match is None:
            return None
        # The profiler takes off the folder of sys.path in which a file was found.
        files = (Path(folder) / match["file"] for folder in self._folders)
        file = next((file for file in files if file.is_file()), None)
        line = None if file is None else self._lines.at(str(file), int(match["line"]))
        return None if line is None else _Function(match["name"], line)


class _TracedCall:
    """The operators of one traced call in time order, among which the dispatched ones are found again."""

    def __init__(self, events: EventTable, positions: IntColumn) -> None:
        self._positions: list[int] = positions.tolist()
        self._names = [events.names[code] for code in events.name[positions].tolist()]
        self._starts: list[int] = events.start[positions].tolist()
        self._ends: list[int] = events.end[positions].tolist()
        self._tracks: list[int] = events.track[positions].tolist()

    def find(self, order: Sequence[Dispatched]) -> dict[int, Dispatched]:
        """What was dispatched at each position.

        Each operator is the next of its name that none found before has run itself. Views are looked for between their
        neighbours only: with gradients off the framework makes some of them under another name.
        """
        found: dict[int, Dispatched] = {}
        busy_until: dict[int, int] = {}
        first = 0
        views: list[Dispatched] = []
        for did in order:
            if did.view:
                views.append(did)
                continue
            at = self._next(did.op, first, len(self._names), busy_until)
            if at is not None:
                self._find_views(views, first, at, dict(busy_until), found)
                self._take(at, did, busy_until, found)
                first, views = at + 1, []
        self._find_views(views, first, len(self._names), busy_until, found)
        return found

    def _find_views(
        self,
        views: Sequence[Dispatched],
        first: int,
        last: int,
        busy_until: dict[int, int],
        found: dict[int, Dispatched],
    ) -> None:
        for view in views:
            at = self._next(view.op, first, last, busy_until)
            if at is not None:
                self._take(at, view, busy_until, found)
                first = at + 1

    def _next(self, op: str, first: int, last: int, busy_until: dict[int, int]) -> int | None:
        for number in range(first, last):
            if self._names[number] == op and self._starts[number] >= busy_until.get(
                self._tracks[number], self._starts[number]
            ):
                return number
        return None

    def _take(self, at: int, did: Dispatched, busy_until: dict[int, int], found: dict[int, Dispatched]) -> None:
        busy_until[self._tracks[at]] = self._ends[at]
        found[self._positions[at]] = did
