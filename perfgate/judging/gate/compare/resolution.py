"""The resolution of a machine: the smallest slowdown that its pairs would have shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from perfgate.document.comparison import Paired
from perfgate.document.decision import DecisionDocument
from perfgate.document.doctor import Resolution
from perfgate.judging.gate.compare.rule import spread
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.pairs import Pair
from perfgate.judging.gate.evidence.values import rounded


def resolutions(evidence: Evidence, decision: DecisionDocument) -> Iterator[Resolution]:
    """Yield the smallest slowdown that each paired comparison of unchanged code would have shown.

    The spread is around its effect.
    """
    for compared in decision.comparisons:
        if not (isinstance(compared, Paired) and compared.is_of_call):
            continue
        effect = evidence.effects(compared.place).get(compared.metric)
        if effect is None:
            continue
        yield Resolution(
            workload=compared.workload,
            shape=compared.shape,
            metric=compared.metric,
            pairs=effect.differences.size,
            spread=rounded(math.expm1(spread(effect.differences))),
            smallest=compared.detectable,
            seconds=decision.measured.duration,
            timed=rounded(_timed_ns(evidence.pairs.get(compared.workload, ())) / 1e9),
        )


def _timed_ns(pairs: Iterable[Pair]) -> int:
    total = 0
    for pair in pairs:
        for replicate in pair:
            total += sum(sum(blocks.worker.end_ns) - sum(blocks.worker.start_ns) for _, blocks in replicate.lanes)
    return total
