"""Find which line of the project called each operator of a trace, by the order in which a counted call dispatched them.

torch's profiler writes which Python function an operator ran in and where that function begins, not the line of the call.
A call that was counted operator by operator knows the lines; it dispatched the same operators in the same order.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

import numpy as np

from perfgate.document.run import RowKind
from perfgate.measuring.trace.analysis import NOTHING_AROUND, IntColumn, Intervals
from perfgate.measuring.trace.events import KIND_CODES, NO_TEXT, EventTable
from perfgate.measuring.trace.stacks import Stacks
from perfgate.measuring.trace.tally import Dispatched

# The share of a call's dispatched operators that must be found again in every traced call. Where a graph was compiled, or a
# call does one thing now and another then, the order says nothing, and no line is better than a wrong one.
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
    inputs: Optional[str]
    line: Optional[str]


class _Function(NamedTuple):
    name: str
    line: str


class CallLines:
    """What is known of each event of some calls: the row it belongs to, and the work that it stands for.

    ``missing`` says why no operator has a line.
    """

    def __init__(self, stacks: Stacks, calls: Intervals, order: Sequence[Dispatched], root: Path) -> None:
        self.missing: Optional[str] = None
        self._events = stacks.events
        self._kind: list[int] = stacks.events.kind.tolist()
        self._around: list[int] = stacks.around.tolist()
        self._functions = _Functions(root)
        self._did: dict[int, Dispatched] = {}
        self._line: dict[int, str] = {}
        self._join(calls, order)

    def row(self, at: int) -> Optional[RowKey]:
        """Return the row of an event: an operator's or kernel's own, else that of the project's function it is in, if any."""
        kind = _ROW_KINDS.get(self._kind[at])
        if kind is not None:
            return RowKey(self._events.names[int(self._events.group[at])], kind, self._inputs(at), self._line_of(at))
        while at != NOTHING_AROUND:
            if self._kind[at] == _PYTHON and (found := self._functions.of(self._name(at))) is not None:
                return RowKey(found.name, "python", None, found.line)
            at = self._around[at]
        return None

    def runs(self, at: int) -> int:
        """Return 1 for what runs its row once, and 0 for what a function of the project only has done for it."""
        return int(self._kind[at] in _ROW_KINDS or self._functions.of(self._name(at)) is not None)

    def did(self, at: int) -> Optional[Dispatched]:
        """Return what was dispatched at an event; None for what other operators and Python ran."""
        return self._did.get(at)

    def _join(self, calls: Intervals, order: Sequence[Dispatched]) -> None:
        ops = np.flatnonzero(self._events.kind == _OP)
        if not ops.size or not order:
            self.missing = "no call was counted" if ops.size else "the trace shows no operators of the host"
            return
        ops = ops[np.argsort(self._events.start[ops], kind="stable")]
        began = self._events.start[ops]
        for start, end in zip(calls.start.tolist(), calls.end.tolist()):
            found = dict(_found_again(self._events, ops[(began >= start) & (began < end)], order))
            if len(found) < FOUND_AGAIN * len(order):
                self.missing = "the traced calls ran other operators, or in another order, than the counted one"
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

    def _line_of(self, at: int) -> Optional[str]:
        """Return the line of an operator, or of the one that ran or launched it."""
        while at != NOTHING_AROUND and self._kind[at] != _PYTHON:
            if at in self._line:
                return self._line[at]
            at = self._around[at]
        return None

    def _inputs(self, at: int) -> Optional[str]:
        """Return the form of the inputs: as dispatched, else their shapes as the profiler words them."""
        if at in self._did:
            return self._did[at].inputs
        shape = int(self._events.shape[at])
        return None if shape == NO_TEXT else self._events.names[shape]

    def _name(self, at: int) -> str:
        return self._events.names[int(self._events.name[at])]


class _Functions:
    """Tells which of the Python functions that the profiler names are the project's."""

    def __init__(self, root: Path) -> None:
        # torch is imported there; here only where something is measured.
        from perfgate.measuring.trace.dispatch import SourceLines

        self._folders = [str(root), *sys.path]
        self._lines = SourceLines(root)
        self._known: dict[str, Optional[_Function]] = {}

    def of(self, name: str) -> Optional[_Function]:
        """Return the project's function of this name, None for all others."""
        if name not in self._known:
            self._known[name] = self._find(name)
        return self._known[name]

    def _find(self, name: str) -> Optional[_Function]:
        match = _FUNCTION.fullmatch(name)
        if match is None:
            return None
        # The profiler takes off the folder of sys.path in which a file was found.
        files = (Path(folder) / match["file"] for folder in self._folders)
        file = next((file for file in files if file.is_file()), None)
        line = None if file is None else self._lines.at(str(file), int(match["line"]))
        return None if line is None else _Function(match["name"], line)


def _found_again(
    events: EventTable, positions: IntColumn, order: Sequence[Dispatched]
) -> Iterator[tuple[int, Dispatched]]:
    """Yield the position of each dispatched operator in a traced call.

    Each is the next of its name that none found before has run itself. One that is not there is left out: a mode sees what
    the profiler does not (an operator without a kernel of its own).
    """
    names = [events.names[code] for code in events.name[positions].tolist()]
    starts, ends = events.start[positions].tolist(), events.end[positions].tolist()
    tracks = events.track[positions].tolist()
    busy_until: dict[int, int] = {}
    first = 0
    for did in order:
        for number in range(first, len(names)):
            free = starts[number] >= busy_until.get(tracks[number], starts[number])
            if names[number] == did.op and free:
                busy_until[tracks[number]] = ends[number]
                yield int(positions[number]), did
                first = number + 1
                break
