"""The modes that operators run in: recorded by autograd, and in low precision.

Operators that autograd records are a fault if they ran unrecorded on the base, and no
fault if they are new.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from perfgate.catalogue.names import (
    AUTOGRAD_BEGINS,
    AUTOGRAD_OPS,
    LOW_PRECISION_OPS,
    NO_GRAD_OPS,
)
from perfgate.document.comparison import Checked, Exact, Outcome
from perfgate.document.explanation import Part
from perfgate.document.message import Message
from perfgate.judging.gate.compare.counted_shape import (
    MAX_PARTS,
    WAVERS,
    CountedShape,
    largest_line,
)
from perfgate.judging.gate.compare.parts import grown_lines
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.evidence.work import OPERATOR_COUNT, CountedSide, total

# The share of the operators that autograd records newly which must have run before.
MOST_RECORDED = 0.5


def compare_autograd(shape: CountedShape) -> Exact | None:
    """Regressed if autograd records operators that ran unrecorded on the base; None if
    the places do not add up.
    """
    for side in (shape.base, shape.head):
        if total(side.located(AUTOGRAD_OPS)) != side.values[AUTOGRAD_OPS]:
            return None
    recorded = _newly_recorded(shape)
    row = shape.comparison(Exact, AUTOGRAD_OPS, "unchanged")
    if recorded:
        part = _first_recorded(shape, recorded)
        row = shape.comparison(Exact, AUTOGRAD_OPS, "regressed", parts=[part])
    return replace(row, tolerance=0.0)


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
    return Part(
        name=name,
        aspect="recorded" if is_mode else "attached",
        base=before,
        head=after,
        line=line,
    )


def _newly_recorded(shape: CountedShape) -> set[str]:
    """The operators that ran unrecorded on the base and are recorded now, if most that
    are recorded now are such.

    A few may also be recorded because they read other tensors.
    """
    moved = {}
    for operator in shape.head.work[AUTOGRAD_OPS]:
        more_recorded = _recorded(shape.head, operator) - _recorded(
            shape.base, operator
        )
        fewer_unrecorded = _unrecorded(shape.base, operator) - _unrecorded(
            shape.head, operator
        )
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
    """Whether fewer of these operators run in a region without gradients: it was lost,
    and not only a detach().
    """
    for operator in operators:
        before = total(shape.base.of(NO_GRAD_OPS, operator))
        if total(shape.head.of(NO_GRAD_OPS, operator)) < before:
            return True
    return False


# --- operators in low precision: more of them are suspect, and operators that fell back
# to full precision fail


def compare_precision(shape: CountedShape) -> Exact | Checked:
    """More low-precision operators are suspect unless the workload's own check accepts
    the output; they never fail.

    Half precision is as often the purpose of a change as its accident, and only the
    workload knows which digits matter.
    """
    name = LOW_PRECISION_OPS
    dropped = _dropped_precision(shape)
    if dropped:
        number = rounded(sum(part.head - part.base for part in dropped))
        reason = _with_first_line("gate.full-precision", dropped, number)
        return shape.comparison(Exact, name, "regressed", reason, dropped[:MAX_PARTS])
    before = shape.base.ends(name)
    after = shape.head.ends(name)
    if before is None or after is None:
        return shape.comparison(Exact, name, "not_comparable", shape.overlap(name))
    more = after[0] - before[1]
    if more <= 0:
        # A check may accept more of them in some calls, and no loss.
        is_accepted = shape.is_checked and after[0] >= before[0]
        wavers = shape.base.is_exact(name) and not shape.head.is_exact(name)
        if wavers and not is_accepted:
            return shape.wavering(name, WAVERS)
        return shape.comparison(Checked, name, "unchanged")
    parts = shape.parts(name)
    computed = {"computed": _with_first_line("gate.low-precision", parts, more)}
    outcome: Outcome = "inconclusive"
    reason = Message("gate.check-absent", computed)
    if shape.is_checked:
        outcome = "unchanged"
        reason = Message("gate.check-accepts", computed)
    return shape.comparison(Checked, name, outcome, reason, parts[:MAX_PARTS])


def _dropped_precision(shape: CountedShape) -> list[Part]:
    """The operators that ran in low precision on the base and run in full on the head,
    as after a dropped autocast.

    An operator that no longer runs at all has lost no precision. The line is where low
    precision was requested.
    """
    parts = []
    for operator in sorted(shape.base.work[LOW_PRECISION_OPS]):
        before = shape.base.of(LOW_PRECISION_OPS, operator)
        after = shape.head.of(LOW_PRECISION_OPS, operator)
        varies = any(map(shape.varies, (*before, *after)))
        if varies or OPERATOR_COUNT + operator in shape.unstable:
            continue
        full_before = _in_full_precision(shape.base, operator)
        full_after = _in_full_precision(shape.head, operator)
        dropped = min(total(before) - total(after), full_after - full_before)
        if dropped > 0:
            lines = grown_lines(after, before, frozenset())
            part = Part(
                name=operator,
                aspect="full precision",
                base=full_before,
                head=full_before + dropped,
                line=lines[0].line if lines else largest_line(before),
            )
            parts.append(part)
    return sorted(parts, key=lambda part: (part.base - part.head, part.name))


def _in_full_precision(side: CountedSide, operator: str) -> float:
    in_low = total(side.of(LOW_PRECISION_OPS, operator))
    return max(0, side.calls.get(operator, 0) - in_low)


def _with_first_line(code: str, parts: list[Part], number: float) -> Message:
    if parts and parts[0].line:
        return Message(
            f"{code}-at", {"number": number, "op": parts[0].name, "line": parts[0].line}
        )
    return Message(code, {"number": number})
