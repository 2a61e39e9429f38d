"""The regressions, one for each cause, the most important first; also the reading order of the comparisons.

Reports number, word and link these; they rank and group nothing themselves.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from functools import cached_property

import msgspec

from perfgate.catalogue.lookup import FAST_PATHS, METRICS
from perfgate.catalogue.names import LATENCY
from perfgate.document.comparison import (
    Bound,
    Checked,
    Comparison,
    EvidenceUnit,
    Exact,
    NumberComparison,
    Paired,
    Recorded,
)
from perfgate.document.decision import DecisionDocument, Regression
from perfgate.document.explanation import Cause
from perfgate.judging.gate.explain.operator_table import mark_alone

replace = msgspec.structs.replace
_OUTCOMES = ("regressed", "improved", "inconclusive")
_EVIDENCE: tuple[EvidenceUnit, ...] = ("pair", "turn", "quad")
# They move with other metrics: with all the other times, or with the times of operators.
_LISTED_LAST = {name for name, metric in METRICS.items() if metric.listed_last}
# They explain more than the metrics that move with them.
_LISTED_FIRST = {name for name, metric in METRICS.items() if metric.listed_first}
# A longer command is too long to paste.
_MOST_KEYS = 12
# A shape with one of these characters in its name would accept others too.
_PATTERN = re.compile(r"[*?\[@]")
_Place = tuple[str, str]


def with_regressions(decision: DecisionDocument) -> DecisionDocument:
    """The decision with its comparisons and explanations in reading order, the regressions, and the operators slower alone."""
    comparisons = sorted(decision.comparisons, key=_reading_order)
    regressed = [c for c in comparisons if c.outcome == "regressed"]
    # Single operators explain metrics; they lead only if no metric regressed.
    regressed = [c for c in regressed if not c.is_of_operator] or regressed
    rank = {c.place: number for number, c in reversed(list(enumerate(regressed)))}
    explanations = sorted(decision.explanations, key=lambda e: rank.get(e.place, len(rank)))
    decision = replace(decision, comparisons=comparisons, explanations=explanations)
    return replace(decision, operators=mark_alone(decision), regressions=_Regressions(decision, regressed).ranked())


def _reading_order(c: Comparison) -> tuple[float, ...]:
    """Regressions, the worst first; improvements, the largest first; undecided ones, those that hold up the verdict first.

    Of paired times the one that decides first leads, not the largest: that would be the luckiest. The turnaround contains all
    other times, so it comes after them, and so do instructions. A counter with the line of its
    increase precedes one that only counts; the calls of an operator precede the memory that they take.
    """
    if c.outcome not in _OUTCOMES:
        return (len(_OUTCOMES),)
    outcome = _OUTCOMES.index(c.outcome)
    if c.outcome == "inconclusive":
        excess = c.worsening - (c.tolerance or 0.0) if isinstance(c, NumberComparison) else 0.0
        return outcome, not c.must_decide, not c.gating, -max(0.0, excess)
    # An accepted one keeps its place, so the causes keep their numbers.
    return outcome, not (c.gating or c.accepted), *_order_of_kind(c)


def _order_of_kind(c: Comparison) -> tuple[float, ...]:
    """Checks, bounds, times, counts and recordings, each kind by an order of its own."""
    is_last, is_not_first = c.metric in _LISTED_LAST, c.metric not in _LISTED_FIRST
    match c:
        case Checked():
            return (0,)
        case Bound():
            return 1, not c.is_of_kernels, c.limit is not None, is_last, is_not_first
        case Paired():
            follows_call = c.is_of_call and c.metric not in FAST_PATHS
            return 2, _EVIDENCE.index(c.evidence), is_last, is_not_first, follows_call, _largest_first(c)
        case Exact():
            has_line = any(part.line and part.head > part.base for part in c.parts)
            cause = math.inf if c.cause is None else c.cause
            return 3, not has_line, is_not_first, is_last, cause, _largest_first(c)
        case Recorded():
            return 4, is_last, is_not_first, _largest_first(c)


def _largest_first(c: NumberComparison) -> float:
    return -math.inf if c.delta is None else -abs(c.delta)


class _Group:
    """Comparisons that got worse by one cause, the worst first; ``causes`` are its effects, the leading one first."""

    def __init__(self, causes: Mapping[int, Cause], comparisons: Sequence[Comparison]) -> None:
        self.causes = causes
        self.comparisons = comparisons

    @cached_property
    def places(self) -> Set[_Place]:
        return {c.place for c in self.comparisons}

    @cached_property
    def more_time(self) -> float:
        return max((cause.more_time or 0.0 for cause in self.causes.values()), default=0.0)

    @cached_property
    def slower(self) -> list[Comparison]:
        """The times that got worse, the deciding one first."""
        return sorted(filter(_is_timed, self.comparisons), key=lambda c: c.metric != LATENCY)

    @cached_property
    def counts_nothing(self) -> bool:
        """Whether times and rules alone got worse."""
        return all(_is_timed(c) or isinstance(c, (Bound, Checked)) for c in self.comparisons)


class _Regressions:
    """The regressed comparisons of a decision by cause; those without one by place if they are times, else by metric."""

    def __init__(self, decision: DecisionDocument, regressed: Sequence[Comparison]) -> None:
        self._decision = decision
        self._numbers = {id(c): number for number, c in enumerate(decision.comparisons)}
        paired = [c for c in decision.comparisons if isinstance(c, Paired)]
        self._fast_paths = [c for c in paired if c.metric == LATENCY and c.is_of_call]
        members: dict[tuple[object, ...], list[Comparison]] = {}
        for comparison in regressed:
            members.setdefault(self._key(comparison), []).append(comparison)
        groups = []
        for comparisons in members.values():
            numbers = sorted({c.cause for c in comparisons if c.cause is not None})
            groups.append(_Group({number: decision.causes[number] for number in numbers}, comparisons))
        self._groups = sorted(groups, key=self._order)
        self._slower = Counter(place for group in groups if group.slower for place in group.places)
        self._timed = Counter(place for group in groups if group.slower or group.more_time for place in group.places)
        self._failing = Counter(c.metric for c in regressed if c.gating)

    def ranked(self) -> list[Regression]:
        return [self._regression(group) for group in self._groups]

    def _key(self, comparison: Comparison) -> tuple[object, ...]:
        if comparison.cause is not None:
            group = self._decision.causes[comparison.cause].group
            return "cause", comparison.cause if group is None else group
        if _is_timed(comparison):
            return "time", comparison.workload, comparison.shape
        return type(comparison), comparison.metric, comparison.name

    def _order(self, group: _Group) -> tuple[float, ...]:
        return (
            not any(c.gating or c.accepted for c in group.comparisons),
            -group.more_time,
            not group.slower,
            self._numbers[id(group.comparisons[0])],
        )

    def _regression(self, group: _Group) -> Regression:
        slower: Sequence[Comparison] = group.slower or self._costs(group)
        elsewhere_slower = any(self._slower[place] for place in group.places)
        shares_a_call = any(self._timed[place] > 1 for place in group.places)
        return Regression(
            causes=list(group.causes),
            comparisons=[self._numbers[id(c)] for c in group.comparisons],
            slower=[self._numbers[id(c)] for c in slower],
            apart=group.more_time if group.more_time and (not group.slower or shares_a_call) else None,
            at_most=None if slower or elsewhere_slower or group.counts_nothing else self._at_most(group),
            accepts=self._accepts(group),
        )

    def _costs(self, group: _Group) -> list[Paired]:
        """The fast paths of its places that certainly slowed down, in too few pairs for an alarm, the worst first."""
        found = [c for c in self._fast_paths_of(group) if c.outcome == "inconclusive"]
        slower = [c for c in found if c.excludes_no_change and (c.delta or 0.0) > 0.0]
        return sorted(slower, key=lambda c: c.delta or 0.0, reverse=True)

    def _at_most(self, group: _Group) -> float | None:
        """The largest slowdown of a fast path that the intervals of its places allow; None if times prove nothing."""
        timed = self._fast_paths_of(group)
        if any(c.outcome == "not_comparable" for c in timed):
            return None
        ends = [c.interval[1] for c in timed if c.interval]
        return max(0.0, *ends) if ends else None

    def _fast_paths_of(self, group: _Group) -> list[Paired]:
        return [c for c in self._fast_paths if c.place in group.places]

    def _accepts(self, group: _Group) -> list[str]:
        """The metrics to accept exactly this, with places if others would be accepted too; empty if nothing can be accepted."""
        decision = self._decision
        meant = [c for c in group.comparisons if c.gating and not isinstance(c, Checked)]
        if decision.verdict != "FAIL" or decision.head.dirty or decision.comparing != "code":
            return []
        here = Counter(c.metric for c in meant)
        keys: dict[str, None] = {}
        for comparison in meant:
            where = f"{comparison.workload}/{comparison.shape}" if comparison.shape else comparison.workload
            is_all = here[comparison.metric] == self._failing[comparison.metric]
            if not is_all and _PATTERN.search(where):
                return []
            keys[comparison.metric if is_all else f"{comparison.metric}@{where}"] = None
        return list(keys) if len(keys) <= _MOST_KEYS else []


def _is_timed(comparison: Comparison) -> bool:
    """Whether it is a time, or another number that both sides measured in turns."""
    return isinstance(comparison, Paired) or (isinstance(comparison, NumberComparison) and comparison.unit == "s")
