"""The effect of a change on one number, measured side by side: by pairs of processes,
turns of a step, or quads of a job.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.names import START_SPREAD
from perfgate.document.comparison import Clock, EvidenceUnit
from perfgate.document.history import HistorySeries
from perfgate.stats.arrays import Floats, Ints
from perfgate.stats.clusters import START_LUCK
from perfgate.stats.signed_rank import estimate
from perfgate.stats.summary import median


@dataclass(frozen=True)
class Differences:
    """One logarithm of second over first a pair, in the order of measuring, and the
    weight of each pair.

    ``starts`` number the processes that the pairs come from, if many pairs come from
    the same: pairs of one start share its luck. None if every pair has fresh processes.
    ``start_luck`` is the assumed sd of that luck. ``luck`` is the sd of the difference
    between codes of equal speed, in all pairs alike: more pairs do not show it.
    """

    values: Floats
    weights: Floats
    starts: Ints | None = None
    luck: float = 0.0
    start_luck: float = START_LUCK

    @classmethod
    def of(
        cls, values: npt.ArrayLike, starts: npt.ArrayLike | None = None
    ) -> Differences:
        """Pairs of equal weight."""
        array = np.asarray(values, dtype=np.float64)
        return cls(
            array,
            np.ones(array.size),
            None if starts is None else np.asarray(starts, dtype=np.int64),
        )

    def __getitem__(self, index: slice | list[bool]) -> Differences:
        starts = None if self.starts is None else self.starts[index]
        return replace(
            self, values=self.values[index], weights=self.weights[index], starts=starts
        )

    def __neg__(self) -> Differences:
        return replace(self, values=-self.values)

    def with_luck(self, luck: float) -> Differences:
        return replace(self, luck=luck)

    def in_starts(self, starts: npt.ArrayLike, *, luck: float) -> Differences:
        """The differences of pairs that come from these starts, which have luck of this
        sd.
        """
        return replace(self, starts=np.asarray(starts, dtype=np.int64), start_luck=luck)

    @property
    def size(self) -> int:
        return int(self.values.size)

    @cached_property
    def estimate(self) -> float:
        """The Hodges-Lehmann estimate of the effect."""
        return estimate(self.values, self.weights)


class PairedEffect(NamedTuple):
    """A number on both sides, one log ratio of head over base per pair or turn, in the
    order of measuring.

    ``base`` is the base's level and ``head`` the level that the estimated effect makes
    of it, in the metric's unit. ``pairs`` is the number of process pairs, if a tail
    pools several of them to one difference. A ``clock`` that is not ``fair`` depends on
    the side that the scheduler favoured.
    """

    differences: Differences
    base: float
    head: float
    evidence: EvidenceUnit
    pairs: int | None = None
    clock: Clock = "wall"
    fair: bool = True

    @classmethod
    def of(
        cls,
        differences: Differences,
        base: float,
        evidence: EvidenceUnit,
        *,
        zero: float = 0.0,
        pairs: int | None = None,
        clock: Clock = "wall",
    ) -> PairedEffect:
        """The effect on a number that is compared by its distance from ``zero``."""
        head = (zero + base) * math.exp(differences.estimate) - zero
        return cls(differences, base, head, evidence, pairs, clock)

    @property
    def size(self) -> int:
        """The process pairs, or else the differences."""
        if self.pairs is None:
            return self.differences.size
        return self.pairs


# --- the luck of a start on an accelerator: the spread between processes that main's
# stored runs of the testbed showed. The documents under judgement are no source of it:
# each side could widen its own error.


# The assumed difference between two starts of equal code, as the sd of a logarithm; the
# starts of a gate correct it as they become more. Stored values replace it once there
# are enough, within these bounds: each comes from a few processes.
RESIDENT_LUCK = 0.003
FEWEST_VALUES = 3
LEAST_LUCK, MOST_LUCK = 0.001, 0.01

# By workload.
StartLuck: TypeAlias = Mapping[str, float]
ASSUMED: StartLuck = MappingProxyType({})


def start_luck_of(stored: Iterable[HistorySeries]) -> StartLuck:
    """The luck of workloads with enough stored values on the testbed."""
    values: dict[str, list[float]] = defaultdict(list)
    for series in stored:
        if series.metric == START_SPREAD:
            values[series.workload] += series.values
    luck = {}
    for workload, spreads in values.items():
        if len(spreads) >= FEWEST_VALUES:
            luck[workload] = min(MOST_LUCK, max(LEAST_LUCK, median(spreads)))
    return luck
