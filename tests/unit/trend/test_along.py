"""A change of one time of a workload's calls, completed by the other times that moved along."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from perfgate.document.trend import TrendSeries
from perfgate.judging.trend.along import with_changes_along, with_outcomes_along
from perfgate.judging.trend.find import with_changes
from tests.fakes.trends import commit_of, make_confirmation, make_series

AT, BACK = 15, 40


def series(metric: str, factor: float, *, sigma: float = 0.01, back: float = 1.0, **fields: Any) -> TrendSeries:
    """A history that is slower by ``factor`` from ``AT`` on, of which ``back`` is left from ``BACK`` on; searched."""
    random = np.random.default_rng(len(metric))
    level = np.ones(60)
    level[AT:BACK] = factor
    level[BACK:] = factor**back
    values = 0.036 * np.exp(random.normal(0, sigma, 60)) * level
    flat = make_series(count=60, metric=metric, noise=None, **fields)
    points = [msgspec.structs.replace(point, value=float(value)) for point, value in zip(flat.points, values)]
    return with_changes(msgspec.structs.replace(flat, points=points))


def places(entry: TrendSeries) -> list[int]:
    return [change.at for change in entry.changes]


def test_with_changes_along__other_time_moved_with_weaker_evidence__has_the_change_too() -> None:
    clear, weak = series("latency.p50", 1.1), series("latency.p90", 1.07, sigma=0.045)
    assert (places(clear), places(weak)) == ([AT], [])

    completed = with_changes_along([clear, weak])

    assert completed[0] == clear
    (change,) = completed[1].changes
    assert (change.at, change.direction, change.first_bad) == (AT, "worse", commit_of(AT))


def test_with_changes_along__flat_or_of_other_calls_or_by_another_size__unchanged() -> None:
    clear = series("latency.p50", 1.1)
    for other in (
        series("latency.p90", 1.0),
        series("latency.p90", 1.07, sigma=0.045, workload="decoder"),
        series("latency.p90", 1.07, sigma=0.045, fingerprint="e" * 64),
        series("latency.p90", 1 / 1.07, sigma=0.045),
        series("latency.p90", 1.6, sigma=0.3),
    ):
        assert with_changes_along([clear, other])[1] == other


def settled(entry: TrendSeries, **standing: Any) -> TrendSeries:
    first, *rest = entry.changes
    return msgspec.structs.replace(entry, changes=[msgspec.structs.replace(first, **standing), *rest])


def test_with_outcomes_along__other_time_shows_the_repair__settled_if_it_moved_back() -> None:
    repaired = settled(series("latency.p50", 1.1, back=0.0), standing="resolved", resolved_by=commit_of(BACK))
    for back, standing in ((0.0, "resolved"), (1.0, "open")):
        other = settled(series("latency.p90", 1.1, back=back), standing="open")
        only_found = msgspec.structs.replace(other, changes=other.changes[:1])

        _, completed = with_outcomes_along([repaired, only_found])

        assert completed.changes[0].standing == standing
        assert completed.changes[0].resolved_by == (commit_of(BACK) if standing == "resolved" else None)


def test_with_outcomes_along__commit_undid_another_change_of_the_series__stays_open() -> None:
    """Of two regressions of one size, two times may hold either for the one that a commit reverted."""
    repaired = settled(series("latency.p50", 1.1, back=0.0), standing="resolved", resolved_by=commit_of(BACK))
    other = settled(series("latency.p90", 1.1, back=0.0), standing="open")
    further = msgspec.structs.replace(
        other.changes[0], at=AT + 5, first_bad=commit_of(AT + 5), standing="resolved", resolved_by=commit_of(BACK)
    )
    other = msgspec.structs.replace(other, changes=[other.changes[0], further])

    assert with_outcomes_along([repaired, other])[1] == other


def test_with_outcomes_along__value_of_zero__left_alone() -> None:
    repaired = settled(series("latency.p50", 1.1, back=0.0), standing="resolved", resolved_by=commit_of(BACK))
    other = settled(series("latency.std", 1.1, back=0.0), standing="open")
    points = [msgspec.structs.replace(other.points[0], value=0.0), *other.points[1:]]
    other = msgspec.structs.replace(other, points=points, changes=other.changes[:1])

    assert with_outcomes_along([repaired, other])[1] == other


def test_with_outcomes_along__other_times_refuted_side_by_side__refuted_unless_one_is_confirmed() -> None:
    refuted = settled(
        series("latency.p50", 1.1), evidence="refuted", standing="refuted", confirmation=make_confirmation("unchanged")
    )
    confirmed = settled(
        series("latency.mean", 1.1), evidence="confirmed", standing="open", confirmation=make_confirmation("unchanged")
    )
    unmeasured = settled(series("latency.p90", 1.1), standing="open")

    assert with_outcomes_along([refuted, unmeasured])[1].changes[0].standing == "refuted"
    assert with_outcomes_along([refuted, confirmed, unmeasured])[2] == unmeasured
