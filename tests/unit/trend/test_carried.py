"""Open changes of a testbed that was replaced: whether the change of testbed itself repaired them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from perfgate.document.trend import TrendPoint, TrendSeries, Uplift
from perfgate.judging.trend.carried import continuations
from tests.fakes.history import commit_of
from tests.fakes.trends import BEGAN, make_change, make_series

OLD, NEW = "a" * 64, "b" * 64


def series_of(fingerprint: str, first: int, values: Sequence[float], noise: float) -> TrendSeries:
    """A series whose first version has the number ``first``."""
    points: list[TrendPoint] = []
    for number, value in enumerate(values, first):
        points.append(TrendPoint(run_id=f"run{number}", commit=commit_of(number), started_at=BEGAN, value=value))
    changes = [make_change(6)] if fingerprint == OLD else []
    return make_series(*changes, fingerprint=fingerprint, points=points, noise=noise)


@pytest.mark.parametrize(
    ("new_versions", "noise", "is_back"),
    [
        (9, 0.01, True),
        # The new testbed is as noisy as the old one.
        (9, 0.05, False),
        # Its own noise is not known yet.
        (4, 0.01, False),
    ],
)
def test_continuations__time_is_back_since_the_commit_measured_on_both__certain_by_the_noise_of_the_new_testbed(
    new_versions: int, noise: float, is_back: bool
) -> None:
    old = series_of(OLD, 0, [0.034] * 6 + [0.039] * 8, noise=0.05)
    # Version 13 is the last one of the old testbed.
    new = series_of(NEW, 13, [0.035] + [0.031] * (new_versions - 1), noise=noise)
    uplift = Uplift(before=OLD, after=NEW, since=BEGAN)
    followed = continuations([old, new], {OLD: uplift})
    directions = [change.direction for change in followed[0].changes]
    assert directions == (["better"] if is_back else [])
