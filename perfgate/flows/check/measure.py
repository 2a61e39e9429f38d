"""Measure both sides of a check: the checklist on each, then pairs until they decide."""

from __future__ import annotations

import itertools
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.catalogue.lookup import CARDS, measuring_step
from perfgate.catalogue.names import STEADY_NUMBERS
from perfgate.conductor.sides.batch_sizes import BatchSizes
from perfgate.conductor.sides.checklist_turns import ChecklistSide, ChecklistTurns, OpenNumbers
from perfgate.conductor.sides.compiled_calls import SECONDS_OF_A_SIDE, time_compiled_calls
from perfgate.conductor.sides.kinds import record_of
from perfgate.conductor.sides.pairs import PairedMeasurement, measure_pairs
from perfgate.conductor.sides.recount import Recount, confirmed, count_operators
from perfgate.conductor.sides.stretches import measure_stretches
from perfgate.conductor.sides.turns import NAMES, MeasuredJob, Reach, SideName
from perfgate.conductor.workers.bench import Bench, Checkout, open_bench
from perfgate.conductor.workers.foresight import Foresight
from perfgate.config import Config, WorkloadReference
from perfgate.document.decision import Policy
from perfgate.document.history import History
from perfgate.document.message import Message
from perfgate.document.run import CounterSet, FailedPair, RunDocument, Side, StepResult, is_left_to_turns
from perfgate.document.testbed import Testbed
from perfgate.errors import UsageError
from perfgate.flows.check.batch import BATCH_STEP, batch_step
from perfgate.flows.check.forecast import PARTS, Forecast
from perfgate.flows.check.graph import GRAPH_STEP, with_speedup
from perfgate.flows.check.harnesses import harnesses_of
from perfgate.flows.check.measured import COUNTING_STEP, Job, Measured, documents_of, with_counters
from perfgate.flows.check.rerun import (
    next_round,
    other_testbed,
    pairs_of,
    quads_of_stretches,
    refuse_other_job,
    turns_of,
)
from perfgate.flows.check.sealing import seal_notes
from perfgate.flows.check.thermal import THERMAL_STEP, thermal_step
from perfgate.flows.check.traces import keep_traces
from perfgate.flows.check.trial import loaded_packages, pairs_too_slow, try_sides
from perfgate.flows.check.turns import JobMeasurement
from perfgate.flows.shared.decision import decide_with_advice
from perfgate.flows.shared.doors import Progress
from perfgate.flows.shared.options import AVAILABLE_STEPS, CheckOptions
from perfgate.flows.shared.session import job_notes, now, remove_traces
from perfgate.judging.gate.evidence import of_workload
from perfgate.judging.gate.look import Look
from perfgate.judging.gate.numbers import PairedNumbers, leading_numbers
from perfgate.judging.gate.repeated import metrics_in_turns
from perfgate.judging.gate.rule import looks_left
from perfgate.judging.gate.rules import (
    DECIDING_STEPS,
    bounded_metrics,
    broken_metrics,
    deciding_steps,
    steps_with_rules,
)
from perfgate.judging.gate.so_far import interval_so_far
from perfgate.judging.gate.stretches import LOOKS as STRETCH_LOOKS
from perfgate.judging.gate.turns import foreseen, smallest_tolerance
from perfgate.judging.report.render.early import early_lines
from perfgate.locale import sentence
from perfgate.system.walls import can_build_walls

HistoryOf = Callable[[RunDocument], History]

# Measurements of a budget or SLA that seems broken before the head is blamed for it.
TURNS_OF_A_BROKEN_BOUND = 3


