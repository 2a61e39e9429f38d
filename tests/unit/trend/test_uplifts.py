"""A new testbed in place of an old one: one event, with its effect where a commit was measured on both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from perfgate.document.run import RunDocument
from perfgate.document.testbed import Environment
from perfgate.document.trend import TrendPoint, TrendSeries, Uplift
from perfgate.judging.trend.causes import causes
from perfgate.judging.trend.uplifts import uplifts, with_differences
from tests.fakes.documents import TESTBED, make_run
from tests.fakes.history import commit_of
from tests.fakes.trends import make_change, make_series, make_testbed

if TYPE_CHECKING:
    from perfgate.document.trend import TestbedSpan  # pytest would take it for a test

OLD, NEW = "a" * 64, "b" * 64
FIELDS = {OLD: TESTBED, NEW: {**TESTBED, "torch": "2.14.0+cpu"}}
NOISE = 0.01


def span(fingerprint: str, first: str, last: str, **fields: Any) -> TestbedSpan:
    return make_testbed(
        fingerprint, first_seen=f"2026-{first}T00:00:00+00:00", last_seen=f"2026-{last}T00:00:00+00:00", **fields
    )


SPANS = [span(OLD, "05-01", "05-20"), span(NEW, "05-21", "06-20")]


def measured(fingerprint: str, commits: range, *, factor: float = 1.0, seed: int = 1, **fields: Any) -> TrendSeries:
    random = np.random.default_rng(seed)
    points = [
        TrendPoint(
            run_id=f"{fingerprint[:2]}{number}",
            commit=commit_of(number),
            started_at=f"2026-05-{1 + number % 28:02}T00:00:00+00:00",
            value=0.036 * factor * float(np.exp(random.normal(0, NOISE))),
        )
        for number in commits
    ]
    return make_series(fingerprint=fingerprint, points=points, noise=None, **fields)


def counted(fingerprint: str, value: float) -> TrendSeries:
    entry = measured(fingerprint, range(19, 20), metric="counters.syncs", unit="1", kind="exact")
    return msgspec.structs.replace(entry, points=[msgspec.structs.replace(entry.points[0], value=value)])


def only(*series: TrendSeries, spans: list[TestbedSpan] = SPANS, fields: Any = FIELDS) -> Uplift:
    (found,) = uplifts(spans, fields, series)
    return found


@pytest.mark.parametrize(("factor", "direction", "moved"), [(1.2, "worse", 1), (0.8, "better", 1), (1.01, None, 0)])
def test_uplifts__commit_on_both_testbeds__joins_them_with_an_interval(
    factor: float, direction: str | None, moved: int
) -> None:
    found = only(measured(OLD, range(20)), measured(NEW, range(19, 40), factor=factor, seed=2))
    assert [(one.field, one.base, one.head) for one in found.differences] == [("torch", "2.13.0+cpu", "2.14.0+cpu")]
    assert (found.before, found.after, found.commits) == (OLD, NEW, [commit_of(19)])
    assert (len(found.moved), found.unmoved, found.undecided) == (moved, 0, 1 - moved)
    for one in found.moved:
        assert one.direction == direction
        assert one.interval is not None
        assert one.interval[0] < factor - 1 < one.interval[1]
        assert one.interval[1] - one.interval[0] == pytest.approx(4 * 1.96 / 2**0.5 * NOISE * factor, rel=0.6)


def test_uplifts__equal_speed_on_many_commits__shown_to_be_the_same_and_counters_too() -> None:
    old, new = measured(OLD, range(20)), measured(NEW, range(40), seed=2)
    found = only(old, new, counted(OLD, 2.0), counted(NEW, 2.0))
    assert (found.moved, found.unmoved, found.undecided) == ([], 2, 0)


def test_uplifts__several_commits_on_both__a_narrower_interval() -> None:
    old = measured(OLD, range(20))
    wide, narrow = (
        only(old, measured(NEW, range(start, 40), factor=1.2, seed=2)).moved[0].interval for start in (19, 11)
    )
    assert wide is not None
    assert narrow is not None
    assert narrow[1] - narrow[0] < 0.5 * (wide[1] - wide[0])


def test_uplifts__many_workloads_and_counters__one_event_the_worst_first() -> None:
    series = [
        entry
        for number in range(6)
        for entry in (
            measured(OLD, range(20), workload=f"w{number}", seed=number),
            measured(NEW, range(19, 40), workload=f"w{number}", factor=1.1 + number / 20, seed=number + 9),
        )
    ]
    found = only(*series, counted(OLD, 2.0), counted(NEW, 1.0))
    workloads = [*(entry.workload for entry in series), "encoder", "encoder"]
    assert [workloads[one.after] for one in found.moved] == [
        "w5", "w4", "w3", "w2", "w1", "w0", "encoder",
    ]  # fmt: skip
    assert (found.moved[-1].direction, found.moved[-1].delta, found.moved[-1].interval) == ("better", -0.5, None)


def test_uplifts__no_commit_on_both__nothing_claimed_and_the_commit_to_measure() -> None:
    found = only(measured(OLD, range(20)), measured(NEW, range(20, 40), factor=2.0))
    assert (found.commits, found.moved, found.unmoved, found.last_commit) == ([], [], 0, commit_of(19))


def test_uplifts__too_few_versions_to_know_the_noise__nothing_claimed() -> None:
    found = only(measured(OLD, range(4)), measured(NEW, range(3, 8), factor=2.0))
    assert (found.moved, found.unmoved) == ([], 0)


@pytest.mark.parametrize(
    "spans",
    [
        [span(OLD, "05-01", "06-20"), span(NEW, "05-21", "06-20")],  # two machines at once
        [span(OLD, "05-01", "05-20", device_kind="npu"), span(NEW, "05-21", "06-20")],
        [span(OLD, "05-01", "05-20"), span("c" * 64, "05-21", "06-20")],  # no readable run
    ],
)
def test_uplifts__testbeds_that_do_not_follow_each_other__none(spans: list[TestbedSpan]) -> None:
    assert uplifts(spans, FIELDS, [measured(OLD, range(20)), measured(NEW, range(19, 40))]) == []


def test_uplifts__two_machines_before__the_one_with_the_fewest_differences_is_replaced() -> None:
    third = "c" * 64
    fields = {third: {**TESTBED, "cpu.model": "another", "python": "3.10"}, **FIELDS}
    spans = [span(OLD, "05-01", "05-18"), span(third, "05-01", "05-20"), span(NEW, "05-21", "06-20")]
    (found,) = uplifts(spans, fields, [])
    assert found.before == OLD


def with_stack(packages: dict[str, str] | None, image: str = "") -> RunDocument:
    environment = Environment(kind="running", python="3.11", packages=packages, image=image) if packages else None
    return make_run(None, environment=environment)


def test_with_differences__packages_and_image_of_both_runs__those_that_changed() -> None:
    series = [make_series(make_change())]
    (cause,) = causes(series)
    before = with_stack({"torch": "2.9", "transformers": "4.44", "numpy": "2.1"}, "team/npu:8.1")
    after = with_stack({"torch": "2.9", "transformers": "4.45", "einops": "0.8", "numpy": "2.1"}, "team/npu:8.2")
    found = with_differences(cause, series, {"run19": before, "run20": after}).differences
    assert [(one.field, one.base, one.head) for one in found] == [
        ("container image", "team/npu:8.1", "team/npu:8.2"),
        ("einops", None, "0.8"),
        ("transformers", "4.44", "4.45"),
    ]


@pytest.mark.parametrize(
    "documents",
    [
        {},
        {"run20": with_stack({"a": "1"})},
        {"run19": with_stack(None), "run20": with_stack({"a": "1"})},
    ],
)
def test_with_differences__a_run_that_does_not_say_its_packages__none(documents: dict[str, RunDocument]) -> None:
    series = [make_series(make_change())]
    (cause,) = causes(series)
    assert with_differences(cause, series, documents).differences == []
