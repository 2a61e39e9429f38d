"""Which later change undid which earlier one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from perfgate.document.trend import TrendChange
from perfgate.judging.trend.returns import undone_by


def changes_of(*levels: float) -> list[TrendChange]:
    """The changes between levels, each at the next version."""
    changes: list[TrendChange] = []
    for at, (before, after) in enumerate(pairwise(levels), 1):
        changes.append(
            TrendChange(
                direction="worse" if after > before else "better", at=at, before=before, after=after,
                delta=after / before - 1, interval=None, last_good=None, first_bad=f"c{at}", first_seen="",
                evidence="suspected",
            )
        )  # fmt: skip
    return changes


@pytest.mark.parametrize(
    ("levels", "undone"),
    [
        pytest.param((1.0, 1.1, 1.0), {0: "c2"}, id="reverted"),
        pytest.param((1.0, 1.1, 1.0, 1.08), {0: "c2", 1: "c3"}, id="reverted, and another one later"),
        pytest.param((1.0, 1.1, 1.19, 1.08), {0: "c3"}, id="the first of two reverted"),
        pytest.param((1.0, 1.06, 1.19, 1.06), {1: "c3"}, id="the second of two reverted"),
        pytest.param((1.0, 1.1, 1.19, 1.0), {0: "c3", 1: "c3"}, id="both reverted at once"),
        pytest.param((1.0, 1.1, 1.07, 1.04, 1.0), {0: "c4"}, id="repaired in parts"),
        pytest.param((1.0, 1.1, 1.08), {}, id="a small improvement"),
        pytest.param((1.0, 1.1, 0.8), {0: "c2"}, id="overtaken by an improvement"),
    ],
)
def test_undone_by__levels__by_their_sizes(levels: tuple[float, ...], undone: dict[int, str]) -> None:
    found = undone_by(changes_of(*levels), is_exact=False)
    assert {number: change.first_bad for number, change in found.items()} == undone
