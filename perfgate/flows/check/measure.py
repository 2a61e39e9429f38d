"""Measure both sides of a check: the checklist on each, then pairs until they decide."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from perfgate.catalogue.lookup import CARDS, measuring_step
from perfgate.catalogue.names import STEADY_NUMBERS
from perfgate.conductor.sides.checklist_turns import ChecklistSide, ChecklistTurns
from perfgate.conductor.sides.harness import read_harnesses, unknown_harnesses
from perfgate.conductor.sides.kinds import record_of
from perfgate.conductor.sides.pairs import PairedMeasurement, measure_pairs
from perfgate.conductor.sides.turns import NAMES, MeasuredJob, Reach, SideName
from perfgate.conductor.workers.bench import Bench, Checkout, open_bench
from perfgate.conductor.workers.foresight import Foresight, SoFar
from perfgate.config import Config, WorkloadReference
from perfgate.document.decision import Policy
from perfgate.document.message import Message
from perfgate.document.run import Harness, Side, StepResult
from perfgate.document.testbed import Testbed
from perfgate.errors import UsageError
from perfgate.flows.check.forecast import PARTS, Forecast
from perfgate.flows.check.measured import Job, Measured, documents_of
from perfgate.flows.check.profiles import KeptProfiles
from perfgate.flows.check.rerun import other_testbed, refuse_other_job
from perfgate.flows.check.sealing import seal_notes
from perfgate.flows.check.traces import keep_traces
from perfgate.flows.check.trial import is_left_out, loaded_packages, try_head
from perfgate.flows.check.turns import JobMeasurement
from perfgate.flows.shared.doors import Progress
from perfgate.flows.shared.options import AVAILABLE_STEPS, CheckOptions, Decided
from perfgate.flows.shared.session import job_notes, remove_traces
from perfgate.judging.gate.decide import Look
from perfgate.judging.gate.numbers import is_of_turns
from perfgate.judging.gate.repeated import metrics_in_turns
from perfgate.judging.gate.rule import looks_left
from perfgate.judging.gate.rules import DECIDING_STEPS, bounded_metrics, broken_metrics, deciding_steps
from perfgate.judging.gate.so_far import interval_so_far
from perfgate.judging.gate.turns import foreseen, smallest_tolerance
from perfgate.locale import sentence

# Measurements of a budget or SLA that seems broken before the head is blamed for it.
TURNS_OF_A_BROKEN_BOUND = 3
_NAMED = 3
# The counting step always runs on both sides: exact counters are compared first.
_COUNTING_STEP = 4


def measure(job: Job, *, base: Checkout, head: Checkout, options: CheckOptions, progress: Progress) -> Measured:
    """Measure every selected workload on both sides, or add pairs to an earlier job.

    If the earlier job ran on another testbed, raises UsageError, or with ``append_from`` starts afresh.
    """
    folders = {side: job.out / side for side in ("base", "head")}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    logs = job.out / "head" / "logs"
    references = job.config.selected(options.workloads)
    gate = job.config.gate
    forecast = Forecast(progress, pairs_budget=gate.budget, turns_budget=_checklist_budget(job.config, options))
    pythons = (base.python, head.python)
    with open_bench(job.config, logs=logs, say=progress.status, foresee=forecast.expect, pythons=pythons) as bench:
        job.seals.add([bench.seal_shared_code()], "base", "head")
        testbeds = _testbeds(bench, base, head)
        job = _adding_to(job, testbeds[1], options, progress)
        if not job.earlier:
            for folder in folders.values():
                remove_traces(folder, [reference.name for reference in references])
        forecast.plan([reference.name for reference in references], ("pairs",) if job.earlier else PARTS)
        job.seals.begin("base", "head")
        notes, call_seconds = ([], {}) if job.earlier else try_head(bench, base, head, job, options)
        harnesses = ([], []) if job.earlier else _harnesses(bench, base, head, job, options)
        loaded = (None, None) if job.earlier else loaded_packages(bench, (base, head), job, options)
        measured = Measured(testbeds, harnesses, [], [], [], [], [], loaded=loaded, kept=KeptProfiles())
        refused: list[str] = []
        for number, reference in enumerate(references, start=1):
            if job.earlier:
                measured.pairs.append(PairedMeasurement())
                _measure_pairs(bench, reference, base, head, job, measured, forecast)
                continue
            if is_left_out(bench, reference, (base, head), call_seconds.get(reference.name), measured):
                forecast.leave_out(reference.name)
                continue
            deciding, informing, _ = _steps(job.policy, options)
            sides = [ChecklistSide(name, checkout, folders[name]) for name, checkout in zip(NAMES, (base, head))]
            turns = ChecklistTurns(
                bench, reference, sides, begins=job.seals.begin, deadline=job.deadline, leave_out_waits=True
            )
            forecast.begin("checklist", reference.name)
            turns.first(deciding, informing)
            for side, findings in zip(sides, (measured.base, measured.head)):
                findings.append(side.found)
            measured.pairs.append(PairedMeasurement())
            if _refuses_both(measured):
                refused.append(reference.name)
                forecast.leave_out(reference.name)
                continue
            if not options.cost and _is_settled(reference, job, measured):
                forecast.leave_out(reference.name)
                continue
            _settle_gating_numbers(turns, job, measured)
            _note_regressions(reference, job, measured, progress)
            _measure_pairs_and_turns(turns, job, measured, forecast, options, to_come=len(references) - number)
        _measure_jobs(bench, {"base": base, "head": head}, job, measured, options, progress)
        job.seals.check()
    progress.expect(Foresight())
    _note_uncounted(measured, progress)
    of_head = [*_notes_of_job(bench, job, options, refused), *notes, *_notes_of_side(bench, job, head, "head")]
    return measured._replace(notes=(_notes_of_side(bench, job, base, "base"), of_head), added_to=job.earlier)


def _notes_of_side(bench: Bench, job: Job, checkout: Checkout, side: Side) -> list[Message]:
    environment = job.environments.base if side == "base" else job.environments.head
    return [*environment.notes, *seal_notes(job.seals.seal_of(side)), *bench.leftover_notes(checkout.root)]


def _notes_of_job(bench: Bench, job: Job, options: CheckOptions, refused: list[str]) -> list[Message]:
    """The notes for both sides' documents; in the workloads ``refused``, the check rejects the output of both sides."""
    return [
        *_unselected_note(job, options),
        *([Message("notes.check-refuses-both", {"names": refused})] if refused else []),
        *job_notes(os.environ, job.out),
        *bench.cache_notes(),
        *bench.watch_notes(),
        *bench.leftover_notes(),
    ]


