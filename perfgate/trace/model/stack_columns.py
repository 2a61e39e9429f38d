"""The call stacks of a timeline as columns, and who keeps them for the next question."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from perfgate.trace.model.arithmetic import CodeColumn, Codes, IntColumn


class StackColumns(NamedTuple):
    """The columns of ``perfgate.trace.analysis.stacks.Stacks``; ``rows`` are its events among the timeline's, None for all."""

    rows: CodeColumn | None
    around: CodeColumn
    called_by: CodeColumn
    track: Codes
    own: IntColumn
    unit: str
    units: int
    unlaunched: int
    cut: int


class StackKeeper(Protocol):
    """Keeps the stacks of one timeline: those of its calls or steps, and those of the ``whole`` recording."""

    def recall(self, *, whole: bool) -> StackColumns | None:
        """None if they are not kept."""
        ...

    def keep(self, stacks: StackColumns, *, whole: bool) -> None:
        """Does nothing if they cannot be written."""
        ...
