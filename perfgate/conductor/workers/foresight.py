"""How long a measurement still takes, as far as that can be known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

# Seconds of finished steps that say how fast this time is beside that one.
_ENOUGH = 1.0

Part = Literal["checklist", "pairs", "turns"]
Foresee = Callable[["Foresight"], None]


class SoFar(NamedTuple):
    """What the pairs show so far, as shares of the base: a slowdown is above 0. ``half_width`` is that of its interval."""

    effect: float
    half_width: float


@dataclass(frozen=True)
class Foresight:
    """What is known of a job that runs; None is not known.

    It is in ``part`` of its plan, at ``number`` of ``count``, with ``left`` seconds to go after ``elapsed``. Pairs may end at
    ``goal``, their next look, which is what their ``left`` is about.
    """

    part: Part | None = None
    workload: str | None = None
    number: int | None = None
    count: int | None = None
    goal: int | None = None
    left: float | None = None
    elapsed: float | None = None
    so_far: SoFar | None = None


def foresee_steps(earlier: Mapping[int, float], done: Mapping[int, float], remaining: Sequence[int]) -> Foresight:
    """What is left of a checklist whose steps took ``earlier`` seconds before, and those ``done`` these seconds now."""
    number, count = len(done) + 1, len(done) + len(remaining)
    if not all(step in earlier for step in remaining):
        return Foresight(number=number, count=count)
    before = sum(earlier.get(step, 0.0) for step in done)
    pace = sum(done.values()) / before if before >= _ENOUGH else 1.0
    return Foresight(number=number, count=count, left=pace * sum(earlier[step] for step in remaining))


def foresee_pairs(pair_seconds: Sequence[float], done: int, *, next_look: int) -> Foresight:
    """What is left of pairs up to the next look, by what those so far took."""
    left = sum(pair_seconds) / len(pair_seconds) * (next_look - done) if pair_seconds else None
    return Foresight(number=done + 1, goal=next_look, left=left)


def foresee_nothing(foresight: Foresight) -> None:
    """Where nobody watches."""
