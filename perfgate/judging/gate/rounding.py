"""Round what goes into a decision document.

Logarithms may differ in the last bit between CPUs; nine significant digits hide that, so that a decision judged again on
another machine is the same bytes.
"""

from __future__ import annotations


def rounded(value: float) -> float:
    """Return the value with nine significant digits."""
    return float(f"{value:.9g}")


def percent(share: float) -> str:
    """Return a share of one in percent with two significant digits, as people write it: 2.5, 23, 120."""
    return f"{float(f'{100 * share:.2g}'):g}"
