"""Measure both sides of a check: the checklist on each, then pairs until they decide."""

from __future__ import annotations

import os
from collections.abc import Sequence

from perfgate.conductor.engine import Reach
from perfgate.conductor.sides.function.workload import PairedMeasurement
from perfgate.conductor.sides.job_turns import NAMES, MeasuredJob
from perfgate.conductor.sides.kinds import record_of
from perfgate.conductor.workers.bench import Bench, open_bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.foresight import Foresight
from perfgate.config import WorkloadReference
from perfgate.document.artifact import CheckDocuments
from perfgate.document.message import Message
from perfgate.document.run import Side
from perfgate.flows.check.forecast import PARTS, Forecast
from perfgate.flows.check.harnesses import harnesses_of
from perfgate.flows.check.hosts import (
    begin_host_builds,
    confirm_host_builds,
    load_both_ahead,
)
from perfgate.flows.check.measured import CheckContext, Job, Measured
from perfgate.flows.check.pairs import PairsOfWorkload
from perfgate.flows.check.rerun import (
    earlier_record,
    other_testbed,
    say_measured_again,
    turns_of,
)
from perfgate.flows.check.sealing import seal_notes
from perfgate.flows.check.trial import (
    loaded_packages,
    pairs_too_slow,
    too_slow_line,
    try_sides,
)
from perfgate.flows.check.turns import JobMeasurement
from perfgate.flows.check.workload import WorkloadMeasurement
from perfgate.flows.shared.doors import Progress
from perfgate.flows.shared.session import job_notes, remove_traces
from perfgate.flows.shared.store import stored_start_luck
from perfgate.job_settings import JobReference
from perfgate.judging.gate.look import Look
from perfgate.judging.gate.paths import settles
from perfgate.locale import sentence
from perfgate.system.walls import can_build_walls


def measure(job: Job, earlier: CheckDocuments | None, progress: Progress) -> Measured:
    """Measure every selected workload on both sides, or add pairs to an earlier check on the same testbed."""
    for name in NAMES:
        (job.out / name).mkdir(exist_ok=True)
    gate, base, head = job.config.gate, job.checkouts["base"], job.checkouts["head"]
    forecast = Forecast(
        progress,
        pairs_budget=gate.budget,
        turns_budget=job.options.checklist_seconds(gate),
    )
    with open_bench(
        job.config,
        logs=job.out / "head" / "logs",
        say=progress.status,
        foresee=forecast.expect,
        pythons=(base.python, head.python),
        loads=job.seals.loads,
    ) as bench:
        job.seals.add([bench.sealed_shared_code()], "base", "head")
        if not can_build_walls():
            job.seals.add([bench.sealed_home(base, "base")], "base")
            job.seals.add([bench.sealed_home(head, "head")], "head")
        of_head = of_base = bench.testbed(head.python)
        if base.python != head.python:
            of_base = bench.testbed(base.python)
        if earlier and (why := other_testbed(earlier, of_head)):
            say_measured_again(progress.note, why)
            earlier = None
        measured = Measured((of_base, of_head), earlier=earlier)
        luck = stored_start_luck(
            job.config_in_clone, of_base, os.environ, warn=progress.note
        )
        check = CheckContext(bench, job, progress, forecast, measured, start_luck=luck)
        job.seals.begin("base", "head")
        if earlier:
            _add_pairs(check)
        else:
            _measure_workloads(check)
        for reference in job.jobs:
            _measure_job(check, reference)
        job.seals.check()
    progress.expect(Foresight())
    _note_uncounted(measured, progress)
    measured.notes["base"] += _notes_of_side(bench, job, base, "base")
    measured.notes["head"] = [
        *_notes_of_job(bench, job, check.refused),
        *measured.notes["head"],
        *_notes_of_side(bench, job, head, "head"),
    ]
    return measured


def _add_pairs(check: CheckContext) -> None:
    """Add pairs to the workloads that the earlier job left undecided."""
    references = check.job.workloads
    check.forecast.plan([reference.name for reference in references], ("pairs",))
    for reference in references:
        check.measured.pairs.append(PairedMeasurement())
        PairsOfWorkload(check, reference).measure()