def measure(
    job: Job,
    *,
    base: Checkout,
    head: Checkout,
    options: CheckOptions,
    progress: Progress,
    history_of: HistoryOf = lambda _head: History(),
) -> Measured:
    """Measure every selected workload on both sides, or add pairs to an earlier job.

    ``history_of`` gives the regressions that are accepted for the head, for what is shown while it measures.
    If the earlier job ran on another testbed, raises UsageError, or with ``append_from`` starts afresh.
    """
    for name in NAMES:
        (job.out / name).mkdir(exist_ok=True)
    budgets = job.config.gate.budget, _checklist_budget(job.config, options)
    forecast = Forecast(progress, pairs_budget=budgets[0], turns_budget=budgets[1])
    with open_bench(
        job.config,
        logs=job.out / "head" / "logs",
        say=progress.status,
        foresee=forecast.expect,
        pythons=(base.python, head.python),
        loads=job.seals.loads,
    ) as bench:
        job.seals.add([bench.seal_shared_code()], "base", "head")
        if not can_build_walls():
            job.seals.add([bench.sealed_home(base, "base")], "base")
            job.seals.add([bench.sealed_home(head, "head")], "head")
        testbed = bench.testbed(head.python)
        testbeds = (testbed, testbed) if base.python == head.python else (bench.testbed(base.python), testbed)
        job = _adding_to(job, testbeds[1], options, progress)
        measured = Measured(testbeds, added_to=job.earlier)
        check = _CheckMeasurement(
            bench, job, {"base": base, "head": head}, options, progress, forecast, measured, history_of
        )
        job.seals.begin("base", "head")
        if job.earlier:
            check.add_pairs()
        else:
            check.measure_workloads()
        check.measure_jobs()
        job.seals.check()
    progress.expect(Foresight())
    _note_uncounted(measured, progress)
    measured.notes["base"] += _notes_of_side(bench, job, base, "base")
    measured.notes["head"] = [
        *_notes_of_job(bench, job, options, check.refused),
        *measured.notes["head"],
        *_notes_of_side(bench, job, head, "head"),
    ]
    return measured


