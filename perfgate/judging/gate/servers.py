"""Servers that took turns: what they counted of themselves, such as hits of a prefix cache. It informs and decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from perfgate.document.decision import Comparison
from perfgate.document.job import Turn
from perfgate.judging.gate.comparison import Place, comparison, rounded

# What is counted, and for how much of what.
_RATIOS = {
    "serving.prefix_hits": ("prefix_hits", "prefix_queries"),
    "serving.accepted": ("accepted", "drafted"),
    "serving.preemptions": ("preemptions", "requests"),
    "serving.iterations": ("iterations", "output_tokens"),
}


def compare_counters_of_servers(place: Place, base: Iterable[Turn], head: Iterable[Turn]) -> Iterator[Comparison]:
    """Yield the ratios of counters that both sides have, over all their turns."""
    before, after = (_totals(turns) for turns in (base, head))
    for name, (count, of) in _RATIOS.items():
        if all(count in side and side[of] > 0 for side in (before, after)):
            ratios = [side[count] / side[of] for side in (before, after)]
            yield comparison(
                place,
                name,
                "turns",
                "informs",
                gating=False,
                base=rounded(ratios[0]),
                head=rounded(ratios[1]),
            )


def _totals(turns: Iterable[Turn]) -> Counter[str]:
    total: Counter[str] = Counter()
    for turn in turns:
        total.update(turn.counters)
        total.update(turn.work)
    return total
