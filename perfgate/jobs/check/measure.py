"""Measure the two sides of a check: the checklist on each, then pairs until they decide; and put their documents together."""

from __future__ import annotations

import itertools
import math
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from perfgate.catalogue.lookup import CARDS, METRICS, measuring_step
from perfgate.catalogue.names import STEADY_NUMBERS
from perfgate.conductor.sides.checklist import Findings, not_measured
from perfgate.conductor.sides.checklist_turns import ChecklistSide, ChecklistTurns
from perfgate.conductor.sides.harness import read_harnesses, unknown_harnesses
from perfgate.conductor.sides.kinds import record_of
from perfgate.conductor.sides.pairs import PairedMeasurement, measure_pairs
from perfgate.conductor.sides.plan import SURE_SECONDS, seconds_of_slow_pairs, sure_pairs
from perfgate.conductor.sides.profiles import PairTrace
from perfgate.conductor.sides.server import RATE_SHARE
from perfgate.conductor.sides.turns import NAMES, MeasuredJob, SideName, TurnsBefore
from perfgate.conductor.workers.bench import Bench, Checkout, open_bench
from perfgate.conductor.workers.environment import in_ci
from perfgate.conductor.workers.foresight import Foresight
from perfgate.conductor.workers.seals import Seals
from perfgate.config import Config, WorkloadReference
from perfgate.document.decision import Policy
from perfgate.document.flame import FlameTree, merged, node_totals, side_by_side
from perfgate.document.job import JobRecord
from perfgate.document.message import Message, MessageValue, reason_of
from perfgate.document.run import TOO_SLOW, ErrorDetail, FailedPair, Harness, RunDocument, Session, Side, StepResult
from perfgate.document.testbed import Testbed
from perfgate.errors import DocumentError, MeasuringError, UsageError
from perfgate.jobs.check.environments import Environments
from perfgate.jobs.check.rerun import Earlier, add_to, other_testbed, refuse_other_job
from perfgate.jobs.check.sealing import seal_notes
from perfgate.jobs.check.sides import Sides
from perfgate.jobs.check.turns import JobMeasurement
from perfgate.jobs.shared.doors import Progress
from perfgate.jobs.shared.flame import PairFlame
from perfgate.jobs.shared.options import AVAILABLE_STEPS, CheckOptions
from perfgate.jobs.shared.preflight import refuse_failed
from perfgate.jobs.shared.session import artifact_of, assemble_run, job_notes, remove_traces
from perfgate.jobs.trust.commits import BaseConfig
from perfgate.judging.gate.decide import Look
from perfgate.judging.gate.pairs import SAMPLED
from perfgate.judging.gate.repeated import metrics_in_turns
from perfgate.judging.gate.rule import looks_left
from perfgate.judging.gate.rules import DECIDING_STEPS, bounded_metrics, broken_metrics, deciding_steps
from perfgate.judging.gate.turns import foreseen, smallest_tolerance
from perfgate.measuring.counting.collect import read_calls, trace_name
from perfgate.protocol import Loaded
from perfgate.trace.flame import flame_tree
from perfgate.trace.stacks import stacks_of

# A budget or SLA that seems broken is measured so often before the head is blamed for it.
TURNS_OF_A_BROKEN_BOUND = 3
# What is asked for beyond the estimate, so that a busier moment does not end the pairs too soon.
ROOM = 1.2
_NAMED = 3
_NAMED_FUNCTIONS = 5
# Both sides are counted whatever is asked for: exact counters are compared first.
_COUNTING_STEP = 4


class Job(NamedTuple):
    """What is known before anything is measured."""

    config: Config
    base_config: BaseConfig
    session: Session
    sides: Sides
    out: Path
    earlier: Earlier | None
    environments: Environments
    deadline: float
    seals: Seals

    @property
    def policy(self) -> Policy:
        return (self.base_config.config or self.config).policy()


class Measured(NamedTuple):
    """What has been measured so far; the lists grow workload by workload. ``notes`` are what each side's document adds, and
    ``added_to`` is the earlier job that it continues.
    """

    testbeds: tuple[Testbed, Testbed]
    harnesses: tuple[list[Harness], list[Harness]]
    base: list[Findings]
    head: list[Findings]
    pairs: list[PairedMeasurement]
    flames: list[PairFlame]
    jobs: list[MeasuredJob]
    notes: tuple[list[Message], list[Message]] = ([], [])
    added_to: Earlier | None = None


