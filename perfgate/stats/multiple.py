"""Many tests at once: Holm's step-down correction (1979), valid under any dependence, and the false discovery rate."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """The Holm-adjusted p-values, in the order given; reject those at most alpha."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [1.0] * len(p_values)
    running = 0.0
    for position, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - position) * p_values[index]))
        adjusted[index] = running
    return adjusted


def false_discovery(p_values: Sequence[float]) -> list[float]:
    """The Benjamini-Hochberg-adjusted p-values (1995), in the order given.

    Of those called at most q, a share of at most q is false on average, where the tests are independent or depend
    positively, as the operators of one call do.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__, reverse=True)
    adjusted = [1.0] * len(p_values)
    running = 1.0
    for position, index in enumerate(order):
        running = min(running, len(p_values) / (len(p_values) - position) * p_values[index])
        adjusted[index] = running
    return adjusted
