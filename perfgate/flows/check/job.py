"""``perfgate check``, ``perfgate local`` and ``perfgate upgrade``: measure base and head side by side, decide, write it up."""

from __future__ import annotations

import os
import time
from pathlib import Path

from msgspec.structs import replace

from perfgate.conductor.code.reads import watch_reads
from perfgate.conductor.machine.lock import LOCK_SECONDS, lock_path, machine_lock
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.load_log import LoadLog
from perfgate.config import Config, load_config
from perfgate.document.artifact import CheckDocuments
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import write_document
from perfgate.document.history import write_history
from perfgate.document.run import RunDocument, Session
from perfgate.errors import UsageError
from perfgate.flows.check.change import Change, choose_change, skipped_decision
from perfgate.flows.check.coverage import CodeWatch
from perfgate.flows.check.environments import choose_environments
from perfgate.flows.check.measure import measure
from perfgate.flows.check.measured import Job, Measured, documents_of
from perfgate.flows.check.rerun import find_earlier
from perfgate.flows.check.sealing import code_of, seal_sides
from perfgate.flows.shared.decision import decide_with_advice, write_decision_folder, write_skipped
from perfgate.flows.shared.doors import Progress
from perfgate.flows.shared.flame import with_pair_flames
from perfgate.flows.shared.options import CheckOptions
from perfgate.flows.shared.reads import remember_reads, together
from perfgate.flows.shared.session import ci_context, now, prepare_out, remove_results, start_session, traces_of
from perfgate.flows.shared.store import stored_history
from perfgate.flows.trust.grounds import required_of
from perfgate.judging.gate.decide import decide
from perfgate.locale import sentence
from perfgate.measuring.devices.clock_lock import locked_clock

RESULTS = ("decision.json", "comment.md", "report.html", "history.json", "base/run.json", "head/run.json")


def check_change(directory: Path, options: CheckOptions, progress: Progress) -> DecisionDocument:
    """Measure the change against its base, decide, and write the folder: documents, comment, report, traces, logs.

    Raises RepositoryError or ConfigError before any measurement if the two sides cannot be determined.
    """
    deadline = time.monotonic() + options.time_budget
    change = choose_change(directory, options)
    if change.directory != directory:
        progress.note(
            sentence("measuring {project}, the only project that this change touches", project=change.directory)
        )
    out = prepare_out(options.out)
    if decision := skipped_decision(change, options):
        remove_results(out, RESULTS)
        write_skipped(out, decision, options.language)
        return decision
    purpose = f"perfgate check in {change.directory.resolve()}"
    patience = min(LOCK_SECONDS, options.time_budget)
    with machine_lock(lock_path(), purpose=purpose, say=progress.note, timeout=patience) as queued:
        earlier = find_earlier(change, options, out, say=progress.note)
        # Run documents that this check adds to stay until they are replaced.
        remove_results(out, [name for name in RESULTS if not (earlier and options.append and "run.json" in name)])
        # The session starts once we hold the machine, so the time spent waiting does not count.
        session = start_session(_command(options), change.config.measure.seed, ci_context(os.environ), queued=queued)
        with locked_clock(change.config.device, change.measure_settings["base"].lock_clocks, say=progress.note):
            job, measured, files_read = _measure_change(change, session, earlier, out, deadline, options, progress)
    base, head = _documents(job, measured, files_read)
    remember_reads(change.repository, (base, head))
    return _judge(job, measured, base, head, options, progress)


def _command(options: CheckOptions) -> str:
    if options.comparing == "stack":
        return "upgrade"
    return "local" if options.work_tree else "check"


