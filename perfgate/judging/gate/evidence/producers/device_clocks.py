"""The clocks of calls on an accelerator: the time of kernels, the device's span, and
the host's time until a call returns.

The wall clock decides none of them. The host's time decides only where the device waits
for the host: otherwise a longer one costs nothing.

Both sides may have done the same work: kernels, operators and Python. Unchanged work
cannot have become slower, unless it takes longer: that shows in the time of kernels, or
as a change of the host's and the device's time of more than SAME_WORK_MARGIN.
docs/deciding.md explains when that is sound.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import (
    BUSY,
    BYTECODES,
    FRAMEWORK_OPS,
    HOST,
    LATENCY,
    PYTHON_CALLS,
)
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.blocks import WAITED, waited_share
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.kernel_blocks import ran_same_kernels
from perfgate.judging.gate.evidence.numbers import Number, Rules
from perfgate.judging.gate.evidence.work import CountedSide

# The device waits for the host for this share of the span of a call, or more.
EXPOSED = 0.1
INFORMING = "informing"
# The slowdown that "unchanged" excludes for host and span if the work is the same.
SAME_WORK_MARGIN = 0.05
_COUNTS = (FRAMEWORK_OPS, PYTHON_CALLS, BYTECODES)


def numbers(evidence: Evidence, rules: Rules) -> Iterator[Number]:
    for place in evidence.places:
        if place in evidence.on_device:
            yield from _of_shape(evidence, rules, place)


def _of_shape(evidence: Evidence, rules: Rules, place: ShapePlace) -> Iterator[Number]:
    effects = evidence.effects(place)
    moved = place.workload not in evidence.unmoved
    same_work = is_same_work(evidence, place)
    for name in (BUSY, LATENCY, HOST):
        if name not in effects:
            continue
        number = rules.number(
            place,
            name,
            effects[name],
            metric(name).gate.family or INFORMING,
            moved=moved,
        )
        if same_work and name != BUSY:
            wider = max(SAME_WORK_MARGIN, *number.terms.margins)
            terms = number.terms._replace(
                margins=(*number.terms.margins, wider), same_work=True
            )
            number = number._replace(terms=terms)
        if name == HOST and not _decides(evidence, place):
            number = number._replace(family=INFORMING, gating=False)
        yield number


def _decides(evidence: Evidence, place: ShapePlace) -> bool:
    """Whether the host's time decides: the device waits for it, and it did not wait for
    a CPU itself.
    """
    blocks = []
    for member in chain.from_iterable(evidence.pairs.get(place.workload, ())):
        if place.shape in member.shapes:
            blocks.append(member.shapes[place.shape])
    return (waited_share(blocks) or 0.0) < WAITED and is_host_exposed(evidence, place)


def is_host_exposed(evidence: Evidence, place: ShapePlace) -> bool:
    """Whether the device waits for the host on either side: its kernels do not fill the
    span of a call.

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


def is_same_work(evidence: Evidence, place: ShapePlace) -> bool:
    """Whether a call of both sides ran the same kernels, operators, functions and
    bytecodes, each known exactly.
    """
    if not ran_same_kernels(evidence.pairs.get(place.workload, []), place.shape):
        return False
    before = evidence.base.counters.get(place)
    after = evidence.head.counters.get(place)
    if before is None or after is None:
        return False
    for name in _COUNTS:
        count = before.values.get(name)
        is_exact = name not in (*before.unstable, *after.unstable)
        if count is None or count != after.values.get(name) or not is_exact:
            return False
    return CountedSide(before).calls == CountedSide(after).calls
