"""``perfgate run``: the checklist on this machine, one run document."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfgate.catalogue.lookup import CARDS
from perfgate.conductor.machine.lock import lock_path, machine_lock
from perfgate.conductor.sides.checklist import run_checklist
from perfgate.conductor.workers.bench import Checkout, open_bench
from perfgate.config import Config
from perfgate.document.files import write_run
from perfgate.document.run import RunDocument, Source
from perfgate.errors import EXIT_FAIL, EXIT_MEASURING, EXIT_PASS, RepositoryError, UsageError
from perfgate.jobs.run.advisor import advise_run
from perfgate.jobs.shared.progress import Progress
from perfgate.jobs.shared.session import (
    ci_context,
    forget_results,
    forget_traces,
    job_notes,
    now,
    prepare_out,
    put_together,
    start_session,
)
from perfgate.jobs.trace.flame import with_flame_graph
from perfgate.locale import Language
from perfgate.measuring.checklist import step_numbers

AVAILABLE_STEPS = step_numbers()
# Three digits: a larger number is no step, and a range of it would fill the memory.
_STEP_RANGE = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")


@dataclass(frozen=True)
class RunOptions:
    """What the command line asks for; what people read is written in ``language``."""

    out: Path
    workloads: tuple[str, ...] = ()
    steps: tuple[int, ...] = AVAILABLE_STEPS
    quick: bool = False
    language: Language = "en"


def run_here(config: Config, options: RunOptions, progress: Progress) -> RunDocument:
    """Run the checklist on the code in the project's folder and write ``run.json`` with its traces and logs."""
    references = config.selected(options.workloads)
    out = prepare_out(options.out)
    source = _source(config.root)
    session = start_session("run", config.measure.seed, ci_context(os.environ))
    with machine_lock(lock_path(), purpose=f"perfgate run in {config.root.resolve()}", say=progress.note):
        forget_results(out, ("run.json",))
        forget_traces(out, [reference.name for reference in references])
        progress.status("starting")
        checkout = Checkout(root=config.root.resolve(), harness=config.root.resolve())
        with open_bench(config, logs=out / "logs", say=progress.status) as bench:
            testbed = bench.testbed()
            findings = [
                run_checklist(bench, checkout, reference, steps=options.steps, quick=options.quick, folder=out)
                for reference in references
            ]
    left = [*bench.leftover_notes(checkout.root), *bench.leftover_notes()]
    notes = [*job_notes(os.environ, out), *bench.cache_notes(), *left]
    run = put_together(
        config,
        session=msgspec.structs.replace(session, finished_at=now()),
        source=source,
        testbed=testbed,
        findings=findings,
        folder=out,
        notes=notes,
    )
    run = with_flame_graph(run, out, say=progress.status, language=options.language)
    advised = advise_run(run, out, progress.status)
    run = msgspec.structs.replace(run, advisories=advised.found, warnings=[*run.warnings, *advised.warnings])
    write_run(out / "run.json", run)
    return run


def exit_code(run: RunDocument) -> int:
    """Return the documented exit code: 4 when something could not be measured, 1 when a correctness check failed."""
    failed = any(step.status == "error" for step in run.steps) or any(workload.error for workload in run.workloads)
    if failed or any(check.status == "error" for check in run.correctness):
        return EXIT_MEASURING
    return EXIT_FAIL if any(check.status == "failed" for check in run.correctness) else EXIT_PASS


def parse_steps(text: str | None) -> tuple[int, ...]:
    """Read ``1,3-5`` or slugs; None means every step there is. Raises UsageError that lists the steps."""
    if text is None:
        return AVAILABLE_STEPS
    slugs = {card.slug: number for number, card in CARDS.items()}
    chosen: set[int] = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        bounds = _STEP_RANGE.fullmatch(word)
        if word in slugs:
            chosen.add(slugs[word])
        elif bounds:
            chosen.update(range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1))
        else:
            raise UsageError(
                f"--steps does not know {word!r}; write numbers, ranges or names, e.g. 1,3-5 or latency,batch"
            )
    missing = sorted(chosen - set(AVAILABLE_STEPS))
    if missing or not chosen:
        there = ", ".join(f"{number} {CARDS[number].slug}" for number in AVAILABLE_STEPS)
        raise UsageError(f"--steps: no step {', '.join(map(str, missing)) or 'named'}; there are {there}")
    return tuple(sorted(chosen))


def _source(root: Path) -> Source:
    from perfgate.git.repository import Repository

    try:
        repository = Repository(root)
        return repository.source(repository.head(), dirty=bool(repository.dirty_files()))
    except RepositoryError:
        return Source()
