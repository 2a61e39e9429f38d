"""The checklist of a workload, in turns: a turn runs steps once on every side, each side in a fresh process.

A run has one side and takes one turn. A check has two, and the first one in each turn is drawn at random, evenly: only
alternating turns can be compared.
"""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from perfgate.conductor.engine.order import balanced_coins
from perfgate.conductor.sides.checklist.checklist import Findings, run_checklist
from perfgate.conductor.sides.job_turns import SideName
from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.config import WorkloadReference
from perfgate.document.run import StepResult
from perfgate.locale import sentence

# The fewest turns with a sign test that can show a difference at 95 %: all alike have a chance of 2 in 64.
FEWEST_TURNS = 6
_LAYOUTS = 2**16
# Every report begins with the numbers of the steps up to this one.
LAST_NAMED_STEP = 5
# A folder for each side, with a trace of every shape that both recorded in one pair.
Recorded = Mapping[SideName, Path]
# The time of a further turn relative to the first, until one is measured.
_OF_THE_FIRST = 0.4


class OpenNumbers(NamedTuple):
    """The numbers of a step that further turns would compare.

    ``how_many`` there are; whether any may ``vary`` by its nature; and whether the first turn of base left one of them out.
    """

    how_many: int
    vary: bool
    left_to_turns: bool = False


class LeftOut(NamedTuple):
    """The steps whose turns did not fit into the budget, with the seconds that they take.

    ``spent`` are the seconds of all turns so far, ``starting`` those of starting processes for the turns left out.
    """

    steps: Mapping[int, float]
    spent: float
    starting: float


@dataclass
class ChecklistSide:
    """Code that runs the checklist, and the results of its turns; traces of the first turn stay in ``folder``."""

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
        return {step.number: step.duration for step in self.findings.steps} if self.findings else {}


