"""The checklist of a workload in a check.

These are the steps that a check measures, the turns that decide bounds or compare
base and head, and the results of the steps that a check measures in its own way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from perfgate.catalogue.lookup import CARDS, card, measuring_step
from perfgate.catalogue.names import BATCH_THROUGHPUT, STEADY_NUMBERS
from perfgate.conductor.engine import TimeBudget
from perfgate.conductor.sides.checklist.compiled_calls import (
    SECONDS_OF_A_SIDE,
    CompiledSide,
    time_compiled_calls,
)
from perfgate.conductor.sides.checklist.turns import ChecklistTurns, OpenNumbers
from perfgate.conductor.sides.function.batch_sizes import BatchSizes, SizesOfSide
from perfgate.document.decision import Policy
from perfgate.document.message import Message, as_message
from perfgate.document.run import (
    REPEAT,
    StepProcedure,
    StepResult,
    Value,
    WorkloadRecord,
    is_left_to_turns,
)
from perfgate.document.samples import Replicate
from perfgate.document.telemetry import TelemetryReading
from perfgate.flows.check.measured import CheckContext, Job, documents_of
from perfgate.flows.check.recordings import keep_traces
from perfgate.flows.shared.options import AVAILABLE_STEPS
from perfgate.judging.gate.compare.head_rules import broken_metrics
from perfgate.judging.gate.evidence.bounds import (
    DECIDING_STEPS,
    HeadNumbers,
    bounded_metrics,
    deciding_steps,
    steps_with_rules,
)
from perfgate.judging.gate.evidence.checklist import PairedNumbers, leading_numbers
from perfgate.judging.gate.evidence.index import RunIndex
from perfgate.judging.gate.evidence.tolerance import metrics_in_turns
from perfgate.judging.gate.look import Look
from perfgate.measuring.checklist.runner import step_result
from perfgate.measuring.checklist.step import StepOutcome, unavailable
from perfgate.measuring.checklist.steps.s05_batch import judge_sweep
from perfgate.measuring.checklist.steps.s19_thermal import judge_watched

# Counting always runs on both sides: exact counters are compared first.
COUNTING_STEP, BATCH_STEP, GRAPH_STEP, THERMAL_STEP = 4, 5, 9, 19
SPEEDUP, COLD = "graph.speedup", "graph.compile_cold"
# Measurements of a budget or SLA that seems broken before the head is blamed for it.
TURNS_OF_A_BROKEN_BOUND = 3


class CheckSteps(NamedTuple):
    """The steps of a check that decide, that inform, and of which only the exact
    numbers are counted.

    The pairs measure batch sizes if ``sizes_in_pairs``, and the device's state if
    ``is_watched``. After the turns both sides compile the call if ``compiles``, and in
    any case if the user ``is_asked`` for these steps by their numbers.
    """

    deciding: tuple[int, ...]
    informing: tuple[int, ...] = ()
    exact_only: tuple[int, ...] = ()
    sizes_in_pairs: bool = False
    is_watched: bool = False
    compiles: bool = False
    is_asked: bool = False


def steps_of_slow_calls(policy: Policy) -> CheckSteps:
    """The steps of a workload without pairs: counting, which takes a few calls, and
    steps with a rule.
    """
    deciding = {COUNTING_STEP, *steps_with_rules(policy)}
    return CheckSteps(deciding=tuple(sorted(deciding)))


def check_steps(job: Job) -> CheckSteps:
    options = job.options
    decides = deciding_steps(job.policy)
    is_asked = options.steps is not None
    selected = AVAILABLE_STEPS if options.steps is None else options.steps
    deciding = {
        COUNTING_STEP,
        *(decides - DECIDING_STEPS),
        *decides.intersection(selected),
    }
    informing = [number for number in selected if number not in decides]
    exact_only = tuple(number for number in informing if CARDS[number].pace.exact_first)
    sizes_in_pairs = (
        BATCH_STEP in informing and options.checklist_seconds(job.config.gate) > 0
    )
    # Selected by its number it soaks the device, which tells more than the watcher.
    is_watched = THERMAL_STEP in informing and not is_asked
    in_pairs = {BATCH_STEP: sizes_in_pairs, THERMAL_STEP: is_watched}
    return CheckSteps(
        deciding=tuple(sorted(deciding)),
        informing=tuple(
            number
            for number in informing
            if number not in exact_only and not in_pairs.get(number)
        ),
        exact_only=exact_only,
        sizes_in_pairs=sizes_in_pairs,
        is_watched=is_watched,
        compiles=GRAPH_STEP in exact_only,
        is_asked=is_asked,
    )


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
        """Take turns of the steps with undecided gating metrics: bounds that seem
        broken, and metrics that a tolerance names.

        A machine may stall for a moment, so a bound that seems broken gets two more
        turns, regardless of their cost. A metric with a tolerance gets turns until it
        is decided or the budget of the pairs is spent.
        """
        turns = self.turns
        config = self.check.job.config
        policy = self.check.job.policy
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
        """Add the steps that the pairs measured to both sides: batch sizes, and the
        device's state.
        """
        limits = self.check.job.config.limit_values
        pairs = self.check.measured.pairs[-1]
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


def batch_step(
    side: SizesOfSide,
    sizes: BatchSizes,
    workload: WorkloadRecord,
    limits: Mapping[str, float],
) -> StepResult:
    """The batch sizes that the pairs measured, of one side: typical rates, all rounds
    as turns, knee and best size.
    """
    is_alone = set(side.sweep.call_seconds) == {workload.batch}
    if not is_alone and (not sizes.rounds or side.error is not None):
        outcome = unavailable(sizes.reason or Message("times.no-pair-for-sizes"))
    else:
        outcome = judge_sweep(
            side.sweep,
            shape=workload.shapes[0],
            configured=workload.batch,
            promised=workload.sla_p99,
            limits=limits,
        )
    result = step_result(card(BATCH_STEP), workload.name, outcome, seconds=side.seconds)
    if sizes.rounds:
        result = replace(result, procedure=StepProcedure(quick=True, clock="awake"))
    if side.error is not None:
        return replace(
            result,
            status="error",
            reason=as_message(side.error.message),
            error=side.error,
        )
    values, shape = list(result.values), workload.shapes[0]
    for size, rates in side.sweep.rates.items():
        for turn, rate in enumerate(rates, start=1):
            labels = {"shape": shape, "batch": str(size), REPEAT: str(turn)}
            values.append(Value(metric=BATCH_THROUGHPUT, value=rate, labels=labels))
    waited = None
    if side.waited:
        waited = round(fmean(side.waited), 4)
    return replace(result, values=values, waited=waited)


def with_speedup(step: StepResult, side: CompiledSide, shape: str) -> StepResult:
    """Step 9 with the typical speed-up by compiling and the speed-up of every turn, or
    the reason that there is none.
    """
    if step.error is not None:
        return step
    compiled = StepOutcome(labels={"shape": shape})
    if side.cold_seconds is not None:
        compiled.number(COLD, side.cold_seconds)
    if side.speedups:
        compiled.median(SPEEDUP, np.asarray(side.speedups))
    elif side.reason is not None:
        compiled.missing(SPEEDUP, side.reason)
    for turn, speedup in enumerate(side.speedups, start=1):
        compiled.under(**{REPEAT: str(turn)}).number(SPEEDUP, speedup)
    values = [value for value in step.values if value.metric not in (SPEEDUP, COLD)]
    return replace(
        step, values=values + compiled.values, duration=step.duration + side.seconds
    )


def thermal_step(
    replicates: Sequence[Replicate],
    workload: WorkloadRecord,
    limits: Mapping[str, float],
) -> StepResult:
    """The device's state on one side, by the readings taken during its replicates."""
    readings: dict[int, TelemetryReading] = {}
    for replicate in replicates:
        readings.update({reading.began_ns: reading for reading in replicate.readings})
    outcome = judge_watched([readings[began] for began in sorted(readings)], limits)
    result = step_result(card(THERMAL_STEP), workload.name, outcome)
    return replace(result, procedure=StepProcedure(quick=True, clock="wall"))
