"""Two sides take turns: by lot, with equal work in every quad, afresh every few quads, until they decide or fail."""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass, field
from typing import Any

import pytest

from perfgate.conductor.engine import Quads, Reach, TimeBudget, foresee
from perfgate.conductor.sides.alternating import FEWEST_TURNS, AlternatingSide, Visit
from perfgate.conductor.sides.job_turns import OVERRUN, JobTurns, MeasuredJob, SwappingTurns
from perfgate.conductor.sides.program import SideError
from perfgate.conductor.sides.side import SidePlan
from perfgate.conductor.sides.stacks.stacks import SideStacks
from perfgate.document.job import JobNumber, JobRecord, TurnResult
from perfgate.document.message import Message
from perfgate.document.run import ErrorDetail
from perfgate.system.interrupts import held_back, interrupt

RECORD = JobRecord(name="chat", kind="server", reference="serve", sha256="0" * 64)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Worker:
    """A side whose starts and turns take seconds of a clock; every call is noted in a list that both sides share."""

    name: str
    clock: Clock
    calls: list[tuple[str, str, int]]
    start_seconds: float = 10.0
    turn_seconds: float = 1.0
    fails_at: float = math.inf
    fails_profiling: float = False
    running: bool = False
    has_texts: bool = False
    without: set[str] = field(default_factory=set)
    blurred: tuple[int, ...] = ()
    is_blurred: bool = False
    numbers: tuple[JobNumber, ...] = field(default=(JobNumber(metric="serving.tpot", unit="s", better="lower"),))

    def start(self) -> None:
        self.calls.append((self.name, "start", 0))
        self.running, self.has_texts = True, False

    def warm_up(self) -> None:
        self.clock.now += self.start_seconds

    def turn(self, number: int) -> TurnResult:
        assert self.running
        if self.clock.now > self.fails_at:
            raise SideError(ErrorDetail(kind="exit", message=Message("job.exited", {"line": "serve", "code": 3})))
        self.clock.now += self.turn_seconds
        self.calls.append((self.name, "turn", number))
        texts = [] if self.has_texts else ["a"]
        self.has_texts, self.is_blurred = True, number in self.blurred
        values = {"serving.tpot": self.turn_seconds}
        return TurnResult(values=values, work={"requests": 8}, late=0.01, texts=texts, without=list(self.without))

    def count(self) -> dict[str, int]:
        self.calls.append((self.name, "count", 0))
        return {"python_lines": 100}

    def profile(self, number: int) -> SideStacks | None:
        if not self.running:
            return None
        self.calls.append((self.name, "profile", number))
        if self.fails_profiling:
            raise SideError(ErrorDetail(kind="exit", message=Message("job.exited", {"line": "serve", "code": 3})))
        return SideStacks("token", 1, self.turn_seconds, [], [])

    def stop(self) -> None:
        if self.running:
            self.calls.append((self.name, "stop", 0))
        self.running = False


def taken(
    plan: SidePlan,
    *,
    looks: tuple[int, ...] = (8, 16),
    ends: float = 1e6,
    decides_at: int = 10**9,
    before: Reach = Reach(),  # noqa: B008 - a tuple
    needed: int | None = None,
    needs_causes: bool = True,
    record: JobRecord = RECORD,
    kind: type[Worker] = Worker,
    **fields: Any,
) -> tuple[MeasuredJob, list[tuple[str, str, int]], list[int]]:
    clock, measured = Clock(), MeasuredJob(record, before=before)
    calls: list[tuple[str, str, int]] = []
    told: list[int] = []
    sides = {name: kind(name, clock, calls, **fields) for name in ("base", "head")}
    taker = JobTurns(
        [{"base": sides["base"], "head": sides["head"]}],
        plan,
        measured,
        looks,
        is_decided=lambda: taker.done >= decides_at,
        say=lambda _: None,
        announce=lambda: told.append(taker.done),
        seed=1,
        budget=TimeBudget(ends, latest=ends * (1 + OVERRUN), needed=lambda: needed),
        clock=clock,
        needs_causes=lambda: needs_causes,
    )
    taker.take()
    assert not any(side.running for side in sides.values())
    return measured, calls, told


