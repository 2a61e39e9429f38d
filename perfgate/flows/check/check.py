"""``perfgate check``, ``perfgate local`` and ``perfgate upgrade``: measure base and
head side by side, decide, write it up.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from perfgate.conductor.machine.lock import LOCK_SECONDS, lock_path, machine_lock
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import write_document
from perfgate.document.history import write_history
from perfgate.document.message import Message
from perfgate.document.run import RunDocument
from perfgate.flows.check.change import choose_change, skipped_decision
from perfgate.flows.check.measure import measure
from perfgate.flows.check.measured import Job, Measured, documents_of
from perfgate.flows.check.opening import open_job
from perfgate.flows.check.rerun import find_earlier
from perfgate.flows.shared.decision import (
    decide_with_advice,
    write_decision_folder,
    write_skipped,
)
from perfgate.flows.shared.doors import Progress
from perfgate.flows.shared.flame import with_pair_flames
from perfgate.flows.shared.options import CheckOptions
from perfgate.flows.shared.reads import remember_reads, together
from perfgate.flows.shared.session import (
    ci_context,
    now,
    prepare_out,
    remove_results,
    start_session,
)
from perfgate.flows.shared.store import stored_history
from perfgate.flows.trust.grounds import required_of
from perfgate.judging.gate.decide import decide
from perfgate.locale import sentence
from perfgate.measuring.devices.clock_lock import locked_clock

RESULTS_OF_DECISION = ("decision.json", "comment.md", "report.html", "history.json")
RUN_DOCUMENTS = ("base/run.json", "head/run.json")


def check_change(
    directory: Path, options: CheckOptions, progress: Progress
) -> DecisionDocument:
    """Measure the change against its base, decide, and write the folder: documents,
    comment, report, traces, logs.

    Raises RepositoryError or ConfigError before any measurement if the two sides cannot
    be determined.
    """
    deadline = time.monotonic() + options.time_budget
    change = choose_change(directory, options)
    if change.directory != directory:
        progress.note(
            sentence(
                "measuring {project}, the only project that this change touches",
                project=change.directory,
            )
        )
    options = dataclasses.replace(options, out=prepare_out(options.out))
    if decision := skipped_decision(change):
        remove_results(options.out, (*RESULTS_OF_DECISION, *RUN_DOCUMENTS))
        write_skipped(options.out, decision, options.language)
        return decision
    purpose = f"perfgate check in {change.directory.resolve()}"
    patience = min(LOCK_SECONDS, options.time_budget)
    with machine_lock(
        lock_path(), purpose=purpose, say=progress.note, timeout=patience
    ) as queued:
        earlier, adds_here = None, False
        if options.append_from:
            earlier = find_earlier(options.append_from, change, progress.note)
            adds_here = options.append_from.resolve() == options.out
        remove_results(options.out, RESULTS_OF_DECISION)
        # Run documents that this check adds to stay until they are replaced.
        if not (earlier and adds_here):
            remove_results(options.out, RUN_DOCUMENTS)
        # The session starts once we hold the machine, so the time spent waiting does
        # not count.
        seed = change.config.measure.seed
        session = start_session(
            options.command, seed, ci_context(os.environ), queued=queued
        )
        lock_clocks = change.measure_settings["base"].lock_clocks
        with (
            locked_clock(change.config.device, lock_clocks, say=progress.note),
            open_job(options, change, session, deadline, progress.status) as job,
        ):
            measured = measure(job, earlier, progress)
            files_read = job.code.files_read()
    base, head = _documents(job, measured, files_read)
    remember_reads(change.repository, (base, head))
    return _judge(job, measured, base, head, progress)


def _documents(
    job: Job, measured: Measured, files_read: Mapping[str, list[str]]
) -> tuple[RunDocument, RunDocument]:
    """The finished run documents of both sides."""
    finished = job._replace(session=replace(job.session, finished_at=now()))
    base, head = documents_of(finished, measured)
    # Base reads its workload files from the harness checkout.
    of_base = [files_read.get("base"), files_read.get("harness")]
    of_head = [files_read.get("head")]
    return (
        _with_reads(base, measured.notes["base"], of_base),
        _with_reads(head, measured.notes["head"], of_head),
    )


def _with_reads(
    run: RunDocument, notes: list[Message], reads: list[list[str] | None]
) -> RunDocument:
    files_read = together(run.source.files_read, *reads)
    return replace(
        run,
        warnings=[*run.warnings, *notes],
        source=replace(run.source, files_read=files_read),
    )


def _judge(
    job: Job,
    measured: Measured,
    base: RunDocument,
    head: RunDocument,
    progress: Progress,
) -> DecisionDocument:
    """Decide and write the results folder."""
    out = job.out
    change = job.change
    flames = measured.flames
    language = job.options.language
    history = stored_history(job.config_in_clone, head, os.environ, warn=progress.note)
    if history.series or history.accepted:
        write_history(out / "history.json", history)
    required = required_of(change.rules, base, os.environ, only=job.options.workloads)
    has_traces = base.traces or head.traces
    progress.status(
        sentence("drawing the flame graph")
        if flames or has_traces
        else sentence("deciding")
    )
    decision_to_draw = decide(base, head, policy=job.policy, history=history)
    head = with_pair_flames(base, head, flames, decision_to_draw, out, language)
    write_document(out / "base" / "run.json", base)
    write_document(out / "head" / "run.json", head)
    chosen_because = change.sides.base.because
    decision = decide_with_advice(
        base,
        head,
        policy=job.policy,
        history=history,
        chosen_because=chosen_because,
        required=required,
    )
    write_decision_folder(out, decision, base, head, language)
    return decision