@dataclass
class _CheckMeasurement:
    """Measures the workloads and jobs of a check into ``measured``.

    The check of the workloads ``refused`` rejects the output of both sides, so the check itself is wrong.
    """

    bench: Bench
    job: Job
    checkouts: dict[SideName, Checkout]
    options: CheckOptions
    progress: Progress
    forecast: Forecast
    measured: Measured
    history_of: HistoryOf
    refused: list[str] = field(default_factory=list)

    def add_pairs(self) -> None:
        """Add pairs to the workloads that the earlier job left undecided."""
        references = self.job.config.selected(self.options.workloads)
        self.forecast.plan([reference.name for reference in references], ("pairs",))
        for reference in references:
            self.measured.pairs.append(PairedMeasurement())
            self._measure_pairs(reference)

    def measure_workloads(self) -> None:
        """Measure the checklist, the pairs and the turns of each workload, unless none runs the changed code."""
        bench, job, options, measured = self.bench, self.job, self.options, self.measured
        base, head = self.checkouts.values()
        references = job.config.selected(options.workloads)
        names = [reference.name for reference in references]
        for name in NAMES:
            remove_traces(job.out / name, names)
        self.forecast.plan(names, PARTS)
        measured.coverage, call_seconds = try_sides(bench, base, head, job, options)
        if measured.coverage is not None and measured.coverage.runs_nothing and not options.always:
            return
        measured.harnesses = harnesses_of(bench, base, head, job, options)
        measured.loaded = loaded_packages(bench, (base, head), job, options)
        for number, reference in enumerate(references, start=1):
            tried = call_seconds.get(reference.name)
            too_slow = pairs_too_slow(bench, reference, base, tried)
            if not self._measure_workload(reference, too_slow=too_slow, to_come=len(references) - number):
                self.forecast.leave_out(reference.name)
        self._spend_left_over(references)

    def _spend_left_over(self, references: Sequence[WorkloadReference]) -> None:
        """Give undecided workloads the seconds of the pairs' budgets that decided ones left over, in equal parts."""
        measured, budget = self.measured, self.job.config.gate.budget
        done = list(zip(references, measured.pairs))
        left_over = sum(max(0.0, budget - pairs.seconds) for _, pairs in done if pairs.begun)
        if len(done) < 2 or self._fails(references):
            return
        open_ones = [
            (one, pairs) for one, pairs in done if pairs.begun and self._look_at(one.name).more_pairs_would_help()
        ]
        self.forecast.plan([reference.name for reference, _ in open_ones], ("pairs",))
        for number, (reference, before) in enumerate(open_ones):
            measured.pairs.append(PairedMeasurement())
            self._measure_pairs(reference, continues=before, budget=left_over / (len(open_ones) - number))
            left_over -= measured.pairs[-1].seconds

    def _fails(self, references: Sequence[WorkloadReference]) -> bool:
        """Whether the gate fails already, so that no further time of another workload matters."""
        return any(self._look_at(reference.name).regressed() for reference in references)

    def _measure_workload(self, reference: WorkloadReference, *, too_slow: FailedPair | None, to_come: int) -> bool:
        """Measure a workload, with ``to_come`` after it.

        False, without pairs, if its check rejects the output of both sides, if counters settle the verdict and the cost is
        not asked for, or if pairs would be ``too_slow``: then only the steps that count or have a rule are measured.
        """
        measured = self.measured
        sides = [ChecklistSide(name, checkout, self.job.out / name) for name, checkout in self.checkouts.items()]
        turns = ChecklistTurns(
            self.bench,
            reference,
            sides,
            begins=self.job.seals.begin,
            deadline=self.job.deadline,
            leave_out_waits=True,
        )
        self.forecast.begin("checklist", reference.name)
        counted_first = self._count_slow_calls(reference, too_slow) if too_slow else {}
        steps = _steps_of_slow_calls(self.job.policy) if too_slow else check_steps(self.job, self.options)
        recount = Recount(self.bench, turns, draws=self.bench.draws, counted_first=counted_first)
        turns.first(steps.deciding, steps.informing, exact_only=steps.exact_only)
        measured.pairs.append(PairedMeasurement(failed=[too_slow] if too_slow else []))
        for side, findings in zip(sides, (measured.base, measured.head)):
            findings.append(side.found)
        if all(any(result.status == "failed" for result in side.found.correctness) for side in sides):
            self.refused.append(reference.name)
            return False
        # What varies between processes is no fault of the change.
        recount.confirm(lambda: self._look_at(reference.name).differing_counts(), deadline=self.job.deadline)
        if too_slow or (not self.options.cost and self._is_settled(reference.name)):
            return False
        self._settle_gating_numbers(turns)
        self._show_regressions(reference.name)
        batch = turns.sides[1].found.workload.batch
        sizes = BatchSizes(self.bench, reference.name, batch) if steps.sizes_in_pairs else None
        # The results folder has room for traces; the system's temporary folder may not.
        with tempfile.TemporaryDirectory(dir=self.job.out, prefix=".traces-") as traces:
            self._measure_pairs(reference, traces=Path(traces), to_come=to_come, sizes=sizes, recount=recount)
            recount.count_base(deadline=self.job.deadline)
            self._add_steps_of_pairs(sides, steps, sizes)
            self._compare_turns(turns, steps)
        return True

    def _count_slow_calls(
        self, reference: WorkloadReference, too_slow: FailedPair
    ) -> Mapping[SideName, Sequence[CounterSet]]:
        """Count the operators of slow calls on both sides before anything else, and show what two processes say regressed.

        The whole checklist takes dozens of calls, this look three, and three more if something regressed.
        """
        counted = {name: self._count_operators(name, reference) for name in NAMES}
        if not all(counted.values()):
            return {}
        measured = with_counters(self.measured, self.checkouts, reference, counted, too_slow)
        if self._look_at(reference.name, measured=measured).differing_counts():
            both = {name: confirmed(first, self._count_operators(name, reference)) for name, first in counted.items()}
            measured = with_counters(self.measured, self.checkouts, reference, both, too_slow)
            self._show_regressions(reference.name, measured=measured)
        return counted

    def _count_operators(self, name: SideName, reference: WorkloadReference) -> list[CounterSet]:
        self.job.seals.begin(name)
        return count_operators(self.bench, self.checkouts[name], reference)

    def _add_steps_of_pairs(self, sides: Sequence[ChecklistSide], steps: _CheckSteps, sizes: BatchSizes | None) -> None:
        """Add the steps that the pairs measured to both sides: batch sizes, and the device's state."""
        limits, pairs = self.job.config.limit_values, self.measured.pairs[-1]
        for index, replicates in enumerate((pairs.base, pairs.head)):
            found = sides[index].found
            added: list[StepResult] = []
            if sizes is not None:
                added.append(batch_step(sizes.sides[index], sizes, found.workload, limits))
            if steps.is_watched:
                added.append(thermal_step(replicates, found.workload, limits))
            found.add_turn(added, {})
            found.steps.sort(key=lambda step: step.number)

    def _settle_gating_numbers(self, turns: ChecklistTurns) -> None:
        """Take turns of the steps with undecided gating metrics: bounds that seem broken, and metrics that a tolerance names.

        A machine may stall for a moment, so a bound that seems broken gets two more turns, regardless of their cost. A metric
        with a tolerance gets turns until it is decided or the budget of the pairs is spent.
        """
        config, policy, name = self.job.config, self.job.policy, turns.reference.name
        named = {measuring_step(metric) for metric in metrics_in_turns(policy)}
        undecided = set(named)
        ends = time.monotonic() + config.gate.budget

        def open_steps() -> set[int]:
            documents = documents_of(self.job, self.measured)
            broken = {measuring_step(metric) for metric in broken_metrics(*documents, policy, workload=name)}
            if time.monotonic() > ends:
                undecided.clear()
            if undecided and turns.taken(min(named)) in {1, *policy.looks}:
                look = Look(*documents, policy, workload=name)
                if turns.taken(min(named)) >= policy.looks[-1] or not look.repetitions_would_help():
                    undecided.clear()
            return {step for step in broken if turns.taken(step) < TURNS_OF_A_BROKEN_BOUND} | undecided

        gating = bounded_metrics(policy) | set(metrics_in_turns(policy))
        turns.settle(open_steps, steady=config.measure.steady if STEADY_NUMBERS & gating else 0.0)

    def _is_settled(self, name: str) -> bool:
        """Whether counters alone fail the gate; if so, the document says that no pairs were measured."""
        settled = self._look_at(name).is_settled_by_counters()
        if settled:
            self.measured.head[-1].warnings.append(Message("notes.cost-not-measured", {"workload": name}))
        return settled

    def _show_regressions(self, name: str, *, measured: Measured | None = None) -> None:
        """Show regressed counts with their line and remedy right away, long before the pairs measure their cost.

        By default those ``measured`` so far; others are those of calls too slow for pairs. A regression that is accepted
        for the commit is left to the verdict, which names who accepted it.
        """
        look = self._look_at(name, measured=measured)
        if not look.regressed() or self.job.session.command == "upgrade":
            return
        so_far = self.job._replace(session=msgspec.structs.replace(self.job.session, finished_at=now()))
        base, head = (of_workload(run, name) for run in documents_of(so_far, measured or self.measured))
        decision = decide_with_advice(base, head, policy=self.job.policy, history=self.history_of(head))
        if decision.verdict == "FAIL":
            certain = look.fails_for_certain()
            lines = early_lines(
                decision, name, certain=certain, has_pairs=measured is None, language=self.options.language
            )
            self.progress.note("\n".join(lines))

    def _measure_pairs(
        self,
        reference: WorkloadReference,
        *,
        traces: Path | None = None,
        to_come: int = 0,
        sizes: BatchSizes | None = None,
        recount: Recount | None = None,
        continues: PairedMeasurement | None = None,
        budget: float | None = None,
    ) -> None:
        """Measure the pairs of a workload that loads on both sides, until they decide or the looks are used up.

        ``to_come`` is the number of workloads still to be measured. The pairs also take the rounds of ``sizes``, and
        ``recount`` counts base between two of them. They follow the plan of the pairs that they ``continue``, and take the
        seconds of ``budget``, by default the configured ones.
        """
        bench, job, pairs = self.bench, self.job, self.measured.pairs[-1]
        earlier, policy, name, decided = job.earlier, job.policy, reference.name, self.options.decided
        if not self._can_be_compared(name):
            return
        if earlier and not Look(earlier.base, earlier.head, policy, workload=name).rerun_would_help():
            return

        def enough() -> bool:
            watcher.put_into(pairs.base, pairs.head)
            look = self._look_at(name, to_come=to_come)
            needed = look.pairs_needed()
            # The pairs up to the first look with so many, including those of base against base.
            ends = [planned for planned in policy.looks if needed is not None and planned >= needed]
            self.forecast.needed = ends[0] + self.job.config.gate.aa_pairs if ends else None
            return decided(look.comparisons, policy.looks) if decided else not look.more_pairs_would_help()

        def before_pair() -> None:
            self.forecast.show(interval_so_far(pairs.base, pairs.head, name))
            job.seals.check_if_due()
            if recount is not None:
                recount.count_base_if_drawn()

        budget_ends = time.monotonic() + (job.config.gate.budget if budget is None else budget)
        begun, first_draw = (continues.begun, continues.draw) if continues else (0, 0)
        job.seals.begin("base", "head")
        self.forecast.begin("pairs", name)
        with bench.watching(self.measured.testbeds[1]) as watcher:
            for draw in itertools.count(first_draw):
                measure_pairs(
                    bench,
                    reference,
                    base=self.checkouts["base"],
                    head=self.checkouts["head"],
                    measured=pairs,
                    looks=looks_left(policy.looks, pairs_of(earlier, name)) if earlier else policy.looks,
                    round_number=next_round(earlier) if earlier else 0,
                    is_decided=enough,
                    pairs_needed=lambda: self.forecast.needed,
                    needs_names=lambda: decided is None and self._look_at(name).names_would_help(),
                    deadline=job.deadline,
                    budget_ends=budget_ends,
                    draw=draw,
                    first=begun,
                    traces=traces,
                    before_pair=before_pair,
                    sizes=sizes,
                )
                # Base differs from base: if another memory layout removes the difference it was luck, else it is the machine.
                unlucky = self._look_at(name).base_differs and not (earlier or continues)
                if not unlucky or time.monotonic() > min(budget_ends, job.deadline):
                    break
                pairs.give_up()
                bench.redraw(hash_seed=draw + 1)
            if decided is None and pairs.head and not continues:
                self._measure_stretches(reference, before_start=job.seals.check_if_due, to_come=to_come)
            watcher.end()
            watcher.put_into(pairs.base, pairs.head)
        if pairs.given_up:
            note = Message("notes.aa-repeated", {"workload": name, "pairs": pairs.given_up})
            self.measured.head[-1].warnings.append(note)

    def _measure_stretches(
        self, reference: WorkloadReference, *, before_start: Callable[[], None], to_come: int
    ) -> None:
        """Measure long stretches of calls, until mean and stalls are decided or do not look worse."""
        job, name = self.job, reference.name
        earlier = job.earlier
        measure_stretches(
            self.bench,
            reference,
            base=self.checkouts["base"],
            head=self.checkouts["head"],
            measured=self.measured.pairs[-1],
            looks=STRETCH_LOOKS,
            is_decided=lambda: not self._look_at(name, to_come=to_come).more_calls_would_help(),
            quads=quads_of_stretches(earlier, name) if earlier else 0,
            round_number=next_round(earlier) if earlier else 0,
            deadline=job.deadline,
            before_start=before_start,
        )

    def _can_be_compared(self, name: str) -> bool:
        """Whether the workload loaded on both sides, on one testbed; otherwise pairs would be a waste of time."""
        earlier, measured = self.job.earlier, self.measured
        records = (
            [*earlier.base.workloads, *earlier.head.workloads]
            if earlier
            else [measured.base[-1].workload, measured.head[-1].workload]
        )
        if any(record.name == name and record.error for record in records):
            return False
        before, after = measured.testbeds
        return self.job.session.command == "upgrade" or before.fingerprint == after.fingerprint

    def _compare_turns(self, turns: ChecklistTurns, steps: _CheckSteps) -> None:
        """Take the turns of the checklist; steps that read traces take those of the traced pairs."""
        measured = self.measured
        base, head = turns.sides
        flames, recorded = keep_traces(measured.pairs[-1].traces, (base.found, head.found), (base.folder, head.folder))
        measured.flames.update(flames)
        self.forecast.begin("turns", turns.reference.name)
        budget = _checklist_budget(self.job.config, self.options)
        left_out = turns.compare(partial(self._open_numbers, turns.reference.name), budget=budget, recorded=recorded)
        missed = dict(left_out.steps)
        if steps.compiles:
            needed = SECONDS_OF_A_SIDE * len(turns.sides)
            fits = steps.is_asked or left_out.spent + needed <= budget
            if fits and time.monotonic() < self.job.deadline:
                self._time_compiled_calls(turns)
            else:
                missed[GRAPH_STEP] = needed
        if missed:
            names = [f"{number} {CARDS[number].slug} ({cost:.0f} s)" for number, cost in sorted(missed.items())]
            seconds = math.ceil(left_out.spent + left_out.starting + sum(missed.values()))
            head.found.warnings.append(Message("notes.not-in-turns", {"steps": names, "seconds": seconds}))

    def _time_compiled_calls(self, turns: ChecklistTurns) -> None:
        """Add the speed-up by compiling to step 9 of both sides."""
        self.job.seals.begin("base", "head")
        compiled = time_compiled_calls(self.bench, turns.reference, turns.sides, layout_seed=1)
        for side, of_side in zip(turns.sides, compiled):
            found = side.found
            shape = found.workload.shapes[0]
            found.steps = [
                with_speedup(step, of_side, shape) if step.number == GRAPH_STEP else step for step in found.steps
            ]

    def _open_numbers(self, workload: str) -> dict[int, OpenNumbers]:
        """By step, the numbers of a workload that further turns of the checklist would compare."""
        base, head = documents_of(self.job, self.measured)
        numbers = PairedNumbers(base, head)
        left = {step.number for step in base.steps if step.workload == workload and is_left_to_turns(step)}
        known = leading_numbers(base)
        found: dict[int, OpenNumbers] = {}
        for number, value in leading_numbers(head).items():
            if number.workload != workload or number.step == BATCH_STEP or value.value is None:
                continue
            waits = number.step in left and numbers.waits_for_turns(number)
            if waits or (number in known and numbers.is_open(number)):
                before = found.get(number.step, OpenNumbers(0, vary=False))
                varies = before.vary or waits or numbers.varies(number)
                found[number.step] = OpenNumbers(before.how_many + 1, varies, left_to_turns=number.step in left)
        return found

    def measure_jobs(self) -> None:
        """Measure the turns of every job."""
        job, measured = self.job, self.measured
        for reference in job.config.selected_jobs(self.options.workloads):
            record, before = record_of(reference), Reach()
            if earlier := job.earlier:
                record, before = refuse_other_job(earlier, record), turns_of(earlier, reference.name)
                last = Look(earlier.base, earlier.head, job.policy, workload=reference.name)
                if not last.more_turns_would_help():
                    continue
            measured.jobs.append(MeasuredJob(record, before=before))

            def foresee(quads: int, starts: int, name: str = reference.name) -> float | None:
                return foreseen(*documents_of(job, measured), job.policy, name, quads=quads, starts=starts)

            JobMeasurement(
                self.bench,
                reference,
                self.checkouts,
                measured.jobs[-1],
                look=partial(self._look_at, reference.name),
                foresee=foresee,
                seals=job.seals,
                tolerated=smallest_tolerance(job.policy, reference.name, reference.must_gate),
                deadline=job.deadline,
                note=self.progress.note,
            ).measure()
            if stacks := measured.jobs[-1].stacks:
                self.progress.status(sentence("reading the profiles of {name}", name=reference.name))
                roots = {name: checkout.root for name, checkout in self.checkouts.items()}
                folders = {name: job.out / name for name in NAMES}
                measured.flames.update(measured.kept.keep(reference.name, stacks, roots, folders))

    def _look_at(self, name: str, *, to_come: int = 0, measured: Measured | None = None) -> Look:
        """The evidence on a workload or job, with so many workloads ``to_come``; jobs come after all workloads."""
        if not self.job.earlier:
            to_come += len(self.job.config.selected_jobs(self.options.workloads)) - len(self.measured.jobs)
        documents = documents_of(self.job, measured or self.measured)
        return Look(*documents, self.job.policy, workload=name, to_come=to_come)


