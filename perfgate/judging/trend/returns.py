"""Which later change of a history undid which earlier one, by their sizes.

A level may be moved by several changes at once: of +10 %, +8 % and then -10 % the last
undid the first, although the level is not the first one's again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from perfgate.document.trend import TrendChange

# The level counts as back when less than this share of the shift is left.
LEFT_OVER = 0.5
# Of more changes that are undone at once, the newest are tried.
_MOST_TOGETHER = 6


def undone_by(
    changes: Sequence[TrendChange], *, is_exact: bool
) -> dict[int, TrendChange]:
    """The later change that undid each change, by the index of the undone one; changes
    are oldest first.
    """
    undone: dict[int, TrendChange] = {}
    remaining: dict[int, float] = {}
    for number, change in enumerate(changes):
        effect = _effect(change, is_exact=is_exact)
        opposite = [index for index, size in remaining.items() if size * effect < 0][
            -_MOST_TOGETHER:
        ]
        together = _undone_together(opposite, remaining, abs(effect))
        if together:
            for index in together:
                undone[index] = change
                del remaining[index]
        elif opposite:
            # A part of the largest; further parts may follow.
            largest = max(opposite, key=lambda index: abs(remaining[index]))
            remaining[largest] += effect
            if remaining[largest] * effect >= 0:
                undone[largest] = change
                del remaining[largest]
        remaining[number] = effect
    return undone


def _undone_together(
    opposite: Sequence[int], remaining: dict[int, float], size: float
) -> tuple[int, ...]:
    """The changes whose sizes together are closest to ``size``; empty if none are
    close.
    """
    best: tuple[int, ...] = ()
    least = math.inf
    for count in range(1, len(opposite) + 1):
        for chosen in combinations(reversed(opposite), count):
            sizes = [abs(remaining[index]) for index in chosen]
            distance = abs(size - sum(sizes))
            if distance <= LEFT_OVER * min(sizes) and distance < least:
                best, least = chosen, distance
    return best


def _effect(change: TrendChange, *, is_exact: bool) -> float:
    """The size of a change: relative for times, absolute for counts, which are added
    up.
    """
    if is_exact or change.before <= 0 or change.after <= 0:
        return change.after - change.before
    return math.log(change.after / change.before)
