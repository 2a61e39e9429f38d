"""What the engine asks of a client: to start both sides, to let them take the turns of a quad, and to keep the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from perfgate.conductor.engine.order import Quad, Start
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


class Client(Protocol):
    """Something that is measured in turns. Every method may raise TurnError, which ends the start."""

    @property
    def done(self) -> int:
        """The units of evidence so far, in which looks are counted: pairs, quads or turns."""

    def start(self, start: Start) -> Quads:
        """Start both sides in the order of ``start``, and wait until they are warm; return how many quads follow."""

    def quad(self, quad: Quad) -> bool:
        """Let the sides take the turns of a quad; return whether it counts, else it is taken again."""

    def finish(self) -> None:
        """Keep what the start measured. Sides may go on running until the next start."""

    def fail(self, error: TurnError) -> bool:
        """Record the failure of a start; return whether others follow."""
