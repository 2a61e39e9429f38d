"""The forecast of a check: one time for the whole, which is right within 30 % from half-way on."""

from __future__ import annotations

from itertools import accumulate

import pytest

from perfgate.conductor.workers.foresight import Foresight, foresee_pairs, foresee_steps
from perfgate.flows.check.forecast import Forecast


class Watcher:
    """Keeps what is said of the time left, with the virtual clock by which it is."""

    def __init__(self) -> None:
        self.now = 0.0
        self.said: list[tuple[float, Foresight]] = []

    def status(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def expect(self, foresight: Foresight) -> None:
        self.said.append((self.now, foresight))

    def forecast(self) -> Forecast:
        return Forecast(self, pairs_budget=60.0, turns_budget=60.0, clock=lambda: self.now)


def run_check(step_seconds: list[float], pair_seconds: float, pairs: int, turns_seconds: float) -> Watcher:
    """A check of one workload: both sides' checklist, pairs that end at a look, further turns."""
    watcher = Watcher()
    forecast = watcher.forecast()
    forecast.plan(["encoder"])
    forecast.begin("checklist", "encoder")
    earlier: dict[int, float] = {}
    for _ in range(2):
        done: dict[int, float] = {}
        for number, seconds in enumerate(step_seconds, start=1):
            forecast.expect(foresee_steps(earlier, done, range(number, len(step_seconds) + 1)))
            watcher.now += seconds
            done[number] = seconds
        earlier = done
    forecast.begin("pairs", "encoder")
    taken: list[float] = []
    for pair in range(pairs):
        look = next(end for end in (15, 23, 39, 71, 135) if end > pair)
        forecast.expect(foresee_pairs(sum(taken) / len(taken) if taken else None, pair, next_look=look))
        watcher.now += pair_seconds
        taken.append(pair_seconds)
        if pair + 1 == look:
            forecast.needed = pairs
    forecast.begin("turns", "encoder")
    for share in accumulate([0.25] * 4):
        forecast.expect(Foresight())
        watcher.now += 0.25 * turns_seconds if share <= 1 else 0.0
    return watcher


@pytest.mark.parametrize(
    ("step_seconds", "pair_seconds", "pairs", "turns_seconds"),
    [
        ([2.0] * 17, 1.5, 15, 40.0),
        ([2.0] * 17, 1.5, 23, 45.0),
        ([1.0] * 17, 2.5, 23, 35.0),
        ([3.0, 1.0, 1.0, 6.0, 9.0] * 3, 2.0, 23, 50.0),
    ],
)
def test_forecast__from_half_way_on__within_30_percent_of_the_whole(
    step_seconds: list[float], pair_seconds: float, pairs: int, turns_seconds: float
) -> None:
    watcher = run_check(step_seconds, pair_seconds, pairs, turns_seconds)
    whole = watcher.now
    totals = [now + said.left for now, said in watcher.said if now >= whole / 2 and said.left is not None]
    assert totals
    assert all(0.7 * whole <= total <= 1.3 * whole for total in totals)


def test_forecast__first_side_of_the_checklist__guesses_by_its_own_pace() -> None:
    watcher = run_check([2.0] * 10, 1.0, 15, 30.0)
    first = next((now, said) for now, said in watcher.said if said.left is not None)
    assert first[0] == 2.0  # after one step
    # 19 more steps of 2 s, and 0.7 of both budgets
    assert first[1].left == pytest.approx(38.0 + 42.0 + 42.0)
    assert (first[1].part, first[1].number, first[1].count) == ("checklist", 2, 10)


def test_forecast__second_workload__its_parts_take_what_those_of_the_first_took() -> None:
    watcher = Watcher()
    forecast = watcher.forecast()
    forecast.plan(["a", "b"])
    for part, seconds in (("checklist", 20.0), ("pairs", 30.0), ("turns", 10.0)):
        forecast.begin(part, "a")  # type: ignore[arg-type]
        watcher.now += seconds
    forecast.begin("checklist", "b")
    forecast.expect(Foresight(number=2, count=11))
    assert watcher.said[-1][1].left is not None
    watcher.now += 5.0
    forecast.expect(Foresight(number=2, count=11))
    left = watcher.said[-1][1].left
    assert left == pytest.approx(5.0 * 21 + 30.0 + 10.0)


def test_forecast__workload_left_out__its_parts_are_not_waited_for() -> None:
    watcher = Watcher()
    forecast = watcher.forecast()
    forecast.plan(["a", "b"])
    forecast.leave_out("b")
    forecast.begin("turns", "a")
    assert watcher.said[-1][1].left == pytest.approx(42.0)


def test_forecast__estimate_so_far__stays_with_the_pairs_alone() -> None:
    watcher = Watcher()
    forecast = watcher.forecast()
    forecast.plan(["a"])
    forecast.begin("pairs", "a")
    forecast.show((-0.02, 0.016))
    forecast.expect(Foresight(number=12, goal=15, left=4.0))
    assert watcher.said[-1][1].so_far == (-0.02, 0.016)
    forecast.begin("turns", "a")
    assert watcher.said[-1][1].so_far is None