def _measure_workloads(check: CheckContext) -> None:
    """Measure the checklist, the pairs and the turns of each workload, unless none runs the changed code."""
    bench, job, measured = check.bench, check.job, check.measured
    references = job.workloads
    names = [reference.name for reference in references]
    for name in NAMES:
        remove_traces(job.out / name, names)
    check.forecast.plan(names, PARTS)
    if references:
        begin_host_builds(check, references[0])
    measured.coverage, trials = try_sides(bench, job)
    if settles(measured.coverage, job.policy) and not job.options.always:
        return
    measured.harnesses = harnesses_of(bench, job)
    measured.loaded = loaded_packages(bench, job)
    for number, reference in enumerate(references, start=1):
        if number > 1:
            begin_host_builds(check, reference)
        confirm_host_builds(check, reference, trials.get(reference.name))
        load_both_ahead(check, reference)
        too_slow = pairs_too_slow(
            bench, reference, job.checkouts["base"], trials.get(reference.name)
        )
        if too_slow is not None:
            check.progress.note(too_slow_line(too_slow))
        workload = WorkloadMeasurement(
            check, reference, to_come=len(references) - number, too_slow=too_slow
        )
        if not workload.measure():
            check.forecast.leave_out(reference.name)
    _spend_left_over(check, references)


def _spend_left_over(
    check: CheckContext, references: Sequence[WorkloadReference]
) -> None:
    """Divide the pairs' budget that decided workloads did not use among the undecided workloads."""
    measured, budget = check.measured, check.job.config.gate.budget
    finished = list(zip(references, measured.pairs))
    # If one fails already, no further time of another matters.
    if len(finished) < 2 or any(
        check.look_at(reference.name).regressed() for reference in references
    ):
        return
    left_over = 0.0
    undecided: list[tuple[WorkloadReference, PairedMeasurement]] = []
    for reference, pairs in finished:
        if pairs.begun:
            left_over += max(0.0, budget - pairs.seconds)
            if check.look_at(reference.name).more_pairs_would_help():
                undecided.append((reference, pairs))
    check.forecast.plan([reference.name for reference, _ in undecided], ("pairs",))
    for number, (reference, before) in enumerate(undecided):
        measured.pairs.append(PairedMeasurement())
        part = left_over / (len(undecided) - number)
        PairsOfWorkload(check, reference, continues=before, budget=part).measure()
        left_over -= measured.pairs[-1].seconds


def _measure_job(check: CheckContext, reference: JobReference) -> None:
    job, measured = check.job, check.measured
    record, before = record_of(reference), Reach()
    if earlier := measured.earlier:
        record, before = (
            earlier_record(earlier, reference.name),
            turns_of(earlier, reference.name),
        )
        last = Look(earlier.base, earlier.head, job.policy, workload=reference.name)
        if not last.more_turns_would_help():
            return
    measured.jobs.append(MeasuredJob(record, before=before))
    JobMeasurement(check, reference, measured.jobs[-1]).measure()
    if stacks := measured.jobs[-1].stacks:
        check.progress.status(
            sentence("reading the profiles of {name}", name=reference.name)
        )
        roots = {name: checkout.root for name, checkout in check.checkouts.items()}
        folders = {name: job.out / name for name in NAMES}
        measured.flames.update(
            measured.kept.keep(reference.name, stacks, roots, folders)
        )


def _notes_of_side(
    bench: Bench, job: Job, checkout: Checkout, side: Side
) -> list[Message]:
    environment = job.environments.of_side(side)
    return [
        *environment.notes,
        *seal_notes(job.seals.seal_of(side)),
        *bench.leftover_notes(checkout.root),
    ]


def _notes_of_job(bench: Bench, job: Job, refused: list[str]) -> list[Message]:
    """The notes for both sides' documents; in the workloads ``refused``, the check rejects the output of both sides."""
    notes: list[Message] = []
    selected = job.options.workloads
    unselected = [
        name for name in job.config.names if selected and name not in selected
    ]
    if unselected:
        notes.append(Message("notes.not-selected", {"names": [*unselected]}))
    if refused:
        notes.append(Message("notes.check-refuses-both", {"names": refused}))
    notes += job_notes(os.environ, job.out)
    if not can_build_walls():
        notes.append(Message("notes.no-walls"))
    return [*notes, *bench.cache_notes(), *bench.watch_notes(), *bench.leftover_notes()]


def _note_uncounted(measured: Measured, progress: Progress) -> None:
    """Report once why the pairs lack hardware counters: if they lack any, they lack all."""
    for pairs in measured.pairs:
        if pairs.uncounted:
            progress.note(pairs.uncounted)
            return
