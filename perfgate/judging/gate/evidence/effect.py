"""The effect of a change on one number, measured side by side: by pairs of processes, turns of a step, or quads of a job."""

from __future__ import annotations

import math
from typing import NamedTuple

from perfgate.document.comparison import Clock, EvidenceUnit
from perfgate.judging.gate.evidence.differences import Differences


class PairedEffect(NamedTuple):
    """A number on both sides, one log ratio of head over base per pair or turn, in the order of measuring.

    ``base`` is the base's level and ``head`` the level that the estimated effect makes of it, in the metric's unit. ``pairs``
    is the number of process pairs, if a tail pools several of them to one difference. A ``clock`` that is not ``fair``
    depends on the side that the scheduler favoured.
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
        return self.differences.size if self.pairs is None else self.pairs
