"""Counters of a job's turns: the lines of Python that its runs execute, and ratios of a server's own counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from perfgate.document.job import PYTHON_LINES, Turn

# The fewest runs of a side that show whether the count of lines repeats.
FEWEST_COUNTED = 2
# The counts of a ratio, as numerator and denominator: the first pair that both sides have.
Ratio = tuple[str, str]
CACHED: tuple[Ratio, ...] = (
    ("prefix_hits", "prefix_queries"),
    ("cached_tokens", "input_tokens"),
)
RATIOS: Mapping[str, tuple[Ratio, ...]] = {
    "serving.prefix_hits": CACHED,
    "serving.accepted": (("accepted", "drafted"),),
    "serving.preemptions": (("preemptions", "requests"),),
    "serving.iterations": (("iterations", "output_tokens"),),
}


def counted_lines(turns: Iterable[Turn]) -> list[int]:
    return [
        turn.counters[PYTHON_LINES] for turn in turns if PYTHON_LINES in turn.counters
    ]


def common_ratio(
    candidates: Iterable[Ratio], first: Iterable[Turn], second: Iterable[Turn]
) -> tuple[float, float] | None:
    """The first ratio that both lists of turns have, of each of them."""
    before = _totals(first)
    after = _totals(second)
    for count, of in candidates:
        if count in before and count in after and min(before[of], after[of]) > 0:
            return before[count] / before[of], after[count] / after[of]
    return None


def _totals(turns: Iterable[Turn]) -> Counter[str]:
    total: Counter[str] = Counter()
    for turn in turns:
        total.update(turn.counters)
        total.update(turn.work)
    return total
