"""The checklist of a workload, in turns: a turn runs steps once on every side, each
side in a fresh process.

A run has one side and takes one turn. A check has two, and the first one in each turn
is drawn at random, evenly: only alternating turns can be compared.
"""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from perfgate.conductor.engine import (
    Engine,
    Quads,
    QuadTurns,
    Start,
    TimeBudget,
    balanced_coins,
    order_of,
)
from perfgate.conductor.failure import TurnError
from perfgate.conductor.sides.checklist.checklist import (
    ChecklistPlan,
    Findings,
    run_checklist,
)
from perfgate.conductor.sides.job_turns import SideName
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.config import WorkloadReference
from perfgate.locale import sentence

# The fewest turns with a sign test that can show a difference at 95 %: all alike have a
# chance of 2 in 64.
FEWEST_TURNS = 6
_LAYOUTS = 2**16
_ENDLESS = 10**9
# Every report begins with the numbers of the steps up to this one.
LAST_NAMED_STEP = 5
# A folder for each side, with a trace of every shape that both recorded in one pair.
TracedSides = Mapping[SideName, Path]
# The time of a further turn relative to the first, until one is measured.
_OF_THE_FIRST = 0.4


class OpenNumbers(NamedTuple):
    """The numbers of a step that further turns would compare.

    ``how_many`` there are; whether any may ``vary`` by its nature; and whether the
    first turn of base left one of them out.
    """

    how_many: int
    vary: bool
    left_to_turns: bool = False


class LeftOut(NamedTuple):
    """The steps with turns that did not fit into the budget, with the seconds that they
    take.

    ``spent`` are the seconds of all turns so far, ``starting`` the seconds of starting
    processes for the turns left out.
    """

    steps: Mapping[int, float]
    spent: float
    starting: float


@dataclass
class ChecklistSide:
    """Code that runs the checklist, and the results of its turns; traces of the first
    turn stay in ``folder``.
    """

    name: SideName
    checkout: Checkout
    folder: Path
    findings: Findings | None = None

    @property
    def found(self) -> Findings:
        if self.findings is None:
            raise LookupError(f"{self.name} has taken no turn")
        return self.findings

    def seconds(self) -> dict[int, float]:
        """How long all turns of each step took so far."""
        if self.findings is None:
            return {}
        return {step.number: step.duration for step in self.findings.steps}