def _measure_pairs_and_turns(
    turns: ChecklistTurns,
    job: Job,
    measured: Measured,
    forecast: Forecast,
    options: CheckOptions,
    *,
    to_come: int,
) -> None:
    """Measure the pairs of a workload, some of them traced, and then the turns of the steps that read those traces."""
    bench, reference = turns.bench, turns.reference
    base, head = turns.sides
    # The results folder has room for traces; the system's temporary folder may not.
    with tempfile.TemporaryDirectory(dir=job.out, prefix=".traces-") as traces:
        _measure_pairs(
            bench,
            reference,
            base.checkout,
            head.checkout,
            job,
            measured,
            forecast,
            traces=Path(traces),
            to_come=to_come,
            decided=options.decided,
        )
        flames, recorded = keep_traces(measured.pairs[-1].traces, (base.found, head.found), (base.folder, head.folder))
        measured.flames.extend(flames)
        forecast.begin("turns", reference.name)
        head.found.warnings += turns.compare(
            _needs_turns,
            long_steps=_steps(job.policy, options)[2],
            budget=_checklist_budget(bench.config, options),
            recorded=recorded,
        )


def _measure_jobs(
    bench: Bench,
    checkouts: dict[SideName, Checkout],
    job: Job,
    measured: Measured,
    options: CheckOptions,
    progress: Progress,
) -> None:
    for reference in job.config.selected_jobs(options.workloads):
        record, before = record_of(reference), Reach()
        if job.earlier:
            record, before = refuse_other_job(job.earlier, record), job.earlier.turns_of(reference.name)
            if not Look(
                job.earlier.base, job.earlier.head, job.policy, workload=reference.name
            ).more_turns_would_help():
                continue
        measured.jobs.append(MeasuredJob(record, before=before))

        def foresee(quads: int, starts: int, name: str = reference.name) -> float | None:
            return foreseen(*documents_of(job, measured), job.policy, name, quads=quads, starts=starts)

        JobMeasurement(
            bench,
            reference,
            checkouts,
            measured.jobs[-1],
            look=partial(_look_at, job, measured, reference.name),
            foresee=foresee,
            seals=job.seals,
            tolerated=smallest_tolerance(job.policy, reference.name, reference.must_gate),
            deadline=job.deadline,
            note=progress.note,
        ).measure()
        if measured.kept and (stacks := measured.jobs[-1].stacks):
            progress.status(f"reading the profiles of {reference.name}")
            roots = {name: checkout.root for name, checkout in checkouts.items()}
            folders = {name: job.out / name for name in NAMES}
            measured.flames.extend(measured.kept.keep(reference.name, stacks, roots, folders))


