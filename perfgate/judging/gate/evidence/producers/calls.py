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
    workloads = dict.fromkeys(place.workload for place in evidence.places)
    for name, family in FAMILIES.items():
        for workload in workloads:
            for number in _of_workload(evidence, rules, workload, name):
                yield number._replace(gating=family.gating)


def _of_workload(evidence: Evidence, rules: Rules, workload: str, family: str) -> Iterator[Number]:
    metrics = FAMILIES[family].metrics
    moved = workload not in evidence.kept_layout
    for place in evidence.places:
        if place.workload != workload:
            continue
        is_elsewhere = DEVICE_CLOCKS if place in evidence.on_device else frozenset()
        for metric, effect in evidence.effects(place).items():
            if metric in metrics and metric not in is_elsewhere:
                yield rules.number(place, metric, effect, family, moved=moved)
