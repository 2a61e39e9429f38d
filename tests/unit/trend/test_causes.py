from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from perfgate.document.trend import TrendCause, TrendSeries
from perfgate.judging.trend.causes import align, causes, with_repairs
from perfgate.judging.trend.find import with_changes
from tests.fakes.history import commit_of
from tests.fakes.trends import make_change, make_series


def levels(at: int, *, factor: float = 1.1, count: int = 60, sigma: float = 0.01, **fields: Any) -> TrendSeries:
    """The P50 of a history that got slower at one version, with noise."""
    random = np.random.default_rng(5)
    values = 0.036 * np.exp(random.normal(0, sigma, count)) * np.where(np.arange(count) >= at, factor, 1.0)
    flat = make_series(count=count, noise=None, **fields)
    points = [msgspec.structs.replace(point, value=float(value)) for point, value in zip(flat.points, values)]
    return msgspec.structs.replace(flat, points=points)


def counted(at: int, **fields: Any) -> TrendSeries:
    flat = make_series(count=60, metric="counters.syncs", unit="1", kind="exact", noise=None, **fields)
    points = [msgspec.structs.replace(point, value=float(index >= at)) for index, point in enumerate(flat.points)]
    return with_changes(msgspec.structs.replace(flat, points=points))


def ambiguous(at: int, **fields: Any) -> TrendSeries:
    """A slower history whose first value after the change happens to look like those before it."""
    slow = levels(at, **fields)
    points = list(slow.points)
    points[at] = msgspec.structs.replace(points[at], value=points[at - 1].value)
    return with_changes(msgspec.structs.replace(slow, points=points))


def only(found: list[TrendCause]) -> TrendCause:
    (cause,) = found
    return cause


def test_align__shift_seen_one_version_late__put_where_the_counter_moved() -> None:
    late = ambiguous(20, factor=1.017)
    assert late.changes[0].at == 21
    time, counter = align([late, counted(20)])
    assert (time.changes[0].at, time.changes[0].last_good, time.changes[0].first_bad) == (
        20,
        commit_of(19),
        commit_of(20),
    )
    assert counter.changes[0].at == 20
    assert len(only(causes([time, counter])).changes) == 2


def test_align__clear_shift_beside_the_counter_of_another_commit__stays_where_it_is() -> None:
    clear = with_changes(levels(21, factor=1.5))
    time, _ = align([clear, counted(20)])
    assert time.changes[0].at == 21
    assert len(causes([time, counted(20)])) == 2


def test_align__counter_of_another_workload_or_testbed__says_nothing_of_this_one() -> None:
    late = ambiguous(20, factor=1.017)
    for other in (counted(20, workload="decoder"), counted(20, fingerprint="e" * 64)):
        assert align([late, other])[0].changes[0].at == 21


def test_align__times_without_a_counter__follow_the_clearest_shift() -> None:
    late, clear = ambiguous(20, factor=1.017, metric="latency.p99"), with_changes(levels(20, factor=1.5))
    aligned = align([late, clear])
    assert [entry.changes[0].at for entry in aligned] == [20, 20]


def test_align__wild_value_just_before_the_shift_of_one_shape__put_where_the_other_shape_moved() -> None:
    steady = with_changes(levels(20, factor=1.2, shape="short"))
    slow = levels(20, factor=1.2, sigma=0.005)
    points = list(slow.points)
    points[19] = msgspec.structs.replace(points[19], value=points[25].value)
    early = with_changes(msgspec.structs.replace(slow, points=points))
    assert early.changes[0].at == 19
    assert [entry.changes[0].at for entry in align([early, steady])] == [20, 20]


def with_wild_value(series: TrendSeries, at: int, factor: float) -> TrendSeries:
    points = list(series.points)
    points[at] = msgspec.structs.replace(points[at], value=points[at].value * factor)
    return with_changes(msgspec.structs.replace(series, points=points))


def test_with_changes__wild_value_just_before_the_shift__the_fast_value_after_it_tells_the_place() -> None:
    wild = with_wild_value(levels(20, factor=1.06, sigma=0.002), 18, 1.09)
    assert wild.changes[0].at == 20


def test_align__both_shapes_of_one_workload_wild_before_the_shift_of_another__one_event() -> None:
    of_other = [with_changes(levels(20, workload="decoder", shape=shape)) for shape in ("short", "long")]
    early = [with_wild_value(levels(20, shape=shape), 19, factor) for shape, factor in (("short", 1.11), ("long", 1.2))]
    assert {entry.changes[0].at for entry in early} <= {19, 20}
    assert [entry.changes[0].at for entry in align([*early, *of_other])] == [20] * 4


def test_align__two_workloads_one_version_apart__two_events() -> None:
    first = [with_changes(levels(19, shape=shape)) for shape in ("short", "long")]
    second = [with_changes(levels(20, workload="decoder", shape=shape)) for shape in ("short", "long")]
    assert [entry.changes[0].at for entry in align([*first, *second])] == [19, 19, 20, 20]


def test_align__wild_values_on_one_of_two_machines__put_where_the_other_machine_moved() -> None:
    early = with_wild_value(levels(20, factor=1.08), 19, 1.08)
    other = with_changes(levels(20, factor=1.08, fingerprint="e" * 64))
    assert early.changes[0].at == 19
    assert [entry.changes[0].at for entry in align([early, other])] == [20, 20]


