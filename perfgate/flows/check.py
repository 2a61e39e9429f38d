"""``perfgate check``, ``perfgate local`` and ``perfgate upgrade``: measure base and head side by side, decide, write it up."""

from __future__ import annotations

import math
import os
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Optional

import msgspec

from perfgate.catalogue.card import Language
from perfgate.catalogue.lookup import measuring_step
from perfgate.conductor.bench import Bench, Checkout, open_bench
from perfgate.conductor.checklist import Findings, run_checklist
from perfgate.conductor.code_changes import changed_functions
from perfgate.conductor.harness import read_harnesses, unknown_harnesses
from perfgate.conductor.lock import LOCK_SECONDS, lock_path, machine_lock
from perfgate.conductor.pairs import PairedMeasurement, measure_pairs
from perfgate.conductor.repository import BaseChoice, Repository
from perfgate.config import CONFIG_NAME, Config, PathSettings, WorkloadReference, load_config, parse_config
from perfgate.document.decision import Comparing, DecisionDocument, Policy
from perfgate.document.files import write_run
from perfgate.document.history import write_history
from perfgate.document.run import Harness, RunDocument, Session, Source, Testbed
from perfgate.errors import ConfigError, RepositoryError, UsageError
from perfgate.flows.base_config import BaseConfig, config_at
from perfgate.flows.decision import decide_with_advice
from perfgate.flows.environments import NONE_GIVEN, Environments, GivenInterpreters, SideCode, choose_environments
from perfgate.flows.flame import KeptSide, with_flame_graph
from perfgate.flows.judge import write_decision_folder, write_skipped
from perfgate.flows.progress import Progress
from perfgate.flows.rerun import Earlier, find_earlier, refuse_other_testbed, with_more_pairs
from perfgate.flows.screen import stored_history
from perfgate.flows.session import (
    ci_context,
    forget_results,
    forget_traces,
    job_notes,
    now,
    prepare_out,
    put_together,
    start_session,
)
from perfgate.judging.gate.budgets import broken_metrics
from perfgate.judging.gate.decide import more_pairs_would_help, rerun_would_help
from perfgate.judging.gate.paths import always_relevant, skipped, skipped_because

BASE_STEPS = (4,)
DEFAULT_HEAD_STEPS = (1, 2, 3, 4)
# How often a broken budget or SLA is measured again before the head is blamed for it.
CONFIRMATIONS = 2
RESULTS = ("decision.json", "comment.md", "report.html", "history.json", "base/run.json", "head/run.json")


@dataclass(frozen=True)
class CheckOptions:
    """What the command line asks for.

    ``work_tree`` measures uncommitted changes too (``perfgate local``); ``append`` adds pairs to those of an earlier job in
    ``out``, where there are any. ``interpreters`` are those named for the sides; ``comparing`` the stack takes one commit for
    both sides (``perfgate upgrade``). Comment and report are written in ``language``. ``head`` is another revision than the
    one that is checked out; ``always`` measures also what the path filter would skip. After ``time_budget`` seconds
    nothing new is begun.
    """

    out: Path
    base: Optional[str] = None
    head: Optional[str] = None
    always: bool = False
    time_budget: float = math.inf
    workloads: tuple[str, ...] = ()
    steps: tuple[int, ...] = DEFAULT_HEAD_STEPS
    quick: bool = False
    work_tree: bool = False
    allow_dirty: bool = False
    device: Optional[str] = None
    append: bool = False
    interpreters: GivenInterpreters = NONE_GIVEN
    comparing: Comparing = "code"
    language: Language = "en"


class _Sides(NamedTuple):
    base: BaseChoice
    base_source: Source
    head: str
    head_source: Source


class _Job(NamedTuple):
    """What is known before anything is measured."""

    config: Config
    base_config: BaseConfig
    session: Session
    sides: _Sides
    out: Path
    earlier: Optional[Earlier]
    environments: Environments
    deadline: float

    @property
    def policy(self) -> Policy:
        """Return the policy of the base: a change cannot loosen the gate it has to pass."""
        return (self.base_config.config or self.config).policy()


class _Measured(NamedTuple):
    testbeds: tuple[Testbed, Testbed]
    harnesses: tuple[list[Harness], list[Harness]]
    base: list[Findings]
    head: list[Findings]
    pairs: list[PairedMeasurement]
    notes: tuple[list[str], list[str]] = ([], [])


