"""The seconds of the parts of a call, such as operators, functions or kernels, in all pairs that profiled them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfgate.judging.gate.evidence.effect import Floats


class PairedTimes:
    """Seconds by name, of both members of each pair, in the order of measuring."""

    def __init__(self) -> None:
        self.base: list[Mapping[str, float]] = []
        self.head: list[Mapping[str, float]] = []

    def add(self, base: Mapping[str, float] | None, head: Mapping[str, float] | None) -> None:
        """Add a pair, if both members were profiled."""
        if base and head:
            self.base.append(base)
            self.head.append(head)

    def __len__(self) -> int:
        return len(self.base)

    @property
    def names(self) -> list[str]:
        """All names, in the order in which the pairs have them."""
        names: dict[str, None] = {}
        for base, head in zip(self.base, self.head):
            names |= dict.fromkeys((*base, *head))
        return list(names)

    def of(self, name: str) -> Floats:
        """The seconds of a part, a row for each pair; 0 where a member did not run it."""
        return np.array([(base.get(name, 0.0), head.get(name, 0.0)) for base, head in zip(self.base, self.head)])
