"""Simulated gates: effects of pairs in, and out what the shipped rule makes of them
look by look, of one workload or several.

A workload is looked at as a check does, after the planned numbers of pairs and where
its budget ends; then all are judged together, as at the end of a check. Undecided ones
may have had the pairs that others left over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import LATENCY
from perfgate.document.decision import DEFAULT_LOOKS, Policy
from perfgate.judging.gate.compare.judge import AlphaShares
from perfgate.judging.gate.compare.rule import (
    LEANING,
    LEANING_PAIRS,
    Answer,
    Errors,
    Limits,
    alarm_margin,
    answer,
    p_slower,
)
from perfgate.judging.gate.evidence.effect import Differences

Floats = npt.NDArray[np.float64]


class SimulatedRule(NamedTuple):
    """The rule of the fast path, as shipped or altered; ``luck`` is the one that it
    allows for.
    """

    looks: tuple[int, ...] = tuple(DEFAULT_LOOKS)
    tolerated: float = 0.005
    sought: float = 0.01
    sufficient: float = 0.02
    leaning_pairs: int = LEANING_PAIRS
    luck: float = METRICS[LATENCY].gate.luck

    def errors(self, workloads: int) -> Errors:
        shares = AlphaShares.of_subjects(Policy(), subjects=workloads)
        alarm = shares.of(METRICS[LATENCY].gate.family)
        return Errors(alarm, Policy().alpha_ok, self.looks)

    def answer(
        self, effects: Floats, errors: Errors, excluded: float, *, interim: bool
    ) -> Answer:
        differences = Differences.of(effects).with_luck(self.luck)
        margin = alarm_margin(differences.size, self.looks, interim=interim)
        p = p_slower(differences, 0.0, errors.alarm_looks, alike_margin=margin)
        limits = Limits(math.log1p(self.tolerated), math.log1p(excluded))
        return answer(differences, limits, errors, p_adjusted=p)

    def pairs_of(
        self, effects: Floats, errors: Errors, *, budget: int
    ) -> tuple[int, bool]:
        """The pairs after which a workload is decided, or has no more, and whether more
        would help.
        """
        last = min(budget, self.looks[-1], effects.size)
        for look in [*(planned for planned in self.looks if planned < last), last]:
            given = self.answer(effects[:look], errors, self.sought, interim=True)
            leans = Differences.of(effects[:look]).estimate > LEANING * math.log1p(
                self.tolerated
            )
            waits = given == "unchanged" and leans and look < self.leaning_pairs
            if given != "inconclusive" and not waits:
                return look, False
        return last, True

    def final_answer(self, effects: Floats, errors: Errors) -> Answer:
        given = self.answer(effects, errors, self.sought, interim=False)
        return (
            given
            if given != "inconclusive"
            else self.answer(effects, errors, self.sufficient, interim=False)
        )


class SimulatedGate(NamedTuple):
    """The answer about each workload, and its pairs."""

    answers: list[Answer]
    pairs: list[int]

    @property
    def failed(self) -> bool:
        return "regressed" in self.answers

    @property
    def undecided(self) -> bool:
        return not self.failed and "inconclusive" in self.answers


def simulate(
    workloads: Sequence[Floats],
    rule: SimulatedRule,
    *,
    budget: int = DEFAULT_LOOKS[-1],
    lends: bool = True,
) -> SimulatedGate:
    """The gate of workloads whose pairs have these effects, ``budget`` pairs each; if
    it ``lends``, left-over pairs too.
    """
    errors = rule.errors(len(workloads))
    found = [rule.pairs_of(effects, errors, budget=budget) for effects in workloads]
    pairs = [count for count, _ in found]
    fails = any(
        rule.final_answer(effects[:count], errors) == "regressed"
        for effects, count in zip(workloads, pairs)
    )
    if lends and not fails:
        open_ones = [number for number, (_, is_open) in enumerate(found) if is_open]
        left_over = sum(budget - count for count in pairs)
        for done, number in enumerate(open_ones):
            more = left_over // (len(open_ones) - done)
            count, _ = rule.pairs_of(
                workloads[number], errors, budget=pairs[number] + more
            )
            left_over -= count - pairs[number]
            pairs[number] = count
    answers = [
        rule.final_answer(effects[:count], errors)
        for effects, count in zip(workloads, pairs)
    ]
    return SimulatedGate(answers, pairs)
