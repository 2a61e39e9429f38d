"""One comparison of a decision, and how its numbers are rounded.

Logarithms may differ in the last bit between CPUs; nine significant digits hide that, so that a decision judged again on
another machine is the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perfgate.catalogue.lookup import metric
from perfgate.document.decision import Comparison, Method, Outcome, Part
from perfgate.document.message import Message


class Place(NamedTuple):
    """A shape of a workload; the shape is empty where all shapes are meant."""

    workload: str
    shape: str


def rounded(value: float) -> float:
    return float(f"{value:.9g}")


def relative_change(base: float | None, head: float | None) -> float | None:
    """head/base - 1, None where the base is 0 or a side has no value."""
    return rounded(head / base - 1) if base and head is not None else None


def comparison(  # noqa: PLR0913 - the fields of a record
    place: Place,
    name: str,
    method: Method,
    outcome: Outcome,
    *,
    gating: bool,
    base: float | None = None,
    head: float | None = None,
    delta: float | None = None,
    tolerance: float | None = None,
    reason: Message | None = None,
    parts: Sequence[Part] = (),
) -> Comparison:
    """The comparison of a metric, with the unit and the better direction that its catalogue entry has."""
    entry = metric(name)
    return Comparison(
        workload=place.workload,
        shape=place.shape,
        metric=name,
        unit=entry.unit,
        better=entry.better,
        method=method,
        outcome=outcome,
        gating=gating,
        base=base,
        head=head,
        delta=delta,
        tolerance=tolerance,
        reason=reason,
        parts=list(parts),
    )


def percent(share: float) -> str:
    """A share of one in percent with two significant digits, as people write it: 2.5, 23, 120."""
    return f"{float(f'{100 * share:.2g}'):g}"
