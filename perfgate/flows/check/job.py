"""``perfgate check``, ``perfgate local`` and ``perfgate upgrade``: measure base and head side by side, decide, write it up."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from perfgate.conductor.code.reads import watch_reads
from perfgate.conductor.machine.lock import LOCK_SECONDS, lock_path, machine_lock
from perfgate.conductor.workers.bench import Checkout
from perfgate.conductor.workers.load_log import LoadLog
from perfgate.conductor.workers.seals import Seals
from perfgate.config import Config, MeasureSettings, load_config
from perfgate.document.artifact import CheckDocuments
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import write_document
from perfgate.document.history import write_history
from perfgate.document.run import RunDocument, Session, Side
from perfgate.errors import UsageError
from perfgate.flows.check.coverage import CodeWatch
from perfgate.flows.check.environments import Environments, choose_environments
from perfgate.flows.check.measure import measure
from perfgate.flows.check.measured import Job, Measured, documents_of
from perfgate.flows.check.project import project_of_change
from perfgate.flows.check.rerun import find_attempt, find_earlier
from perfgate.flows.check.sealing import code_of, seal_sides
from perfgate.flows.check.sides import (
    Sides,
    changes_to_try,
    choose_sides,
    configuration_of,
    skipped_decision,
    with_code_changes,
)
from perfgate.flows.shared.decision import decide_with_advice, write_decision_folder, write_skipped
from perfgate.flows.shared.doors import Progress
from perfgate.flows.shared.flame import PairFlames, with_pair_flames
from perfgate.flows.shared.options import CheckOptions
from perfgate.flows.shared.reads import remember_reads, together
from perfgate.flows.shared.session import ci_context, now, prepare_out, remove_results, start_session
from perfgate.flows.shared.store import stored_history
from perfgate.flows.trust.commits import BaseConfig, config_at
from perfgate.flows.trust.grounds import required_of
from perfgate.git.repository import Repository
from perfgate.judging.gate.decide import decide
from perfgate.locale import sentence
from perfgate.measuring.devices.clock_lock import locked_clock
from perfgate.measuring.devices.registry import refuse_unknown_kind

# The files that base and head read while they were measured, None if the file system does not tell.
FilesRead = tuple[list[str] | None, list[str] | None]
RESULTS = ("decision.json", "comment.md", "report.html", "history.json", "base/run.json", "head/run.json")


def check_change(directory: Path, options: CheckOptions, progress: Progress) -> DecisionDocument:
    """Measure the change against its base, decide, and write the folder: documents, comment, report, traces, logs.

    Raises RepositoryError or ConfigError before any measurement if the two sides cannot be determined.
    """
    deadline = time.monotonic() + options.time_budget
    change = _choose_change(directory, options, progress)
    out = prepare_out(options.out)
    if decision := change.skipped(options):
        remove_results(out, RESULTS)
        write_skipped(out, decision, options.language)
        return decision
    purpose = f"perfgate check in {change.directory.resolve()}"
    patience = min(LOCK_SECONDS, options.time_budget)
    with machine_lock(lock_path(), purpose=purpose, say=progress.note, timeout=patience) as queued:
        earlier = _earlier(out, change, options, progress)
        _remove_earlier_results(out, keep_runs=bool(earlier and options.append))
        # The session starts once we hold the machine, so the time spent waiting does not count.
        session = start_session(_command(options), change.config.measure.seed, ci_context(os.environ), queued=queued)
        with locked_clock(change.config.device, change.own_settings["base"].lock_clocks, say=progress.note):
            job, measured, reads = _measure_change(change, session, earlier, out, deadline, options, progress)
    base, head = _documents(job, measured, reads)
    remember_reads(change.repository, (base, head))
    # The worktree that the configuration was read from is gone; locate the store from the clone.
    job = job._replace(config=replace(job.config, root=change.directory))
    return _judge(job, base, head, measured.flames, options, progress)


@dataclass(frozen=True)
class _Change:
    """A change to check: the project in its clone, both commits, and the settings of either."""

    directory: Path
    repository: Repository
    prefix: str
    config: Config
    base_config: BaseConfig
    sides: Sides

    def skipped(self, options: CheckOptions) -> DecisionDocument | None:
        return skipped_decision(self.repository, self.config, self.base_config, self.sides, self.prefix, options)

    @property
    def own_settings(self) -> dict[Side, MeasureSettings]:
        """How each side reads and installs what it needs; a base without settings is measured by the head's."""
        return {"base": (self.base_config.config or self.config).measure, "head": self.config.measure}

    @property
    def python_path(self) -> dict[Side, list[str]]:
        """The folders that each side puts on Python's path, from the top of the repository."""
        top = self.prefix or "."
        paths: dict[Side, list[str]] = {}
        for side, settings in self.own_settings.items():
            paths[side] = [os.path.normpath(f"{top}/{folder}") for folder in settings.python_path]
        return paths

    @property
    def links(self) -> dict[str, list[str]]:
        """The linked paths of each side, which are relative to its perfgate.toml, from the top of the repository."""
        links: dict[str, list[str]] = {}
        for side, settings in self.own_settings.items():
            links[side] = [f"{self.prefix}/{entry}" if self.prefix else entry for entry in settings.link]
        return links

    def commits(self, options: CheckOptions) -> dict[str, str]:
        """What is checked out. Base is measured with the head's workload files, from a checkout that the head does not use."""
        commits = {"base": self.sides.base.commit, "head": self.sides.head}
        return commits if options.comparing == "stack" else {**commits, "harness": self.sides.head}