@dataclass
class ChecklistTurns:
    """Takes the turns. ``begins`` is called with the side that runs next.

    After ``deadline`` (of the monotonic clock) no step begins. With ``leave_out_waits``
    calls are timed without what a process waited for a CPU that others had, as what is
    compared must be.
    """

    bench: Bench
    reference: WorkloadReference
    sides: Sequence[ChecklistSide]
    begins: Callable[[SideName], None] = lambda _side: None
    deadline: float = math.inf
    leave_out_waits: bool = False
    # The turns of each step so far.
    _taken: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._lot = random.Random(
            f"{self.bench.config.measure.seed}:{self.reference.name}:turns"
        )
        self._last_leads = balanced_coins(self._lot, run=2)

    def first(
        self,
        steps: tuple[int, ...],
        informing: tuple[int, ...] = (),
        *,
        exact_only: tuple[int, ...] = (),
        quick: bool = True,
        starts: int = 0,
        earlier: Mapping[int, float] | None = None,
    ) -> None:
        """Run the steps and the check of the output on every side; ``earlier`` are the
        seconds that steps took another time.

        Of the steps ``exact_only`` the exact numbers are measured, which does not count
        as their turn. Of two sides only head makes the experiments of the steps
        ``informing`` that no report begins with: alone they have no counterpart to
        compare with.
        """
        late = [number for number in informing if number > LAST_NAMED_STEP]
        for index in self._next_order():
            side = self.sides[index]
            self.begins(side.name)
            plan = ChecklistPlan(
                steps,
                side.folder,
                quick=quick,
                informing=informing,
                exact_only=exact_only,
                without_experiments=late if side.name == "base" else (),
                deadline=self.deadline,
                earlier=earlier or {},
                leave_out_waits=self.leave_out_waits,
                starts=starts,
            )
            side.findings = run_checklist(
                self.bench, side.checkout, self.reference, plan
            )
            earlier = side.seconds()
        self._taken.clear()
        self._taken.update([*steps, *informing])

    def again(
        self,
        steps: Iterable[int],
        *,
        steady: float = 0.0,
        brief: bool = False,
        recorded: TracedSides | None = None,
        layout_seed: int | None = None,
        order: Sequence[int] | None = None,
    ) -> dict[int, float]:
        """Take one more turn of the steps, or their first, in the same memory layout on
        every side.

        A ``brief`` one measures for less time, and of step 1 the first call alone.
        Steps that look at a trace take it from the folder of their side in
        ``recorded``, where there is one, and record none. Layout and order are drawn
        unless they are given. Returns the seconds of each step.
        """
        numbers = tuple(sorted(steps))
        if layout_seed is None:
            layout_seed = self.draw_layout()
        results = []
        for index in order or self._next_order():
            side = self.sides[index]
            self.begins(side.name)
            # Steps look at the traces that earlier steps left in their folder.
            own_folder: AbstractContextManager[str | Path]
            if recorded:
                own_folder = nullcontext(recorded[side.name])
            else:
                own_folder = tempfile.TemporaryDirectory(
                    dir=side.folder, prefix=".again-"
                )
            with own_folder as folder:
                plan = ChecklistPlan(
                    numbers,
                    Path(folder),
                    steady=steady,
                    layout_seed=layout_seed,
                    checks=False,
                    brief=brief,
                    leave_out_waits=self.leave_out_waits,
                )
                findings = run_checklist(
                    self.bench, side.checkout, self.reference, plan
                )
            results.append((side.found, findings.steps))
        self._taken.update(numbers)
        seconds: dict[int, float] = defaultdict(float)
        for first, steps_again in results:
            first.add_turn(steps_again, self._taken)
            for step in steps_again:
                seconds[step.number] += step.duration
        return seconds

    def taken(self, step: int) -> int:
        return self._taken[step]

    def settle(
        self,
        open_steps: Callable[[], Collection[int]],
        *,
        steady: float,
        looks: Sequence[int] = (_ENDLESS,),
        is_decided: Callable[[], bool] = lambda: False,
        budget: TimeBudget | None = None,
    ) -> None:
        """Take turns of ``open_steps`` until it names none or, at one of the ``looks``,
        ``is_decided``, or the time is spent.

        Looks are numbers of turns, of which the first has been taken.
        """
        client = _OpenSteps(self, open_steps, steady)
        budget = budget or TimeBudget()
        self._engine(client, looks, is_decided, budget, self.deadline).run()

    def compare(
        self,
        open_numbers: Callable[[], Mapping[int, OpenNumbers]],
        *,
        budget: float,
        recorded: Sequence[TracedSides] = (),
    ) -> LeftOut:
        """Take six turns of as many steps as fit into ``budget`` seconds, and return
        the others.

        ``open_numbers`` returns the numbers that further turns would compare, by step.
        The steps that every report begins with come first and may take twice the
        budget, then steps with the fewest seconds a number. ``recorded`` are the traces
        of pairs, each for one turn.
        """
        client = _StepsInTime(self, open_numbers, budget, iter(recorded))
        # The client keeps the time.
        self._engine(client, (_ENDLESS,), lambda: False, TimeBudget(), math.inf).run()
        return client.left_out

    def _engine(
        self,
        client: _TurnsOfSteps,
        looks: Sequence[int],
        is_decided: Callable[[], bool],
        budget: TimeBudget,
        deadline: float,
    ) -> Engine:
        """The engine of further turns, each a start with one turn a side."""
        starts = repeat(Start(0, second_starts=False, second_leads=self._last_leads))
        return Engine(
            client,
            starts,
            looks,
            is_decided,
            budget,
            turns=len(self.sides),
            deadline=deadline,
        )

    def draw_layout(self) -> int:
        return self._lot.randrange(_LAYOUTS)

    def turns_needed(self, numbers: Mapping[int, OpenNumbers]) -> dict[int, int]:
        """The further turns of each step: one if it may show that its numbers cannot
        vary, else up to the fewest.
        """
        needed = {}
        for number, of_step in numbers.items():
            turns = self._taken[number] - of_step.left_to_turns
            missing = FEWEST_TURNS - turns
            if missing > 0:
                needed[number] = missing if of_step.vary or turns > 1 else 1
        return needed

    def seconds_of_a_further_turn(self) -> dict[int, float]:
        """The estimated time of a further turn on all sides, for the steps that every
        side measured.
        """
        of_sides = [side.seconds() for side in self.sides]
        measured = set(of_sides[0]).intersection(*of_sides)
        seconds = {}
        for number in sorted(measured):
            spent = sum(of_side[number] for of_side in of_sides)
            seconds[number] = _OF_THE_FIRST * spent / max(1, self._taken[number])
        return seconds

    def _next_order(self) -> tuple[int, ...]:
        return order_of(next(self._last_leads), turns=len(self.sides))


