"""The exact counters of one shape on both sides, and the work behind their differences."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from msgspec.structs import replace

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import (
    BLOCKING_TRANSFERS,
    DEFERRED_OPS,
    FRAMEWORK_OPS,
    LOADERS_IN_PROCESS,
    TRAINING_MODULES,
)
from perfgate.document.alignment import Work
from perfgate.document.comparison import Checked, Exact, Outcome
from perfgate.document.decision import Policy
from perfgate.document.explanation import Aspect, Part
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.comparison import Count, Range, compared
from perfgate.judging.gate.compare.parts import grown_lines
from perfgate.judging.gate.evidence.tolerance import tolerance
from perfgate.judging.gate.evidence.work import OPERATOR_COUNT, CountedSide, total

MAX_PARTS = 12
# The reasons of a count that differs between calls or processes of the head: base's
# does not, or it does so far less and below the head's.
WAVERS = "gate.unstable-in-head"
WAVERS_ABOVE = "gate.unstable-above-base"
# The aspect that a counter counts, if it is not the operator's calls.
_ASPECTS: dict[str, Aspect] = {
    "memory.kept": "kept",
    "counters.repeat_saves": "saved",
    "counters.double_ops": "double precision",
    DEFERRED_OPS: "deferred",
    TRAINING_MODULES: "training",
    LOADERS_IN_PROCESS: "without workers",
    BLOCKING_TRANSFERS: "blocking",
}


_Kind = TypeVar("_Kind", Exact, Checked)


@dataclass(frozen=True)
class CountedShape:
    """The counters of one shape on both sides, as ``Counted``, under a policy."""

    place: ShapePlace
    base: CountedSide
    head: CountedSide
    base_code: Collection[str]
    is_checked: bool
    policy: Policy

    @cached_property
    def unstable(self) -> frozenset[str]:
        """The counters that differ between calls or processes of a side."""
        return frozenset((*self.base.counters.unstable, *self.head.counters.unstable))

    @cached_property
    def is_of_calls(self) -> bool:
        """Whether single calls were counted: whole recordings may hold different
        numbers of calls.
        """
        return 0 not in (self.base.counters.repeats, self.head.counters.repeats)

    @cached_property
    def _varying(self) -> set[tuple[str, str, str | None]]:
        """The places with a count that differs between calls or processes of a side."""
        rows = (*self.base.rows, *self.head.rows)
        return {_identity(row) for row in rows if row.varies}

    @cached_property
    def _located_operators(self) -> set[str]:
        """The operators with known places at which their count varies."""
        return {name for aspect, name, _ in self._varying if aspect == FRAMEWORK_OPS}

    def varies(self, row: Work) -> bool:
        """Whether a count differs at a place; of an operator with unknown places, at
        each of its lines.
        """
        if _identity(row) in self._varying:
            return True
        return (
            row.operator not in self._located_operators
            and OPERATOR_COUNT + row.operator in self.unstable
        )

    def steady(self, rows: Iterable[Work]) -> list[Work]:
        return [row for row in rows if not self.varies(row)]

    def count(
        self, name: str, base: tuple[float, float], head: tuple[float, float]
    ) -> Count:
        """A counter by its ranges on both sides, under the policy's tolerance."""
        allowed = tolerance(self.policy, name, self.place)
        return Count(
            self.place,
            name,
            Range(*base),
            Range(*head),
            allowed,
            metric(name).gate.allowed_more,
        )

    def parts(self, name: str, *, varying: bool = False) -> list[Part]:
        """The parts of a counter that changed, the largest change first; places with
        varying counts only if ``varying``.
        """
        parts = []
        for operator in self.base.work[name].keys() | self.head.work[name].keys():
            before = self.base.of(name, operator)
            after = self.head.of(name, operator)
            if not varying:
                before = self.steady(before)
                after = self.steady(after)
            if total(before) != total(after):
                parts.append(self._part(operator, _ASPECTS.get(name), before, after))
        return sorted(parts, key=lambda part: (-abs(part.head - part.base), part.name))

    def _part(
        self,
        operator: str,
        aspect: Aspect | None,
        before: Sequence[Work],
        after: Sequence[Work],
    ) -> Part:
        """The change of a count at the places of one operator, with the lines that
        grew.
        """
        lines = grown_lines(before, after, self.base_code)
        return Part(
            name=operator,
            aspect=aspect,
            base=total(before),
            head=total(after),
            line=lines[0].line if lines else largest_line(after or before),
            sites=lines,
        )

    def comparison(
        self,
        kind: type[_Kind],
        name: str,
        outcome: Outcome,
        reason: Message | None = None,
        parts: Sequence[Part] = (),
    ) -> _Kind:
        """The comparison of a counter by its values, with an outcome that the counts
        alone do not give. A count that a check of the output excuses, or would excuse,
        is ``Checked``.
        """
        base = self.base.values.get(name)
        head = self.head.values.get(name)
        row = compared(
            kind, self.place, name, outcome, base=base, head=head, reason=reason
        )
        gates = kind is Exact and outcome != "not_comparable"
        return replace(row, gating=gates, parts=list(parts))

    def wavering(self, name: str, code: str) -> Exact:
        """The comparison of a count that the change made waver: it warns, because
        growth could hide behind that.
        """
        row = self.comparison(Exact, name, "inconclusive", Message(code))
        return replace(row, gating=False)

    def overlap(self, name: str) -> Message:
        """A message for a count with ranges on base and head that are too close, with
        the ranges if they are known.
        """
        before = self.base.ends(name)
        after = self.head.ends(name)
        if before is None or after is None:
            return Message("gate.unstable")
        ends = {
            "least": before[0],
            "most": before[1],
            "head_least": after[0],
            "head_most": after[1],
        }
        return Message("gate.unstable-between", ends)


def largest_line(rows: Iterable[Work]) -> str | None:
    """The line with the largest share of a counter; the first of equal lines."""
    return max(rows, key=lambda row: row.amount).line


def _identity(row: Work) -> tuple[str, str, str | None]:
    """The place of a count, by the code that both sides share, or by the number of the
    line.
    """
    return row.aspect, row.operator, row.code or row.line