def _choose_change(directory: Path, options: CheckOptions, progress: Progress) -> _Change:
    project = project_of_change(directory, options)
    if project != directory:
        progress.note(sentence("measuring {project}, the only project that this change touches", project=project))
    repository = Repository(project)
    prefix = repository.prefix(project)
    # Read the configuration first, so that an invalid one is reported before a worktree is created.
    config = configuration_of(repository, project, prefix, options)
    config.selected(options.workloads)
    refuse_unknown_kind(config.device)
    sides = choose_sides(repository, config, options)
    base_config = config_at(project, sides.base.commit, None)
    return _Change(project, repository, prefix, config, base_config, sides)


def _command(options: CheckOptions) -> str:
    if options.comparing == "stack":
        return "upgrade"
    return "local" if options.work_tree else "check"


def _remove_earlier_results(out: Path, *, keep_runs: bool) -> None:
    """Remove old results; run documents that this check adds to stay until they are replaced."""
    remove_results(out, [name for name in RESULTS if not (keep_runs and name.endswith("run.json"))])


def _measure_change(
    change: _Change,
    session: Session,
    earlier: CheckDocuments | None,
    out: Path,
    deadline: float,
    options: CheckOptions,
    progress: Progress,
) -> tuple[Job, Measured, FilesRead]:
    """Check out both sides and measure them; also return the files that either read."""
    progress.status(sentence("checking out base and head"))
    commits, links = change.commits(options), change.links
    links["harness"] = links["head"]
    with change.repository.worktrees(commits, link=links) as trees, LoadLog() as loads:
        base_root, head_root = trees["base"] / change.prefix, trees["head"] / change.prefix
        head_config = replace(load_config(head_root, device=options.device), project=change.config.project)
        config = _with_budgets(_with_rules_of_base(head_config, change.base_config, options), options.budgets)
        sides = with_code_changes(change.sides, change.repository, change.prefix, base_root, head_root)
        # Before the access times are watched, because it reads the changed files.
        rules = change.base_config.config or config
        changed = changes_to_try(sides, change.repository, change.prefix, (rules, config), trees, options)
        # Watch before sealing: watching sets access times, which a seal would report as a change.
        reading = {name: watch_reads(trees[name], change.repository.files(commit)) for name, commit in commits.items()}
        results = _results(config, change.prefix)
        seals = seal_sides(change.repository, commits, trees, links, os.environ, loads, results)
        environments = _environments(change, trees, seals, out, options, progress)
        code = CodeWatch(
            changed,
            trees,
            reading,
            python_path=change.python_path,
            has_jobs=bool(config.selected_jobs(options.workloads)),
            is_measured_anyway=options.always,
        )
        job = Job(
            config,
            change.base_config,
            session,
            sides,
            out,
            earlier,
            environments,
            deadline,
            seals,
            code,
            head_config,
        )
        base, head = _checkouts(change, trees, environments)
        clone = replace(config, root=change.directory)
        measured = measure(
            job,
            base=base,
            head=head,
            options=options,
            progress=progress,
            history_of=lambda run: stored_history(clone, run, os.environ, warn=progress.status),
        )
        read = {name: list_reads() for name, list_reads in reading.items() if list_reads}
    # Base reads its workload files from the harness checkout.
    return job, measured, (together(read.get("base"), read.get("harness")), read.get("head"))


def _environments(
    change: _Change, trees: Mapping[str, Path], seals: Seals, out: Path, options: CheckOptions, progress: Progress
) -> Environments:
    """The interpreters of both sides. Raises UsageError for an upgrade that names the one that runs."""
    root = change.repository.root
    environments = choose_environments(
        {"base": trees["base"] / change.prefix, "head": trees["head"] / change.prefix},
        change.own_settings,
        {"base": options.base_python, "head": options.head_python},
        seals=seals,
        code_of=lambda python: code_of(python, os.environ, root),
        out=out,
        say=progress.status,
    )
    if options.comparing == "stack" and environments.base.python == environments.head.python:
        raise UsageError("both sides are the same interpreter; name that of the new stack with --python")
    return environments


