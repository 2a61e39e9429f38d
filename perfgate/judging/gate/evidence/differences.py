"""Paired differences: one logarithm of second over first per unit of evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from perfgate.stats.signed_rank import estimate

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Differences:
    """One logarithm of second over first a pair, in the order of measuring, and the weight of each pair.

    ``starts`` number the processes that the pairs come from, if many pairs come from the same: pairs of one start share its
    luck. None if every pair has processes of its own. ``luck`` is the sd of what other code of equal speed differs by in all
    pairs alike: no number of pairs shows it.
    """

    values: Floats
    weights: Floats
    starts: Ints | None = None
    luck: float = 0.0

    @classmethod
    def of(cls, values: npt.ArrayLike, starts: npt.ArrayLike | None = None) -> Differences:
        """Pairs of equal weight."""
        array = np.asarray(values, dtype=np.float64)
        return cls(array, np.ones(array.size), None if starts is None else np.asarray(starts, dtype=np.int64))

    def __getitem__(self, index: slice | list[bool]) -> Differences:
        starts = None if self.starts is None else self.starts[index]
        return Differences(self.values[index], self.weights[index], starts, self.luck)

    def __neg__(self) -> Differences:
        return Differences(-self.values, self.weights, self.starts, self.luck)

    def with_luck(self, luck: float) -> Differences:
        return replace(self, luck=luck)

    @property
    def size(self) -> int:
        return int(self.values.size)

    @cached_property
    def estimate(self) -> float:
        """The Hodges-Lehmann estimate of the effect."""
        return estimate(self.values, self.weights)
