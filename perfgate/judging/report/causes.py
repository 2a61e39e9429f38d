"""What changed underneath a regressed metric: operators by name, with counts, bytes, self time and the calling line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Optional

from perfgate.document.decision import Comparison
from perfgate.judging.report.summary import Summary, is_operator, place


@dataclass(frozen=True)
class Cause:
    """One operator that came, went or changed in one place. Counts are per call, times self seconds per call."""

    place: str
    op: str
    base_count: Optional[float] = None
    head_count: Optional[float] = None
    more_bytes: Optional[float] = None
    more_time: Optional[float] = None
    line: Optional[str] = None

    @property
    def more_count(self) -> float:
        """Return how many calls more the head makes."""
        return (self.head_count or 0) - (self.base_count or 0)


def causes(summary: Summary) -> list[Cause]:
    """Return the operators that account for the regressions, those that add most self time, then most calls, first."""
    found: dict[tuple[str, str], Cause] = {}
    for part in _from_comparisons(summary.decision.comparisons):
        _merge(found, part)
    for change in summary.decision.operator_changes:
        _merge(
            found,
            Cause(
                place=place(change.workload, change.shape),
                op=change.op,
                base_count=change.base_count,
                head_count=change.head_count,
                more_time=change.head_time - change.base_time,
                line=change.line,
            ),
        )
    worse = [cause for cause in found.values() if _adds(cause)]
    return sorted(worse, key=lambda cause: (-(cause.more_time or 0), -cause.more_count, cause.op, cause.place))


def cause_of(comparison: Comparison, known: Iterable[Cause]) -> Optional[Cause]:
    """Return the operator that adds most to one comparison: a counter's largest part, else the largest self time."""
    parts = {part.name: part.head - part.base for part in comparison.parts if part.head > part.base}
    here = [cause for cause in known if cause.place == place(comparison.workload, comparison.shape)]
    if parts:
        return next((cause for cause in here if cause.op == max(parts, key=lambda name: parts[name])), None)
    slower = [cause for cause in here if cause.more_time is not None and cause.more_time > 0]
    return next(iter(slower), None) if comparison.unit == "s" else None


def _from_comparisons(comparisons: Iterable[Comparison]) -> Iterable[Cause]:
    for comparison in comparisons:
        if comparison.outcome != "regressed" or comparison.method == "check":
            continue
        where = place(comparison.workload, comparison.shape)
        if is_operator(comparison) and comparison.unit == "1":
            name = comparison.metric.partition(":")[2]
            yield Cause(place=where, op=name, base_count=comparison.base, head_count=comparison.head)
        for part in comparison.parts:
            if comparison.unit == "B":
                yield Cause(place=where, op=part.name, more_bytes=part.head - part.base, line=part.line)
            else:
                yield Cause(place=where, op=part.name, base_count=part.base, head_count=part.head, line=part.line)


def _merge(found: dict[tuple[str, str], Cause], new: Cause) -> None:
    """Add what a further source knows about an operator; what an earlier, exact source said stays."""
    key = (new.place, new.op)
    old = found.get(key)
    if old is None:
        found[key] = new
        return
    counted = old if old.base_count is not None else new
    found[key] = replace(
        old,
        base_count=counted.base_count,
        head_count=counted.head_count,
        more_bytes=_first(old.more_bytes, new.more_bytes),
        more_time=_first(old.more_time, new.more_time),
        line=old.line or new.line,
    )


def _first(old: Optional[float], new: Optional[float]) -> Optional[float]:
    return new if old is None else old


def _adds(cause: Cause) -> bool:
    return cause.more_count > 0 or (cause.more_time or 0) > 0 or (cause.more_bytes or 0) > 0