def _measure_change(
    change: Change,
    session: Session,
    earlier: CheckDocuments | None,
    out: Path,
    deadline: float,
    options: CheckOptions,
    progress: Progress,
) -> tuple[Job, Measured, dict[str, list[str]]]:
    """Check out both sides and measure them; also return the files that were read of each checkout, if this is known."""
    progress.status(sentence("checking out base and head"))
    repository, links = change.repository, change.links
    commits = {"base": change.sides.base.commit, "head": change.sides.head}
    if options.comparing == "code":
        # Base is measured with the head's workload files, from a checkout that the head does not use.
        commits["harness"] = change.sides.head
    with repository.worktrees(commits, link=links) as trees, LoadLog() as loads:
        roots = {name: tree / change.prefix for name, tree in trees.items()}
        head_config = replace(load_config(roots["head"], device=options.device), project=change.config.project)
        config = _with_budgets(_with_rules_of_base(head_config, change.base_config.config, options), options.budgets)
        change = change.with_lines(roots["base"], roots["head"])
        # Before the access times are watched, because it reads the changed files.
        changed = change.files_to_try(trees, config, options)
        # Watch before sealing: watching sets access times, which a seal would report as a change.
        reading = {name: watch_reads(trees[name], repository.files(commit)) for name, commit in commits.items()}
        results = [change.path_of(job.settings.file) for job in config.jobs if job.settings.file]
        seals = seal_sides(repository, commits, trees, links, os.environ, loads, results)
        environments = choose_environments(
            {"base": roots["base"], "head": roots["head"]},
            change.measure_settings,
            {"base": options.base_python, "head": options.head_python},
            seals=seals,
            code_of=lambda python: code_of(python, os.environ, repository.root),
            out=out,
            say=progress.status,
        )
        base_python, head_python = environments.base.python, environments.head.python
        if options.comparing == "stack" and base_python == head_python:
            raise UsageError("both sides are the same interpreter; name the new stack's interpreter with --python")
        code = CodeWatch(
            changed,
            trees,
            reading,
            python_path=change.python_path,
            has_jobs=bool(config.selected_jobs(options.workloads)),
            is_measured_anyway=options.always,
        )
        job = Job(change, config, head_config, session, out, earlier, environments, deadline, seals, code)
        harness, settings = roots.get("harness", roots["base"]), change.measure_settings
        measured = measure(
            job,
            base=Checkout(roots["base"], harness=harness, python=base_python, measure=settings["base"]),
            head=Checkout(roots["head"], harness=roots["head"], python=head_python, measure=settings["head"]),
            options=options,
            progress=progress,
        )
        files_read = {name: list_reads() for name, list_reads in reading.items() if list_reads}
    return job, measured, files_read


def _documents(job: Job, measured: Measured, files_read: dict[str, list[str]]) -> tuple[RunDocument, RunDocument]:
    """The finished run documents of both sides."""
    finished = job._replace(session=replace(job.session, finished_at=now()), earlier=measured.added_to)
    base, head = documents_of(finished, measured)
    # Base reads its workload files from the harness checkout.
    of_base = together(base.files_read, files_read.get("base"), files_read.get("harness"))
    of_head = together(head.files_read, files_read.get("head"))
    return (
        replace(base, warnings=[*base.warnings, *measured.notes["base"]], files_read=of_base),
        replace(head, warnings=[*head.warnings, *measured.notes["head"]], files_read=of_head),
    )


def _judge(
    job: Job, measured: Measured, base: RunDocument, head: RunDocument, options: CheckOptions, progress: Progress
) -> DecisionDocument:
    """Decide and write the results folder."""
    out, change, flames = job.out, job.change, measured.flames
    history = stored_history(job.config_in_clone, head, os.environ, warn=progress.note)
    if history.series or history.accepted:
        write_history(out / "history.json", history)
    required = required_of(change.rules, base, os.environ, only=options.workloads)
    has_traces = traces_of(base) or traces_of(head)
    progress.status(sentence("drawing the flame graph") if flames or has_traces else sentence("deciding"))
    decision_to_draw = decide(base, head, policy=job.policy, history=history)
    head = with_pair_flames(base, head, flames, decision_to_draw, out, options.language)
    write_document(out / "base" / "run.json", base)
    write_document(out / "head" / "run.json", head)
    chosen_because = change.sides.base.because
    decision = decide_with_advice(
        base, head, policy=job.policy, history=history, chosen_because=chosen_because, required=required
    )
    write_decision_folder(out, decision, base, head, options.language)
    return decision


def _with_budgets(config: Config, factor: float) -> Config:
    """The configuration with the time budgets of the pairs, and of the turns of every job, multiplied by ``factor``."""
    longer = {job.name: replace(job.settings, budget=factor * job.settings.budget) for job in config.jobs}
    gate = replace(config.gate, budget=factor * config.gate.budget)
    return replace(config, gate=gate, workloads={**config.workloads, **longer})


def _with_rules_of_base(config: Config, base: Config | None, options: CheckOptions) -> Config:
    """The head's configuration with the rules of the base that judge it and with its way of measuring.

    The rules are the budgets, the expectations, the gating limits and how the gate decides, for which a change may ask for
    more time but not for less. What a side reads or installs is its own; the limits on its seconds and memory are the head's.
    """
    if base is None:
        return config
    measure, gate = config.measure, base.gate
    is_chosen = options.device or os.environ.get("PERFGATE_DEVICE")
    return replace(
        config,
        device=config.device if is_chosen else base.device,
        budget=base.budget,
        expect=base.expect,
        limits={**config.limits, **base.gating_limits},
        gate=replace(
            gate,
            budget=max(gate.budget, config.gate.budget),
            checklist_budget=max(gate.checklist_budget, config.gate.checklist_budget),
        ),
        measure=replace(
            base.measure,
            pass_env=[name for name in base.measure.pass_env if name in measure.pass_env],
            load_timeout=measure.load_timeout,
            step_timeout=measure.step_timeout,
            memory_limit=measure.memory_limit,
        ),
    )