@dataclass
class _TurnsOfSteps:
    """A client of the engine: a start is one turn of the steps that are chosen then.

    Without any it ends.
    """

    turns: ChecklistTurns
    # The first turn has been taken.
    done: int = field(default=1, init=False)

    def choose(self) -> Collection[int]:
        raise NotImplementedError

    def take(
        self, steps: Collection[int], layout_seed: int, order: Sequence[int]
    ) -> None:
        raise NotImplementedError

    def start(self, *_: object) -> Quads:
        self._steps = self.choose()
        if not self._steps:
            return Quads.exactly(0)
        self._layout_seed = self.turns.draw_layout()
        return Quads.exactly(1)

    def quad(self, quad: QuadTurns) -> bool:
        self.take(self._steps, self._layout_seed, quad.order)
        self.done += 1
        return True

    def finish(self) -> None:
        """Each turn keeps its own results."""

    def fail(self, error: TurnError) -> bool:
        """Pass it on: a step that fails is a result, so no turn fails."""
        raise error


@dataclass
class _OpenSteps(_TurnsOfSteps):
    """Chooses the steps that are still open."""

    open_steps: Callable[[], Collection[int]]
    steady: float

    def choose(self) -> Collection[int]:
        return self.open_steps()

    def take(
        self, steps: Collection[int], layout_seed: int, order: Sequence[int]
    ) -> None:
        turns, numbers = self.turns, sorted(steps)
        number = turns.taken(numbers[0]) + 1
        names = ", ".join(map(str, numbers))
        turns.bench.say(
            sentence(
                "{name}: step {steps} in turns, {number}",
                name=turns.reference.name,
                steps=names,
                number=number,
            )
        )
        turns.again(numbers, steady=self.steady, layout_seed=layout_seed, order=order)


@dataclass
class _StepsInTime(_TurnsOfSteps):
    """Chooses the steps of which all turns that they still need fit into the time;
    ``left_out`` are the others.
    """

    open_numbers: Callable[[], Mapping[int, OpenNumbers]]
    budget: float
    traces: Iterator[TracedSides]
    left_out: LeftOut = field(default=LeftOut({}, 0.0, 0.0), init=False)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._seconds = self.turns.seconds_of_a_further_turn()
        # The time of a turn outside its steps: starting processes, and loading the
        # workload. Before the first, only the time of loading is known, and that turn
        # has to fit.
        self._starting_seconds = sum(
            side.found.load_seconds for side in self.turns.sides
        )
        self._has_turn = False
        self._turns_left = 0

    def choose(self) -> Collection[int]:
        numbers = self.open_numbers()
        needed = self.turns.turns_needed(numbers)
        costs = {
            number: count * self._seconds[number]
            for number, count in needed.items()
            if number in self._seconds
        }
        self._turns_left = max(needed.values(), default=0)
        starting = self._starting_seconds
        if self._has_turn:
            starting *= self._turns_left
        spent = time.monotonic() - self._began
        self.left_out = LeftOut(costs, spent, starting)
        latest = self.turns.deadline - self._began
        seconds = min(self.budget, latest) - spent - starting
        seconds_for_first = min(2 * self.budget, latest) - spent - starting
        return that_fit(by_worth(costs, numbers), seconds, seconds_for_first)

    def take(
        self, steps: Collection[int], layout_seed: int, order: Sequence[int]
    ) -> None:
        turns = self.turns
        turns.bench.say(
            sentence(
                "{name}: the checklist in turns, at most {count} more",
                name=turns.reference.name,
                count=self._turns_left,
            )
        )
        began = time.monotonic()
        recorded = next(self.traces, None)
        seconds = turns.again(
            steps, brief=True, recorded=recorded, layout_seed=layout_seed, order=order
        )
        self._starting_seconds = time.monotonic() - began - sum(seconds.values())
        self._has_turn = True
        self._seconds |= seconds


def by_worth(
    costs: Mapping[int, float], numbers: Mapping[int, OpenNumbers]
) -> dict[int, float]:
    """The costs of steps: first the first steps, then by the seconds for a number."""

    def rank(number: int) -> tuple[bool, float]:
        return number > LAST_NAMED_STEP, costs[number] / numbers[number].how_many

    return {number: costs[number] for number in sorted(costs, key=rank)}


def that_fit(
    costs: Mapping[int, float], seconds: float, seconds_for_first: float
) -> list[int]:
    """The steps with turns that fit into the time, in the given order; the first steps
    have more of it.
    """
    chosen = []
    spent = 0.0
    for number, cost in costs.items():
        allowed = seconds_for_first if number <= LAST_NAMED_STEP else seconds
        if spent + cost <= allowed:
            chosen.append(number)
            spent += cost
    return chosen
