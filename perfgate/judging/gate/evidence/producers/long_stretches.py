"""The mean of a call and its stalls, from long stretches of calls."""

from __future__ import annotations

from collections.abc import Iterator

from perfgate.catalogue.names import LATENCY_STALLS, MEAN
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import Number, Rules
from perfgate.judging.gate.evidence.stretches import FAMILY, StretchSample, stretches_of


def numbers(evidence: Evidence, rules: Rules) -> Iterator[Number]:
    for place in evidence.places:
        sample = stretches_of(evidence, place)
        if sample is not None:
            yield from of_sample(place, sample, rules)


def of_sample(
    place: ShapePlace, sample: StretchSample, rules: Rules
) -> Iterator[Number]:
    names = [MEAN]
    if sample.base.stalls.stalled or sample.head.stalls.stalled:
        names.append(LATENCY_STALLS)
    for name in names:
        yield rules.number(place, name, sample, FAMILY)._replace(
            gating=not sample.waited
        )
