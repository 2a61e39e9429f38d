"""Ranks that took turns: which of them does more on the head, what they call, and whether their losses agree."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from perfgate.catalogue.names import (
    RANKS_COLLECTIVES,
    RANKS_CPU,
    RANKS_ELEMENTS,
    RANKS_EXPOSED,
    RANKS_LOSS,
    RANKS_MEMORY,
    RANKS_OPERATORS,
    RANKS_SKEW,
    RANKS_SYNCS,
)
from perfgate.document.decision import Comparison, Part, Policy
from perfgate.document.job import CollectiveCount, RankCounts, Turn
from perfgate.document.message import Message
from perfgate.document.samples import unpack
from perfgate.judging.gate.comparison import Place, comparison, configured_tolerance, relative_change, rounded


def rank_parts(name: str, base: Iterable[Turn], head: Iterable[Turn]) -> list[Part]:
    """What every rank has of a number of all ranks, on both sides: CPU seconds of a step, or bytes of memory.

    By the clock on the wall all ranks take alike long, for they wait for the slowest; waiting takes no CPU time.
    """
    metric, unit = (RANKS_MEMORY, 1.0) if name == RANKS_MEMORY else (RANKS_CPU, 1e9)
    before, after = (_medians(turns, metric) for turns in (base, head))
    return [
        Part(name=f"rank {rank}", base=before[rank] / unit, head=after[rank] / unit)
        for rank in sorted(before.keys() & after.keys())
    ]


def _medians(turns: Iterable[Turn], metric: str) -> dict[int, float]:
    """The median over turns of the samples of a metric, by rank."""
    samples: dict[int, list[int]] = defaultdict(list)
    for turn in turns:
        for entry in turn.samples:
            if entry.metric == metric and entry.labels.get("rank", "").isdecimal():
                samples[int(entry.labels["rank"])] += unpack(entry.samples).tolist()
    return {rank: float(np.median(values)) for rank, values in samples.items() if values}


def losses_differ(base: Iterable[Turn], head: Iterable[Turn], tolerance: float) -> bool:
    """Whether the mean losses of turns that did the same steps are further apart than ``tolerance``, as a share."""
    means = [[turn.values.get(RANKS_LOSS) for turn in turns] for turns in (base, head)]
    return any(
        before is not None and after is not None and not math.isclose(before, after, rel_tol=tolerance)
        for before, after in zip(*means)
    )


def compare_counts(place: Place, base: Iterable[Turn], head: Iterable[Turn], policy: Policy) -> Iterator[Comparison]:
    """Compare what ranks called in profiled steps: exactly, with the collectives of each rank that differ as parts.

    What starts of one side disagree about is not exact. Its usual total is the same on both sides, or nothing is decided.
    """
    sides = [[turn.counts for turn in turns if turn.counts] for turns in (base, head)]
    if not all(sides) or not all(count.steps for side in sides for start in side for count in start):
        return
    for name, count in _COUNTS.items():
        before, after = ([{part: value for c in start for part, value in count(c)} for start in side] for side in sides)
        if any(start != side[0] for side in (before, after) for start in side):
            usual = [statistics.median(sum(start.values()) for start in side) for side in (before, after)]
            if usual[0] != usual[1]:
                yield comparison(
                    place,
                    name,
                    "exact",
                    "inconclusive",
                    gating=True,
                    base=rounded(usual[0]),
                    head=rounded(usual[1]),
                    delta=relative_change(*usual),
                    reason=Message("gate.starts-disagree"),
                )
            continue
        first, second = before[0], after[0]
        # What is called is named; of what is counted in elements or by the thousand the sum says it.
        named = {**first, **second} if name in (RANKS_COLLECTIVES, RANKS_SYNCS) else {}
        differing = [part for part in named if first.get(part, 0) != second.get(part, 0)]
        total = [sum(side.values()) for side in (first, second)]
        tolerated = configured_tolerance(policy, name, *place) or 0.0
        has_grown = total[1] > total[0] * (1 + tolerated)
        yield comparison(
            place,
            name,
            "exact",
            "regressed" if has_grown else "improved" if total[1] < total[0] else "unchanged",
            gating=True,
            base=rounded(total[0]),
            head=rounded(total[1]),
            delta=relative_change(total[0], total[1]),
            tolerance=tolerated,
            parts=[Part(name=part, base=first.get(part, 0), head=second.get(part, 0)) for part in differing],
        )
    for name, of in ((RANKS_EXPOSED, _exposed), (RANKS_SKEW, _skew)):
        old, new = (of(side) for side in sides)
        yield comparison(
            place,
            name,
            "turns",
            "unchanged",
            gating=False,
            base=rounded(old),
            head=rounded(new),
            delta=relative_change(old, new),
        )


def exposed_parts(base: Iterable[Turn], head: Iterable[Turn]) -> list[Part]:
    """How long a step communicated while nothing computed: where that grew, less of it overlaps than before."""
    sides = [[turn.counts for turn in turns if turn.counts] for turns in (base, head)]
    if not all(sides):
        return []
    return [Part(name="exposed communication", base=_exposed(sides[0]), head=_exposed(sides[1]))]


def _exposed(starts: Iterable[list[RankCounts]]) -> float:
    """The median over starts of the seconds of the rank that had least: what the others have more, they wait for it."""
    return statistics.median(min(count.exposed for count in start) for start in starts)


def _skew(starts: Iterable[list[RankCounts]]) -> float:
    """The median over starts of how much longer one rank waits than another."""
    return statistics.median(
        max(count.exposed for count in start) - min(count.exposed for count in start) for start in starts
    )


def _of_collectives(value: Callable[[CollectiveCount], int]) -> Callable[[RankCounts], Iterator[tuple[str, float]]]:
    def count(rank: RankCounts) -> Iterator[tuple[str, float]]:
        for collective in rank.collectives:
            yield f"{collective.name} of rank {rank.rank}", value(collective) / rank.steps

    return count


# Per step, by what is counted and the rank.
_COUNTS: dict[str, Callable[[RankCounts], Iterable[tuple[str, float]]]] = {
    RANKS_COLLECTIVES: _of_collectives(lambda collective: collective.count),
    RANKS_ELEMENTS: _of_collectives(lambda collective: collective.elements),
    RANKS_OPERATORS: lambda rank: [(f"operators of rank {rank.rank}", rank.operators / rank.steps)],
    RANKS_SYNCS: lambda rank: [(f"copies to the host of rank {rank.rank}", rank.syncs / rank.steps)],
}
