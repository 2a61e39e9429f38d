"""The seconds of the parts of a call, such as operators, functions or kernels, in all pairs that profiled them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain

import numpy as np

from perfgate.document.samples import Replicate
from perfgate.stats.arrays import Floats


class PairedTimes:
    """Seconds by name, of both members of each pair, in the order of measuring."""

    def __init__(self) -> None:
        self.base: list[Mapping[str, float]] = []
        self.head: list[Mapping[str, float]] = []

    @classmethod
    def of(
        cls,
        pairs: Iterable[tuple[Replicate, Replicate]],
        seconds_of: Callable[[Replicate], Mapping[str, float] | None],
    ) -> PairedTimes:
        """The seconds of the pairs in which both members have some."""
        times = cls()
        for first, second in pairs:
            base = seconds_of(first)
            head = seconds_of(second)
            if base and head:
                times.base.append(base)
                times.head.append(head)
        return times

    def __len__(self) -> int:
        return len(self.base)

    @property
    def names(self) -> list[str]:
        """All names, in the order in which the pairs have them."""
        names: dict[str, None] = {}
        for times in zip(self.base, self.head):
            names |= dict.fromkeys(chain.from_iterable(times))
        return list(names)

    def of_part(self, name: str) -> Floats:
        """The seconds of a part, a row for each pair; 0 where a member did not run it."""
        return np.array(
            [
                (base.get(name, 0.0), head.get(name, 0.0))
                for base, head in zip(self.base, self.head)
            ]
        )