def _notes_of_side(bench: Bench, job: Job, checkout: Checkout, side: Side) -> list[Message]:
    environment = job.environments.base if side == "base" else job.environments.head
    return [*environment.notes, *seal_notes(job.seals.seal_of(side)), *bench.leftover_notes(checkout.root)]


def _notes_of_job(bench: Bench, job: Job, options: CheckOptions, refused: list[str]) -> list[Message]:
    """The notes for both sides' documents; in the workloads ``refused``, the check rejects the output of both sides."""
    config = job.config
    functions, jobs = config.selected(options.workloads), config.selected_jobs(options.workloads)
    selected = {*(one.name for one in functions), *(one.name for one in jobs)}
    known = [*(one.name for one in config.references), *(one.name for one in config.jobs)]
    names = [name for name in known if name not in selected]
    return [
        *([Message("notes.not-selected", {"names": list(names)})] if names else []),
        *([Message("notes.check-refuses-both", {"names": refused})] if refused else []),
        *job_notes(os.environ, job.out),
        *([] if can_build_walls() else [Message("notes.no-walls")]),
        *bench.cache_notes(),
        *bench.watch_notes(),
        *bench.leftover_notes(),
    ]


def _adding_to(job: Job, testbed: Testbed, options: CheckOptions, progress: Progress) -> Job:
    """The job, without its earlier results if they come from another testbed."""
    if job.earlier and (why := other_testbed(job.earlier, testbed)):
        if not options.append_from:
            raise UsageError(
                "{why}; measure anew without --append",
                why=why,
            )
        progress.note(
            sentence("the earlier attempt cannot be extended, so everything will be measured again: {why}", why=why)
        )
        return job._replace(earlier=None)
    return job


