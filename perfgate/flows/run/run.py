"""``perfgate run``: the checklist on this machine, one run document, judged by the
rules that need no base.
"""

from __future__ import annotations

import os
import platform
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from perfgate.conductor.code.reads import watch_reads
from perfgate.conductor.machine.lock import lock_path, machine_lock
from perfgate.conductor.sides.checklist.checklist import Findings
from perfgate.conductor.sides.checklist.turns import ChecklistSide, ChecklistTurns
from perfgate.conductor.sides.job_turns import JobTurns, MeasuredJob
from perfgate.conductor.sides.kinds import (
    SIDES,
    cpus_of,
    keep_off,
    make_side,
    record_of,
    with_numbers,
)
from perfgate.conductor.sides.program import SideError
from perfgate.conductor.sides.server.highest_rate import at_highest_rate
from perfgate.conductor.sides.side import SidePlan
from perfgate.conductor.workers.bench import Bench, open_bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.environment import in_ci
from perfgate.conductor.workers.foresight import Foresight
from perfgate.config import Config
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import read_run, write_document
from perfgate.document.message import Message
from perfgate.document.run import FailedPair, RunDocument, Source
from perfgate.document.testbed import Environment, Testbed
from perfgate.errors import DocumentError, RepositoryError
from perfgate.flows.run.advisors import advise_run
from perfgate.flows.shared.decision import (
    decide_alone_with_advice,
    write_decision_folder,
)
from perfgate.flows.shared.doors import Progress
from perfgate.flows.shared.flame import with_flame_graph
from perfgate.flows.shared.options import AVAILABLE_STEPS
from perfgate.flows.shared.preflight import preflight
from perfgate.flows.shared.reads import remember_reads
from perfgate.flows.shared.session import (
    assemble_run,
    ci_context,
    job_notes,
    now,
    prepare_out,
    remove_results,
    remove_traces,
    start_session,
)
from perfgate.git.repository import Repository
from perfgate.job_settings import JobReference
from perfgate.locale import Language, sentence
from perfgate.measuring.devices.registry import refuse_unknown_kind
from perfgate.system.packages import installed_packages

DECISION_FILES = ("decision.json", "comment.md", "report.html")
# Where a CI job says its container image: our own variable, then GitLab's
# (docs.gitlab.com, "Predefined CI/CD variables").
IMAGE_VARIABLES = ("PERFGATE_IMAGE", "CI_JOB_IMAGE")
_MOST_IMAGE = 300


# New processes whose calls a run of main compares on an accelerator.
COMPARED_STARTS = 3


@dataclass(frozen=True)
class RunOptions:
    """The command-line options; comment and report are written in ``language``.

    ``quick`` measures as a check does, so that the values compare: shortly, and without
    the time a process waited for a CPU. On an accelerator the calls of ``starts`` new
    processes are compared.
    """

    out: Path
    workloads: tuple[str, ...] = ()
    steps: tuple[int, ...] = AVAILABLE_STEPS
    quick: bool = False
    starts: int = 0
    language: Language = "en"


def run_and_judge(
    config: Config, options: RunOptions, progress: Progress
) -> tuple[RunDocument, DecisionDocument | None]:
    """Run the checklist and judge the run by the rules; there is no decision if
    perfgate.toml has none.

    decision.json, comment.md and report.html are written next to run.json.
    """
    policy = config.policy()
    out = prepare_out(options.out)
    if (
        policy.judges_alone or not (out / "head" / "run.json").exists()
    ):  # otherwise the files belong to a check
        remove_results(out, DECISION_FILES)
    run = run_here(config, options, progress)
    if not policy.judges_alone:
        return run, None
    decision = decide_alone_with_advice(run, policy)
    links = [
        replace(link, path=link.path.partition("/")[2])
        for link in decision.measured.links
    ]
    decision = replace(decision, measured=replace(decision.measured, links=links))
    write_decision_folder(out, decision, None, run, options.language)
    return run, decision


