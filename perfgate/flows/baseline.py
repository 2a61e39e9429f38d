"""``perfgate baseline``: keep runs of main, and show what is kept."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from perfgate.catalogue.lookup import METRICS
from perfgate.conductor.repository import Repository
from perfgate.config import Config
from perfgate.document.budget import parse_place
from perfgate.document.files import read_run
from perfgate.document.history import Acceptance
from perfgate.document.run import RunDocument
from perfgate.errors import EXIT_MEASURING, MeasuringError, RepositoryError, UsageError
from perfgate.flows.progress import Progress
from perfgate.flows.run import RunOptions, exit_code, run_here
from perfgate.flows.session import now
from perfgate.flows.store import open_project_store
from perfgate.judging.report.escape import clean
from perfgate.judging.store.store import StoredRun, store_location


@dataclass(frozen=True)
class Recorded:
    """What was kept, and where."""

    id: str
    store: str
    run: RunDocument


def record_file(config: Config, environ: Mapping[str, str], path: Path, *, allow_dirty: bool) -> Recorded:
    """Keep a run document that was measured before. Raises UsageError for one of another project."""
    run = read_run(path)
    if run.project != config.project:
        raise UsageError(
            f"{path} is a run of project {run.project!a}, and this is {config.project!a}; record it in its own "
            "project, or set `project` in perfgate.toml"
        )
    return _record(config, environ, run, allow_dirty=allow_dirty)


def record_measured(
    config: Config, environ: Mapping[str, str], options: RunOptions, progress: Progress, *, allow_dirty: bool
) -> Recorded:
    """Measure what stands in the project's folder and keep the run. Raises MeasuringError when a part of it failed."""
    if not allow_dirty:
        _refuse_changes(config)
    run = run_here(config, options, progress)
    if exit_code(run) == EXIT_MEASURING:
        raise MeasuringError(
            "a part of the checklist could not be measured, so the run is not kept; "
            f"{options.out / 'run.json'} says what failed"
        )
    return _record(config, environ, run, allow_dirty=allow_dirty)


def list_baseline(config: Config, environ: Mapping[str, str], *, limit: Optional[int] = None) -> list[StoredRun]:
    """Return the kept runs of the project, newest first."""
    return open_project_store(config, environ).runs(config.project, limit=limit)


def show_baseline(config: Config, environ: Mapping[str, str], run_id: str) -> RunDocument:
    """Return the document of a kept run."""
    return open_project_store(config, environ).show(run_id)


def prune_baseline(config: Config, environ: Mapping[str, str], *, keep: int) -> int:
    """Remove all but the newest ``keep`` runs of each testbed of the project; return how many went."""
    return open_project_store(config, environ).prune(config.project, keep=keep)


def accept_regression(
    config: Config, environ: Mapping[str, str], *, metric: str, reason: str, revision: str, accepted_by: Optional[str]
) -> Acceptance:
    """Record that a regression of one commit is meant. Raises UsageError for an unknown metric or an empty reason."""
    known = parse_place(metric).metric
    if not known.startswith(("ops.count:", "ops.time:")) and not fnmatch.filter(METRICS, known):
        close = difflib.get_close_matches(known, METRICS, n=1)
        raise UsageError(f"no metric {metric!a}{f'; did you mean {close[0]!a}?' if close else ''}")
    if not reason.strip():
        raise UsageError("say why the regression is meant: --reason TEXT; it stands in the comment and in the store")
    repository = Repository(config.root)
    acceptance = Acceptance(
        commit=repository.resolve(revision),
        metric=metric,
        reason=reason.strip(),
        accepted_by=accepted_by or repository.user(),
        accepted_at=now(),
    )
    open_project_store(config, environ).accept(config.project, acceptance)
    return acceptance


def list_accepted(config: Config, environ: Mapping[str, str]) -> list[Acceptance]:
    """Return every regression of the project that was accepted, newest first."""
    return open_project_store(config, environ).accepted(config.project)


def _refuse_changes(config: Config) -> None:
    """Refuse what the store would refuse after the measuring, before it."""
    try:
        changed = Repository(config.root).dirty_files()
    except RepositoryError:
        return
    if changed:
        raise UsageError(
            f"uncommitted changes, in {clean(', '.join(changed))}; commit them first, or keep the run on purpose with "
            "--allow-dirty"
        )


def _record(config: Config, environ: Mapping[str, str], run: RunDocument, *, allow_dirty: bool) -> Recorded:
    run_id = open_project_store(config, environ).record(run, allow_dirty=allow_dirty)
    return Recorded(id=run_id, store=store_location(config, environ), run=run)