def check_change(directory: Path, options: CheckOptions, progress: Progress) -> DecisionDocument:
    """Measure the change against its base, decide, and write the folder: documents, comment, report, traces, logs.

    Raises RepositoryError or ConfigError before anything is measured when the two sides cannot be told.
    """
    deadline = time.monotonic() + options.time_budget
    repository = Repository(directory)
    prefix = repository.prefix(directory)
    # The project's configuration as it stands: a wrong one is reported before a worktree is made.
    config = _config_at_hand(repository, directory, prefix, options)
    config.selected(options.workloads)
    sides = _choose_sides(repository, config, options)
    out = prepare_out(options.out)
    base_config = config_at(directory, sides.base.commit, None)
    if decision := _skipped(repository, config, base_config, sides, prefix, options):
        forget_results(out, RESULTS)
        write_skipped(out, decision, options.language)
        return decision
    purpose = f"perfgate check in {directory.resolve()}"
    wait = min(LOCK_SECONDS, options.time_budget)
    with machine_lock(lock_path(), purpose=purpose, say=progress.note, timeout=wait):
        earlier = find_earlier(out, base_commit=sides.base.commit, head_commit=sides.head) if options.append else None
        # What is to be added to stays until its successor is written.
        forget_results(out, [name for name in RESULTS if not (earlier and name.endswith("run.json"))])
        # The session starts when the machine is ours: waiting for it is not measuring.
        command = "upgrade" if options.comparing == "stack" else "local" if options.work_tree else "check"
        session = start_session(command, config.measure.seed, ci_context(os.environ))
        progress.status("checking out base and head")
        commits = {"base": sides.base.commit, "head": sides.head}
        # Written in perfgate.toml, so meant from there, as every other path in it.
        link = [f"{prefix}/{entry}" if prefix else entry for entry in config.measure.link]
        with repository.worktrees(commits, link=link) as trees:
            head_root = trees["head"] / prefix
            config = replace(load_config(head_root, device=options.device), project=config.project)
            config = _with_caches_of_base(config, base_config)
            sides = _with_changed_functions(sides, repository, prefix, trees["base"] / prefix, head_root)
            base_setup = base_config.config.measure.setup if base_config.config else ""
            environments = choose_environments(
                SideCode(trees["base"] / prefix, base_setup),
                SideCode(head_root, config.measure.setup),
                options.interpreters,
                config.measure,
                out=out,
                say=progress.status,
            )
            if options.comparing == "stack" and environments.base.python == environments.head.python:
                raise UsageError("both sides are the same interpreter; name that of the new stack with --python")
            job = _Job(config, base_config, session, sides, out, earlier, environments, deadline)
            measured = _measure(
                job,
                base=Checkout(trees["base"] / prefix, harness=head_root, python=environments.base.python),
                head=Checkout(head_root, harness=head_root, python=environments.head.python),
                options=options,
                progress=progress,
            )
        finished = job._replace(session=msgspec.structs.replace(session, finished_at=now()))
    base, head = map(_with_notes, _documents(finished, measured), measured.notes)
    if not earlier:
        kept = KeptSide(base, out / "base")
        head = with_flame_graph(KeptSide(head, out / "head"), kept, say=progress.status, language=options.language)
    write_run(out / "base" / "run.json", base)
    write_run(out / "head" / "run.json", head)
    # The worktree that the configuration comes from is gone; the store is found from the clone.
    history = stored_history(replace(config, root=directory), head, os.environ, warn=progress.note)
    if history.series or history.accepted:
        write_history(out / "history.json", history)
    decision = decide_with_advice(base, head, policy=job.policy, history=history, chosen_because=sides.base.because)
    write_decision_folder(out, decision, base, head, options.language)
    return decision


def _config_at_hand(repository: Repository, directory: Path, prefix: str, options: CheckOptions) -> Config:
    """Return the configuration of the work tree, or of another head as it stands in that commit."""
    if options.head is None:
        return load_config(directory, device=options.device)
    text = repository.show(repository.resolve(options.head), _inside(prefix, CONFIG_NAME))
    if text is None:
        raise ConfigError(f"{options.head} has no {_inside(prefix, CONFIG_NAME)}; perfgate measures what one names")
    return parse_config(
        text, directory / CONFIG_NAME, device=options.device or os.environ.get("PERFGATE_DEVICE") or None
    )


