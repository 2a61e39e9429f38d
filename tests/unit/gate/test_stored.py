"""Main's stored runs: which make up the level, and that they inform and judge nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import Acceptance, History, HistorySeries
from perfgate.document.run import RunDocument, StepResult, Value
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.stored import accepts, compare_stored, level, prediction_interval
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.checklist import numbers_of_head
from perfgate.judging.report.render.ci import annotate, verdict_annotation
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.render.junit import junit
from tests.each import each
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, counters, sides

NO_CHANGE = [1.0 + 0.0005 * (-1) ** pair for pair in range(14)]
NOISY = [1.0 + 0.06 * (-1) ** pair for pair in range(14)]
STORED = [0.0100, 0.0101, 0.0099, 0.0100, 0.0102, 0.0098]
_FOLD = re.compile(r"<details><summary>Checklist: .*?</details>\n*", re.DOTALL)


def measured(factors: list[float], p50: float) -> tuple[RunDocument, RunDocument]:
    """Return both sides of a session in which the head's own P50 is so many seconds."""
    base, head = (changed(run, counters=[counters({"aten::add": 1})]) for run in sides(factors))
    value = Value(metric="latency.p50", value=p50, labels={"shape": SHAPE})
    step = StepResult(number=1, slug="latency", workload=WORKLOAD, status="ok", values=[value])
    return base, changed(head, steps=[step])


def history(values: list[float]) -> History:
    return History(series=[HistorySeries(workload=WORKLOAD, shape=SHAPE, metric="latency.p50", values=values)])


def judged(factors: list[float], p50: float, stored: History) -> DecisionDocument:
    return decide(*measured(factors, p50), policy=Policy(), history=stored)


def comment(decision: DecisionDocument) -> str:
    return render_comment(decision, CommentContext(marker="<!-- perfgate -->"))


def _without_main(text: str) -> str:
    """The comment without the checklist, and without main's level in the line that sums it up."""
    return re.sub(r" \(main [^)]*\)", "", _FOLD.sub("", text))


@settings(max_examples=25, deadline=None)
@given(
    values=st.lists(st.floats(1e-6, 10.0), max_size=12),
    p50=st.floats(1e-6, 10.0),
    factors=st.sampled_from([[], NO_CHANGE, NOISY, [1.05] * 14, [0.9] * 14]),
)
def test_decide__any_history_added__nothing_but_its_own_section_changes(
    values: list[float], p50: float, factors: list[float]
) -> None:
    without, beside = judged(factors, p50, History()), judged(factors, p50, history(values))
    assert bool(beside.checklist.stored) == bool(values)
    assert changed(beside, stored=[]) == without
    assert _without_main(comment(beside)) == _without_main(comment(without))
    assert annotate(beside) == annotate(without)
    assert verdict_annotation(beside, language="en") == verdict_annotation(without, language="en")
    assert junit(beside, language="en") == junit(without, language="en")


def test_decide__stored_runs_much_slower__title_of_a_pass_says_what_the_pairs_say() -> None:
    decision = judged(NO_CHANGE, 0.0100, history([value * 1.16 for value in STORED]))
    assert decision.verdict == "PASS"
    assert " perfgate: PASS – no slowdown above 1 %: fast-path latency 0.0 %, at most +0.3 %\n" in comment(decision)


@pytest.mark.parametrize(
    ("p50", "runs", "expected"),
    [
        (0.0120, 6, "10.0 ms (6 runs) | +20.0 %; **head 12.0 ms, above 9.50 ms to 10.5 ms**"),
        (0.0101, 6, "10.0 ms (6 runs) | +1.0 %"),
        (0.0100, 6, "10.0 ms (6 runs) | equal"),
        (0.0080, 6, "10.0 ms (6 runs) | −20.0 %; **head 8.00 ms, below 9.50 ms to 10.5 ms**"),
        (0.0120, 3, "10.0 ms (3 runs) | +20.0 %; **head 12.0 ms, above 9.23 ms to 10.8 ms**"),
        (0.0105, 3, "10.0 ms (3 runs) | +5.0 %"),
        (0.0120, 2, "10.0 ms (2 runs) | +19.4 %"),
        (0.0120, 1, "10.0 ms (1 run) | +20.0 %"),
    ],
)
def test_comment__stored_runs__beside_both_sides_of_the_checklist(p50: float, runs: int, expected: str) -> None:
    text = comment(judged(NO_CHANGE, p50, history(STORED[:runs])))
    (row,) = [line for line in text.splitlines() if "| ok | P50 latency · `encoder/long` |" in line]
    assert f"| {expected} |" in row


