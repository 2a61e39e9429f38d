"""How many quads and starts fit into a time, by the seconds that a start and a quad take."""

from __future__ import annotations

from typing import NamedTuple

# The first starts are short, so that an early look rests on several; of later starts three quarters of the time are turns.
_EARLY_STARTS = 2
_LATER_WORTH = 3.0
_SHORTEST = 1e-9


class Pace(NamedTuple):
    """How often sides are started: after ``fewest`` to ``most`` quads, or with ``most`` 0 every turn is a separate process.

    A start of both sides is repeated for each of ``layouts``.
    """

    fewest: int
    most: int
    layouts: int = 1


class Reach(NamedTuple):
    """Quads of a job, of how many starts, and the seconds for them: an earlier check's part, or what it will have in the end.

    The quads and starts of an earlier check have the first numbers.
    """

    quads: int = 0
    starts: int = 0
    seconds: float = 0.0


def worth_of(start: int) -> float:
    """How many times as long as the start itself its turns take, of the start with this number."""
    return 1.0 if start < _EARLY_STARTS else _LATER_WORTH


def foresee(
    pace: Pace, *, quads: int, seconds: float, start_seconds: float, quad_seconds: float
) -> Reach:
    """What fits into ``seconds``, up to ``quads``. A start that begins is paid in part if the time ends meanwhile."""
    quad_seconds = max(quad_seconds, _SHORTEST)
    if not pace.most:
        fitting = min(int(seconds / quad_seconds), quads)
        return Reach(fitting, fitting, fitting * quad_seconds)
    taken = spent = 0.0
    starts = 0
    while taken < quads and spent < seconds:
        wanted = int(worth_of(starts) * start_seconds / quad_seconds)
        quads_each = min(pace.most, max(pace.fewest, wanted))
        seconds_each = pace.layouts * (start_seconds + quads_each * quad_seconds)
        share = min(1.0, (seconds - spent) / seconds_each, (quads - taken) / quads_each)
        taken += share * quads_each
        spent += share * seconds_each
        starts += int(share)
    return Reach(int(taken), max(1, starts), spent)
