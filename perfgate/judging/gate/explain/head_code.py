"""The code behind causes: the changed places of the head, and the text of its lines."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from msgspec.structs import replace

from perfgate.document.explanation import Cause
from perfgate.document.profile import ProfiledLine
from perfgate.document.run import CallRow, CounterSite, RunDocument
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.changed_code import ChangedCode


class HeadCode:
    """The changed code of the head, and the text of the lines at which something was counted, traced or profiled."""

    def __init__(self, head: RunDocument | None) -> None:
        self._head = head
        self._changes = head.source.changes if head else []
        self._at: dict[ShapePlace, ChangedCode] = {}
        if head is not None:
            for counters in head.checklist.counters:
                self._at[counters.place] = ChangedCode(self._changes, counters.functions)
            for profile in head.jobs.profiles:
                self._at[ShapePlace(profile.workload, "")] = ChangedCode(self._changes, profile.functions)
        self._text = _text_of_lines(head) if head else {}

    def at(self, place: ShapePlace) -> ChangedCode:
        """The changed code, with the calls between functions at a place."""
        if place not in self._at:
            self._at[place] = ChangedCode(self._changes)
        return self._at[place]

    def with_origin(self, cause: Cause) -> Cause:
        origin = self.at(cause.place).origin(cause.line)
        if origin is None:
            return cause
        return replace(cause, origin=replace(origin, code=self._text_at(cause, origin.line)))

    def grouped(self, causes: Sequence[Cause]) -> list[Cause]:
        """The causes with the text of their lines; each refers to the first of its group and the first of the same effect."""
        first_of_group: dict[Hashable, int] = {}
        first_of_effect: dict[Hashable, int] = {}
        grouped = []
        for number, cause in enumerate(causes):
            group = first_of_group.setdefault(self._group(cause), number)
            same = first_of_effect.setdefault(_effect(cause), number)
            text = self._text_at(cause, cause.line)
            grouped.append(replace(cause, code=text, group=group, same_as=None if same == number else same))
        return grouped

    def _group(self, cause: Cause) -> Hashable:
        """The key of a group: a chain of values in the change, else a line, else the operator."""
        chain = self.at(cause.place).chain_of(cause.line)
        if chain:
            return "chain", chain
        if cause.attributed_line:
            return "line", cause.attributed_line
        return "operator", cause.op, cause.aspect, cause.ranks

    def _text_at(self, cause: Cause, line: str | None) -> str | None:
        return self.at(cause.place).text(line) or self._text.get(line or "")


def _text_of_lines(head: RunDocument) -> dict[str, str]:
    rows: list[ProfiledLine | CallRow | CounterSite] = []
    for profile in head.jobs.profiles:
        rows += profile.lines
    for account in head.checklist.accounts:
        rows += account.rows
    for counters in head.checklist.counters:
        rows += counters.sites
    return {row.line: row.code for row in rows if row.line and row.code}


def _effect(cause: Cause) -> Hashable:
    """The effect of a cause, without its place; a slowdown found by a cause's own test is distinct from a count."""
    counts = cause.base_count, cause.head_count
    return cause.tested, cause.op, cause.aspect, cause.amount, counts, cause.line, cause.ranks
