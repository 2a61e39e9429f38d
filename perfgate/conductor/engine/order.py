"""Which side comes first: by lot, and evenly, so that the order favours neither side."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from perfgate.document.samples import Arm
from perfgate.system.interrupts import safe_point


def balanced_coins(lot: random.Random, *, run: int) -> Iterator[bool]:
    """Toss coins of which every ``run``, an even number, hold as many heads as tails."""
    while True:
        coins = [True, False] * (run // 2)
        lot.shuffle(coins)
        yield from coins


def order_of(second_leads: bool, *, turns: int = 4) -> tuple[int, ...]:
    """The sides of a quad's turns, 0 or 1: A B or B A, and of four turns A B B A or B A A B; of one turn the first side.

    An even drift cancels out over four turns, and over two quads of two turns.
    """
    if turns == 1:
        return (0,)
    half = (1, 0) if second_leads else (0, 1)
    return (*half, *half[::-1]) if turns == 4 else half


@dataclass(frozen=True)
class Start:
    """The draws for one start of both sides; ``number`` counts the starts of earlier jobs too.

    ``second_leads`` says for each quad whether the second side has its first turn. In a start of base against base (``arm``
    aa) the second side is loaded into the layout of ``twin_seed``, as other code would be.
    """

    number: int
    second_starts: bool
    second_leads: Iterable[bool]
    arm: Arm = "ab"
    layout_seed: int = 0
    twin_seed: int = 0

    @property
    def order(self) -> tuple[int, ...]:
        """The sides in the order in which they are started."""
        return order_of(self.second_starts, turns=2)


@dataclass(frozen=True)
class QuadTurns:
    """Two or four turns, half of each side. ``index`` is its number within its start.

    A quad that does not count is taken again, up to ``is_last_take``, which counts in any case.
    """

    index: int
    order: tuple[int, ...]
    take: int = 0
    is_last_take: bool = False

    def turns(self) -> Iterator[int]:
        """The side of each turn. An interruption ends the quad between two turns."""
        for side in self.order:
            safe_point()
            yield side


@dataclass
class Lots:
    """The coins of a measurement that draws its starts one by one."""

    lot: random.Random
    starts_run: int = 2
    second_leads: Iterator[bool] = field(init=False)
    second_starts: Iterator[bool] = field(init=False)

    def __post_init__(self) -> None:
        self.second_leads = balanced_coins(self.lot, run=2)
        self.second_starts = balanced_coins(self.lot, run=self.starts_run)

    def starts(self, first: int = 0) -> Iterator[Start]:
        """Draw starts, numbered from ``first``."""
        number = first
        while True:
            yield Start(number, next(self.second_starts), self.second_leads)
            number += 1
