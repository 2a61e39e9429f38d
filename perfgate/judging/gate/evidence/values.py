"""Numbers of a decision: their rounding and their relative changes.

Logarithms may differ in the last bit between CPUs; nine significant digits hide that,
so that a decision judged again on another machine is the same bytes.
"""

from __future__ import annotations

import math

from perfgate.catalogue.lookup import METRICS

# The logarithm of about the largest float.
_LARGEST_LOGARITHM = 700.0


def change_of(logarithm: float) -> float:
    """The relative change of a ratio, from its logarithm, limited to the largest float."""
    return math.expm1(min(logarithm, _LARGEST_LOGARITHM))


def rounded(value: float) -> float:
    return float(f"{value:.9g}")


def rounded_if_known(value: float | None) -> float | None:
    if value is None:
        return None
    return rounded(value)


def relative_change(base: float | None, head: float | None) -> float | None:
    """head/base - 1, None if the base is 0 or a side has no value, or if no float holds
    it.
    """
    if not base or head is None:
        return None
    change = head / base - 1
    if not math.isfinite(change):
        return None
    return rounded(change)


def zero_of(name: str) -> float:
    """The offset added to a number before its ratio is taken: for a relative change, 0
    is as good as any other value.
    """
    if name in METRICS and METRICS[name].number.change:
        return 1.0
    return 0.0