def _look_at(job: Job, measured: Measured, name: str) -> Look:
    return Look(*documents_of(job, measured), job.policy, workload=name)


def _adding_to(job: Job, testbed: Testbed, options: CheckOptions, progress: Progress) -> Job:
    """The job, without its earlier results if they come from another testbed."""
    if job.earlier and (why := other_testbed(job.earlier, testbed)):
        if not options.append_from:
            raise UsageError(
                "{why}; measure anew without --append",
                why=why,
            )
        progress.note(
            sentence("the earlier attempt cannot be extended, so everything is measured again: {why}", why=why)
        )
        return job._replace(earlier=None)
    return job


def _refuses_both(measured: Measured) -> bool:
    """Whether the last workload's check rejects the output of both base and head, i.e. the check itself is wrong."""
    return all(
        any(result.status == "failed" for result in side[-1].correctness) for side in (measured.base, measured.head)
    )


def _unselected_note(job: Job, options: CheckOptions) -> list[Message]:
    config = job.config
    functions, jobs = config.selected(options.workloads), config.selected_jobs(options.workloads)
    selected = {*(one.name for one in functions), *(one.name for one in jobs)}
    known = [*(one.name for one in config.references), *(one.name for one in config.jobs)]
    names = [name for name in known if name not in selected]
    return [Message("notes.not-selected", {"names": list(names)})] if names else []


def _settle_gating_numbers(turns: ChecklistTurns, job: Job, measured: Measured) -> None:
    """Take turns of the steps with undecided gating metrics: bounds that seem broken, and metrics that a tolerance names.

    A machine may stall for a moment, so a bound that seems broken gets two more turns, regardless of their cost. A metric
    with a tolerance gets turns until it is decided or the budget of the pairs is spent.
    """
    config = turns.bench.config
    name, looks = turns.reference.name, job.policy.looks
    named = {measuring_step(metric) for metric in metrics_in_turns(job.policy)}
    undecided = set(named)
    ends = time.monotonic() + config.gate.budget

    def open_steps() -> set[int]:
        documents = documents_of(job, measured)
        broken = {measuring_step(metric) for metric in broken_metrics(*documents, job.policy, workload=name)}
        if time.monotonic() > ends:
            undecided.clear()
        if undecided and turns.taken(min(named)) in {1, *looks}:
            look = Look(*documents, job.policy, workload=name)
            if turns.taken(min(named)) >= looks[-1] or not look.repetitions_would_help():
                undecided.clear()
        return {step for step in broken if turns.taken(step) < TURNS_OF_A_BROKEN_BOUND} | undecided

    gating = bounded_metrics(job.policy) | set(metrics_in_turns(job.policy))
    turns.settle(open_steps, steady=config.measure.steady if STEADY_NUMBERS & gating else 0.0)


