"""``perfgate check``, ``perfgate local`` and ``perfgate upgrade``: measure base and head side by side, decide, write it up."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from perfgate.conductor.code.reads import watch_reads
from perfgate.conductor.machine.lock import LOCK_SECONDS, lock_path, machine_lock
from perfgate.conductor.workers.bench import Checkout
from perfgate.conductor.workers.load_log import LoadLog
from perfgate.config import Config, MeasureSettings, load_config
from perfgate.document.artifact import CheckDocuments
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import write_document
from perfgate.document.history import write_history
from perfgate.document.run import RunDocument, Side
from perfgate.errors import UsageError
from perfgate.flows.check.coverage import CodeWatch
from perfgate.flows.check.environments import choose_environments
from perfgate.flows.check.measure import measure
from perfgate.flows.check.measured import Job, documents_of
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
from perfgate.measuring.devices.registry import refuse_unknown_kind

RESULTS = ("decision.json", "comment.md", "report.html", "history.json", "base/run.json", "head/run.json")


def check_change(directory: Path, options: CheckOptions, progress: Progress) -> DecisionDocument:
    """Measure the change against its base, decide, and write the folder: documents, comment, report, traces, logs.

    Raises RepositoryError or ConfigError before any measurement if the two sides cannot be determined.
    """
    deadline = time.monotonic() + options.time_budget
    project = project_of_change(directory, options)
    if project != directory:
        progress.note(sentence("measuring {project}, the only project that this change touches", project=project))
        directory = project
    repository = Repository(directory)
    prefix = repository.prefix(directory)
    # Read the configuration first, so that an invalid one is reported before a worktree is created.
    config = configuration_of(repository, directory, prefix, options)
    config.selected(options.workloads)
    refuse_unknown_kind(config.device)
    sides = choose_sides(repository, config, options)
    out = prepare_out(options.out)
    base_config = config_at(directory, sides.base.commit, None)
    if decision := skipped_decision(repository, config, base_config, sides, prefix, options):
        remove_results(out, RESULTS)
        write_skipped(out, decision, options.language)
        return decision
    purpose = f"perfgate check in {directory.resolve()}"
    with machine_lock(
        lock_path(), purpose=purpose, say=progress.note, timeout=min(LOCK_SECONDS, options.time_budget)
    ) as queued:
        earlier = _earlier(out, sides, config, options, progress)
        # Run documents that this check adds to stay until they are replaced.
        keep = earlier and options.append
        remove_results(out, [name for name in RESULTS if not (keep and name.endswith("run.json"))])
        # The session starts once we hold the machine, so the time spent waiting does not count.
        command = "upgrade" if options.comparing == "stack" else "local" if options.work_tree else "check"
        session = start_session(command, config.measure.seed, ci_context(os.environ), queued=queued)
        progress.status(sentence("checking out base and head"))
        # Base is measured with the head's workload files, from a checkout that the head does not use.
        harness = {} if options.comparing == "stack" else {"harness": sides.head}
        commits = {"base": sides.base.commit, "head": sides.head, **harness}
        own = _own_settings(base_config, config)
        links: dict[str, list[str]] = {side: _linked(settings, prefix) for side, settings in own.items()}
        with (
            repository.worktrees(commits, link={**links, "harness": links["head"]}) as trees,
            LoadLog() as loads,
        ):
            head_root = trees["head"] / prefix
            head_config = replace(load_config(head_root, device=options.device), project=config.project)
            config = _with_budgets(_with_rules_of_base(head_config, base_config, options), options.budgets)
            sides = with_code_changes(sides, repository, prefix, trees["base"] / prefix, head_root)
            # Before the access times are watched, because it reads the changed files.
            changed = changes_to_try(sides, repository, prefix, (base_config.config or config, config), trees, options)
            # Watch before sealing: watching sets access times, which a seal would report as a change.
            reading = {name: watch_reads(trees[name], repository.files(commit)) for name, commit in commits.items()}
            seals = seal_sides(repository, commits, trees, links, os.environ, loads, _results(config, prefix))
            environments = choose_environments(
                {"base": trees["base"] / prefix, "head": head_root},
                own,
                {"base": options.base_python, "head": options.head_python},
                seals=seals,
                code_of=lambda python: code_of(python, os.environ, repository.root),
                out=out,
                say=progress.status,
            )
            if options.comparing == "stack" and environments.base.python == environments.head.python:
                raise UsageError("both sides are the same interpreter; name that of the new stack with --python")
            code = CodeWatch(
                changed,
                trees,
                reading,
                python_path=_python_path(own, prefix),
                has_jobs=bool(config.selected_jobs(options.workloads)),
                is_measured_anyway=options.always,
            )
            job = Job(
                config, base_config, session, sides, out, earlier, environments, deadline, seals, code, head_config
            )
            measured = measure(
                job,
                base=Checkout(
                    trees["base"] / prefix,
                    harness=trees.get("harness", trees["base"]) / prefix,
                    python=environments.base.python,
                    measure=own["base"],
                ),
                head=Checkout(head_root, harness=head_root, python=environments.head.python, measure=own["head"]),
                options=options,
                progress=progress,
                history_of=lambda run: stored_history(
                    replace(config, root=directory), run, os.environ, warn=progress.status
                ),
            )
            # Base reads its workload files from the harness checkout.
            read = {name: list_reads() if list_reads else None for name, list_reads in reading.items()}
            reads = together(read["base"], read.get("harness")), read["head"]
        ended = replace(session, finished_at=now())
        finished = job._replace(session=ended, earlier=measured.added_to)
    base, head = (
        replace(run, warnings=[*run.warnings, *notes], files_read=together(run.files_read, files))
        for run, notes, files in zip(documents_of(finished, measured), measured.notes.values(), reads)
    )
    remember_reads(repository, (base, head))
    # The worktree that the configuration was read from is gone; locate the store from the clone.
    finished = finished._replace(config=replace(config, root=directory))
    return _judge(finished, base, head, measured.flames, options, progress)


def _python_path(own: Mapping[Side, MeasureSettings], prefix: str) -> dict[Side, list[str]]:
    """The folders that each side puts on Python's path, from the top of the repository."""
    top = prefix or "."
    return {
        side: [os.path.normpath(f"{top}/{folder}") for folder in settings.python_path] for side, settings in own.items()
    }


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


def _earlier(
    out: Path, sides: Sides, config: Config, options: CheckOptions, progress: Progress
) -> CheckDocuments | None:
    """The earlier result that this check adds to: the one in its own folder, or an earlier attempt of its CI job."""
    if options.append_from:
        return find_attempt(options.append_from, sides, config, options.workloads, say=progress.note)
    return find_earlier(out, base_commit=sides.base.commit, head_commit=sides.head) if options.append else None


def _with_budgets(config: Config, factor: float) -> Config:
    """The configuration with the time budgets of the pairs, and of the turns of every job, multiplied by ``factor``."""
    longer = {job.name: replace(job.settings, budget=factor * job.settings.budget) for job in config.jobs}
    gate = replace(config.gate, budget=factor * config.gate.budget)
    return replace(config, gate=gate, workloads={**config.workloads, **longer})


def _own_settings(base: BaseConfig, head: Config) -> dict[Side, MeasureSettings]:
    """How each side reads and installs what it needs; a base without settings is measured by the head's."""
    return {"base": (base.config or head).measure, "head": head.measure}


def _linked(settings: MeasureSettings, prefix: str) -> list[str]:
    """The linked paths of a side, which are relative to its perfgate.toml, from the top of the repository."""
    return [f"{prefix}/{entry}" if prefix else entry for entry in settings.link]


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
