"""Operators that autograd records: a fault if they ran unrecorded on the base, and no fault if they are new."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from perfgate.catalogue.names import AUTOGRAD_BEGINS, AUTOGRAD_OPS, NO_GRAD_OPS
from perfgate.document.comparison import Exact
from perfgate.document.explanation import Part
from perfgate.judging.gate.compare.counted_shape import CountedShape
from perfgate.judging.gate.evidence.work import CountedSide, total

# The share of the operators that autograd records newly which must have run before.
MOST_RECORDED = 0.5


def compare_autograd(shape: CountedShape) -> Exact | None:
    """Regressed if autograd records operators that ran unrecorded on the base; None if the places do not add up."""
    for side in (shape.base, shape.head):
        if total(side.located(AUTOGRAD_OPS)) != side.values[AUTOGRAD_OPS]:
            return None
    recorded = _newly_recorded(shape)
    if not recorded:
        return replace(shape.comparison(AUTOGRAD_OPS, "unchanged"), tolerance=0.0)
    part = _first_recorded(shape, recorded)
    return replace(shape.comparison(AUTOGRAD_OPS, "regressed"), tolerance=0.0, parts=[part])


def _first_recorded(shape: CountedShape, recorded: Collection[str]) -> Part:
    """The place at which recording begins, with the number of recorded operators."""
    before = shape.base.values[AUTOGRAD_OPS]
    after = shape.head.values[AUTOGRAD_OPS]
    is_mode = not before or _left_a_region(shape, recorded)
    begins = shape.head.located(AUTOGRAD_BEGINS)
    name = ""
    line = None
    if begins and not before:
        name = begins[0].operator
        line = begins[0].line
    else:
        for part in shape.parts(AUTOGRAD_OPS):
            if part.name in recorded and part.head > part.base:
                name = part.name
                line = part.line
                break
    return Part(name=name, aspect="recorded" if is_mode else "attached", base=before, head=after, line=line)


def _newly_recorded(shape: CountedShape) -> set[str]:
    """The operators that ran unrecorded on the base and are recorded now, if most that are recorded now are such.

    A few may also be recorded because they read other tensors.
    """
    moved = {}
    for operator in shape.head.work[AUTOGRAD_OPS]:
        more_recorded = _recorded(shape.head, operator) - _recorded(shape.base, operator)
        fewer_unrecorded = _unrecorded(shape.base, operator) - _unrecorded(shape.head, operator)
        count = min(more_recorded, fewer_unrecorded)
        if count > 0:
            moved[operator] = count
    more = shape.head.values[AUTOGRAD_OPS] - shape.base.values[AUTOGRAD_OPS]
    if sum(moved.values()) > MOST_RECORDED * more:
        return set(moved)
    return set()


def _recorded(side: CountedSide, operator: str) -> float:
    return total(side.of(AUTOGRAD_OPS, operator))


def _unrecorded(side: CountedSide, operator: str) -> float:
    return side.calls.get(operator, 0) - _recorded(side, operator)


def _left_a_region(shape: CountedShape, operators: Collection[str]) -> bool:
    """Whether fewer of these operators run in a region without gradients: it was lost, and not only a detach()."""
    for operator in operators:
        before = total(shape.base.of(NO_GRAD_OPS, operator))
        if total(shape.head.of(NO_GRAD_OPS, operator)) < before:
            return True
    return False
