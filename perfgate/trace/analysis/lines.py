"""Attribute the work of a timeline to the line and the operator that launched it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perfgate.errors import UsageError
from perfgate.trace.analysis.stacks import frame, nearest_above
from perfgate.trace.model.arithmetic import (
    NOTHING_AROUND,
    CodeColumn,
    Codes,
    IntColumn,
    Mask,
    group_rows,
    self_times,
    totals_by_name,
)
from perfgate.trace.model.events import DEVICE_KINDS, EventKind, EventTable
from perfgate.trace.model.stacks import Stacks

NO_LAUNCHER = -1


# Operators that the profiler adds around the operator that the program called.
_NO_OPERATORS = frozenset({"record_param_comms"})


class Launchers(NamedTuple):
    """The work of a timeline, its nanoseconds, and the function and operator that launched each piece.

    ``line`` and ``operator`` index the names of the events, NO_LAUNCHER if the recording shows none.
    """

    events: EventTable
    time: IntColumn
    line: Codes
    operator: Codes

    @property
    def has_lines(self) -> bool:
        return bool((self.line != NO_LAUNCHER).any())

    def require_lines(self) -> None:
        """Raises UsageError if no Python functions were recorded."""
        if not self.has_lines:
            raise UsageError(
                "the recording has no Python functions, so nothing has a line; record with with_stack=True, or leave out "
                "--by line"
            )

    @property
    def name(self) -> Codes:
        """The name of each piece of work in a view by line: its function, else its operator, else its own name."""
        return np.where(self.line == NO_LAUNCHER, self.operator_or_own, self.line)

    @property
    def operator_or_own(self) -> Codes:
        return np.where(self.operator == NO_LAUNCHER, self.events.group, self.operator)

    def select(self, chosen: Mask) -> Launchers:
        return Launchers(
            self.events.select(chosen),
            self.time[chosen],
            self.line[chosen],
            self.operator[chosen],
        )

    def heaviest(self, column: Codes, row: Codes, rows: int) -> list[str | None]:
        """For each row the name in a column with most of its time."""
        return heaviest_names(self.events.names, column, self.time, row, rows)


def heaviest_names(
    names: Sequence[str], column: Codes, time: IntColumn, row: Codes, rows: int
) -> list[str | None]:
    """For each row the name in a column with most of its time, None for NO_LAUNCHER."""
    first, pair = group_rows(row, column)
    totals = totals_by_name(pair, time, first.size)
    best: list[str | None] = [None] * rows
    # The last entry of a row, which stays, is the largest.
    for place in first[np.argsort(-totals, kind="stable")[::-1]].tolist():
        name = int(column[place])
        best[int(row[place])] = None if name == NO_LAUNCHER else names[name]
    return best


def launching_operators(stacks: Stacks, work: CodeColumn) -> Codes:
    """The name of the innermost operator that contains or launched each of some events, NO_LAUNCHER for none."""
    is_operator = stacks.events.is_kind("host_op") & ~stacks.events.is_named(
        _NO_OPERATORS.__contains__
    )
    return _named(stacks, nearest_above(stacks, work, is_operator))


def launchers(stacks: Stacks, kinds: tuple[EventKind, ...]) -> Launchers:
    """The launching call of each event of some kinds; for events of the host, the enclosing one.

    The line is the line of the innermost function of the project, else of any file; the operator is the innermost operator.
    """
    work = np.flatnonzero(stacks.events.is_kind(*kinds)).astype(np.int32)
    python = stacks.events.is_kind("python")
    in_project = python & stacks.events.is_named(
        lambda name: frame(name, "python").is_project
    )
    in_file = python & stacks.events.is_named(
        lambda name: frame(name, "python").place is not None
    )
    line = _named(stacks, nearest_above(stacks, work, in_project))
    missing = line == NO_LAUNCHER
    line[missing] = _named(stacks, nearest_above(stacks, work[missing], in_file))
    operator = launching_operators(stacks, work)
    events = stacks.events.select(work.astype(np.intp))
    # As everywhere, shares of the busy time use whole spans on the device and self time on the host.
    if set(kinds) <= set(DEVICE_KINDS):
        return Launchers(events, events.duration, line, operator)
    operator = np.where(events.is_kind("host_op"), events.name, operator)
    time = self_times(events.start, events.duration, events.track)
    return Launchers(events, time, line, operator)


def _named(stacks: Stacks, positions: CodeColumn) -> Codes:
    return np.where(
        positions == NOTHING_AROUND, NO_LAUNCHER, stacks.events.name[positions]
    )
