"""How long a measurement still takes, as far as that can be known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# What the same step takes on the other side, or another time, on a machine that others use too.
SHORTEST, LONGEST = 0.7, 1.5
# Seconds of finished steps that say how fast this time is beside that one.
_ENOUGH = 1.0


Foresee = Callable[["Foresight"], None]


@dataclass(frozen=True)
class Foresight:
    """What is known of the part of a job that runs; None is not known.

    It is part ``part`` of ``parts``, at step ``number`` of ``count``, with ``at_least`` to ``at_most`` seconds left.
    """

    part: int | None = None
    parts: int | None = None
    number: int | None = None
    count: int | None = None
    at_least: float | None = None
    at_most: float | None = None


def foresee_steps(earlier: Mapping[int, float], done: Mapping[int, float], remaining: Sequence[int]) -> Foresight:
    """What is left of a checklist whose steps took ``earlier`` seconds before, and those ``done`` these seconds now."""
    number, count = len(done) + 1, len(done) + len(remaining)
    if not all(step in earlier for step in remaining):
        return Foresight(number=number, count=count)
    before = sum(earlier.get(step, 0.0) for step in done)
    pace = sum(done.values()) / before if before >= _ENOUGH else 1.0
    expected = pace * sum(earlier[step] for step in remaining)
    return Foresight(number=number, count=count, at_least=SHORTEST * expected, at_most=LONGEST * expected)


def foresee_pairs(
    pair_seconds: Sequence[float], done: int, *, next_look: int, sure: int, most: int, budget_left: float
) -> Foresight:
    """What is left of pairs: at least those up to the next look; after the ``sure`` ones the budget ends them."""
    if not pair_seconds:
        return Foresight()
    fastest, slowest = min(pair_seconds), max(pair_seconds)
    at_most = min((most - done) * slowest, max((sure - done) * slowest, budget_left + slowest))
    return Foresight(at_least=min((next_look - done) * fastest, at_most), at_most=at_most)


def foresee_nothing(foresight: Foresight) -> None:
    """Where nobody watches."""