def _skipped(
    repository: Repository, config: Config, base: BaseConfig, sides: _Sides, prefix: str, options: CheckOptions
) -> Optional[DecisionDocument]:
    """Return the decision not to measure where the base's path filter finds nothing relevant; None where it does."""
    if options.always or options.comparing == "stack" or base.unreadable:
        return None
    rules = base.config or config
    changed = repository.files_between(sides.base.commit, sides.head)
    always = always_relevant(config, prefix) | always_relevant(rules, prefix)
    paths = base.config.paths if base.config else PathSettings()
    because = skipped_because(changed, paths, always=always)
    if because is None:
        return None
    return skipped(
        because,
        config=config,
        policy=rules.policy(),
        base=sides.base_source,
        head=sides.head_source,
        chosen_because=sides.base.because,
    )


def _with_caches_of_base(config: Config, base: BaseConfig) -> Config:
    """Return the head's configuration with the base's word on whether kernels of earlier jobs may be used."""
    if base.config is None:
        return config
    return replace(
        config, measure=msgspec.structs.replace(config.measure, reuse_caches=base.config.measure.reuse_caches)
    )


def _with_notes(run: RunDocument, notes: list[str]) -> RunDocument:
    return msgspec.structs.replace(run, warnings=[*run.warnings, *notes])


def _choose_sides(repository: Repository, config: Config, options: CheckOptions) -> _Sides:
    # A named head is what it is, whatever the work tree holds.
    head, dirty = repository.resolve(options.head) if options.head else repository.head(), False
    if options.work_tree and not options.head:
        head, dirty = repository.snapshot()
    elif not (options.allow_dirty or options.head) and (changed := repository.dirty_files()):
        raise RepositoryError(
            f"{repository.root} has uncommitted changes in {', '.join(changed[:5])}{' …' if len(changed) > 5 else ''}; "
            "commit them, or use `perfgate local`, which includes them, or --allow-dirty to measure the commit without them"
        )
    if options.comparing == "stack":
        source = repository.source(head)
        return _Sides(BaseChoice(head, "the same commit on the old stack"), source, head, source)
    revision = options.base or repository.main_branch(config.store.main_branch)
    base = repository.choose_base(revision, head)
    return _Sides(
        base=base,
        base_source=repository.source(base.commit, branch=revision),
        head=head,
        head_source=repository.source(head, dirty=dirty),
    )


def _with_changed_functions(sides: _Sides, repository: Repository, prefix: str, base: Path, head: Path) -> _Sides:
    """Return the sides, of the head which functions it changed: traces know where a function begins, and not what is new."""
    files = repository.changed_files(sides.base.commit, sides.head, prefix=prefix)
    changed = changed_functions(base, head, files)
    return sides._replace(head_source=msgspec.structs.replace(sides.head_source, changed_functions=changed))


def _measure(job: _Job, *, base: Checkout, head: Checkout, options: CheckOptions, progress: Progress) -> _Measured:
    folders = {side: job.out / side for side in ("base", "head")}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
        if not job.earlier:
            forget_traces(folder, [reference.name for reference in job.config.selected(options.workloads)])
    logs = job.out / "head" / "logs"
    with open_bench(job.config, logs=logs, say=progress.status, pythons=(base.python, head.python)) as bench:
        testbeds = _testbeds(bench, base, head)
        harnesses = ([], []) if job.earlier else _harnesses(bench, base, head, job, options)
        found = _Measured(testbeds, harnesses, [], [], [])
        if job.earlier:
            refuse_other_testbed(job.earlier, testbeds[1])
        for reference in job.config.selected(options.workloads):
            if job.earlier:
                found.pairs.append(PairedMeasurement())
                _measure_pairs(bench, reference, base, head, job, found)
                continue
            progress.status(f"{reference.name}: measuring base")
            found.base.append(
                run_checklist(
                    bench,
                    base,
                    reference,
                    steps=_with_budgeted(job, BASE_STEPS),
                    quick=True,
                    folder=folders["base"],
                    deadline=job.deadline,
                )
            )
            progress.status(f"{reference.name}: measuring head")
            found.head.append(
                run_checklist(
                    bench,
                    head,
                    reference,
                    steps=_with_budgeted(job, options.steps),
                    quick=True,
                    folder=folders["head"],
                    deadline=job.deadline,
                )
            )
            _confirm_bounds(bench, reference, (base, head), job, found)
            found.pairs.append(PairedMeasurement())
            _measure_pairs(bench, reference, base, head, job, found)
    of_head = [*job_notes(os.environ, job.out), *bench.cache_notes(), *bench.left_notes(head.root), *bench.left_notes()]
    return found._replace(notes=(bench.left_notes(base.root), of_head))