def test_blurred_turn__the_quad_is_taken_again_with_other_work_of_both_sides() -> None:
    measured, calls, _ = taken(SidePlan(turns=4, fewest=2, most=8), looks=(8,), blurred=(1,))
    numbers = {
        name: [number for side, what, number in calls if (side, what) == (name, "turn")] for name in ("base", "head")
    }
    assert numbers["base"] == numbers["head"] == [0, 1, 100_000, 100_001, *range(2, 16)]
    for turns in (measured.base, measured.head):
        assert [turn.quad for turn in turns] == [quad for quad in range(8) for _ in range(2)]
        # What the first turn of a start gives once is that of the turns which do not count.
        assert [turn.start for turn in turns if turn.texts] == [0, 1]


def test_blurred_turn__always__is_taken_five_times_and_counts() -> None:
    always = tuple(100_000 * take for take in range(9))
    measured, calls, _ = taken(SidePlan(turns=4, fewest=2, most=8), looks=(8,), blurred=always)
    assert len(measured.base) == 16
    assert sum(what == "turn" for _, what, _ in calls) == 4 * (8 + 4)


def test_what_a_server_does_not_take__found_out_in_a_turn__both_sides_are_asked_without_in_every_quad() -> None:
    clock, measured = Clock(), MeasuredJob(RECORD)
    without: set[str] = set()
    base, head = (Worker(name, clock, [], without=without) for name in ("base", "head"))

    class Finds:
        """A head that finds out in its third turn."""

        def __getattr__(self, name: str) -> object:
            return getattr(head, name)

        def turn(self, number: int) -> TurnResult:
            if number == 2:
                without.add("ignore_eos")
            return head.turn(number)

    JobTurns(
        [{"base": base, "head": Finds()}],  # type: ignore[dict-item]
        SidePlan(turns=2),
        measured,
        (4,),
        is_decided=lambda: False,
        say=lambda _: None,
        announce=lambda: None,
        seed=1,
        clock=clock,
    ).take()
    asked = [[turn.without for turn in turns] for turns in (measured.base, measured.head)]
    assert asked[0] == asked[1] == [[], [], ["ignore_eos"], ["ignore_eos"]]


