"""The order of the causes of one place.

A graph that breaks or is compiled again changes every operator after it, so it comes
first. Next come the causes of a slower call, in the order of its explanation; then the
costliest, line by line. A cause on a line of the change comes before one that the
change only reaches: an unchanged line only feels the effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from perfgate.document.explanation import Cause
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.explain.kinds import EXPLAINS


class RankedCause(NamedTuple):
    """A cause, and its place in the order of all causes."""

    order: tuple[float, ...]
    cause: Cause


@dataclass
class _LineTotals:
    """The seconds and calls of operators that a line adds, and the number of counters
    that name a part of it.
    """

    seconds: float = 0.0
    calls: float = 0.0
    mentions: int = 0


class PlaceRanking:
    """The causes of one place, in their order; ``run_seconds`` are those of one run of
    an operator in a trace.
    """

    def __init__(
        self,
        causes: Sequence[Cause],
        code: ChangedCode,
        run_seconds: Mapping[tuple[ShapePlace, str], float],
    ) -> None:
        self._code = code
        self._run_seconds = run_seconds
        self._causes = _with_ranks_of_lines(causes)
        self._lines: dict[str | None, _LineTotals] = defaultdict(_LineTotals)
        for cause in self._causes:
            line = self._lines[cause.attributed_line]
            line.mentions += cause.mentions
            if cause.amount == "calls" and cause.aspect is None and not cause.stage:
                line.seconds += self._cost(cause)
                line.calls += max(cause.more_count, 0.0)

    def ranked(self) -> list[RankedCause]:
        top = min(self._causes, key=self._order)
        ranked = [RankedCause(self._order(cause), cause) for cause in self._causes]
        if top.changes_the_rest or top.is_of_change:
            return ranked
        explaining = []
        rest = []
        for entry in ranked:
            if entry.cause is not top and self._explains(entry.cause, top):
                explaining.append(self._ahead(entry.cause, top))
            else:
                rest.append(entry)
        if explaining:
            return explaining + rest
        function = changed_function(top, self._causes, self._code)
        if function is not None:
            ranked.insert(0, RankedCause(self._order(function, ahead=True), function))
        return ranked

    def _order(self, cause: Cause, *, ahead: bool = False) -> tuple[float, ...]:
        line = self._lines.get(cause.attributed_line, _LineTotals())
        is_ranked = cause.rank is not None
        return (
            not cause.changes_the_rest,
            not is_ranked,
            cause.rank or 0,
            not ahead,
            cause.amount != "calls" and not is_ranked,
            not cause.counted,
            -line.seconds,
            -line.calls,
            -line.mentions,
            -self._cost(cause),
            -cause.mentions,
            -cause.more_count,
        )

    def _ahead(self, cause: Cause, top: Cause) -> RankedCause:
        """A cause on a line of the change, in front of the top that it explains."""
        if top.rank is not None and (cause.rank is None or cause.rank > top.rank):
            cause = replace(cause, rank=top.rank)
        return RankedCause(self._order(cause, ahead=True), cause)

    def _cost(self, cause: Cause) -> float:
        """The seconds that a cause adds: from the pairs, else by its runs in a trace."""
        if cause.more_time is not None:
            return max(cause.more_time, 0.0)
        return max(cause.more_count, 0.0) * self._run_seconds.get(
            (cause.place, cause.op), 0.0
        )

    def _explains(self, cause: Cause, top: Cause) -> bool:
        """Whether a cause on a changed line may be the reason for the cause that would
        otherwise be named first.

        It is if one of their lines calls the other and both have the same kind of
        count, or if it adds a good part as much.
        """
        if not cause.is_of_change:
            return False
        if cause.amount == top.amount and not top.takes_longer_alone:
            return self._code.related(cause.line, top.line) or self._adds_much(
                cause, top
            )
        if top.more_time and (cause.more_time or 0.0) >= EXPLAINS * top.more_time:
            return True
        # An operator that runs as often as before but takes longer is a side effect of
        # one that runs more often.
        is_counted = cause.counted and cause.amount in ("calls", "held")
        return (
            top.takes_longer_alone
            and is_counted
            and self._code.related(cause.line, top.line)
        )

    def _adds_much(self, cause: Cause, top: Cause) -> bool:
        """Whether a cause with its line adds almost what the top cause adds with its
        line.
        """
        if cause.amount != "calls":
            return cause.more_count >= EXPLAINS * top.more_count
        line = self._lines[cause.attributed_line]
        line_of_top = self._lines[top.attributed_line]
        if line_of_top.seconds > 0:
            return line.seconds >= EXPLAINS * line_of_top.seconds
        return line.calls >= EXPLAINS * line_of_top.calls


def _with_ranks_of_lines(causes: Sequence[Cause]) -> list[Cause]:
    """The causes; of each line that explains time, the operator that an exact counter
    found more of comes first.

    The operator that the line calls may take too little time to show in the pairs,
    although its inner operators and the views around it show. Time outside operators is
    Python's, and bytecodes identify the line. Time between operators that grew with
    their number is explained by the operators that were added.
    """
    # Of each line that an explanation names, its first cause.
    first_of_line: dict[str | None, Cause] = {}
    for cause in sorted(causes, key=lambda cause: (cause.rank or 0, cause.op)):
        if cause.rank is not None and cause.line:
            first_of_line.setdefault(cause.line, cause)
    outside = next(
        (cause for cause in first_of_line.values() if cause.is_outside), None
    )
    launching = []
    most_bytecodes = 0.0
    for cause in causes:
        if cause.is_launching:
            launching.append(cause.rank)
        if cause.amount == "bytecodes":
            most_bytecodes = max(most_bytecodes, cause.more_count)

    def rank_of(cause: Cause) -> int | None:
        is_much = cause.more_count >= EXPLAINS * most_bytecodes > 0
        if cause.amount == "bytecodes" and outside is not None and is_much:
            return outside.rank
        is_added = cause.counted and cause.more_count > 0
        is_call = cause.amount == "calls" and cause.aspect is None
        if cause.rank is None and launching and is_added and is_call:
            return launching[-1]
        leading = first_of_line.get(cause.line)
        if leading is not None and is_added and leading.is_inner:
            return leading.rank
        return cause.rank

    return [replace(cause, rank=rank_of(cause)) for cause in causes]


def changed_function(
    top: Cause, causes: Iterable[Cause], code: ChangedCode
) -> Cause | None:
    """The changed function around operators that run as before and take longer: the
    function changed, not the operators.
    """
    origin = top.origin
    if (
        not top.takes_longer_alone
        or origin is None
        or origin.reach not in ("caller", "function")
    ):
        return None
    name = top.op
    if origin.function and not top.op.endswith(f".{origin.function}"):
        name = origin.function
    # Functions of other classes and files may have the same name.
    around = code.function_around(origin.line) or origin.line
    more_time = 0.0
    for cause in causes:
        if cause.origin is None:
            continue
        line = cause.origin.line
        if (code.function_around(line) or line) == around:
            more_time += cause.more_time or 0.0
    return Cause(
        workload=top.workload,
        shape=top.shape,
        op=name,
        more_time=more_time,
        line=origin.line,
        rank=top.rank,
        stage=True,
        inclusive=True,
        origin=replace(origin, reach="line"),
        code=origin.code,
    )
