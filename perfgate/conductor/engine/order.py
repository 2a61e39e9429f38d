"""Which side comes first: by lot, and evenly, so that nothing that comes with the order favours a side."""

from __future__ import annotations

import random
from collections.abc import Iterator


def balanced_coins(lot: random.Random, *, run: int) -> Iterator[bool]:
    """Toss coins of which every ``run``, an even number, hold as many heads as tails."""
    while True:
        coins = [True, False] * (run // 2)
        lot.shuffle(coins)
        yield from coins
