"""The energy of a call, from a file: the joules of each pair, by workload and shape."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from perfgate.judging.gate.evidence.effect import Differences, PairedEffect
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import Number, Rules

METRIC, FAMILY = "energy.call", "energy"
FILE = Path("joules.json")


def numbers(evidence: Evidence, rules: Rules) -> Iterator[Number]:
    joules = json.loads(FILE.read_text())
    for place in evidence.places:
        base, head = (np.array(joules[side][place.workload][place.shape]) for side in ("base", "head"))
        differences = Differences.of(np.log(head) - np.log(base))
        effect = PairedEffect.of(differences, float(np.median(base)), "pair")
        yield rules.number(place, METRIC, effect, FAMILY)
