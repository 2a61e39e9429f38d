"""One forecast for a whole check: the checklist of each workload, its pairs, and the
further turns of the checklist.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

from perfgate.conductor.workers.foresight import Foresight, Part
from perfgate.flows.shared.doors import Progress

PARTS: tuple[Part, ...] = ("checklist", "pairs", "turns")
# Share of their budgets that pairs and turns of typical models take, assumed until a
# first part of the kind has finished.
_USUAL_SHARE = 0.7
# The two sides run the checklist one after the other.
_SIDES = 2


class Forecast:
    """Forecasts the remaining seconds of the whole check: the rest of the running part
    plus the parts still to come.

    A part to come is expected to take the mean of the same part of earlier workloads,
    else the usual share of its budget. Pairs are expected to continue to the look that
    the last look predicted to decide.
    """

    def __init__(
        self,
        progress: Progress,
        *,
        pairs_budget: float,
        turns_budget: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress = progress
        self._clock = clock
        self._budgets = {"pairs": pairs_budget, "turns": turns_budget}
        self._began = self._part_began = clock()
        self._to_come: list[tuple[Part, str]] = []
        self._running: tuple[Part, str] | None = None
        self._took: dict[Part, list[float]] = {part: [] for part in PARTS}
        self._sides_done = 0
        self._last_number = 0
        # The number of pairs that the last look expects to decide; None if unknown.
        self.needed: int | None = None
        self._so_far: tuple[float, float] | None = None

    def plan(self, workloads: Sequence[str], parts: Sequence[Part] = PARTS) -> None:
        self._to_come = [
            (part, workload) for workload, part in product(workloads, parts)
        ]

    def leave_out(self, workload: str) -> None:
        """Drop the parts still to come of a workload."""
        self._to_come = [
            (part, planned) for part, planned in self._to_come if planned != workload
        ]

    def begin(self, part: Part, workload: str) -> None:
        """Start a part, which ends the previous one."""
        now = self._clock()
        if self._running:
            self._took[self._running[0]].append(now - self._part_began)
        self._running = (part, workload)
        self._part_began = now
        if self._running in self._to_come:  # parts planned before it were skipped
            self._to_come = self._to_come[self._to_come.index(self._running) + 1 :]
        self._sides_done = self._last_number = 0
        self.needed = self._so_far = None
        self.expect(Foresight())

    def show(self, so_far: tuple[float, float] | None) -> None:
        self._so_far = so_far

    def expect(self, foresight: Foresight) -> None:
        """Report the forecast of the whole check, from the conductor's forecast of the
        running part.
        """
        if self._running is None:
            return
        part, workload = self._running
        if part == "checklist" and foresight.number is not None:
            self._sides_done += foresight.number < self._last_number
            self._last_number = foresight.number
        now = self._clock()
        elapsed = now - self._part_began
        remaining = self._left_of_part(part, foresight, elapsed)
        whole = None
        if remaining is not None:
            seconds = {of: self._usual(of) for of in PARTS}
            if part == "checklist":
                seconds[part] = remaining + elapsed
            whole = remaining + sum(seconds[of] for of, _ in self._to_come)
        self._progress.expect(
            replace(
                foresight,
                part=part,
                workload=workload,
                left=whole,
                elapsed=now - self._began,
                so_far=self._so_far,
            )
        )

    def _left_of_part(
        self, part: Part, foresight: Foresight, elapsed: float
    ) -> float | None:
        if part == "checklist":
            return self._left_of_checklist(foresight, elapsed)
        budget_left = self._budgets[part] - elapsed
        if part == "turns":
            return max(0.0, min(budget_left, self._usual(part) - elapsed))
        if foresight.left is None or foresight.number is None or foresight.goal is None:
            return max(0.0, self._usual(part) - elapsed)
        to_go = foresight.goal - foresight.number + 1
        needed = 0
        if self.needed is not None:
            needed = self.needed - foresight.number + 1
        # After the guaranteed looks, the budget ends the pairs.
        return max(foresight.left, min(foresight.left / to_go * needed, budget_left))

    def _left_of_checklist(self, foresight: Foresight, elapsed: float) -> float | None:
        if self._sides_done and foresight.left is not None:
            return foresight.left
        if foresight.number is None or foresight.count is None:
            return None
        finished = self._sides_done * foresight.count + foresight.number - 1
        if finished:
            return elapsed / finished * (_SIDES * foresight.count - finished)
        return None

    def _usual(self, part: Part) -> float:
        took = self._took[part]
        if took:
            return sum(took) / len(took)
        if part != "checklist":
            return _USUAL_SHARE * self._budgets[part]
        return 0.0
