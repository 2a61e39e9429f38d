"""The resolution of a machine: the smallest slowdown that its pairs would have shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from perfgate.document.comparison import Paired
from perfgate.document.decision import DecisionDocument
from perfgate.document.doctor import Resolution
from perfgate.judging.gate.compare.rule import spread
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.numbers import Number
from perfgate.judging.gate.evidence.values import rounded


def resolutions(
    numbers: Iterable[Number],
    timed_seconds: Mapping[str, float],
    decision: DecisionDocument,
) -> Iterator[Resolution]:
    """Yield the smallest slowdown that each paired comparison of unchanged code would have shown.

    The spread is around its effect.
    """
    effects = {(number.place, number.metric): number.units for number in numbers}
    for compared in decision.comparisons:
        effect = effects.get((compared.place, compared.metric))
        if (
            not isinstance(compared, Paired)
            or not compared.is_of_call
            or not isinstance(effect, PairedEffect)
        ):
            continue
        yield Resolution(
            workload=compared.workload,
            shape=compared.shape,
            metric=compared.metric,
            pairs=effect.differences.size,
            spread=rounded(math.expm1(spread(effect.differences))),
            smallest=compared.detectable,
            seconds=decision.measured.duration,
            timed=rounded(timed_seconds[compared.workload]),
        )
