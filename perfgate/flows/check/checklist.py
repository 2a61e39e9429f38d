"""The checklist of a workload in a check: the turns that decide bounds, and those that compare base and head."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from perfgate.catalogue.lookup import CARDS, measuring_step
from perfgate.catalogue.names import STEADY_NUMBERS
from perfgate.conductor.engine import TimeBudget
from perfgate.conductor.sides.checklist.compiled_calls import (
    SECONDS_OF_A_SIDE,
    time_compiled_calls,
)
from perfgate.conductor.sides.checklist.turns import ChecklistTurns, OpenNumbers
from perfgate.conductor.sides.function.batch_sizes import BatchSizes
from perfgate.document.message import Message
from perfgate.document.run import StepResult, is_left_to_turns
from perfgate.flows.check.measured import CheckContext, documents_of
from perfgate.flows.check.step_results import (
    BATCH_STEP,
    GRAPH_STEP,
    batch_step,
    thermal_step,
    with_speedup,
)
from perfgate.flows.check.steps import CheckSteps
from perfgate.flows.check.traces import keep_traces
from perfgate.judging.gate.compare.head_rules import broken_metrics
from perfgate.judging.gate.evidence.bounds import HeadNumbers, bounded_metrics
from perfgate.judging.gate.evidence.checklist import PairedNumbers, leading_numbers
from perfgate.judging.gate.evidence.index import RunIndex
from perfgate.judging.gate.evidence.tolerance import metrics_in_turns
from perfgate.judging.gate.look import Look

# Measurements of a budget or SLA that seems broken before the head is blamed for it.
TURNS_OF_A_BROKEN_BOUND = 3


@dataclass
class ChecklistOfCheck:
    """Takes further turns of the checklist, after the first turn of both sides."""

    check: CheckContext
    turns: ChecklistTurns
    steps: CheckSteps

    @property
    def _name(self) -> str:
        return self.turns.reference.name

    def settle_gating_numbers(self) -> None:
        """Take turns of the steps with undecided gating metrics: bounds that seem broken, and metrics that a tolerance names.

        A machine may stall for a moment, so a bound that seems broken gets two more turns, regardless of their cost. A metric
        with a tolerance gets turns until it is decided or the budget of the pairs is spent.
        """
        turns, config, policy = self.turns, self.check.job.config, self.check.job.policy
        metrics = metrics_in_turns(policy)
        steps = {measuring_step(metric) for metric in metrics}
        gating = bounded_metrics(policy) | set(metrics)
        steady = 0.0
        if STEADY_NUMBERS & gating:
            steady = config.measure.steady
        if steps and not self._repetitions_decide():
            turns.settle(
                lambda: steps | self._broken_steps(),
                steady=steady,
                looks=policy.looks,
                is_decided=self._repetitions_decide,
                budget=TimeBudget(time.monotonic() + config.gate.budget),
            )
        turns.settle(self._broken_steps, steady=steady)

    def _repetitions_decide(self) -> bool:
        documents = documents_of(self.check.job, self.check.measured)
        check = self.check
        look = Look(
            *documents,
            check.job.policy,
            workload=self._name,
            start_luck=check.start_luck,
        )
        return not look.repetitions_would_help()

    def _broken_steps(self) -> set[int]:
        """The steps with a bound that seems broken, until they had their turns."""
        job = self.check.job
        base, head = map(RunIndex, documents_of(job, self.check.measured))
        broken = broken_metrics(
            HeadNumbers.of(base, head, job.policy).bounded, self._name
        )
        steps = {measuring_step(metric) for metric in broken}
        return {
            step for step in steps if self.turns.taken(step) < TURNS_OF_A_BROKEN_BOUND
        }

    def add_steps_of_pairs(self, sizes: BatchSizes | None) -> None:
        """Add the steps that the pairs measured to both sides: batch sizes, and the device's state."""
        limits, pairs = (
            self.check.job.config.limit_values,
            self.check.measured.pairs[-1],
        )
        for index, replicates in enumerate((pairs.base, pairs.head)):
            recorded = self.turns.sides[index].found
            added: list[StepResult] = []
            if sizes is not None:
                added.append(
                    batch_step(sizes.sides[index], sizes, recorded.workload, limits)
                )
            if self.steps.is_watched:
                added.append(thermal_step(replicates, recorded.workload, limits))
            recorded.add_turn(added, {})
            recorded.steps.sort(key=lambda step: step.number)

    def compare(self) -> None:
        """Take turns until the numbers of both sides are compared or the time is spent.

        Steps that read traces use the traced pairs.
        """
        check, measured = self.check, self.check.measured
        base, head = self.turns.sides
        flames, recorded = keep_traces(
            measured.pairs[-1].traces,
            (base.found, head.found),
            (base.folder, head.folder),
        )
        measured.flames.update(flames)
        check.forecast.begin("turns", self._name)
        budget = check.checklist_budget
        left_out = self.turns.compare(
            self._open_numbers, budget=budget, recorded=recorded
        )
        omissions = dict(left_out.steps)
        if self.steps.compiles:
            needed = SECONDS_OF_A_SIDE * len(self.turns.sides)
            fits = self.steps.is_asked or left_out.spent + needed <= budget
            if fits and time.monotonic() < check.job.deadline:
                self._time_compiled_calls()
            else:
                omissions[GRAPH_STEP] = needed
        if omissions:
            names = [
                f"{number} {CARDS[number].slug} ({cost:.0f} s)"
                for number, cost in sorted(omissions.items())
            ]
            seconds = math.ceil(
                left_out.spent + left_out.starting + sum(omissions.values())
            )
            head.found.warnings.append(
                Message("notes.not-in-turns", {"steps": names, "seconds": seconds})
            )

    def _time_compiled_calls(self) -> None:
        """Add the speed-up by compiling to step 9 of both sides."""
        turns = self.turns
        self.check.job.seals.begin("base", "head")
        compiled = time_compiled_calls(
            self.check.bench, turns.reference, turns.sides, layout_seed=1
        )
        for side, of_side in zip(turns.sides, compiled):
            recorded = side.found
            shape = recorded.workload.shapes[0]
            for position, step in enumerate(recorded.steps):
                if step.number == GRAPH_STEP:
                    recorded.steps[position] = with_speedup(step, of_side, shape)

    def _open_numbers(self) -> dict[int, OpenNumbers]:
        """By step, the numbers that further turns would compare."""
        base, head = documents_of(self.check.job, self.check.measured)
        numbers = PairedNumbers(base, head)
        left_to_turns: set[int] = set()
        for step in base.checklist.steps:
            if step.workload == self._name and is_left_to_turns(step):
                left_to_turns.add(step.number)
        in_base = leading_numbers(base)
        open_numbers: dict[int, OpenNumbers] = {}
        for number, value in leading_numbers(head).items():
            if (
                number.workload != self._name
                or number.step == BATCH_STEP
                or value.value is None
            ):
                continue
            is_left = number.step in left_to_turns
            waits = is_left and numbers.waits_for_turns(number)
            if waits or (number in in_base and numbers.is_open(number)):
                before = open_numbers.get(number.step, OpenNumbers(0, vary=False))
                varies = before.vary or waits or numbers.varies(number)
                open_numbers[number.step] = OpenNumbers(
                    before.how_many + 1, varies, left_to_turns=is_left
                )
        return open_numbers
