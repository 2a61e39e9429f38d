"""Steps of the checklist that base and head measure in turns: only what both did again and again can be compared."""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from perfgate.catalogue.lookup import METRICS, card
from perfgate.conductor.sides.checklist import Findings, run_checklist
from perfgate.conductor.sides.turns import SideName
from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.config import WorkloadReference
from perfgate.document.message import Message
from perfgate.document.run import REPEAT, StepResult
from perfgate.judging.gate.pairs import SAMPLED

# The fewest whose signs can show a difference at 95 %: all alike have a chance of 2 in 64.
FEWEST_TURNS = 6
_LAYOUTS = 2**16


class MeasuredSide(NamedTuple):
    """A side of a check: its code, what its first turn found, and where files of further turns may lie while they run."""

    name: SideName
    checkout: Checkout
    findings: Findings
    folder: Path


class StepTurns:
    """Takes turns after the first, which the checklist of each side was. Which side begins is drawn by lot, evenly."""

    def __init__(
        self,
        bench: Bench,
        reference: WorkloadReference,
        *,
        base: MeasuredSide,
        head: MeasuredSide,
        begins: Callable[[SideName], None],
    ) -> None:
        """``begins`` is told which side's code runs next."""
        self._bench, self._reference, self._sides, self._begins = bench, reference, (base, head), begins
        self._lot = random.Random(f"{bench.config.measure.seed}:{reference.name}:turns")
        self._heads_first = _balanced(self._lot)
        self._taken: dict[int, int] = {}

    def take(self, steps: Iterable[int], *, steady: float = 0.0) -> None:
        """Measure the steps once more on both sides, each in a process of its own and both in the same memory layout."""
        numbers = tuple(sorted(steps))
        layout = self._lot.randrange(_LAYOUTS)
        again = list[tuple[Findings, list[StepResult]]]()
        for side in reversed(self._sides) if next(self._heads_first) else self._sides:
            self._begins(side.name)
            # In a folder of its own, because steps look at the traces that earlier ones left in theirs.
            with tempfile.TemporaryDirectory(dir=side.folder, prefix=".again-") as folder:
                findings = run_checklist(
                    self._bench,
                    side.checkout,
                    self._reference,
                    steps=numbers,
                    quick=True,
                    folder=Path(folder),
                    steady=steady,
                    layout_seed=layout,
                    checks=False,
                )
            again.append((side.findings, findings.steps))
        for first, results in again:
            for result in results:
                first.add_again([result], REPEAT, self._taken.get(result.number, 1) + 1)
        for number in numbers:
            self._taken[number] = self._taken.get(number, 1) + 1

    def take_rest(self, steps: Collection[int], *, budget: float, deadline: float) -> list[Message]:
        """Take six turns of as many of the steps as fit, those first that need the fewest seconds; name the others.

        The first turn counts towards ``budget``, which is seconds. Steps whose numbers are exact, or come from the pairs, need
        no turns.
        """
        spent = sum(step.duration for side in self._sides for step in side.findings.steps if step.number in steps)
        ends = min(deadline, time.monotonic() + budget - spent)
        costs = self._costs(steps)
        chosen, left = list[int](), ends - time.monotonic()
        for number, seconds in sorted(costs.items(), key=lambda cost: cost[1]):
            if seconds <= left:
                chosen.append(number)
                left -= seconds
        for turn in range(1, FEWEST_TURNS) if chosen else ():
            if time.monotonic() > ends:
                break
            self._bench.say(f"{self._reference.name}: the checklist in turns, {turn + 1} of {FEWEST_TURNS}")
            self.take(chosen)
        missed = [
            f"{number} {card(number).slug} ({seconds:.0f} s)"
            for number, seconds in sorted(costs.items())
            if number not in chosen
        ]
        needed = math.ceil(spent + sum(costs.values()))
        return [Message("notes.not-in-turns", {"steps": missed, "seconds": needed})] if missed else []

    def _costs(self, steps: Collection[int]) -> dict[int, float]:
        """The seconds that five more turns take of each of the steps that both sides measured and that has taken only one."""
        base, head = ({step.number: step for step in side.findings.steps} for side in self._sides)
        return {
            number: (FEWEST_TURNS - 1) * (base[number].duration + head[number].duration)
            for number in sorted(base.keys() & head.keys() & set(steps) - self._taken.keys())
            if any(_needs_turns(value.metric) and value.value is not None for value in head[number].values)
        }


def _needs_turns(name: str) -> bool:
    entry = METRICS.get(name)
    return bool(entry and entry.leading and entry.kind == "noisy" and not entry.family and name not in SAMPLED)


def _balanced(lot: random.Random) -> Iterator[bool]:
    """Whether the head begins: it does after the first turn, in which the base did, and then in one of every two turns."""
    yield True
    while True:
        first = lot.random() < 0.5
        yield from (first, not first)