def run_here(config: Config, options: RunOptions, progress: Progress) -> RunDocument:
    """Run the checklist on the code in the project's folder and write ``run.json`` with
    its traces and logs.
    """
    references = config.selected(options.workloads)
    refuse_unknown_kind(config.device)
    out = prepare_out(options.out)
    repository, source = _code(config.root)
    with machine_lock(
        lock_path(),
        purpose=f"perfgate run in {config.root.resolve()}",
        say=progress.note,
    ) as queued:
        session = start_session(
            "run", config.measure.seed, ci_context(os.environ), queued=queued
        )
        durations = _durations(out / "run.json")
        remove_results(out, ("run.json",))
        remove_traces(out, [reference.name for reference in references])
        progress.status(sentence("starting"))
        list_reads = None
        if repository and source.commit:
            list_reads = watch_reads(repository.root, repository.files(source.commit))
        measured = _measure(config, options, progress, out, durations)
        files_read = list_reads() if list_reads else None
    run = assemble_run(
        config,
        session=replace(session, finished_at=now()),
        source=source,
        testbed=measured.testbed,
        findings=measured.findings,
        folder=out,
        notes=[*job_notes(os.environ, out), *measured.notes],
    )
    for job in measured.jobs:
        run.jobs.records.append(job.record)
        run.jobs.turns.extend(job.head)
        run.pairs.failed.extend(job.failed)
    # The packages and the container image, by which a report of main names an uplift.
    images = [os.environ.get(variable, "") for variable in IMAGE_VARIABLES]
    environment = Environment(
        kind="running",
        python=platform.python_version(),
        packages=installed_packages(),
        image=next(filter(None, images), "")[:_MOST_IMAGE],
    )
    run = replace(
        run,
        source=replace(run.source, files_read=files_read),
        testbed=replace(run.testbed, environment=environment),
    )
    if repository:
        remember_reads(repository, (run,))
    run = with_flame_graph(run, out, say=progress.status, language=options.language)
    advised = advise_run(run, out, progress.status)
    run = replace(
        run,
        checklist=replace(run.checklist, advisories=advised.found),
        warnings=[*run.warnings, *advised.warnings],
    )
    write_document(out / "run.json", run)
    return run


class _MeasuredRun(NamedTuple):
    testbed: Testbed
    findings: list[Findings]
    jobs: list[MeasuredJob]
    notes: list[Message]


def _measure(
    config: Config,
    options: RunOptions,
    progress: Progress,
    out: Path,
    durations: Mapping[str, Mapping[int, float]],
) -> _MeasuredRun:
    """Measure the checklist of every workload, and the turns of every job;
    ``durations`` come from an earlier run.
    """
    root = config.root.resolve()
    checkout = Checkout(root=root, harness=root)
    references = config.selected(options.workloads)
    with open_bench(
        config, logs=out / "logs", say=progress.status, foresee=progress.expect
    ) as bench:
        testbed = bench.testbed()
        if not in_ci(
            os.environ
        ):  # in CI, the run document records the failure for later readers
            preflight(bench, checkout, references)
        findings: list[Findings] = []
        for reference in references:
            side = ChecklistSide("head", checkout, out)
            turns = ChecklistTurns(
                bench, reference, [side], leave_out_waits=options.quick
            )
            turns.first(
                options.steps,
                quick=options.quick,
                starts=options.starts,
                earlier=durations.get(reference.name),
            )
            findings.append(side.found)
        jobs = [
            _measure_alone(bench, job, checkout)
            for job in config.selected_jobs(options.workloads)
        ]
        progress.expect(Foresight())
    notes = [
        *bench.cache_notes(),
        *bench.leftover_notes(checkout.root),
        *bench.leftover_notes(),
    ]
    return _MeasuredRun(testbed, findings, jobs, notes)


def _durations(path: Path) -> dict[str, dict[int, float]]:
    """The seconds that each step took the last time, by workload; empty if that run
    cannot be read.
    """
    durations = defaultdict[str, dict[int, float]](dict)
    if path.exists():
        with suppress(DocumentError):
            for step in read_run(path).checklist.steps:
                durations[step.workload][step.number] = step.duration
    return durations


def _code(root: Path) -> tuple[Repository | None, Source]:
    """The repository of the project's folder, None if there is none, and its
    checked-out commit.
    """
    try:
        repository = Repository(root)
    except RepositoryError:
        return None, Source()
    try:
        return repository, repository.source(
            repository.head(), dirty=bool(repository.dirty_files())
        )
    except RepositoryError:
        return repository, Source()


# Two starts, because a single one may be an outlier; a command starts anew for every
# turn.
STARTS = 2
TURNS = 8
RUNS = 5


def _measure_alone(
    bench: Bench, reference: JobReference, checkout: Checkout
) -> MeasuredJob:
    """Take turns of one side; failures are recorded in the result."""
    measured = MeasuredJob(record_of(reference))
    try:
        reference = at_highest_rate(bench, reference, checkout, "head", bench.say)
    except SideError as error:
        measured.failed.append(
            FailedPair(pair=0, arm="ab", workload=reference.name, error=error.detail)
        )
        return measured
    measured.record = record_of(reference)
    cpus = cpus_of(reference.kind, bench)
    side = make_side(bench, reference, checkout, "head", cpus)
    plan, look = SidePlan(turns=1, fewest=TURNS, most=TURNS), STARTS * TURNS
    if not SIDES[reference.kind].plan.most:  # a process for each turn
        plan, look = SidePlan(turns=1), RUNS
    with keep_off(cpus):
        JobTurns(
            [{"head": side}],
            plan,
            measured,
            looks=(look,),
            is_decided=lambda: True,
            say=bench.say,
            announce=lambda: None,
            seed=bench.config.measure.seed,
        ).take()
    measured.record = with_numbers(measured.record, side)
    return measured
