"""Turns of the checklist on real workers: who begins, what a turn adds, and what fits into a budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from perfgate.conductor.sides.checklist.checklist import informing_seconds
from perfgate.conductor.sides.checklist.turns import (
    FEWEST_TURNS,
    ChecklistSide,
    ChecklistTurns,
    OpenNumbers,
    by_worth,
    that_fit,
)
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.document.run import REPEAT, StepResult, is_left_to_turns
from tests.unit.conductor.conftest import reference_to

CHECKLIST, UTILIZATION = 4, 2
Two = Callable[[], ChecklistTurns]


@pytest.fixture
def begun() -> list[str]:
    return []


@pytest.fixture
def two_sides(bench: Bench, checkout: Checkout, tmp_path: Path, begun: list[str]) -> Two:
    def make() -> ChecklistTurns:
        sides = [ChecklistSide(name, checkout, tmp_path / name) for name in ("base", "head")]
        for side in sides:
            side.folder.mkdir()
        return ChecklistTurns(bench, reference_to("well"), sides, begins=begun.append)

    return make


def turns_of(steps: Iterable[StepResult], number: int) -> list[str | None]:
    (step,) = [step for step in steps if step.number == number]
    values = [value for value in step.values if value.metric == "utilization.host"]
    return [value.labels.get(REPEAT) for value in values]


def test_again__four_turns__each_side_begins_two_of_them(two_sides: Two, begun: list[str]) -> None:
    turns = two_sides()
    turns.first((UTILIZATION,))
    for _ in range(3):
        turns.again([UTILIZATION])
    first_of_each = begun[::2]
    assert sorted(first_of_each) == ["base", "base", "head", "head"]
    assert sorted(first_of_each[:2]) == ["base", "head"]
    assert [turns_of(side.found.steps, UTILIZATION) for side in turns.sides] == 2 * [[None, "2", "3", "4"]]


@pytest.mark.slow
def test_compare__turns_that_do_not_fit__left_out_with_their_seconds_and_six_turns_where_they_do(
    two_sides: Two,
) -> None:
    turns = two_sides()
    turns.first((CHECKLIST, UTILIZATION))
    open_numbers = {UTILIZATION: OpenNumbers(1, vary=True)}
    left_out = turns.compare(lambda: open_numbers, budget=0.0)
    assert turns.taken(UTILIZATION) == 1
    assert list(left_out.steps) == [UTILIZATION]
    assert left_out.steps[UTILIZATION] > 0
    assert turns.compare(lambda: open_numbers, budget=1000.0).steps == {}
    for side in turns.sides:
        assert turns_of(side.found.steps, UTILIZATION) == [None, *map(str, range(2, FEWEST_TURNS + 1))]
    assert list(Path(turns.sides[0].folder).glob(".again-*")) == []


def test_settle__nothing_is_open_any_more__ends(two_sides: Two) -> None:
    turns = two_sides()
    turns.first((UTILIZATION,))
    turns.settle(lambda: {UTILIZATION} if turns.taken(UTILIZATION) < 3 else set(), steady=0)
    assert turns.taken(UTILIZATION) == 3


def test_settle__time_is_spent__takes_no_turn(two_sides: Two) -> None:
    turns = two_sides()
    turns.first((UTILIZATION,))
    turns.deadline = time.monotonic()
    turns.settle(lambda: {UTILIZATION}, steady=0)
    assert turns.taken(UTILIZATION) == 1


def test_compare__numbers_that_cannot_vary__one_further_turn_and_no_more(two_sides: Two) -> None:
    turns = two_sides()
    turns.first((UTILIZATION,))

    def until_equal_twice() -> dict[int, OpenNumbers]:
        return {UTILIZATION: OpenNumbers(1, vary=False)} if turns.taken(UTILIZATION) < 2 else {}

    assert turns.compare(until_equal_twice, budget=1000.0).steps == {}
    assert turns.taken(UTILIZATION) == 2


def test_compare__time_for_some_steps__first_ones_before_those_that_cost_less_a_number() -> None:
    costs = {2: 50.0, 8: 30.0, 15: 20.0, 17: 12.0}
    numbers = {number: OpenNumbers(3 if number == 8 else 1, vary=True) for number in costs}
    assert list(by_worth(costs, numbers)) == [2, 8, 17, 15]
    assert that_fit(by_worth(costs, numbers), 45.0, 90.0) == [2]
    assert that_fit({8: 30.0, 17: 12.0}, 45.0, 90.0) == [8, 17]


def test_informing_seconds__steps_of_the_other_side_and_exact_numbers__longer() -> None:
    seconds_of_base = {14: 0.1, 15: 0.0}
    found = {number: informing_seconds(number, seconds_of_base, exact_only=(9,)) for number in (9, 14, 15, 18)}
    assert found == {9: 40.0, 14: 40.0, 15: 20.0, 18: 20.0}


@pytest.mark.slow
def test_compare__traces_of_pairs__a_turn_reads_one_and_records_none(two_sides: Two, tmp_path: Path) -> None:
    turns = two_sides()
    turns.first((CHECKLIST,))
    recorded = {side.name: tmp_path / f"{side.name}-of-a-pair" for side in turns.sides}
    for side in turns.sides:
        recorded[side.name].mkdir()
        (trace,) = side.folder.glob("trace-*")
        trace.rename(recorded[side.name] / trace.name)
    turns.compare(lambda: {CHECKLIST: OpenNumbers(1, vary=True)}, budget=100.0, recorded=[recorded])
    for side in turns.sides:
        (step,) = side.found.steps
        times = [value.value for value in step.values if value.metric == "ops.kernel_time"]
        assert len(times) == FEWEST_TURNS
        assert times[1] == times[0], "the second turn looks at the trace of the first"
        assert len(set(times)) > 2, "the others look at their own"
        assert len(list(recorded[side.name].iterdir())) == 1


def test_first__steps_of_a_young_process__run_before_all_others_and_each_step_names_what_ran_before_it(
    two_sides: Two,
) -> None:
    turns = two_sides()
    turns.first((1, UTILIZATION), (3, 17))
    for side in turns.sides:
        ran_before = {step.number: step.procedure and step.procedure.after for step in side.found.steps}
        assert ran_before == {1: [], 17: [1], UTILIZATION: [1, 17], 3: [1, 17, UTILIZATION]}


PRECISION = 8


def test_first__experiments_of_late_steps__on_head_alone_and_in_turns_on_both(two_sides: Two) -> None:
    turns = two_sides()
    turns.first((CHECKLIST,), (PRECISION,))
    base, head = ({value.metric: value for value in step_of(side, PRECISION).values} for side in turns.sides)
    assert head["precision.speedup"].value is not None
    assert base["precision.speedup"].value is None
    assert is_left_to_turns(step_of(turns.sides[0], PRECISION))
    assert not is_left_to_turns(step_of(turns.sides[1], PRECISION))
    turns.again([PRECISION], brief=True)
    labels = [
        value.labels.get(REPEAT) for value in step_of(turns.sides[0], PRECISION).values if value.value is not None
    ]
    assert "2" in labels


def test_compare__first_turn_left_an_experiment_out__one_turn_more_than_of_others(two_sides: Two) -> None:
    turns = two_sides()
    turns.first((UTILIZATION,))
    others = turns.compare(partial(open_turns, left=False), budget=0.0).steps[UTILIZATION]
    left = turns.compare(partial(open_turns, left=True), budget=0.0).steps[UTILIZATION]
    assert left == pytest.approx(others * FEWEST_TURNS / (FEWEST_TURNS - 1))


def open_turns(*, left: bool) -> dict[int, OpenNumbers]:
    return {UTILIZATION: OpenNumbers(1, vary=True, left_to_turns=left)}


def step_of(side: ChecklistSide, number: int) -> StepResult:
    (step,) = [step for step in side.found.steps if step.number == number]
    return step