def test_causes__one_commit_in_several_workloads__one_cause_that_a_time_leads() -> None:
    counter = make_change(evidence="exact", interval=None, before=0.0, after=1.0, delta=None)
    series = [
        make_series(counter, metric="counters.syncs", kind="exact", unit="1"),
        make_series(make_change(delta=0.3), metric="throughput.median", better="higher", unit="items/s"),
        make_series(make_change(delta=0.01), workload="decoder"),
        make_series(make_change(delta=0.02)),
    ]
    assert [place.series for place in only(causes(series)).changes] == [3, 2, 1, 0]


def test_causes__worse_and_better_in_one_commit__a_regression_with_both() -> None:
    series = [make_series(make_change(direction="better"), metric="memory.peak"), make_series(make_change())]
    cause = only(causes(series))
    assert (cause.direction, [place.series for place in cause.changes]) == ("worse", [1, 0])


def test_causes__told_before_and_more_of_it_now__open_with_news() -> None:
    counter = make_change(evidence="exact", standing="open", news=False)
    cause = only(causes([make_series(counter, metric="counters.syncs", kind="exact"), make_series(make_change())]))
    assert (cause.standing, cause.news, cause.direction) == ("open", True, "worse")


def test_causes__times_refuted_and_counter_stays__a_regression_that_the_counter_leads() -> None:
    refuted = make_change(standing="refuted", evidence="refuted")
    counter = make_change(evidence="exact")
    cause = only(causes([make_series(refuted), make_series(counter, metric="counters.syncs", kind="exact")]))
    assert (cause.standing, cause.changes[0].series) == ("new", 1)


def test_causes__settled_in_different_ways__led_by_the_one_that_names_it() -> None:
    back = make_change(standing="resolved", resolved_by=commit_of(25))
    accepted = make_change(standing="accepted", accepted="mei: wanted")
    cause = only(causes([make_series(back), make_series(accepted, metric="memory.peak", kind="exact")]))
    assert (cause.standing, cause.changes[0].series) == ("accepted", 1)


def moved_and_back(slower_first: bool, back_to: float = 1.0, **fields: Any) -> TrendSeries:
    """A counter that doubled or halved at version 10 and came back at version 20, which undid it."""
    there = 2.0 if slower_first else 0.5
    first, last = ("worse", "better") if slower_first else ("better", "worse")
    changes = [
        make_change(10, evidence="exact", direction=first, before=1.0, after=there, delta=there - 1,
                    standing="resolved", resolved_by=commit_of(20)),
        make_change(20, evidence="exact", direction=last, before=there, after=back_to, delta=back_to / there - 1),
    ]  # fmt: skip
    return make_series(*changes, kind="exact", unit="1", **fields)


def test_with_repairs__revert_that_also_takes_back_saved_memory__no_regression() -> None:
    ops = moved_and_back(True, metric="counters.framework_ops")
    memory = moved_and_back(False, metric="memory.peak")
    regression, repair = with_repairs([ops, memory])[1].changes
    assert (regression.standing, repair.standing) == ("resolved", "resolved")
    by_version = {cause.first_bad: cause for cause in causes(with_repairs([ops, memory]))}
    assert by_version[commit_of(20)].direction == "better"


def test_with_repairs__more_memory_than_before_the_reverted_commit__a_regression() -> None:
    ops = moved_and_back(True, metric="counters.framework_ops")
    memory = moved_and_back(False, back_to=1.1, metric="memory.peak")
    assert with_repairs([ops, memory])[1].changes[1].is_open_regression


def test_with_repairs__revert_of_an_optimization_that_cost_memory__a_regression() -> None:
    ops = moved_and_back(False, metric="counters.framework_ops")
    memory = moved_and_back(True, metric="memory.peak")
    assert with_repairs([ops, memory])[0].changes[1].is_open_regression


def test_with_repairs__improvement_of_another_commit_ends__a_regression() -> None:
    ops = moved_and_back(True, metric="counters.framework_ops")
    earlier = make_change(8, direction="better", before=1.0, after=0.5, delta=-0.5, standing="resolved",
                          resolved_by=commit_of(20), evidence="exact")  # fmt: skip
    end = make_change(20, before=0.5, after=1.0, delta=1.0, evidence="exact")
    memory = make_series(earlier, end, metric="memory.peak", kind="exact", unit="B")
    assert with_repairs([ops, memory])[1].changes[1].is_open_regression


def test_causes__series_no_longer_measured__none() -> None:
    assert causes([make_series(make_change(), current=False)]) == []


def test_causes__several_commits__new_regressions_first_then_open_ones_and_the_largest_first() -> None:
    series = [
        make_series(make_change(5, standing="resolved")),
        make_series(make_change(8, standing="open", delta=0.5), metric="latency.p99"),
        make_series(make_change(12, delta=0.1), metric="latency.low"),
        make_series(make_change(15, delta=0.2), metric="memory.peak"),
        make_series(make_change(18, direction="better", delta=0.9), metric="throughput.gap"),
    ]
    assert [cause.first_bad for cause in causes(series)] == [commit_of(at) for at in (15, 12, 18, 8, 5)]


def test_align__slowdown_of_five_percent_and_its_counter__one_cause_in_most_histories() -> None:
    together = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        factors = np.where(np.arange(40) >= 20, 1.05, 1.0) * np.exp(random.normal(0, 0.012, 40))
        flat = make_series(count=60, noise=None)
        points = [
            msgspec.structs.replace(point, value=0.036 * float(factor)) for point, factor in zip(flat.points, factors)
        ]
        slow = with_changes(msgspec.structs.replace(flat, points=points))
        together += len(causes(align([slow, counted(20)]))) == 1
    assert together >= 97
