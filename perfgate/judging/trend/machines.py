"""Machines whose gates favour one side: base against base, pooled over their gates and
compared with the other machines.

One gate cannot show a bias of half a percent, a hundred can.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.document.decision import DecisionDocument
from perfgate.document.history import BiasedMachine, GateRecord, TwinEffect

# Fewest gates of a machine, and the newest that count: a repaired machine is no longer
# named.
FEWEST_GATES, _NEWEST_GATES = 20, 200
# A smaller bias does not matter: gates tolerate several times as much.
_SMALLEST = 0.002
# A difference of this many standard errors is named. False alarms:
# benchmarks/trend/machines.py.
_CERTAIN = 4.5
# The share of the gates that is left out at each end: single gates are wild.
_TRIMMED = 0.1
_Z95 = 1.96
_NOT_OF_NAMES = re.compile(r"[^A-Za-z0-9._:-]")


def twin_effect(decision: DecisionDocument) -> TwinEffect | None:
    """Base against base in a gate; None if it has no such pairs or does not name its
    machine.
    """
    medians: list[float] = []
    pairs = 0
    for floor in decision.measured.noise_floors:
        if floor.effects:
            medians.append(statistics.median(floor.effects))
            pairs += floor.pairs
    if not medians or not decision.measured.machine:
        return None
    effect = round(statistics.fmean(medians), 6)
    return TwinEffect(
        machine=_NOT_OF_NAMES.sub("-", decision.measured.machine)[:200],
        effect=effect,
        pairs=pairs,
    )


def biased_machines(records: Iterable[GateRecord]) -> list[BiasedMachine]:
    """The machines that are off from the others, the clearest first."""
    effects: dict[str, list[float]] = {}
    for record in sorted(records, key=lambda record: record.judged_at, reverse=True):
        if record.twins is not None:
            of_machine = effects.setdefault(record.twins.machine, [])
            if len(of_machine) < _NEWEST_GATES:
                of_machine.append(math.log1p(record.twins.effect))
    biased: list[BiasedMachine] = []
    # A biased machine is left out of what the next is compared with: otherwise its
    # sisters look biased the other way.
    while biases := [
        bias for machine in effects if (bias := _bias(machine, effects)) is not None
    ]:
        clearest = max(biases, key=lambda bias: (bias.errors, bias.own_effect))
        biased.append(clearest.machine)
        del effects[clearest.machine.machine]
    return biased


class _Bias(NamedTuple):
    """A biased machine and by how many standard errors.

    Of two machines that differ, the one further from 0 is biased.
    """

    errors: float
    own_effect: float
    machine: BiasedMachine


def _bias(machine: str, effects: Mapping[str, Sequence[float]]) -> _Bias | None:
    if len(effects[machine]) < FEWEST_GATES:
        return None
    own_effect, error = _trimmed_mean(effects[machine])
    effect = own_effect
    others: list[float] = []
    for name, of_machine in effects.items():
        if name != machine:
            others += of_machine
    if len(others) < FEWEST_GATES:
        others = []
    else:
        effect_of_others, error_of_others = _trimmed_mean(others)
        effect -= effect_of_others
        error = math.hypot(error, error_of_others)
    if abs(effect) < max(_SMALLEST, _CERTAIN * error):
        return None
    entry = BiasedMachine(
        machine=machine,
        effect=math.expm1(effect),
        interval=(math.expm1(effect - _Z95 * error), math.expm1(effect + _Z95 * error)),
        gates=len(effects[machine]),
        sister_gates=len(others),
    )
    return _Bias(round(abs(effect) / max(error, 1e-12), 6), abs(own_effect), entry)


def _trimmed_mean(effects: Sequence[float]) -> tuple[float, float]:
    """The trimmed mean and its standard error.

    Source: Yuen, The two-sample trimmed t, Biometrika 61 (1974).
    """
    ordered = np.sort(effects)
    cut = int(_TRIMMED * ordered.size)
    middle = ordered[cut : ordered.size - cut]
    winsorized = np.clip(ordered, middle[0], middle[-1])
    error = winsorized.std(ddof=1) / (1 - 2 * _TRIMMED) / math.sqrt(ordered.size)
    return float(middle.mean()), float(error)