def _needs_turns(step: StepResult) -> bool:
    """Whether a step has a value that is neither exact nor measured by the pairs."""
    return any(value.value is not None and is_of_turns(value.metric) for value in step.values)


def _is_settled(reference: WorkloadReference, job: Job, measured: Measured) -> bool:
    """Whether counters alone fail the gate; if so, the document says that no pairs were measured."""
    settled = Look(*documents_of(job, measured), job.policy, workload=reference.name).is_settled_by_counters()
    if settled:
        measured.head[-1].warnings.append(Message("notes.cost-not-measured", {"workload": reference.name}))
    return settled


def _note_regressions(reference: WorkloadReference, job: Job, measured: Measured, progress: Progress) -> None:
    """Report regressed exact counters right away, long before the pairs measure their cost."""
    names = Look(*documents_of(job, measured), job.policy, workload=reference.name).regressed()
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        progress.note(
            sentence(
                "{name}: {metrics} regressed; pairs now measure the cost",
                name=reference.name,
                metrics=f"{', '.join(names[:_NAMED])}{more}",
            )
        )


def _note_uncounted(measured: Measured, progress: Progress) -> None:
    """Report once why the pairs lack hardware counters: if they lack any, they lack all."""
    reason = next((pairs.uncounted for pairs in measured.pairs if pairs.uncounted), None)
    if reason:
        progress.note(reason)


def _checklist_budget(config: Config, options: CheckOptions) -> float:
    return config.gate.checklist_budget if options.checklist_budget is None else options.checklist_budget


def _steps(policy: Policy, options: CheckOptions) -> tuple[tuple[int, ...], tuple[int, ...], Mapping[int, float]]:
    """The steps of a check: deciding ones, informing ones, and the seconds per turn of the long ones."""
    decides = deciding_steps(policy)
    asked = AVAILABLE_STEPS if options.steps is None else options.steps
    deciding = {_COUNTING_STEP, *(decides - DECIDING_STEPS), *(number for number in asked if number in decides)}
    informing = [number for number in asked if number not in decides]
    # A step selected by its number is measured, however long it takes.
    unasked = informing if options.steps is None else []
    long = {number: CARDS[number].long_seconds for number in unasked if CARDS[number].long_seconds}
    return tuple(sorted(deciding)), tuple(number for number in informing if number not in long), long


def _testbeds(bench: Bench, base: Checkout, head: Checkout) -> tuple[Testbed, Testbed]:
    testbed = bench.testbed(head.python)
    return (testbed, testbed) if base.python == head.python else (bench.testbed(base.python), testbed)


def _harnesses(
    bench: Bench, base: Checkout, head: Checkout, job: Job, options: CheckOptions
) -> tuple[list[Harness], list[Harness]]:
    after = {reference.name: reference for reference in job.config.selected(options.workloads)}
    if job.base_config.unreadable:
        unknown = unknown_harnesses(list(after), job.base_config.unreadable)
        return unknown, read_harnesses(bench, base, head, ({}, after))[1]
    own = job.base_config.config.references if job.base_config.config else ()
    before = {
        reference.name: reference for reference in own if not options.workloads or reference.name in options.workloads
    }
    of_base, of_head = read_harnesses(bench, base, head, (before, after))
    jobs_before = {
        one.name: one for one in (job.base_config.config.selected_jobs(()) if job.base_config.config else ())
    }
    jobs_after = {one.name: one for one in job.config.selected_jobs(options.workloads)}
    for name in dict.fromkeys([*jobs_before, *jobs_after]):
        old, new = jobs_before.get(name), jobs_after.get(name)
        if (old and old.sha256) == (new and new.sha256) or (options.workloads and name not in options.workloads):
            continue
        of_base += [Harness(workload=name, reference=old.settings.line, settings=old.written)] if old else []
        added = [] if old else [name]
        of_head += (
            [Harness(workload=name, reference=new.settings.line, settings=new.written, added=added)] if new else []
        )
    return of_base, of_head


