"""The versions on the level of a run."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.document.trend import TrendPoint, TrendSeries
from perfgate.judging.trend.level import level_around
from tests.fakes.history import commit_of
from tests.fakes.sites import make_stored
from tests.fakes.trends import make_change, make_series


def numbered(*changes: object) -> TrendSeries:
    """Return a series of ten versions, a day each, whose values are their numbers."""
    points = [
        TrendPoint(
            run_id=make_stored(number).id,
            commit=commit_of(number),
            started_at=f"2026-05-{number + 1:02d}",
            value=number,
        )
        for number in range(10)
    ]
    return msgspec.structs.replace(make_series(*changes), points=points)  # type: ignore[arg-type]


@pytest.mark.parametrize(("number", "level"), [(0, range(4)), (3, range(4)), (4, range(4, 10)), (9, range(4, 10))])
def test_level_around__run_beside_a_change__its_own_stretch(number: int, level: range) -> None:
    assert level_around(numbered(make_change(4)), make_stored(number), without=()) == list(level)


def test_level_around__refuted_change__no_border() -> None:
    assert level_around(numbered(make_change(4, standing="refuted")), make_stored(2), without=()) == list(range(10))


def test_level_around__run_itself_left_out__the_other_versions() -> None:
    run = make_stored(2)
    assert level_around(numbered(make_change(4)), run, without=[run]) == [0, 1, 3]


def test_level_around__run_without_a_point__the_stretch_of_its_time() -> None:
    between = make_stored(70, commit="b" * 40, started_at="2026-05-06T12:00:00+00:00")
    assert level_around(numbered(make_change(4)), between, without=[between]) == list(range(4, 10))


def test_level_around__other_testbed__empty() -> None:
    assert level_around(numbered(), make_stored(2, fingerprint="e" * 64), without=()) == []