class _Parts:
    """The parts of a check: the first turn of each workload's checklist, its pairs, and the further turns."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self.count, self._number = progress, 0, 0

    def begin(self) -> None:
        self._number += 1
        self.expect(Foresight())

    def expect(self, foresight: Foresight) -> None:
        if self._number:
            self._progress.expect(replace(foresight, part=self._number, parts=self.count))


def measure(job: Job, *, base: Checkout, head: Checkout, options: CheckOptions, progress: Progress) -> Measured:
    """Measure every workload that is asked for on both sides, or where there is an earlier job, more pairs of it.

    Where that one ran on another testbed, raises UsageError, or with ``append_from`` begins anew.
    """
    folders = {side: job.out / side for side in ("base", "head")}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    logs = job.out / "head" / "logs"
    references = job.config.selected(options.workloads)
    parts = _Parts(progress)
    pythons = (base.python, head.python)
    with open_bench(job.config, logs=logs, say=progress.status, foresee=parts.expect, pythons=pythons) as bench:
        job.seals.add([bench.seal_shared_code()], "base", "head")
        testbeds = _testbeds(bench, base, head)
        job = _adding_to(job, testbeds[1], options, progress)
        if not job.earlier:
            for folder in folders.values():
                remove_traces(folder, [reference.name for reference in references])
        parts.count = len(references) if job.earlier else 3 * len(references)
        job.seals.begin("base", "head")
        tried = _Tried() if job.earlier else _try_head(bench, base, head, job, options)
        harnesses = ([], []) if job.earlier else _harnesses(bench, base, head, job, options)
        measured = Measured(testbeds, harnesses, [], [], [], [], [])
        refused: list[str] = []
        for number, reference in enumerate(references, start=1):
            if job.earlier:
                parts.begin()
                measured.pairs.append(PairedMeasurement())
                _measure_pairs(bench, reference, base, head, job, measured)
                continue
            if _is_left_out(bench, reference, (base, head), tried.seconds.get(reference.name), measured):
                parts.count -= 3
                continue
            asked = _steps(job, options)
            sides = [ChecklistSide(name, checkout, folders[name]) for name, checkout in zip(NAMES, (base, head))]
            turns = ChecklistTurns(bench, reference, sides, begins=job.seals.begin, deadline=job.deadline)
            parts.begin()
            turns.first(asked.deciding, asked.informing)
            for side, findings in zip(sides, (measured.base, measured.head)):
                findings.append(side.found)
            measured.pairs.append(PairedMeasurement())
            if _refuses_both(measured):
                refused.append(reference.name)
                continue
            _settle_gating_numbers(turns, job, measured)
            _note_regressions(reference, job, measured, progress)
            parts.begin()
            _measure_traced_pairs(bench, reference, base, head, job, measured, to_come=len(references) - number)
            parts.begin()
            measured.head[-1].warnings += turns.compare(
                _needs_turns, long_steps=asked.long, budget=_checklist_budget(bench.config, options)
            )
        _measure_jobs(bench, {"base": base, "head": head}, job, measured, options, progress)
        job.seals.check()
    progress.expect(Foresight())
    _note_uncounted(measured, progress)
    of_head = [*_notes_of_job(bench, job, options, refused), *tried.notes, *_notes_of_side(bench, job, head, "head")]
    return measured._replace(notes=(_notes_of_side(bench, job, base, "base"), of_head), added_to=job.earlier)


def _notes_of_side(bench: Bench, job: Job, checkout: Checkout, side: Side) -> list[Message]:
    environment = job.environments.base if side == "base" else job.environments.head
    return [*environment.notes, *seal_notes(job.seals.seal_of(side)), *bench.leftover_notes(checkout.root)]


def _notes_of_job(bench: Bench, job: Job, options: CheckOptions, refused: list[str]) -> list[Message]:
    """What is said of both sides; the check of the workloads ``refused`` refuses the output of either."""
    return [
        *_unselected_note(job, options),
        *([Message("notes.check-refuses-both", {"names": refused})] if refused else []),
        *job_notes(os.environ, job.out),
        *bench.cache_notes(),
        *bench.watch_notes(),
        *bench.leftover_notes(),
    ]


def _measure_traced_pairs(
    bench: Bench,
    reference: WorkloadReference,
    base: Checkout,
    head: Checkout,
    job: Job,
    measured: Measured,
    *,
    to_come: int,
) -> None:
    """Measure the pairs of a workload, some of them traced, in the folder of the results, where there is space."""
    with tempfile.TemporaryDirectory(dir=job.out, prefix=".traces-") as traces:
        _measure_pairs(bench, reference, base, head, job, measured, traces=Path(traces), to_come=to_come)
        sides = measured.base[-1], measured.head[-1]
        measured.flames.extend(keep_traces(measured.pairs[-1].traces, sides, (job.out / "base", job.out / "head")))


def _measure_jobs(
    bench: Bench,
    checkouts: dict[SideName, Checkout],
    job: Job,
    measured: Measured,
    options: CheckOptions,
    progress: Progress,
) -> None:
    for reference in job.config.selected_jobs(options.workloads):
        record, before = record_of(reference), TurnsBefore()
        if job.earlier:
            record, before = refuse_other_job(job.earlier, record), job.earlier.turns_of(reference.name)
            if not Look(
                job.earlier.base, job.earlier.head, job.policy, workload=reference.name
            ).more_turns_would_help():
                continue
        measured.jobs.append(MeasuredJob(record, before=before))

        def is_decided(name: str = reference.name) -> bool:
            return not Look(*documents_of(job, measured), job.policy, workload=name).more_turns_would_help()

        def foresee(quads: int, starts: int, name: str = reference.name) -> float | None:
            return foreseen(*documents_of(job, measured), job.policy, name, quads=quads, starts=starts)

        JobMeasurement(
            bench,
            reference,
            checkouts,
            measured.jobs[-1],
            is_decided=is_decided,
            foresee=foresee,
            seals=job.seals,
            tolerated=smallest_tolerance(job.policy, reference.name, reference.must_gate),
            deadline=job.deadline,
            note=progress.note,
        ).measure()


def _adding_to(job: Job, testbed: Testbed, options: CheckOptions, progress: Progress) -> Job:
    """The job, without the earlier one that it adds to where that ran on another testbed."""
    if job.earlier and (why := other_testbed(job.earlier, testbed)):
        if not options.append_from:
            raise UsageError(f"{why}; measure anew without --append")
        progress.note(f"nothing is added to the earlier attempt, everything is measured anew: {why}")
        return job._replace(earlier=None)
    return job


class _Tried(NamedTuple):
    """What the trial of the head tells: notes for its document, and by workload, more seconds than a call takes."""

    notes: Sequence[Message] = ()
    seconds: Mapping[str, float | None] = MappingProxyType({})


def _try_head(bench: Bench, base: Checkout, head: Checkout, job: Job, options: CheckOptions) -> _Tried:
    """Try the workloads on the head; the notes name functions that the change touches and no workload runs.

    Raises SetUpError where the head's workload is set up wrong, before anything is measured. Not in CI, where documents and
    comment must say it. Another stack is not tried: its errors are its result. A check that refuses the head's output alone
    judges the change: that is a verdict.
    """
    if job.session.command == "upgrade":
        return _Tried()
    seconds: dict[str, float | None] = {}
    unseen = set(job.sides.touched)
    for reference in job.config.selected(options.workloads):
        bench.say(f"trying workload {reference.name}")
        trial = bench.try_workload(head, reference, seek=sorted(unseen))
        unseen &= set(trial.unseen)
        seconds[reference.name] = trial.seconds
        if in_ci(os.environ):
            continue
        if trial.failed != "check" or bench.try_workload(base, reference).failed == "check":
            refuse_failed(reference, trial)
    if job.config.selected_jobs(options.workloads):  # what those run is not known
        return _Tried(seconds=seconds)
    names = [f"{job.sides.touched[place]} ({place})" for place in sorted(unseen)]
    more = [f"… ({len(names) - _NAMED_FUNCTIONS})"] if len(names) > _NAMED_FUNCTIONS else []
    shown = [*names[:_NAMED_FUNCTIONS], *more]
    return _Tried([Message("notes.not-run", {"names": shown, "count": len(names)})] if names else [], seconds)


def _is_left_out(
    bench: Bench,
    reference: WorkloadReference,
    checkouts: tuple[Checkout, Checkout],
    tried: float | None,
    measured: Measured,
) -> bool:
    """Whether a workload is too slow to be measured; why then stands in place of its findings and pairs."""
    slow = _too_slow(bench, reference, checkouts[0], tried)
    if slow is None:
        return False
    for checkout, findings in zip(checkouts, (measured.base, measured.head)):
        findings.append(not_measured(checkout, reference, slow.loaded))
    measured.pairs.append(PairedMeasurement(failed=[slow.failed]))
    return True


class _Slow(NamedTuple):
    """Why a workload is not measured, and what was loaded to know it."""

    failed: FailedPair
    loaded: Loaded


def _too_slow(bench: Bench, reference: WorkloadReference, base: Checkout, tried: float | None) -> _Slow | None:
    """Why the pairs that a verdict needs do not fit into the budget, before minutes are spent on them; None where they do.

    The base's calls are timed: a head that is much slower is measured, and fails. ``tried`` is more than the head's take.
    """
    gate = bench.config.gate
    allowed = max(gate.budget, SURE_SECONDS)
    if tried is not None and (seconds_of_slow_pairs(gate, call_seconds=tried) or 0.0) <= allowed:
        return None
    timed = bench.time_call(base, reference)
    if timed is None:
        return None
    seconds = seconds_of_slow_pairs(gate, call_seconds=timed.seconds, start_seconds=timed.loaded.seconds)
    if seconds is None or seconds <= allowed:
        return None
    values: dict[str, MessageValue] = {
        "call": round(timed.seconds, 2),
        "pairs": sure_pairs(gate),
        "seconds": round(seconds),
        "allowed": allowed,
        "budget": math.ceil(seconds * ROOM / 10) * 10,
    }
    error = ErrorDetail(kind="timeout", message=Message(TOO_SLOW, values))
    return _Slow(FailedPair(pair=0, arm="ab", workload=reference.name, error=error), timed.loaded)


def _refuses_both(measured: Measured) -> bool:
    """Whether the check of the workload measured last refuses the output of base and head alike: it is itself wrong."""
    return all(
        any(result.status == "failed" for result in side[-1].correctness) for side in (measured.base, measured.head)
    )


def _unselected_note(job: Job, options: CheckOptions) -> list[Message]:
    config = job.config
    functions, jobs = config.selected(options.workloads), config.selected_jobs(options.workloads)
    selected = {*(one.name for one in functions), *(one.name for one in jobs)}
    known = [*(one.name for one in config.workloads), *(one.name for one in config.jobs)]
    names = [name for name in known if name not in selected]
    return [Message("notes.not-selected", {"names": list(names)})] if names else []


def _settle_gating_numbers(turns: ChecklistTurns, job: Job, measured: Measured) -> None:
    """Take turns of the steps whose numbers gate and are open: bounds that seem broken, and numbers that a tolerance names.

    A machine may stall for a moment, so what seems to break a bound has two more turns. What a tolerance names has turns until
    it is decided, as pairs have.
    """
    name, looks = turns.reference.name, job.policy.looks
    named = {measuring_step(metric) for metric in metrics_in_turns(job.policy)}
    undecided = set(named)

    def open_steps() -> set[int]:
        documents = documents_of(job, measured)
        broken = {measuring_step(metric) for metric in broken_metrics(*documents, job.policy, workload=name)}
        if undecided and (turns.taken(min(named)) in {1, *looks}):
            look = Look(*documents, job.policy, workload=name)
            if turns.taken(min(named)) >= looks[-1] or not look.repetitions_would_help():
                undecided.clear()
        return {step for step in broken if turns.taken(step) < TURNS_OF_A_BROKEN_BOUND} | undecided

    config = turns.bench.config
    gating = bounded_metrics(job.policy) | set(metrics_in_turns(job.policy))
    turns.settle(
        open_steps,
        ends=time.monotonic() + config.gate.budget,
        steady=config.measure.steady if STEADY_NUMBERS & gating else 0.0,
    )


def _needs_turns(step: StepResult) -> bool:
    """Whether a step has a number that neither is exact nor comes from the pairs."""
    return any(value.value is not None and _is_of_turns(value.metric) for value in step.values)


def _is_of_turns(name: str) -> bool:
    entry = METRICS.get(name)
    return bool(entry and entry.leading and entry.kind == "noisy" and not entry.family and name not in SAMPLED)


def _note_regressions(reference: WorkloadReference, job: Job, measured: Measured, progress: Progress) -> None:
    """Say what the exact counters show, long before pairs tell what it costs."""
    names = Look(*documents_of(job, measured), job.policy, workload=reference.name).regressed()
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        progress.note(f"{reference.name}: {', '.join(names[:_NAMED])}{more} regressed; pairs measure what that costs")


def _note_uncounted(measured: Measured, progress: Progress) -> None:
    """Say which hardware counters the pairs lack: once, for they lack them all."""
    reason = next((pairs.uncounted for pairs in measured.pairs if pairs.uncounted), None)
    if reason:
        progress.note(reason)


def _checklist_budget(config: Config, options: CheckOptions) -> float:
    return config.gate.checklist_budget if options.checklist_budget is None else options.checklist_budget


class _Steps(NamedTuple):
    """The steps of a check: those that decide, those that inform, and of the ones that take long, the seconds of a turn."""

    deciding: tuple[int, ...]
    informing: tuple[int, ...]
    long: Mapping[int, float]


def _steps(job: Job, options: CheckOptions) -> _Steps:
    decides = deciding_steps(job.policy)
    asked = AVAILABLE_STEPS if options.steps is None else options.steps
    deciding = {_COUNTING_STEP, *(decides - DECIDING_STEPS), *(number for number in asked if number in decides)}
    informing = [number for number in asked if number not in decides]
    long = {number: CARDS[number].long_seconds for number in informing if CARDS[number].long_seconds}
    return _Steps(tuple(sorted(deciding)), tuple(number for number in informing if number not in long), long)


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
    own = job.base_config.config.workloads if job.base_config.config else ()
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
    *,
    traces: Path | None = None,
    to_come: int = 0,
) -> None:
    """Measure the pairs of a workload that loads on both sides, until they decide or the looks are used up.

    ``to_come`` workloads are measured after it.
    """
    records = (
        [*job.earlier.base.workloads, *job.earlier.head.workloads]
        if job.earlier
        else [measured.base[-1].workload, measured.head[-1].workload]
    )
    if any(record.name == reference.name and record.error for record in records):
        return
    # What cannot be compared is not worth a minute of pairs.
    if job.session.command != "upgrade" and measured.testbeds[0].fingerprint != measured.testbeds[1].fingerprint:
        return

    pairs = measured.pairs[-1]

    def enough() -> bool:
        watcher.put_into(pairs.base, pairs.head)
        look = Look(*documents_of(job, measured), job.policy, workload=reference.name, to_come=to_come)
        return not look.more_pairs_would_help()

    def needs_names() -> bool:
        return Look(*documents_of(job, measured), job.policy, workload=reference.name).names_would_help()

    if job.earlier:
        last = Look(job.earlier.base, job.earlier.head, job.policy, workload=reference.name)
        if not last.rerun_would_help():
            return
    looks = looks_left(job.policy.looks, job.earlier.pairs_of(reference.name)) if job.earlier else job.policy.looks
    budget_ends = time.monotonic() + bench.config.gate.budget
    job.seals.begin("base", "head")
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
                needs_names=needs_names,
                deadline=job.deadline,
                budget_ends=budget_ends,
                draw=draw,
                traces=traces,
                before_pair=job.seals.check_if_due,
            )
            # Luck of the layout, unless it comes again in every other: only then does it say something of the machine.
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


def documents_of(job: Job, measured: Measured) -> tuple[RunDocument, RunDocument]:
    if job.earlier:
        seals = (job.seals.seal_of("base"), job.seals.seal_of("head"))
        return add_to(job.earlier, job.session, measured.pairs, measured.jobs, seals, head_folder=job.out / "head")
    base = assemble_run(
        job.config,
        session=job.session,
        source=job.sides.base_source,
        testbed=measured.testbeds[0],
        findings=measured.base,
        folder=job.out / "base",
        side="base",
        replicates=[replicate for pairs in measured.pairs for replicate in pairs.base],
    )
    parts: list[PairedMeasurement | MeasuredJob] = [*measured.pairs, *measured.jobs]
    head = assemble_run(
        job.config,
        session=job.session,
        source=job.sides.head_source,
        testbed=measured.testbeds[1],
        findings=measured.head,
        folder=job.out / "head",
        side="head",
        replicates=[replicate for pairs in measured.pairs for replicate in pairs.head],
        failed_pairs=[failed for part in parts for failed in part.failed],
    )
    environments, records = job.environments, [one.record for one in measured.jobs]
    return (
        msgspec.structs.replace(
            base,
            seal=job.seals.seal_of("base"),
            environment=environments.base.record,
            harness=measured.harnesses[0],
            jobs=records,
            turns=[turn for one in measured.jobs for turn in one.base],
        ),
        msgspec.structs.replace(
            head,
            seal=job.seals.seal_of("head"),
            jobs=records,
            turns=[turn for one in measured.jobs for turn in one.head],
            environment=environments.head.record,
            harness=measured.harnesses[1],
            warnings=[*environments.notes, *_searched_rates(records), *head.warnings],
        ),
    )


def _searched_rates(records: list[JobRecord]) -> list[Message]:
    found = [(record.name, record.rate) for record in records if record.rate is not None]
    return [
        Message("notes.job-rate", {"workload": name, "rate": f"{rate:.3g}", "load": f"{RATE_SHARE * rate:.3g}"})
        for name, rate in found
    ]


class _Traced(NamedTuple):
    files: PairTrace
    base: FlameTree
    head: FlameTree

    @property
    def longer(self) -> float:
        """By how many seconds head's calls took longer."""
        before, after = (sum(total.own for total in node_totals(tree, tree.head)) for tree in (self.base, self.head))
        return after - before