def _confirm_bounds(
    bench: Bench, reference: WorkloadReference, sides: tuple[Checkout, Checkout], job: _Job, found: _Measured
) -> None:
    """Measure again what seems to break a budget or SLA, the head and then the base: a machine may stall for a moment."""
    for attempt in range(2, 2 + CONFIRMATIONS):
        if time.monotonic() > job.deadline:
            return
        documents = _documents(job, found)
        broken = broken_metrics(*documents, job.policy, workload=reference.name)
        if not broken:
            return
        steps = tuple(sorted({measuring_step(name) for name in broken}))
        for side, checkout, findings in (("head", sides[1], found.head[-1]), ("base", sides[0], found.base[-1])):
            # In a folder of its own, because steps look at the traces that earlier ones left in theirs.
            with tempfile.TemporaryDirectory(dir=job.out / side, prefix=".again-") as folder:
                again = run_checklist(bench, checkout, reference, steps=steps, quick=True, folder=Path(folder))
            findings.add_attempt(again.steps, attempt)


def _with_budgeted(job: _Job, steps: tuple[int, ...]) -> tuple[int, ...]:
    """Return the steps, and those that measure what a budget is set on; of the base too, for it may break it as well."""
    budgeted = {measuring_step(budget.metric) for budget in job.policy.budgets}
    return tuple(sorted({*steps, *budgeted}))


def _testbeds(bench: Bench, base: Checkout, head: Checkout) -> tuple[Testbed, Testbed]:
    """Return the testbed of each side, taken once where both share the interpreter."""
    testbed = bench.testbed(head.python)
    return (testbed, testbed) if base.python == head.python else (bench.testbed(base.python), testbed)


def _harnesses(
    bench: Bench, base: Checkout, head: Checkout, job: _Job, options: CheckOptions
) -> tuple[list[Harness], list[Harness]]:
    """Return what the workload files of both sides measure, where they differ."""
    after = {reference.name: reference for reference in job.config.selected(options.workloads)}
    if job.base_config.unreadable:
        unknown = unknown_harnesses(list(after), job.base_config.unreadable)
        return unknown, read_harnesses(bench, base, head, ({}, after))[1]
    own = job.base_config.config.workloads if job.base_config.config else ()
    before = {
        reference.name: reference for reference in own if not options.workloads or reference.name in options.workloads
    }
    return read_harnesses(bench, base, head, (before, after))


def _measure_pairs(
    bench: Bench, reference: WorkloadReference, base: Checkout, head: Checkout, job: _Job, found: _Measured
) -> None:
    """Measure the pairs of a workload that loads on both sides, until they decide or the looks are used up."""
    records = (
        [*job.earlier.base.workloads, *job.earlier.head.workloads]
        if job.earlier
        else [found.base[-1].workload, found.head[-1].workload]
    )
    if any(record.name == reference.name and record.error for record in records):
        return
    # What cannot be compared is not worth a minute of pairs.
    if job.session.command != "upgrade" and found.testbeds[0].fingerprint != found.testbeds[1].fingerprint:
        return

    def enough() -> bool:
        documents = _documents(job, found)
        return not more_pairs_would_help(*documents, policy=job.policy, workload=reference.name)

    if job.earlier and not rerun_would_help(
        job.earlier.base, job.earlier.head, policy=job.policy, workload=reference.name
    ):
        return
    measure_pairs(
        bench,
        reference,
        base=base,
        head=head,
        measured=found.pairs[-1],
        looks=job.policy.looks,
        round_number=job.earlier.next_round if job.earlier else 0,
        enough=enough,
        deadline=job.deadline,
    )


def _documents(job: _Job, measured: _Measured) -> tuple[RunDocument, RunDocument]:
    if job.earlier:
        return with_more_pairs(job.earlier, job.session, measured.pairs, head_folder=job.out / "head")
    base = put_together(
        job.config,
        session=job.session,
        source=job.sides.base_source,
        testbed=measured.testbeds[0],
        findings=measured.base,
        folder=job.out / "base",
        side="base",
        replicates=[replicate for pairs in measured.pairs for replicate in pairs.base],
    )
    head = put_together(
        job.config,
        session=job.session,
        source=job.sides.head_source,
        testbed=measured.testbeds[1],
        findings=measured.head,
        folder=job.out / "head",
        side="head",
        replicates=[replicate for pairs in measured.pairs for replicate in pairs.head],
        failed_pairs=[failed for pairs in measured.pairs for failed in pairs.failed],
    )
    environments = job.environments
    return (
        msgspec.structs.replace(base, environment=environments.base.record, harness=measured.harnesses[0]),
        msgspec.structs.replace(
            head,
            environment=environments.head.record,
            harness=measured.harnesses[1],
            warnings=[*environments.notes, *head.warnings],
        ),
    )


def _inside(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name
