"""The clocks of calls on an accelerator: the time of kernels, the device's span, and the host's time until a call returns.

The wall clock decides none of them. The host's time decides only where the device waits for the host: otherwise a longer one
costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import BUSY, HOST, LATENCY
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.clocks import WAITED
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import Number, Rules
from perfgate.judging.gate.evidence.same_work import SAME_WORK_MARGIN, is_same_work
from perfgate.judging.gate.evidence.undisturbed import waited_share

# The device waits for the host for this share of the span of a call, or more.
EXPOSED = 0.1
INFORMING = "informing"


def numbers(evidence: Evidence, rules: Rules) -> Iterator[Number]:
    for place in evidence.places:
        if place in evidence.on_device:
            yield from _of_shape(evidence, rules, place)


def _of_shape(evidence: Evidence, rules: Rules, place: ShapePlace) -> Iterator[Number]:
    effects = evidence.effects(place)
    moved = place.workload not in evidence.kept_layout
    same_work = is_same_work(evidence, place)
    for name in (BUSY, LATENCY, HOST):
        if name not in effects:
            continue
        number = rules.number(place, name, effects[name], metric(name).gate.family or INFORMING, moved=moved)
        if same_work and name != BUSY:
            wider = max(SAME_WORK_MARGIN, *number.terms.margins)
            terms = number.terms._replace(margins=(*number.terms.margins, wider), same_work=True)
            number = number._replace(terms=terms)
        if name == HOST and not _decides(evidence, place):
            number = number._replace(family=INFORMING, gating=False)
        yield number


def _decides(evidence: Evidence, place: ShapePlace) -> bool:
    """Whether the host's time decides: the device waits for it, and it did not wait for a CPU itself."""
    blocks = []
    for member in chain.from_iterable(evidence.pairs.get(place.workload, ())):
        if place.shape in member.shapes:
            blocks.append(member.shapes[place.shape])
    return (waited_share(blocks) or 0.0) < WAITED and is_host_exposed(evidence, place)


def is_host_exposed(evidence: Evidence, place: ShapePlace) -> bool:
    """Whether the device waits for the host on either side: its kernels do not fill the span of a call.

    Without the time of kernels, whether the host takes nearly as long as the span.
    """
    effects = evidence.effects(place)
    if LATENCY not in effects or HOST not in effects:
        return False
    span = effects[LATENCY]
    host = effects[HOST]
    busy = effects.get(BUSY)
    if busy is None:
        return max(host.base / span.base, host.head / span.head) > 1 - EXPOSED
    return max(1 - busy.base / span.base, 1 - busy.head / span.head) > EXPOSED
