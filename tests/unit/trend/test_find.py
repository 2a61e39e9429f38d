from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from perfgate.document.trend import TrendPoint, TrendSeries
from perfgate.judging.trend.find import direction_of, is_long_enough, one_a_version, with_changes
from tests.fakes.history import commit_of

START = datetime(2026, 6, 1, tzinfo=timezone.utc)


def point(index: int, value: float, commit: str | None = "", **fields: Any) -> TrendPoint:
    made = {"run_id": f"run{index}", "commit": commit_of(index) if commit == "" else commit, "value": value}
    return TrendPoint(started_at=(START + timedelta(days=index)).isoformat(), **{**made, **fields})


def series(values: Any, **fields: Any) -> TrendSeries:
    described = {"workload": "encoder", "shape": "long", "metric": "latency.p50", "unit": "s", "better": "lower"}
    described |= {"kind": "noisy", "fingerprint": "f" * 64, "device_kind": "cpu"}
    return TrendSeries(points=[point(i, float(v)) for i, v in enumerate(values)], **{**described, **fields})


def noisy(count: int = 40, *, at: int = 30, factor: float = 1.07, level: float = 0.036) -> Any:
    values = level * np.exp(np.random.default_rng(4).normal(0, 0.008, count))
    values[at:] *= factor
    return values


def test_one_a_version__runs_of_one_commit_in_a_row__their_median_in_the_last_place() -> None:
    runs = [point(0, 1.0, "a"), point(1, 2.0, "b"), point(2, 9.0, "b"), point(3, 4.0, "b"), point(4, 1.0, "a")]
    found = one_a_version(runs)
    assert [(one.commit, one.value, one.runs, one.run_id) for one in found] == [
        ("a", 1.0, 1, "run0"),
        ("b", 4.0, 3, "run3"),
        ("a", 1.0, 1, "run4"),
    ]


def test_one_a_version__runs_without_a_commit__stay_apart() -> None:
    assert len(one_a_version([point(0, 1.0, None), point(1, 2.0, None)])) == 2


def test_with_changes__slower_for_good__one_suspected_change_between_two_commits() -> None:
    found = with_changes(series(noisy()))
    (change,) = found.changes
    assert (change.at, change.direction, change.evidence) == (30, "worse", "suspected")
    assert (change.last_good, change.first_bad) == (commit_of(29), commit_of(30))
    assert change.delta == pytest.approx(0.07, abs=0.01)
    assert change.interval is not None
    assert change.interval[0] < 0.07 < change.interval[1]
    assert found.noise == pytest.approx(0.008, rel=0.5)


def test_with_changes__higher_is_better__more_is_an_improvement() -> None:
    more = series(noisy(), metric="throughput.median", unit="items/s", better="higher")
    less = series(noisy(factor=0.93), metric="throughput.median", unit="items/s", better="higher")
    assert [change.direction for change in with_changes(more).changes] == ["better"]
    assert [change.direction for change in with_changes(less).changes] == ["worse"]


def test_with_changes__values_that_may_be_zero__shares_of_the_level_before() -> None:
    values = np.random.default_rng(3).normal(0, 1e-6, 40) + 4e-5
    values[30:] += 2e-5
    values[7] = 0.0
    (change,) = with_changes(series(values, metric="throughput.gap")).changes
    assert change.at == 30
    assert change.delta == pytest.approx(0.5, abs=0.06)


def test_with_changes__exact_counter__every_change_that_lasts_without_an_interval() -> None:
    counter = {"metric": "counters.copies", "unit": "1", "kind": "exact"}
    found = with_changes(series([2, 2, 3, 2, 2, 4, 4], **counter)).changes
    assert [(change.at, change.evidence, change.interval) for change in found] == [(5, "exact", None)]
    assert (found[0].before, found[0].after, found[0].delta) == (2.0, 4.0, 1.0)


def test_with_changes__counter_that_was_zero__no_share_of_nothing() -> None:
    (change,) = with_changes(series([0, 0, 1], metric="counters.syncs", unit="1", kind="exact")).changes
    assert change.delta is None


def test_with_changes__exact_counter_within_what_the_gate_allows__one_level() -> None:
    counter = {"metric": "memory.kept_python", "unit": "B", "kind": "exact"}
    found = with_changes(series([12, 140, 80, 12, 100_616, 100_580, 100_612], **counter)).changes
    assert [(change.at, change.before, change.after) for change in found] == [(4, 12, 100_616)]


@pytest.mark.parametrize(("kind", "count", "enough"), [("noisy", 7, False), ("noisy", 8, True), ("exact", 1, False),
                                                      ("exact", 2, True)])  # fmt: skip
def test_is_long_enough__so_many_versions__as_documented(kind: Any, count: int, enough: bool) -> None:
    assert is_long_enough(series(np.ones(count), kind=kind)) is enough


def test_with_changes__too_short__unchanged() -> None:
    assert with_changes(series([1.0, 2.0, 3.0])).changes == []


@pytest.mark.parametrize(
    ("better", "difference", "expected"),
    [("lower", 1.0, "worse"), ("lower", -1.0, "better"), ("higher", 1.0, "better"), ("higher", -1.0, "worse"),
     ("neutral", 1.0, "changed")],
)  # fmt: skip
def test_direction_of__each_kind__better_or_worse(better: Any, difference: float, expected: str) -> None:
    assert direction_of(series([1.0], better=better), difference) == expected