def _checkouts(change: _Change, trees: Mapping[str, Path], environments: Environments) -> tuple[Checkout, Checkout]:
    base, head = trees["base"] / change.prefix, trees["head"] / change.prefix
    harness = trees.get("harness", trees["base"]) / change.prefix
    own = change.own_settings
    return (
        Checkout(base, harness=harness, python=environments.base.python, measure=own["base"]),
        Checkout(head, harness=head, python=environments.head.python, measure=own["head"]),
    )


def _documents(job: Job, measured: Measured, reads: FilesRead) -> tuple[RunDocument, RunDocument]:
    """The finished run documents of both sides."""
    finished = job._replace(session=replace(job.session, finished_at=now()), earlier=measured.added_to)
    notes = measured.notes["base"], measured.notes["head"]
    base, head = (
        replace(run, warnings=[*run.warnings, *of_side], files_read=together(run.files_read, files))
        for run, of_side, files in zip(documents_of(finished, measured), notes, reads)
    )
    return base, head


def _results(config: Config, prefix: str) -> list[str]:
    """The files that jobs write their results to, relative to the repository."""
    return [os.path.normpath(f"{prefix or '.'}/{job.settings.file}") for job in config.jobs if job.settings.file]


def _judge(
    job: Job, base: RunDocument, head: RunDocument, flames: PairFlames, options: CheckOptions, progress: Progress
) -> DecisionDocument:
    """Decide and write the results folder."""
    out, root = job.out, job.config.root
    history = stored_history(job.config, head, os.environ, warn=progress.note)
    if history.series or history.accepted:
        write_history(out / "history.json", history)
    judging = replace(job.base_config.config or job.config, root=root)
    required = required_of(judging, base, os.environ, only=options.workloads)
    has_traces = any(artifact.kind == "trace" for run in (base, head) for artifact in run.artifacts)
    progress.status(sentence("drawing the flame graph") if flames or has_traces else sentence("deciding"))
    decision_to_draw = decide(base, head, policy=job.policy, history=history)
    head = with_pair_flames(base, head, flames, decision_to_draw, out, options.language)
    for side, run in (("base", base), ("head", head)):
        write_document(out / side / "run.json", run)
    decision = decide_with_advice(
        base, head, policy=job.policy, history=history, chosen_because=job.sides.base.because, required=required
    )
    write_decision_folder(out, decision, base, head, options.language)
    return decision


def _earlier(out: Path, change: _Change, options: CheckOptions, progress: Progress) -> CheckDocuments | None:
    """The earlier result that this check adds to: the one in its own folder, or an earlier attempt of its CI job."""
    sides = change.sides
    if options.append_from:
        return find_attempt(options.append_from, sides, change.config, options.workloads, say=progress.note)
    if not options.append:
        return None
    return find_earlier(out, base_commit=sides.base.commit, head_commit=sides.head)


def _with_budgets(config: Config, factor: float) -> Config:
    """The configuration with the time budgets of the pairs, and of the turns of every job, multiplied by ``factor``."""
    longer = {job.name: replace(job.settings, budget=factor * job.settings.budget) for job in config.jobs}
    gate = replace(config.gate, budget=factor * config.gate.budget)
    return replace(config, gate=gate, workloads={**config.workloads, **longer})


def _with_rules_of_base(config: Config, base: BaseConfig, options: CheckOptions) -> Config:
    """The head's configuration with the rules of the base that judge it and with its way of measuring.

    The rules are the budgets, the expectations, the gating limits and how the gate decides, for which a change may ask for
    more time but not for less. What a side reads or installs is its own; the limits on its seconds and memory are the head's.
    """
    if base.config is None:
        return config
    measure, gate = config.measure, base.config.gate
    asked = options.device or os.environ.get("PERFGATE_DEVICE")
    shared = [name for name in base.config.measure.pass_env if name in measure.pass_env]
    return replace(
        config,
        device=config.device if asked else base.config.device,
        budget=base.config.budget,
        expect=base.config.expect,
        limits={**config.limits, **base.config.gating_limits},
        gate=replace(
            gate,
            budget=max(gate.budget, config.gate.budget),
            checklist_budget=max(gate.checklist_budget, config.gate.checklist_budget),
        ),
        measure=replace(
            base.config.measure,
            pass_env=shared,
            load_timeout=measure.load_timeout,
            step_timeout=measure.step_timeout,
            memory_limit=measure.memory_limit,
        ),
    )
