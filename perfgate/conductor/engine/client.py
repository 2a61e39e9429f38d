"""What the engine asks of a client: to start both sides, to let them take the turns of a quad, and to keep the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from perfgate.conductor.engine.order import QuadTurns, Start
from perfgate.conductor.failure import TurnError


@dataclass(frozen=True)
class Quads:
    """The quads of a start: from ``fewest`` to ``most``, by the time that the start took.

    A start that ``is_whole`` has ``most`` quads even if the time is spent meanwhile.
    """

    fewest: int
    most: int
    is_whole: bool = False

    @classmethod
    def exactly(cls, count: int) -> Quads:
        return cls(count, count, is_whole=True)


class Standing(NamedTuple):
    """How far a measurement is: when it may be decided next, and how long a unit takes, None before the first."""

    next_look: int
    seconds_each: float | None


class Client(Protocol):
    """Something that is measured in turns. Every method may raise TurnError, which ends the start."""

    @property
    def done(self) -> int:
        """The units of evidence so far, in which looks are counted: pairs, quads or turns."""

    def start(self, start: Start, standing: Standing, /) -> Quads:
        """Start both sides in the order of ``start``, and wait until they are warm.

        Return how many quads follow; a start without any ends the measurement.
        """

    def quad(self, quad: QuadTurns) -> bool:
        """Let the sides take the turns of a quad; return whether it counts, else it is taken again."""

    def finish(self) -> None:
        """Keep what the start measured. Sides may go on running until the next start."""

    def fail(self, error: TurnError) -> bool:
        """Record the failure of a start; return whether others follow."""