def _measure_pairs(
    bench: Bench,
    reference: WorkloadReference,
    base: Checkout,
    head: Checkout,
    job: Job,
    measured: Measured,
    forecast: Forecast,
    *,
    traces: Path | None = None,
    to_come: int = 0,
    decided: Decided | None = None,
) -> None:
    """Measure the pairs of a workload that loads on both sides, until they decide or the looks are used up.

    ``to_come`` is the number of workloads still to be measured; ``decided`` as in the options.
    """
    if not _can_be_compared(reference, job, measured):
        return
    pairs = measured.pairs[-1]

    def enough() -> bool:
        watcher.put_into(pairs.base, pairs.head)
        look = Look(*documents_of(job, measured), job.policy, workload=reference.name, to_come=to_come)
        forecast.needed = _with_twins(look.pairs_needed(), job)
        return decided(look.comparisons, job.policy.looks) if decided else not look.more_pairs_would_help()

    def before_pair() -> None:
        forecast.show(_so_far(pairs, reference.name))
        job.seals.check_if_due()

    def needs_names() -> bool:
        return (
            decided is None
            and Look(*documents_of(job, measured), job.policy, workload=reference.name).names_would_help()
        )

    if job.earlier:
        last = Look(job.earlier.base, job.earlier.head, job.policy, workload=reference.name)
        if not last.rerun_would_help():
            return
    looks = looks_left(job.policy.looks, job.earlier.pairs_of(reference.name)) if job.earlier else job.policy.looks
    budget_ends = time.monotonic() + bench.config.gate.budget
    job.seals.begin("base", "head")
    forecast.begin("pairs", reference.name)
    with bench.watching(measured.testbeds[1]) as watcher:
        for draw in itertools.count():
            measure_pairs(
                bench,
                reference,
                base=base,
                head=head,
                measured=pairs,
                looks=looks,
                round_number=job.earlier.next_round if job.earlier else 0,
                is_decided=enough,
                pairs_needed=lambda: forecast.needed,
                needs_names=needs_names,
                deadline=job.deadline,
                budget_ends=budget_ends,
                draw=draw,
                traces=traces,
                before_pair=before_pair,
            )
            # Base differs from base. If a redrawn memory layout removes the difference, it was luck; else it is the machine.
            look = Look(*documents_of(job, measured), job.policy, workload=reference.name)
            unlucky = look.base_differs and not job.earlier
            if not unlucky or time.monotonic() > min(budget_ends, job.deadline):
                break
            pairs.give_up()
            bench.redraw(hash_seed=draw + 1)
        watcher.end()
        watcher.put_into(pairs.base, pairs.head)
    if pairs.given_up:
        measured.head[-1].warnings.append(
            Message("notes.aa-repeated", {"workload": reference.name, "pairs": pairs.given_up})
        )


def _can_be_compared(reference: WorkloadReference, job: Job, measured: Measured) -> bool:
    """Whether the workload loaded on both sides, on one testbed; otherwise pairs would be a waste of time."""
    records = (
        [*job.earlier.base.workloads, *job.earlier.head.workloads]
        if job.earlier
        else [measured.base[-1].workload, measured.head[-1].workload]
    )
    if any(record.name == reference.name and record.error for record in records):
        return False
    return job.session.command == "upgrade" or measured.testbeds[0].fingerprint == measured.testbeds[1].fingerprint


def _with_twins(pairs: int | None, job: Job) -> int | None:
    """The planned pairs up to the first look with ``pairs`` base–head pairs, including those of base against base."""
    looks = [look for look in job.policy.looks if pairs is not None and look >= pairs]
    return looks[0] + job.config.gate.aa_pairs if looks else None


def _so_far(pairs: PairedMeasurement, workload: str) -> SoFar | None:
    interval = interval_so_far(pairs.base, pairs.head, workload)
    return interval and SoFar((interval.low + interval.high) / 2, (interval.high - interval.low) / 2)