def test_comment__number_outside_mains_range_that_does_not_lead__named_below_the_table() -> None:
    base, head = measured(NO_CHANGE, 0.0100)
    first_call = Value(metric="latency.first_call", value=5.0, labels={"shape": SHAPE})
    steps = [msgspec.structs.replace(step, values=[*step.values, first_call]) for step in head.checklist.steps]
    stored = HistorySeries(workload=WORKLOAD, shape=SHAPE, metric="latency.first_call", values=[1.0, 1.1, 0.9])
    decision = decide(base, changed(head, steps=steps), policy=Policy(), history=History(series=[stored]))
    expected = "first call · `encoder/long` (1.00 s (3 runs); **head 5.00 s, above 0.445 s to 2.23 s**)"
    assert f"Also outside main's range: {expected}" in comment(decision)


# Six sessions within one percent: the prediction interval for a seventh ends some 3 % above them.
QUIET = [2.00, 2.01, 1.99, 2.02, 1.98, 2.00]


def never(_: int) -> bool:
    return False


def level_of(
    values: list[float], is_accepted: Callable[[int], bool] = never, metric: str = "latency.p50"
) -> list[float]:
    return level(values, is_accepted, metric)


def test_level__regression_that_nobody_accepted__left_out_however_often_it_repeats() -> None:
    assert level_of([*QUIET, 2.6, 2.6, 2.6, 2.01]) == [*QUIET, 2.01]


def test_level__regression_accepted__the_level_before_it_is_left_behind() -> None:
    values = [*QUIET, 2.6, 2.61, 2.59]
    assert level_of(values, lambda index: index == 6) == [2.6, 2.61, 2.59]


def test_level__faster_sessions__part_of_it() -> None:
    assert level_of([*QUIET, 1.5, 1.49]) == [*QUIET, 1.5, 1.49]


def test_level__three_faster_sessions_in_a_row__the_level_is_theirs_and_a_return_is_slower() -> None:
    assert level_of([*QUIET, 1.5, 1.49, 1.51, 1.50, 2.0, 2.01]) == [1.5, 1.49, 1.51, 1.50]
    assert level_of([*QUIET, 1.5, 2.0, 1.49, 2.01, 1.51]) == [*QUIET, 1.5, 2.0, 1.49, 2.01, 1.51]


def test_level__three_sessions_with_more_throughput__the_level_is_theirs() -> None:
    assert level_of([*QUIET, 2.6, 2.61, 2.59, 2.0], metric="throughput.median") == [2.6, 2.61, 2.59]


def test_level__fewer_sessions_than_say_something__all_of_them() -> None:
    assert level_of([2.0, 2.1, 9.0, 2.0]) == [2.0, 2.1, 9.0, 2.0]


def test_level__noisy_sessions_that_happen_to_agree__show_no_spread_and_leave_nothing_out() -> None:
    assert level_of([2.0, 2.0, 2.0, 2.01]) == [2.0, 2.0, 2.0, 2.01]


def test_level__exact_counts_that_agree__leave_out_the_first_that_grew() -> None:
    assert level_of([3.0, 3.0, 3.0, 4.0, 3.0], metric="fusion.patterns") == [3.0, 3.0, 3.0, 3.0]


def test_level__throughput_that_fell__left_out_as_a_time_that_grew() -> None:
    assert level_of([*QUIET, 1.5, 2.6], metric="throughput.median") == [*QUIET, 2.6]


def test_level__a_size_that_is_neither_better_nor_worse__all_of_it() -> None:
    assert level_of([*QUIET, 9.0], metric="batch.best") == [*QUIET, 9.0]


def test_level__growth_around_nothing__compared_without_a_ratio() -> None:
    around = [0.0, 120.0, -80.0, 40.0, 0.0]
    assert level_of([*around, 900.0, 100.0], metric="memory.growth") == [*around, 100.0]


@pytest.mark.parametrize(
    ("values", "median", "interval"),
    [
        ([4.0, 8.0], 4.0, None),
        ([8.0, 4.0, 8.0], 8.0, (0.0, 159.0)),
        ([8.0, 8.0, 8.0], 8.0, None),  # three runs that agree show no spread, which is not none
        ([4.0, 8.0, 8.0, 4.0, 8.0, 8.0], 8.0, (1.0, 24.0)),
    ],
)
def test_compare_stored__batch_knee__main_had_a_knee_of_its_level_and_whole_ends(
    values: list[float], median: float, interval: tuple[float, float] | None
) -> None:
    stored = History(series=[HistorySeries(workload=WORKLOAD, shape=SHAPE, metric="batch.knee", values=values)])
    _, head = measured(NO_CHANGE, 0.01)
    knee = Value(metric="batch.knee", value=32.0, labels={"shape": SHAPE})
    step = StepResult(number=5, slug="batch", workload=WORKLOAD, status="ok", values=[knee])
    (beside,) = compare_stored(numbers_of_head(changed(head, steps=[step])), stored)
    assert (beside.typical, beside.interval) == (median, interval)
    assert beside.outside == (None if interval is None or interval[1] >= 32 else "above")