def _note_uncounted(measured: Measured, progress: Progress) -> None:
    """Report once why the pairs lack hardware counters: if they lack any, they lack all."""
    reason = next((pairs.uncounted for pairs in measured.pairs if pairs.uncounted), None)
    if reason:
        progress.note(reason)


def _checklist_budget(config: Config, options: CheckOptions) -> float:
    return config.gate.checklist_budget if options.checklist_budget is None else options.checklist_budget


class _CheckSteps(NamedTuple):
    """The steps of a check: those that decide and those that inform, and those of which only the exact numbers are counted.

    The pairs measure batch sizes if ``sizes_in_pairs``, and the device's state if ``is_watched``. After the turns both sides
    compile the call if ``compiles``, and in any case if the user ``is_asked`` for these steps by their numbers.
    """

    deciding: tuple[int, ...]
    informing: tuple[int, ...] = ()
    exact_only: tuple[int, ...] = ()
    sizes_in_pairs: bool = False
    is_watched: bool = False
    compiles: bool = False
    is_asked: bool = False


def _steps_of_slow_calls(policy: Policy) -> _CheckSteps:
    """The steps of a workload without pairs: counting, which takes a few calls, and those with a rule about them."""
    deciding = {COUNTING_STEP, *steps_with_rules(policy)}
    return _CheckSteps(deciding=tuple(sorted(deciding)))


def check_steps(job: Job, options: CheckOptions) -> _CheckSteps:
    decides = deciding_steps(job.policy)
    is_asked = options.steps is not None
    asked = AVAILABLE_STEPS if options.steps is None else options.steps
    deciding = {COUNTING_STEP, *(decides - DECIDING_STEPS), *(number for number in asked if number in decides)}
    informing = [number for number in asked if number not in decides]
    exact_only = tuple(number for number in informing if CARDS[number].exact_first)
    sizes_in_pairs = BATCH_STEP in informing and _checklist_budget(job.config, options) > 0
    # Selected by its number it soaks the device, which tells more than the watcher.
    is_watched = THERMAL_STEP in informing and not is_asked
    in_pairs = {BATCH_STEP: sizes_in_pairs, THERMAL_STEP: is_watched}
    return _CheckSteps(
        deciding=tuple(sorted(deciding)),
        informing=tuple(number for number in informing if number not in exact_only and not in_pairs.get(number)),
        exact_only=exact_only,
        sizes_in_pairs=sizes_in_pairs,
        is_watched=is_watched,
        compiles=GRAPH_STEP in exact_only,
        is_asked=is_asked,
    )
