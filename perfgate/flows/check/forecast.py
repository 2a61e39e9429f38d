"""One forecast for a whole check: the checklist of each workload, its pairs, and the further turns of the checklist."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from perfgate.conductor.workers.foresight import Foresight, Part, SoFar
from perfgate.flows.shared.doors import Progress

PARTS: tuple[Part, ...] = ("checklist", "pairs", "turns")
# How much of their budgets pairs and turns of usual models take; of what runs, pairs and turns themselves say it.
_USUAL_SHARE = 0.7
# The two sides run the checklist one after the other.
_SIDES = 2


class _Planned(NamedTuple):
    part: Part
    workload: str


class Forecast:
    """Adds what is left of the part that runs to what the later ones will take, and says it as one number.

    A later part takes what the same part of another workload took, else a usual share of its budget; turns never take more
    than they need for what the checklist took. Pairs go on to the look at which they will do, as far as the last look knew.
    """

    def __init__(
        self,
        progress: Progress,
        *,
        pairs_budget: float,
        turns_budget: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress, self._clock = progress, clock
        self._budgets = {"pairs": pairs_budget, "turns": turns_budget}
        self._began = self._part_began = clock()
        self._to_come: list[_Planned] = []
        self._running: _Planned | None = None
        self._took: dict[Part, list[float]] = {part: [] for part in PARTS}
        self._sides_done = 0
        self._last_number = 0
        self._needed: int | None = None
        self._so_far: SoFar | None = None

    def plan(self, workloads: Sequence[str], parts: Sequence[Part] = PARTS) -> None:
        self._to_come = [_Planned(part, workload) for workload in workloads for part in parts]

    def leave_out(self, workload: str) -> None:
        """A workload has no further parts."""
        self._to_come = [planned for planned in self._to_come if planned.workload != workload]

    def begin(self, part: Part, workload: str) -> None:
        """A part begins, and the one before it has ended."""
        now = self._clock()
        if self._running:
            self._took[self._running.part].append(now - self._part_began)
        self._running, self._part_began = _Planned(part, workload), now
        if self._running in self._to_come:  # what was planned before it does not come any more
            self._to_come = self._to_come[self._to_come.index(self._running) + 1 :]
        self._sides_done = self._last_number = 0
        self._needed = self._so_far = None
        self.expect(Foresight())

    def need(self, pairs: int | None) -> None:
        """What the last look found: about so many pairs would decide; None where it does not know."""
        self._needed = pairs

    def show(self, so_far: SoFar | None) -> None:
        self._so_far = so_far

    def expect(self, foresight: Foresight) -> None:
        """Say what is known of the whole, from what the conductor says of the part that runs."""
        if self._running is None:
            return
        if self._running.part == "checklist" and foresight.number is not None:
            self._sides_done += foresight.number < self._last_number
            self._last_number = foresight.number
        now = self._clock()
        left = self._left_of_part(foresight, now - self._part_began)
        whole = None if left is None else left + self._later(left + now - self._part_began)
        self._progress.expect(
            replace(
                foresight,
                part=self._running.part,
                workload=self._running.workload,
                left=whole,
                elapsed=now - self._began,
                so_far=self._so_far,
            )
        )

    def _left_of_part(self, foresight: Foresight, elapsed: float) -> float | None:
        assert self._running is not None, "asked while a part runs"
        part = self._running.part
        if part == "checklist":
            return self._left_of_checklist(foresight, elapsed)
        budget_left = self._budgets[part] - elapsed
        if part == "turns":
            return max(0.0, min(budget_left, self._usual(part) - elapsed))
        if foresight.left is None or foresight.number is None or foresight.goal is None:
            return max(0.0, self._usual(part) - elapsed)
        to_go = foresight.goal - foresight.number + 1
        needed = 0 if self._needed is None else self._needed - foresight.number + 1
        # Once the sure looks are over, the budget ends them.
        return max(foresight.left, min(foresight.left / to_go * needed, budget_left))

    def _left_of_checklist(self, foresight: Foresight, elapsed: float) -> float | None:
        if self._sides_done and foresight.left is not None:
            return foresight.left
        if foresight.number is None or foresight.count is None:
            return None
        done = self._sides_done * foresight.count + foresight.number - 1
        return elapsed / done * (_SIDES * foresight.count - done) if done else None

    def _later(self, this_part: float) -> float:
        assert self._running is not None, "asked while a part runs"
        seconds = {part: self._usual(part) for part in PARTS}
        if self._running.part == "checklist":
            seconds["checklist"] = this_part
        return sum(seconds[planned.part] for planned in self._to_come)

    def _usual(self, part: Part) -> float:
        took = self._took[part]
        if took:
            return sum(took) / len(took)
        return _USUAL_SHARE * self._budgets[part] if part != "checklist" else 0.0