@pytest.mark.parametrize(
    ("waited", "name", "unit_is_time"),
    [(0.5, "latency.p50", True), (0.5, "memory.allocated", False), (0.01, "latency.p50", True)],
)
def test_compare_stored__head_on_a_busy_machine__its_times_are_in_no_range(
    waited: float, name: str, unit_is_time: bool
) -> None:
    stored = History(series=[HistorySeries(workload=WORKLOAD, shape=SHAPE, metric=name, values=[1.0, 1.01, 1.02])])
    _, head = measured(NO_CHANGE, 0.01)
    value = Value(metric=name, value=2.0, labels={"shape": SHAPE})
    number = 1 if unit_is_time else 17
    step = StepResult(number=number, slug="step", workload=WORKLOAD, status="ok", values=[value], waited=waited)
    (beside,) = compare_stored(numbers_of_head(changed(head, steps=[step])), stored)
    assert beside.head_is_busy == (unit_is_time and waited > 0.1)
    assert beside.outside == (None if beside.head_is_busy else "above")


def test_prediction_interval__one_more_run_of_the_same_code__inside_in_98_of_100() -> None:
    lot = np.random.default_rng(5)
    inside = []
    for runs in (3, 4, 6, 20):
        for _ in range(1000):
            *values, one_more = np.exp(lot.normal(0.0, 0.1, runs + 1)).tolist()
            bounds = prediction_interval(values, "latency.p50")
            inside.append(bounds is not None and bounds[0] <= one_more <= bounds[1])
    assert 0.97 <= np.mean(inside) <= 0.99


def test_prediction_interval__amount_that_was_nothing_once__begins_at_nothing() -> None:
    interval = prediction_interval([0.0, 3.0, 5.0, 4.0], "memory.growth")
    assert interval is not None
    assert interval[0] == 0.0


def test_compare_stored__long_history__draws_the_newest_runs() -> None:
    values = [0.0100 + 0.0001 * run for run in range(70)]
    (stored,) = judged(NO_CHANGE, 0.0100, history(values)).checklist.stored
    assert stored.runs == 70
    assert stored.values == pytest.approx(values[10:])


def test_accepts__a_time_of_a_call__any_other_time_of_that_call_too() -> None:
    def said(accepted: str, metric: str = "latency.p50") -> bool:
        acceptance = Acceptance(commit="c", metric=accepted, reason="r", accepted_by="a", accepted_at="t")
        return accepts(acceptance, metric, ShapePlace("encoder", "short"))

    assert said("latency.*")
    assert said("latency.low@encoder/short")
    assert not said("latency.low@decoder")
    assert not said("counters.framework_ops")
    assert said("batch.knee", "batch.knee")
    assert not said("latency.low", "batch.knee")


@each("seed", range(5))
@pytest.mark.parametrize("metric", ["latency.p50", "throughput.median", "counters.framework_ops", "memory.growth"])
def test_level__any_history__as_value_by_value_with_the_interval_of_those_before(seed: int, metric: str) -> None:
    lot = np.random.default_rng(seed)
    values = np.exp(lot.normal(3.0, 0.05, 60) + (lot.random(60) < 0.1) * lot.normal(0.0, 1.0, 60))
    values[lot.random(60) < 0.02] = 0.0
    if metric.startswith("counters"):
        values = values.round()
    worse = -1 if metric.startswith("throughput") else 1
    current: list[float] = []
    improved: list[float] = []
    for value in values.tolist():
        low, high = prediction_interval(current, metric) or (-np.inf, np.inf)
        side = 1 if value > high else -1 if value < low else 0
        if not side:
            current, improved = [*current, *improved, value], []
        elif side != worse:
            improved.append(value)
            if len(improved) == 3:
                current, improved = improved, []
    assert level_of(values.tolist(), metric=metric) == [*current, *improved]


@pytest.mark.parametrize("metric", ["latency.p50", "counters.syncs"])
@pytest.mark.parametrize("values", [[1e308, 1.7e308, 1.6e308], [0.0, 1.7e308, 1.7e308], [-1e308, 1e308, 5.0]])
def test_prediction_interval__numbers_near_the_largest__an_interval_and_no_warning(
    values: list[float], metric: str
) -> None:
    interval = prediction_interval(values, metric)
    assert interval is not None
    assert -math.inf < interval[0] <= interval[1] < math.inf
    assert level_of([*values, 1.0, 2.0], metric=metric)
