"""The times of calls, from pairs of processes."""

from __future__ import annotations

from collections.abc import Iterator

from perfgate.catalogue.lookup import FAMILIES
from perfgate.catalogue.names import BUSY, HOST, LATENCY
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import Number, Rules

# On an accelerator these are rows of ``device_clocks``.
DEVICE_CLOCKS = frozenset({BUSY, LATENCY, HOST})


def numbers(evidence: Evidence, rules: Rules) -> Iterator[Number]:
    """Yield every metric of every shape, family by family and workload by workload."""
    for name, family in FAMILIES.items():
        for place in evidence.places:
            elsewhere = DEVICE_CLOCKS if place in evidence.on_device else frozenset()
            moved = place.workload not in evidence.unmoved
            for metric, effect in evidence.effects(place).items():
                if metric in family.metrics and metric not in elsewhere:
                    number = rules.number(place, metric, effect, name, moved=moved)
                    yield number._replace(gating=family.gating)
