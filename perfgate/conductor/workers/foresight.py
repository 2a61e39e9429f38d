"""How long a measurement still takes, as far as that can be known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

# Seconds of finished steps needed to compare the speed of this run with the earlier
# one.
_ENOUGH = 1.0

Part = Literal["checklist", "pairs", "turns"]
Foresee = Callable[["Foresight"], None]


@dataclass(frozen=True)
class Foresight:
    """The known state of a running job; None is unknown.

    It is in ``part`` of its plan, at ``number`` of ``count``, with ``left`` seconds to
    go after ``elapsed``. Pairs may end at ``goal``, their next look, and ``left``
    refers to it. ``so_far`` is the interval of head's slowdown by the pairs so far, as
    shares of the base.
    """

    part: Part | None = None
    workload: str | None = None
    number: int | None = None
    count: int | None = None
    goal: int | None = None
    left: float | None = None
    elapsed: float | None = None
    so_far: tuple[float, float] | None = None


def foresee_steps(
    earlier: Mapping[int, float], done: Mapping[int, float], remaining: Sequence[int]
) -> Foresight:
    """The remaining time of a checklist with steps that took ``earlier`` seconds
    before, and ``done`` so far.
    """
    number, count = len(done) + 1, len(done) + len(remaining)
    if not earlier.keys() >= set(remaining):
        return Foresight(number=number, count=count)
    before = sum(earlier.get(step, 0.0) for step in done)
    pace = sum(done.values()) / before if before >= _ENOUGH else 1.0
    return Foresight(
        number=number, count=count, left=pace * sum(earlier[step] for step in remaining)
    )


def foresee_pairs(
    seconds_each: float | None, done: int, *, next_look: int
) -> Foresight:
    """The remaining time of the pairs up to the next look, None before the first pair."""
    left = None if seconds_each is None else seconds_each * (next_look - done)
    return Foresight(number=done + 1, goal=next_look, left=left)


def foresee_nothing(foresight: Foresight) -> None:
    """Without an observer."""
