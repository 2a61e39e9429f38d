"""The power limit of a fake card: what it has heated up lowers its clock."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple


class Clocked(NamedTuple):
    """A card's state after some work: its share of the rated clock, and whether its power limit held it."""

    share: float
    capped: bool


@dataclass
class PowerCap:
    """A card whose temperature follows its load with one time constant (an RC element), and whose clock follows that.

    Above its limit the clock falls in proportion. ``heat`` is 0 for a card that idled long, 1 for one that worked long.
    """

    seconds: float = 6.0
    limit: float = 0.3
    steepness: float = 0.25
    heat: float = 0.0

    def pass_time(self, seconds: float, *, load: float) -> Clocked:
        self.heat += (load - self.heat) * (1 - math.exp(-seconds / self.seconds))
        return self.clocked

    @property
    def clocked(self) -> Clocked:
        over = max(0.0, self.heat - self.limit)
        return Clocked(1 - self.steepness * over, over > 0)
