"""Measure both sides of a check: the checklist on each, then pairs until they decide.

Before minutes are spent, trials show that the head works at all, and that the pairs
needed for a verdict fit the budget.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

from perfgate.conductor.engine import Reach
from perfgate.conductor.sides.function.plan import (
    SURE_SECONDS,
    seconds_of_sure_pairs,
    sure_pairs,
)
from perfgate.conductor.sides.function.workload import PairedMeasurement
from perfgate.conductor.sides.job_turns import NAMES, MeasuredJob
from perfgate.conductor.sides.kinds import record_of
from perfgate.conductor.workers.bench import Bench, open_bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.environment import in_ci
from perfgate.conductor.workers.foresight import Foresight
from perfgate.conductor.workers.seals import MOST_ENTRIES
from perfgate.config import WorkloadReference
from perfgate.document.artifact import CheckDocuments
from perfgate.document.coverage import Coverage
from perfgate.document.message import Message, MessageValue, as_message, english
from perfgate.document.run import (
    CALLS_TOO_SLOW,
    LOADS_TOO_SLOWLY,
    ErrorDetail,
    FailedPair,
    Side,
)
from perfgate.flows.check.forecast import PARTS, Forecast
from perfgate.flows.check.harnesses import harnesses_of
from perfgate.flows.check.measured import CheckContext, Job, Measured
from perfgate.flows.check.rerun import (
    other_testbed,
    say_measured_again,
    turns_of,
)
from perfgate.flows.check.turns import JobMeasurement
from perfgate.flows.check.workload import PairsOfWorkload, WorkloadMeasurement
from perfgate.flows.shared.doors import Progress
from perfgate.flows.shared.preflight import refuse_failed
from perfgate.flows.shared.session import job_notes, remove_traces
from perfgate.flows.shared.store import stored_start_luck
from perfgate.job_settings import JobReference
from perfgate.judging.gate.look import Look
from perfgate.judging.gate.paths import settles
from perfgate.locale import sentence
from perfgate.protocol import SLOW_CALL_SECONDS, Loaded, Tried
from perfgate.system.walls import can_build_walls


def measure(job: Job, earlier: CheckDocuments | None, progress: Progress) -> Measured:
    """Measure every selected workload on both sides, or add pairs to an earlier check
    on the same testbed.
    """
    for name in NAMES:
        (job.out / name).mkdir(exist_ok=True)
    gate = job.config.gate
    base = job.checkouts["base"]
    head = job.checkouts["head"]
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
        of_stacks=job.options.comparing == "stack",
        loads=job.seals.loads,
    ) as bench:
        job.seals.add([bench.sealed_shared_code()], "base", "head")
        if not can_build_walls():
            for side, checkout in job.checkouts.items():
                job.seals.add([bench.sealed_home(checkout, side)], side)
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
            # Add pairs to the workloads that the earlier job left undecided.
            references = job.workloads
            names = [reference.name for reference in references]
            forecast.plan(names, ("pairs",))
            for reference in references:
                measured.pairs.append(PairedMeasurement())
                PairsOfWorkload(check, reference).measure()
        else:
            _measure_workloads(check)
        for job_reference in job.jobs:
            _measure_job(check, job_reference)
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


def _measure_workloads(check: CheckContext) -> None:
    """Measure the checklist, the pairs and the turns of each workload, unless none runs
    the changed code.
    """
    bench = check.bench
    job = check.job
    measured = check.measured
    references = job.workloads
    names = [reference.name for reference in references]
    for name in NAMES:
        remove_traces(job.out / name, names)
    check.forecast.plan(names, PARTS)
    if references:
        _begin_host_builds(check, references[0])
    # Before code runs that may write beside the workload.
    measured.harnesses = harnesses_of(check)
    measured.coverage, trials = try_sides(check)
    if settles(measured.coverage, job.policy) and not job.options.always:
        return
    measured.loaded = loaded_packages(check)
    for number, reference in enumerate(references, start=1):
        if number > 1:
            _begin_host_builds(check, reference)
        check.begin_side("base")
        _confirm_host_builds(check, reference, trials.get(reference.name))
        # Both sides load for the checklist at once, if every process builds its own
        # model and both fit.
        if bench.loads_slowly and bench.fits(len(check.checkouts)):
            job.seals.begin("base", "head")
            for checkout in check.checkouts.values():
                bench.load_ahead(checkout, reference)
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
    """Divide the pairs' budget that decided workloads did not use among the undecided
    workloads.
    """
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
        # An earlier result has the same jobs.
        records = {entry.name: entry for entry in earlier.head.jobs.records}
        record = records[reference.name]
        before = turns_of(earlier, reference.name)
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
    """The notes of a side's document.

    Its code may have written into its checkout, and folders may be too large to be
    sealed.
    """
    notes = list(job.environments.of_side(side).notes)
    seal = job.seals.seal_of(side)
    if seal.own:
        notes.append(Message("notes.wrote-into-checkout", {"files": seal.own}))
    if seal.left_out:
        values: dict[str, MessageValue] = {
            "folders": seal.left_out,
            "most": MOST_ENTRIES,
        }
        notes.append(Message("notes.not-sealed", values))
    return [*notes, *bench.leftover_notes(checkout.root)]


def _notes_of_job(bench: Bench, job: Job, refused: list[str]) -> list[Message]:
    """The notes for both sides' documents; in the workloads ``refused``, the check
    rejects the output of both sides.
    """
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
    """Report once why the pairs lack hardware counters: if they lack any, they lack
    all.
    """
    for pairs in measured.pairs:
        if pairs.uncounted:
            progress.note(pairs.uncounted)
            return


def _begin_host_builds(check: CheckContext, reference: WorkloadReference) -> None:
    """Begin to build a workload of both sides on the host, and on the device too for
    base, of which there may be no trial.
    """
    bench, checkouts = check.bench, check.checkouts
    if not bench.is_accelerated or checkouts["base"].python != checkouts["head"].python:
        return
    bench.host_builds.forget()
    for checkout in checkouts.values():
        bench.host_builds.begin(checkout, reference)
    bench.load_ahead(checkouts["base"], reference)


def _confirm_host_builds(
    check: CheckContext, reference: WorkloadReference, trial: Tried | None
) -> None:
    """Compare the models of the host with the models built on the device; ``trial`` is
    the head's.
    """
    bench, head = check.bench, check.checkouts["head"]
    if not bench.host_builds.have_begun:
        return
    signatures = {}
    if trial is not None and trial.signature is not None:
        signatures = {head: trial.signature}
    reason = bench.host_builds.confirm(signatures)
    if reason is None:
        bench.let_go_ahead()
    else:
        text = sentence(
            "{name}: every process builds its own model: {reason}",
            name=reference.name,
            reason=english(reason),
        )
        check.progress.note(text)


# Margin on the estimate in the suggested budget, so that a busy moment does not end the
# pairs too soon.
ROOM = 1.2


def try_sides(check: CheckContext) -> tuple[Coverage | None, dict[str, Tried]]:
    """Try the workloads: what they run of the changed code, and by workload the trial
    of the head.

    Raises SetUpError if the head's workload is set up wrong; in CI the documents and
    the comment report that instead. The sides of ``perfgate upgrade`` are not tried:
    errors of the new stack are its result. If the workload's check rejects only the
    head's output, measuring goes on, because that is a finding about the change.
    """
    bench, job = check.bench, check.job
    if job.session.command == "upgrade":
        return None, {}
    base = job.checkouts["base"]
    head = job.checkouts["head"]
    references = job.workloads
    trials: dict[str, Tried] = {}
    for reference in references:
        bench.say(sentence("testing workload {name}", name=reference.name))
        check.begin_side("head")
        trial = job.code.try_workload(bench, head, reference, "head")
        trials[reference.name] = trial
        if in_ci(os.environ):
            continue
        check.begin_side("base")
        if (
            trial.failed != "check"
            or bench.try_workload(base, reference).failed == "check"
        ):
            refuse_failed(reference, trial)
    if job.code.needs_base():
        check.begin_side("base")
        for reference in references:
            bench.say(
                sentence("testing workload {name} on the base", name=reference.name)
            )
            job.code.try_workload(bench, base, reference, "base")
    return job.code.result(references), trials


def loaded_packages(
    check: CheckContext,
) -> tuple[list[str] | None, list[str] | None]:
    """The packages that the workloads load on each side; None if both share an
    environment, or if they are unknown.
    """
    if check.job.environments.base.record is None or check.job.jobs:
        return None, None
    return _packages_of(check, "base"), _packages_of(check, "head")


def _packages_of(check: CheckContext, side: Side) -> list[str] | None:
    check.begin_side(side)
    bench, job = check.bench, check.job
    loaded: set[str] = set()
    for reference in job.workloads:
        bench.say(
            sentence("looking at what workload {name} loads", name=reference.name)
        )
        trial = bench.try_workload(job.checkouts[side], reference, packages=True)
        if trial.packages is None:
            return None
        loaded.update(trial.packages)
    return sorted(loaded)


def pairs_too_slow(
    bench: Bench, reference: WorkloadReference, base: Checkout, tried: Tried | None
) -> FailedPair | None:
    """The reason why the pairs needed for a verdict do not fit the budget; None if they
    do.

    Base decides, so that a much slower head is measured and fails. ``tried`` is the
    trial of the head, with an upper bound of the seconds of its calls. Slow calls of
    base are timed; if only loading is slow, its first load counts.
    """
    gate = bench.config.gate
    allowed = max(gate.budget, SURE_SECONDS)
    call_seconds = 0.0
    loaded: Loaded | None = None
    if tried is not None and tried.seconds is not None:
        load_seconds = bench.host_builds.seconds_of_copy or tried.load_seconds
        seconds = _seconds_of_pairs(
            bench, call_seconds=tried.seconds, load_seconds=load_seconds
        )
        if seconds <= allowed:
            return None
        if tried.seconds < SLOW_CALL_SECONDS:
            call_seconds, loaded = tried.seconds, bench.loaded_ahead(base, reference)
    if loaded is None:
        timed = bench.time_call(base, reference)
        if timed is None:
            return None
        call_seconds, loaded = timed
    seconds = _seconds_of_pairs(
        bench, call_seconds=call_seconds, load_seconds=loaded.seconds
    )
    if seconds <= allowed:
        return None
    values: dict[str, MessageValue] = {
        "call": round(call_seconds, 2),
        "load": round(loaded.seconds),
        "pairs": sure_pairs(gate, resident=bench.is_accelerated),
        "seconds": round(seconds),
        "allowed": allowed,
        "budget": math.ceil(seconds * ROOM / 10) * 10,
    }
    code = LOADS_TOO_SLOWLY
    if call_seconds >= SLOW_CALL_SECONDS:
        code = CALLS_TOO_SLOW
    error = ErrorDetail(kind="timeout", message=Message(code, values))
    return FailedPair(pair=0, arm="ab", workload=reference.name, error=error)


def too_slow_line(too_slow: FailedPair) -> str:
    """A line for the terminal, before anything else is measured."""
    message = as_message(too_slow.error.message)
    return sentence(
        "{name}: no pairs will be measured: {reason}; [gate] budget = {budget} would be enough",
        name=too_slow.workload,
        reason=english(message),
        budget=message.values["budget"],
    )


def _seconds_of_pairs(
    bench: Bench, *, call_seconds: float, load_seconds: float
) -> float:
    return seconds_of_sure_pairs(
        bench.config.gate,
        call_seconds=call_seconds,
        start_seconds=load_seconds,
        resident=bench.is_accelerated,
        parked=bench.parking is not None,
        lone=bench.holds_one,
    )
