"""The regressions, one for each cause, the most important first.

Reports number, word and link these; they rank and group no regression themselves.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

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
from perfgate.document.decision import Regression
from perfgate.document.explanation import Cause
from perfgate.document.shape import ShapePlace

_OUTCOMES = ("regressed", "improved", "inconclusive")
_EVIDENCE: tuple[EvidenceUnit, ...] = ("pair", "turn", "quad")
# They move with other metrics: with all the other times, or with the times of
# operators.
_LISTED_LAST = {
    name for name, metric in METRICS.items() if metric.display.order == "last"
}
# They explain more than the metrics that move with them.
_LISTED_FIRST = {
    name for name, metric in METRICS.items() if metric.display.order == "first"
}

# A comment on a forge keeps them in its text, whose length is limited.
_MOST_KEYS = 100
# With one of these characters, a metric at a place would accept others or itself not.
_PATTERN = re.compile(r"[*?\[@]")


def leading(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The comparisons that regressed.

    Single operators explain metrics; they lead only if no metric regressed.
    """
    regressed = []
    operators = []
    for comparison in comparisons:
        if comparison.outcome != "regressed":
            continue
        if comparison.is_of_operator:
            operators.append(comparison)
        else:
            regressed.append(comparison)
    return regressed or operators


@dataclass(frozen=True)
class _Group:
    """Comparisons that got worse by one cause, the worst first.

    ``causes`` are the numbers of its effects, the leading one first; ``more_time`` is
    the most seconds that one of them adds, 0 if that is not known of the cause of a
    slower call. ``cost`` is the most seconds of a call that one of its comparisons
    stands for. ``slower`` are the times that got worse, the deciding one first.
    """

    causes: list[int]
    comparisons: list[Comparison]
    places: set[ShapePlace]
    more_time: float
    cost: float
    slower: list[Comparison]

    @classmethod
    def of(
        cls,
        comparisons: list[Comparison],
        causes: Sequence[Cause],
        slowdowns: Mapping[ShapePlace, float],
    ) -> _Group:
        numbers = set()
        places = set()
        slower = []
        is_known = True
        most = 0.0
        cost = 0.0
        for comparison in comparisons:
            places.add(comparison.place)
            own: float | None = None
            if comparison.cause is not None:
                numbers.add(comparison.cause)
                own = causes[comparison.cause].more_time
            if comparison.is_timed:
                slower.append(comparison)
                is_known = is_known and own is not None
            most = max(most, own or 0.0)
            cost = max(cost, _seconds(comparison, own, slowdowns))
        slower.sort(key=lambda comparison: comparison.metric != LATENCY)
        more_time = most if is_known else 0.0
        return cls(sorted(numbers), comparisons, places, more_time, cost, slower)


def _seconds(
    comparison: Comparison,
    own: float | None,
    slowdowns: Mapping[ShapePlace, float],
) -> float:
    """The seconds of a call that a comparison stands for: its cause's ``own`` or, for a
    slower call whose cause has no time of its own, all that the call takes longer.

    A part of a call adds no more than the whole.
    """
    slowdown = slowdowns.get(comparison.place)
    if own is None:
        return (slowdown or 0.0) if comparison.is_timed else 0.0
    if slowdown is None:
        return own
    return min(own, slowdown)


def _slowdowns(regressed: Iterable[Comparison]) -> dict[ShapePlace, float]:
    """The seconds by which a call of each place takes longer, by the time that decides,
    else by the first.
    """
    seconds: dict[ShapePlace, float] = {}
    for row in regressed:
        if not isinstance(row, Paired) or row.unit != "s":
            continue
        if row.base is None or row.head is None:
            continue
        if row.metric == LATENCY or row.place not in seconds:
            seconds[row.place] = row.head - row.base
    return seconds