@dataclass
class ChecklistTurns:
    """Takes the turns. ``begins`` is called with the side that runs next.

    After ``deadline`` (of the monotonic clock) no step begins. With ``leave_out_waits`` calls are timed without what a process
    waited for a CPU that others had, as what is compared must be.
    """

    bench: Bench
    reference: WorkloadReference
    sides: Sequence[ChecklistSide]
    begins: Callable[[SideName], None] = lambda _side: None
    deadline: float = math.inf
    leave_out_waits: bool = False
    _taken: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lot = random.Random(f"{self.bench.config.measure.seed}:{self.reference.name}:turns")
        self._last_begins = balanced_coins(self._lot, run=2)

    def first(
        self,
        steps: tuple[int, ...],
        informing: tuple[int, ...] = (),
        *,
        exact_only: tuple[int, ...] = (),
        quick: bool = True,
        earlier: Mapping[int, float] | None = None,
    ) -> None:
        """Run the steps and the check of the output on every side; ``earlier`` are the seconds that steps took another time.

        Of the steps ``exact_only`` the exact numbers are measured, which is no turn of theirs. Of two sides only head makes
        the experiments of the steps ``informing`` that no report begins with: alone they compare nothing.
        """
        late = {number for number in informing if number > LAST_NAMED_STEP}
        for side in self._in_order():
            self.begins(side.name)
            side.findings = run_checklist(
                self.bench,
                side.checkout,
                self.reference,
                steps=steps,
                informing=informing,
                exact_only=exact_only,
                without_experiments=late if side.name == "base" else (),
                quick=quick,
                folder=side.folder,
                deadline=self.deadline,
                earlier=earlier,
                leave_out_waits=self.leave_out_waits,
            )
            earlier = side.seconds()
        self._taken = dict.fromkeys((*steps, *informing), 1)

    def again(
        self, steps: Iterable[int], *, steady: float = 0.0, brief: bool = False, recorded: Recorded | None = None
    ) -> dict[int, float]:
        """Take one more turn of the steps, or their first, in the same memory layout on every side.

        A ``brief`` one measures for less time, and of step 1 the first call alone. Steps that look at a trace take it from the
        folder of their side in ``recorded``, where there is one, and record none. Returns the seconds of each step.
        """
        numbers = tuple(sorted(steps))
        layout = self._lot.randrange(_LAYOUTS)
        results = list[tuple[Findings, list[StepResult]]]()
        for side in self._in_order():
            self.begins(side.name)
            # A folder of its own, because steps look at the traces that earlier ones left in theirs.
            place: AbstractContextManager[str | Path] = (
                nullcontext(recorded[side.name])
                if recorded
                else tempfile.TemporaryDirectory(dir=side.folder, prefix=".again-")
            )
            with place as folder:
                findings = run_checklist(
                    self.bench,
                    side.checkout,
                    self.reference,
                    steps=numbers,
                    quick=True,
                    folder=Path(folder),
                    steady=steady,
                    layout_seed=layout,
                    checks=False,
                    brief=brief,
                    leave_out_waits=self.leave_out_waits,
                )
            results.append((side.found, findings.steps))
        for first, steps_again in results:
            first.add_turn(steps_again, {number: self.taken(number) + 1 for number in numbers})
        for number in numbers:
            self._taken[number] = self.taken(number) + 1
        took: Counter[int] = Counter()
        for _, steps_again in results:
            took.update({step.number: step.duration for step in steps_again})
        return dict(took)

    def taken(self, step: int) -> int:
        return self._taken.get(step, 0)

    def settle(self, open_steps: Callable[[], Collection[int]], *, steady: float) -> None:
        """Take turns of ``open_steps`` until it names none, or until the deadline."""
        while time.monotonic() < self.deadline and (steps := open_steps()):
            numbers = ", ".join(map(str, sorted(steps)))
            self.bench.say(
                sentence(
                    "{name}: step {steps} in turns, {number}",
                    name=self.reference.name,
                    steps=numbers,
                    number=self.taken(min(steps)) + 1,
                )
            )
            self.again(steps, steady=steady)

    def compare(
        self,
        open_numbers: Callable[[], Mapping[int, OpenNumbers]],
        *,
        budget: float,
        recorded: Sequence[Recorded] = (),
    ) -> LeftOut:
        """Take six turns of as many steps as fit into ``budget`` seconds, and return the others.

        ``open_numbers`` returns the numbers that further turns would compare, by step. The steps that every report begins with
        come first and may take twice the budget, then those with the fewest seconds a number. ``recorded`` are the traces of
        pairs, each for one turn.
        """
        traces = iter(recorded)
        began = time.monotonic()
        seconds = self._seconds_of_a_further_turn()
        beside = 0.0  # the time of a turn outside its steps: starting processes, and loading the workload
        while True:
            numbers = open_numbers()
            needed = self._turns_needed(numbers)
            costs = {number: turns * seconds[number] for number, turns in needed.items() if number in seconds}
            turns_left = max(needed.values(), default=0)
            spent = time.monotonic() - began + turns_left * beside
            latest = self.deadline - began
            chosen = that_fit(by_worth(costs, numbers), min(budget, latest) - spent, min(2 * budget, latest) - spent)
            if not chosen:
                return LeftOut(costs, time.monotonic() - began, turns_left * beside)
            self.bench.say(
                sentence(
                    "{name}: the checklist in turns, at most {count} more",
                    name=self.reference.name,
                    count=turns_left,
                )
            )
            turn_began = time.monotonic()
            took = self.again(chosen, brief=True, recorded=next(traces, None))
            beside = time.monotonic() - turn_began - sum(took.values())
            seconds |= took

    def _turns_needed(self, numbers: Mapping[int, OpenNumbers]) -> dict[int, int]:
        """The further turns of each step: one if it may show that its numbers cannot vary, else up to the fewest."""
        needed: dict[int, int] = {}
        for number, of_step in numbers.items():
            taken = self.taken(number) - of_step.left_to_turns
            left = FEWEST_TURNS - taken
            if left > 0:
                needed[number] = left if of_step.vary or taken > 1 else 1
        return needed

    def _seconds_of_a_further_turn(self) -> dict[int, float]:
        """The estimated time of a further turn on all sides, for the steps that every side measured."""
        durations = [
            {step.number: step.duration / max(1, self.taken(step.number)) for step in side.found.steps}
            for side in self.sides
        ]
        shared = set.intersection(*(set(of_side) for of_side in durations))
        return {number: _OF_THE_FIRST * sum(of_side[number] for of_side in durations) for number in sorted(shared)}

    def _in_order(self) -> Sequence[ChecklistSide]:
        return self.sides[::-1] if next(self._last_begins) else self.sides


def by_worth(costs: Mapping[int, float], numbers: Mapping[int, OpenNumbers]) -> dict[int, float]:
    """The costs of steps: those of the first steps first, then by the seconds for a number."""

    def rank(number: int) -> tuple[bool, float]:
        return number > LAST_NAMED_STEP, costs[number] / numbers[number].how_many

    return {number: costs[number] for number in sorted(costs, key=rank)}


def that_fit(costs: Mapping[int, float], seconds: float, seconds_for_first: float) -> list[int]:
    """The steps with turns that fit into the time, in the given order; the first steps have more of it."""
    chosen = list[int]()
    spent = 0.0
    for number, cost in costs.items():
        allowed = seconds_for_first if number <= LAST_NAMED_STEP else seconds
        if spent + cost <= allowed:
            chosen.append(number)
            spent += cost
    return chosen