def test_one_side__a_run__starts_with_as_many_turns_each_and_nothing_is_counted_or_profiled() -> None:
    clock, measured = Clock(), MeasuredJob(RECORD)
    calls: list[tuple[str, str, int]] = []
    JobTurns(
        [{"head": Worker("head", clock, calls)}],
        SidePlan(turns=1, fewest=3, most=3),
        measured,
        (6,),
        is_decided=lambda: True,
        say=lambda _: None,
        announce=lambda: None,
        seed=1,
        clock=clock,
    ).take()
    assert [(turn.start, turn.quad, turn.place) for turn in measured.head] == [
        (quad // 3, quad, 0) for quad in range(6)
    ]
    assert (measured.base, measured.failed, measured.stacks) == ([], [], {})
    assert [number for _, what, number in calls if what == "turn"] == [0, 1, 2, 3, 4, 5]
    assert {what for _, what, _ in calls} == {"start", "turn", "stop"}


@pytest.mark.parametrize("turns", [2, 4])
def test_order__any_number_of_quads__each_side_leads_half_of_them(turns: int) -> None:
    measured, _, _ = taken(SidePlan(turns=turns, fewest=2, most=4), looks=(16,))
    leading = [turn.quad for turn in measured.base if turn.place == 0]
    assert [sum(quad // 2 == pair for quad in leading) for pair in range(8)] == [1] * 8


def test_added_turns__quads_and_starts_go_on_where_the_earlier_ended() -> None:
    plan = SidePlan(turns=4, fewest=2, most=4)
    measured, calls, told = taken(plan, looks=(16,), before=Reach(quads=9, starts=3))
    assert sorted({(turn.quad, turn.start) for turn in measured.head}) == [
        *((quad, 3) for quad in range(9, 13)),
        *((quad, 4) for quad in range(13, 16)),
    ]
    assert told == [13]
    first, _, _ = taken(plan, looks=(7,))
    assert {number for _, what, number in calls if what == "turn"} == set(range(18, 32))
    assert [t.place for t in first.base] != [t.place for t in measured.base], "another lot than that of the first turns"


@pytest.mark.parametrize(
    ("look", "quads"), [(14, [6, 8]), (16, [6, 10]), (17, [6, 6, 5])], ids=["near", "nearer than a start", "far"]
)
def test_start__a_look_is_nearer_than_another_start__goes_on_to_it(look: int, quads: list[int]) -> None:
    # A start takes 20 s and so six quads of 4 s.
    measured, _, _ = taken(SidePlan(turns=4, fewest=2, most=32), looks=(look,))
    assert [sum(turn.start == start for turn in measured.base) // 2 for start in range(len(quads))] == quads
    # Nor is there a start that has no time for a quad: two of them end after 88 s.
    hurried, _, _ = taken(SidePlan(turns=4, fewest=2, most=32), looks=(64,), ends=100.0)
    assert {turn.start for turn in hurried.base} == {0, 1}
    assert (len(hurried.base) // 2, hurried.failed) == (16, [])
    # One start decides nothing, however near its look is.
    first, _, _ = taken(SidePlan(turns=4, fewest=2, most=32), looks=(8,))
    assert {turn.start for turn in first.base} == {0, 1}


def test_added_turns__no_time__nothing_is_added_and_nothing_fails() -> None:
    measured, _, _ = taken(SidePlan(turns=4, fewest=2, most=4), ends=-1.0, before=Reach(quads=9, starts=3))
    assert (measured.base, measured.failed) == ([], [])


def test_profile__after_the_last_turn__no_process_of_the_head_lives_while_base_is_profiled() -> None:
    measured, calls, _ = taken(SidePlan(turns=4, fewest=2, most=4), looks=(8,))
    assert calls[-4:] == [
        ("head", "profile", 32),
        ("head", "stop", 0),
        ("base", "profile", 32),
        ("base", "stop", 0),
    ]
    assert measured.stacks.keys() == {"base", "head"}


def test_profile__nothing_to_explain__no_side_is_profiled() -> None:
    measured, calls, _ = taken(SidePlan(turns=4, fewest=2, most=4), looks=(8,), needs_causes=False)
    assert (len(measured.base), measured.stacks) == (16, {})
    assert "profile" not in {what for _, what, _ in calls}


def test_profile__a_side_fails_while_it_is_profiled__its_turns_count() -> None:
    plan = SidePlan(turns=4, fewest=2, most=8)
    measured, _, _ = taken(plan, looks=(8,), fails_profiling=True)
    assert (len(measured.base), measured.failed, measured.stacks) == (16, [], {})


def test_swap__sides_change_their_halves__every_quad_has_turns_on_both() -> None:
    clock, measured = Clock(), MeasuredJob(RECORD)
    calls: list[tuple[str, str, int]] = []
    layouts = [{name: Worker(f"{name}{half}", clock, calls) for name in ("base", "head")} for half in (0, 1)]
    told: list[Reach] = []
    taker = SwappingTurns(
        [{"base": layout["base"], "head": layout["head"]} for layout in layouts],
        SidePlan(turns=4, fewest=2, most=6),
        measured,
        (8, 16),
        is_decided=lambda: taker.done == 16,
        say=lambda _: None,
        announce=lambda: told.append(taker.reach()),
        seed=1,
        budget=TimeBudget(1000.0),
        clock=clock,
    )
    taker.take()
    # 6 quads, then 2 to the first look, and so on; a start is one on either half.
    assert [sum(turn.start == start for turn in measured.base) // 4 for start in range(4)] == [6, 2, 6, 2]
    of_third = [turn.place for turn in (*measured.base, *measured.head) if turn.quad == 2]
    assert sorted(of_third) == list(range(8))
    assert {name for name, what, _ in calls if what == "turn"} == {"base0", "head0", "base1", "head1"}
    assert not any(side.running for layout in layouts for side in layout.values())
    # A start takes 20 s and then five quads of 4 s, on either half; later ones have six.
    assert told == [Reach(quads=16, starts=3, seconds=pytest.approx(2 * 80 + 88))]


def test_one_by_one__a_side_is_warm_before_the_other_starts() -> None:
    _, calls, _ = taken(SidePlan(turns=4, fewest=8, most=8, one_by_one=True))
    assert sorted(call for call in calls[:2]) == [("base", "start", 0), ("head", "start", 0)]


def test_alternating__a_turn_is_a_visit_of_its_own_processes() -> None:
    clock, calls = Clock(), []  # type: ignore[var-annotated]
    visit = Visit()
    sides = [Worker(name, clock, calls) for name in ("base", "head")]
    alternating = [AlternatingSide(side, visit) for side in sides]
    results = [side.turn(1) for side in alternating]
    assert visit.turns == FEWEST_TURNS
    assert [result.work for result in results] == [{"requests": 8 * FEWEST_TURNS}] * 2
    assert (results[0].values, results[0].late) == ({"serving.tpot": 1.0}, 0.01)
    assert [number for name, what, number in calls if (name, what) == ("base", "turn")] == list(range(64, 72))
    assert not any(side.running for side in sides)


def turns(calls: list[tuple[str, str, int]]) -> list[tuple[str, int]]:
    return [(name, number) for name, what, number in calls if what == "turn"]


def test_quads__of_four_turns__are_abba_by_lot_with_the_same_work() -> None:
    measured, calls, told = taken(SidePlan(turns=4, fewest=4, most=8))
    order = turns(calls)
    leaders = set()
    for quad in range(16):
        names = [name for name, _ in order[4 * quad : 4 * quad + 4]]
        assert names in (["base", "head", "head", "base"], ["head", "base", "base", "head"])
        leaders.add(names[0])
        for side in ("base", "head"):
            assert [n for name, n in order[4 * quad : 4 * quad + 4] if name == side] == [2 * quad, 2 * quad + 1]
    assert leaders == {"base", "head"}
    assert told == [4]
    assert len(measured.base) == len(measured.head) == 32
    assert {turn.quad for turn in measured.head} == set(range(16))


def test_runs__of_two_turns__two_quads_together_are_abba() -> None:
    _, calls, _ = taken(SidePlan(turns=2))
    order = [name for name, _ in turns(calls)]
    for begin in range(0, 32, 4):
        assert order[begin : begin + 4] in (["base", "head", "head", "base"], ["head", "base", "base", "head"])


def test_starts__turns_took_as_long_as_starting__both_sides_start_afresh() -> None:
    measured, calls, _ = taken(SidePlan(turns=4, fewest=2, most=8), start_seconds=6.0)
    # Two starts of 6 s each take as long as three quads of 4 s.
    assert [sum(turn.start == start for turn in measured.head) // 2 for start in (0, 1)] == [4, 4]
    assert sum(what == "start" for _, what, _ in calls) == 2 * (1 + max(turn.start for turn in measured.head))


def test_starts__after_the_first__three_quarters_of_the_time_are_turns() -> None:
    measured, _, _ = taken(SidePlan(turns=4, fewest=2, most=32), looks=(8, 64), start_seconds=6.0)
    # Two starts of 12 s have turns for as long; later ones for 36 s, which takes ten quads.
    assert [sum(turn.start == start for turn in measured.head) // 2 for start in range(4)] == [4, 4, 10, 10]


def test_added_turns__of_a_third_start_and_later__the_first_two_of_this_check_are_short() -> None:
    plan, earlier = SidePlan(turns=4, fewest=2, most=32), Reach(quads=9, starts=3)
    measured, _, _ = taken(plan, looks=(17, 73), start_seconds=6.0, before=earlier)
    assert [sum(turn.start == start for turn in measured.head) // 2 for start in range(3, 7)] == [4, 4, 10, 10]


def test_starts__starting_takes_no_time__has_the_fewest_quads() -> None:
    measured, _, _ = taken(SidePlan(turns=4, fewest=2, most=8), looks=(8,), start_seconds=0.0)
    assert [sum(turn.start == start for turn in measured.head) // 2 for start in range(4)] == [2, 2, 2, 2]


def test_foresee__every_run_is_a_process__as_many_runs_as_fit_up_to_the_last_look() -> None:
    seconds = {"start_seconds": 0.0, "quad_seconds": 8.0}
    assert foresee(Quads(fewest=1, most=0), quads=32, seconds=60.0, **seconds) == Reach(7, 7, 56.0)
    assert foresee(Quads(fewest=1, most=0), quads=4, seconds=60.0, **seconds) == Reach(4, 4, 32.0)


def test_foresee__starts_of_several_quads__the_last_one_in_part() -> None:
    # Each start takes 20 s and its four quads 16 s.
    reach = foresee(Quads(fewest=4, most=4), quads=32, seconds=90.0, start_seconds=20.0, quad_seconds=4.0)
    assert reach == Reach(10, 2, 90.0)


def test_foresee__less_time_than_a_start_takes__part_of_one_start() -> None:
    reach = foresee(Quads(fewest=4, most=4), quads=32, seconds=18.0, start_seconds=20.0, quad_seconds=4.0)
    assert reach == Reach(2, 1, 18.0)


def test_starts__starting_takes_long__has_at_most_so_many_quads() -> None:
    measured, _, _ = taken(SidePlan(turns=4, fewest=2, most=8), start_seconds=600.0)
    assert [sum(turn.start == start for turn in measured.head) // 2 for start in (0, 1)] == [8, 8]


def test_look__decided__no_further_quad() -> None:
    measured, _, _ = taken(SidePlan(turns=4, fewest=4, most=4), looks=(4, 8, 64), decides_at=8)
    assert 1 + max(turn.quad for turn in measured.head) == 8


def test_time__spent__no_further_quad_begins_and_half_a_quad_is_none() -> None:
    measured, _, _ = taken(SidePlan(turns=4, fewest=4, most=100), ends=50.0)
    # 20 s of starting, six quads of 4 s, and another start, after which the 50 s are over.
    assert 1 + max(turn.quad for turn in measured.head) == 6
    assert len(measured.base) == len(measured.head) == 12


def test_time__spent_before_the_first_quad__is_a_failure_by_name() -> None:
    measured, _, _ = taken(SidePlan(turns=4, fewest=4, most=8), ends=5.0)
    (failed,) = measured.failed
    assert failed.error.kind == "timeout"
    assert measured.head == []


def test_side__fails_in_its_turn__what_was_measured_stays_and_the_failure_is_named() -> None:
    measured, calls, _ = taken(SidePlan(turns=4, fewest=4, most=8), fails_at=29.5)
    (failed,) = measured.failed
    assert (failed.pair, failed.workload, failed.error.kind) == (2, "chat", "exit")
    # It fails in the third turn of the quad, and the second is of the same side.
    assert failed.side == [side for side, what, _ in calls if what == "turn"][-1]
    assert {turn.quad for turn in (*measured.base, *measured.head)} == {0, 1}


def test_side__either_fails_in_its_turn__the_failure_is_its_own() -> None:
    """At the third turn of a quad, whose order is drawn by lot."""
    sides = set()
    for quad in range(4):
        measured, calls, _ = taken(SidePlan(turns=4, fewest=4, most=8), fails_at=21.5 + 4 * quad)
        (failed,) = measured.failed
        assert failed.side == [side for side, what, _ in calls if what == "turn"][-1]
        sides.add(failed.side)
    assert sides == {"base", "head"}


def test_take__ctrl_c_in_the_last_turn_of_a_start__no_other_begins() -> None:
    started: list[str] = []
    turns: list[int] = []

    class Interrupted(Worker):
        def start(self) -> None:
            super().start()
            started.append(self.name)

        def turn(self, number: int) -> TurnResult:
            turns.append(number)
            if len(turns) == 8:
                interrupt(signal.SIGINT, None)
            return super().turn(number)

    with pytest.raises(KeyboardInterrupt), held_back():
        taken(SidePlan(turns=4, fewest=2, most=2), kind=Interrupted)
    assert sorted(started) == ["base", "head"]


def test_order__same_seed__is_the_same() -> None:
    plan = SidePlan(turns=4, fewest=4, most=8)
    assert taken(plan)[1] == taken(plan)[1]


@pytest.mark.parametrize(
    ("needed", "quads"),
    [(None, 9), (11, 11), (5, 9), (12, 9), (40, 9)],
    ids=["unknown", "within a third", "no more", "too long", "beyond the last look"],
)
def test_time_is_up__so_many_quads_would_decide__the_budget_is_overrun_by_a_third_at_most(
    needed: int | None, quads: int
) -> None:
    # A start takes 20 s for 4 quads of 4 s each, so 9 quads end at 96 s: 10.7 s each.
    measured, _, _ = taken(SidePlan(turns=4, fewest=4, most=4), looks=(16, 32), ends=93.0, needed=needed)
    assert len({turn.quad for turn in measured.head}) == quads


@pytest.mark.parametrize(("needed", "quads"), [(20, 11), (21, 9)], ids=["within a third", "too long"])
def test_added_turns__time_is_up__the_overrun_is_foreseen_from_the_added_quads_alone(needed: int, quads: int) -> None:
    plan, earlier = SidePlan(turns=4, fewest=4, most=4), Reach(quads=9, starts=3)
    measured, _, _ = taken(plan, looks=(25, 41), ends=93.0, needed=needed, before=earlier)
    assert len({turn.quad for turn in measured.head}) == quads


def test_command__after_its_turns__two_runs_of_each_side_are_counted() -> None:
    record = JobRecord(name="bench", kind="command", reference="python bench.py", sha256="0" * 64)
    measured, calls, _ = taken(SidePlan(turns=2), looks=(8,), record=record)
    assert [what for _, what, _ in calls if what != "stop"][-6:] == [*["count"] * 4, "profile", "profile"]
    for turns in (measured.base, measured.head):
        assert [turn.counters for turn in turns] == [*[{}] * 6, {"python_lines": 100}, {"python_lines": 100}]
    served, _, _ = taken(SidePlan(turns=4, fewest=4, most=8), looks=(8,))
    assert not any(turn.counters for turn in served.base)