class Regressions:
    """The regressed among comparisons in reading order, by cause; those without one by
    place if they are times, else by metric.
    """

    def __init__(
        self,
        comparisons: Sequence[Comparison],
        regressed: Sequence[Comparison],
        causes: Sequence[Cause],
    ) -> None:
        self._numbers: dict[int, int] = {}
        self._fast_paths: list[Paired] = []
        for number, row in enumerate(comparisons):
            self._numbers[id(row)] = number
            if isinstance(row, Paired) and row.is_of_call and row.metric == LATENCY:
                self._fast_paths.append(row)
        self._failing: Counter[str] = Counter()
        members: dict[Hashable, list[Comparison]] = {}
        for comparison in regressed:
            members.setdefault(_key(comparison, causes), []).append(comparison)
            self._failing[comparison.metric] += comparison.gating
        # How many regressions slow a place down.
        self._slower: Counter[ShapePlace] = Counter()
        self._timed: Counter[ShapePlace] = Counter()
        self._groups: list[_Group] = []
        slowdowns = _slowdowns(regressed)
        for of_key in members.values():
            group = _Group.of(of_key, causes, slowdowns)
            self._groups.append(group)
            if group.slower:
                self._slower.update(group.places)
            if group.slower or group.more_time:
                self._timed.update(group.places)

    def ranked(self, *, acceptable: bool) -> list[Regression]:
        """The regressions, the most important first; ``acceptable`` is whether they can
        be accepted.
        """
        regressions = []
        for group in sorted(self._groups, key=self._order):
            accepts = self._accepts(group) if acceptable else []
            regressions.append(replace(self._regression(group), accepts=accepts))
        return regressions

    def _order(self, group: _Group) -> tuple[float, ...]:
        first = self._numbers[id(group.comparisons[0])]
        is_judged = any(row.gating or row.accepted for row in group.comparisons)
        return not is_judged, -group.cost, not group.slower, -group.more_time, first

    def _regression(self, group: _Group) -> Regression:
        fast_paths = [time for time in self._fast_paths if time.place in group.places]
        slower: Sequence[Comparison] = group.slower or _certain_costs(fast_paths)
        apart: float | None = None
        shares_a_call = any(self._timed[place] > 1 for place in group.places)
        if group.more_time and (shares_a_call or not group.slower):
            apart = group.more_time
        # Something other than times and rules got worse, and no call is shown to be
        # slower.
        has_counts = any(
            isinstance(row, (Exact, Recorded)) and not row.is_timed
            for row in group.comparisons
        )
        is_slower_elsewhere = any(self._slower[place] for place in group.places)
        at_most: float | None = None
        if has_counts and not slower and not is_slower_elsewhere:
            at_most = _largest_slowdown(fast_paths)
        return Regression(
            causes=group.causes,
            comparisons=self._numbered(group.comparisons),
            slower=self._numbered(slower),
            apart=apart,
            at_most=at_most,
        )

    def _numbered(self, comparisons: Iterable[Comparison]) -> list[int]:
        return [self._numbers[id(comparison)] for comparison in comparisons]

    def _accepts(self, group: _Group) -> list[str]:
        """The metrics to accept exactly this, with places if others would be accepted
        too; empty if none can be accepted.
        """
        failing = [
            row
            for row in group.comparisons
            if row.gating and not isinstance(row, Checked)
        ]
        of_group = Counter(comparison.metric for comparison in failing)
        keys: dict[str, None] = {}
        for comparison in failing:
            name = comparison.metric
            if of_group[name] == self._failing[name]:
                keys[name] = None
                continue
            place = "/".join(filter(None, comparison.place))
            if _PATTERN.search(name) or _PATTERN.search(place):
                return []
            keys[f"{name}@{place}"] = None
        if len(keys) > _MOST_KEYS:
            return []
        return list(keys)


def _key(comparison: Comparison, causes: Sequence[Cause]) -> Hashable:
    if comparison.cause is not None:
        group = causes[comparison.cause].group
        if group is None:
            group = comparison.cause
        return "cause", group
    if comparison.is_timed:
        return "time", comparison.place
    return type(comparison), comparison.metric, comparison.name


def _certain_costs(fast_paths: Iterable[Paired]) -> Sequence[Comparison]:
    """The fast paths that certainly slowed down, in too few pairs for an alarm, the
    worst first.
    """
    slower = []
    for time in fast_paths:
        if (
            time.outcome == "inconclusive"
            and time.excludes_no_change
            and (time.delta or 0.0) > 0.0
        ):
            slower.append(time)
    return sorted(slower, key=lambda time: -(time.delta or 0.0))


def _largest_slowdown(fast_paths: Sequence[Paired]) -> float | None:
    """The largest slowdown that the intervals of fast paths allow; None if times prove
    none.
    """
    largest: float | None = None
    for time in fast_paths:
        if time.outcome == "not_comparable":
            return None
        if time.interval:
            largest = max(largest or 0.0, time.interval[1])
    return largest


# --- the order in which people read comparisons


def reading_order(comparison: Comparison) -> tuple[float, ...]:
    """Regressions, the worst first; improvements, the largest first; undecided
    comparisons, blockers of the verdict first.

    Of paired times, the first to decide leads, not the largest: the largest would be
    the luckiest. The turnaround contains all other times, so it comes after them, and
    so do instructions. A counter with the line of its increase precedes one that only
    counts; the calls of an operator precede the memory that they take.
    """
    if comparison.outcome not in _OUTCOMES:
        return (len(_OUTCOMES),)
    outcome = _OUTCOMES.index(comparison.outcome)
    if comparison.outcome == "inconclusive":
        excess = 0.0  # the worsening beyond the tolerance
        if isinstance(comparison, NumberComparison):
            excess = max(0.0, comparison.worsening - (comparison.tolerance or 0.0))
        return (outcome, not comparison.must_decide, not comparison.gating, -excess)
    # An accepted one keeps its place, so the causes keep their numbers.
    is_counted = comparison.gating or comparison.accepted
    return outcome, not is_counted, *_order_within_evidence(comparison)


def _order_within_evidence(comparison: Comparison) -> tuple[float, ...]:
    """Checks, bounds, times, counts and recordings, each sorted by its own criteria."""
    is_last = comparison.metric in _LISTED_LAST
    is_not_first = comparison.metric not in _LISTED_FIRST
    match comparison:
        case Checked():
            return (0,)
        case Bound():
            return (
                1,
                not comparison.is_of_kernels,
                comparison.limit is not None,
                is_last,
                is_not_first,
            )
        case Paired():
            unit = _EVIDENCE.index(comparison.evidence)
            follows_call = comparison.is_of_call and comparison.metric not in FAST_PATHS
            return (
                2,
                unit,
                is_last,
                is_not_first,
                follows_call,
                _largest_first(comparison),
            )
        case Exact():
            has_line = any(
                part.line and part.head > part.base for part in comparison.parts
            )
            cause = math.inf if comparison.cause is None else comparison.cause
            return (
                3,
                not has_line,
                is_not_first,
                is_last,
                cause,
                _largest_first(comparison),
            )
        case Recorded():
            return 4, is_last, is_not_first, _largest_first(comparison)


def _largest_first(comparison: NumberComparison) -> float:
    if comparison.delta is None:
        return -math.inf
    return -abs(comparison.delta)