def keep_traces(
    traces: list[PairTrace], sides: tuple[Findings, Findings], folders: tuple[Path, Path]
) -> list[PairFlame]:
    """The flame graphs of a workload's traced pairs; the recordings of the middle pair stay in the sides' folders.

    They take the place of those that the checklist made, each side by itself. A recording that cannot be read costs its pair.
    """
    base, head = sides
    flames = []
    for shape in head.workload.shapes:
        pairs = [pair for files in traces if files.shape == shape for pair in _read(files, sides)]
        if not pairs:
            continue
        pairs.sort(key=lambda pair: pair.longer)
        middle = pairs[(len(pairs) - 1) // 2].files
        for findings, folder, file in ((base, folders[0], middle.base), (head, folders[1], middle.head)):
            _keep(file, folder, findings, shape)
        tree = side_by_side(merged([pair.base for pair in pairs]), merged([pair.head for pair in pairs]))
        flames.append(PairFlame(head.workload.name, shape, tree))
    return flames


def _read(files: PairTrace, sides: tuple[Findings, Findings]) -> list[_Traced]:
    label = trace_name(sides[1].workload.name, files.shape).removeprefix("trace-")
    try:
        return [_Traced(files, base=_tree(files.base, label), head=_tree(files.head, label))]
    except (DocumentError, MeasuringError) as error:
        sides[1].warnings.append(Message("notes.pair-without-flame", {"pair": files.pair, "error": reason_of(error)}))
        return []


def _tree(file: Path, label: str) -> FlameTree:
    return flame_tree(stacks_of(read_calls(file).of_faster_half()), label)


def _keep(file: Path, folder: Path, findings: Findings, shape: str) -> None:
    suffix = ".zip" if file.suffix == ".zip" else ".json.gz"
    recording = file.replace(folder / f"{trace_name(findings.workload.name, shape)}{suffix}")
    artifact = artifact_of(recording, recording.read_bytes(), "trace", workload=findings.workload.name)
    older = [entry for entry in findings.artifacts if entry.path != artifact.path]
    findings.artifacts = [*older, artifact]
