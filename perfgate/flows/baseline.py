"""``perfgate baseline``: record runs of main, and list stored runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timezone
from pathlib import Path

from perfgate.catalogue.lookup import metric
from perfgate.config import Config
from perfgate.document.artifact import read_artifact_run
from perfgate.document.clocks import clock_difference_note, clock_notes
from perfgate.document.files import read_decision, read_run
from perfgate.document.history import Acceptance, StoredRun, Triage, TriageState
from perfgate.document.kept import set_of_run
from perfgate.document.message import Message
from perfgate.document.run import RunDocument
from perfgate.errors import (
    EXIT_MEASURING,
    DocumentError,
    ForgeError,
    InconclusiveError,
    MeasuringError,
    PerfgateError,
    RepositoryError,
    StoreError,
    StoreUnreachableError,
    UsageError,
)
from perfgate.flows.shared.artifacts import keep_artifacts, open_artifacts
from perfgate.flows.shared.ci_artifact import DEFAULT_KEY, fetch_artifact, with_traces
from perfgate.flows.shared.options import exit_code
from perfgate.flows.shared.results import USUAL_FOLDERS, newest_result
from perfgate.flows.shared.session import now
from perfgate.flows.shared.store import open_project_store, stored_history
from perfgate.flows.shared.triage import give_state
from perfgate.flows.shared.unsent import NONE_WAITED, PushedRuns, UnsentRuns, unsent_runs
from perfgate.flows.trust.acceptance import UnknownCauseError, metrics_of_causes, store_acceptances
from perfgate.flows.trust.main_only import refuse_change_request, refuse_foreign, refuse_off_main, trusted_event
from perfgate.git.repository import Repository
from perfgate.judging.forge.forge import CiEvent, Clock, Sleep, connect, find_token, token_variables
from perfgate.judging.forge.orders import cause_numbers
from perfgate.judging.gate.compare.stored import compare_stored
from perfgate.judging.report.render.comment import accepting_metrics
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.numbers import percent
from perfgate.judging.store.artifacts import KeptArtifacts
from perfgate.judging.store.runs import prune_runs, record_run, refuse_unfit, stored_run, stored_runs
from perfgate.judging.store.store import SERVICE_SCHEMES, Page, is_shared, shown_location, store_location
from perfgate.locale import Activity

DECISION = "decision.json"
SLACK = 20
# As git abbreviates a commit at least.
_FEWEST_DIGITS = 4
_WORSE = {"lower": "above", "higher": "below"}


@dataclass(frozen=True)
class RecordedRun:
    """A run that was stored. ``suspected`` are the places that are slower than in main's earlier runs.

    ``removed`` is the number of old runs that were pruned to make room; ``clocks`` are notes about wrong clocks. ``kept`` are
    its artifacts, None if there are none or the project keeps none; ``not_kept`` is the error that kept them out. ``pushed``
    are earlier runs that had waited for the service.
    """

    id: str
    store: str
    run: RunDocument
    suspected: tuple[str, ...] = ()
    removed: int = 0
    clocks: tuple[Message, ...] = ()
    kept: KeptArtifacts | None = None
    not_kept: PerfgateError | None = None
    pushed: PushedRuns = NONE_WAITED


def record_file(config: Config, environ: Mapping[str, str], path: Path, *, allow_dirty: bool) -> RecordedRun:
    """Keep an existing run document. Raises UsageError for one of another project.

    In a CI job, a shared store accepts only runs of main measured by the same pipeline.
    """
    event = _trusted_event(config, environ)
    run = read_run(path)
    if event is not None:
        refuse_foreign(run, event)
        refuse_failed(run)
    return keep(config, environ, run, [path.parent], allow_dirty=allow_dirty)


def keep(
    config: Config,
    environ: Mapping[str, str],
    run: RunDocument,
    sources: Iterable[Path | bytes],
    *,
    allow_dirty: bool,
) -> RecordedRun:
    """Keep a run of this project, and its artifacts from the folders or zips. Raises UsageError for one of another project.

    A run that is slower than main's earlier ones is kept too, for the trend; the level leaves it out until it is accepted.
    """
    if run.project != config.project:
        raise UsageError(
            "this is a run of project {project!a}, and this is {own!a}; record it in its own project, "
            "or set `project` in perfgate.toml",
            project=run.project,
            own=config.project,
        )
    location = store_location(config, environ)
    unsent = unsent_runs(location, config.project, environ)
    try:
        return _keep_now(config, environ, run, sources, unsent, allow_dirty=allow_dirty)
    except StoreUnreachableError as error:
        if unsent is None:
            raise
        refuse_unfit(run, allow_dirty=allow_dirty, now=datetime.now(timezone.utc))
        raise StoreUnreachableError(
            "{error}. The run waits in {path}: the next `perfgate baseline record` on this machine sends it, or "
            "`perfgate store push`",
            error=error,
            path=unsent.add(run),
        ) from error


def _keep_now(
    config: Config,
    environ: Mapping[str, str],
    run: RunDocument,
    sources: Iterable[Path | bytes],
    unsent: UnsentRuns | None,
    *,
    allow_dirty: bool,
) -> RecordedRun:
    """Keep a run and its artifacts, after those that wait for the service."""
    store = open_project_store(config, environ)
    pushed = unsent.push(store) if unsent is not None else NONE_WAITED
    suspected = _suspected(config, environ, run)
    run_id = record_run(store, run, allow_dirty=allow_dirty)
    location = store_location(config, environ)
    removed, most = 0, config.store.keep
    if most and not location.startswith(SERVICE_SCHEMES):
        # Not before the limit is clearly exceeded: each removal rewrites a branch store from scratch.
        stored = len(stored_runs(store, config.project, Page(testbed=run.testbed.fingerprint)))
        if stored > most + most // SLACK:
            removed = prune_runs(store, config.project, keep=most)
    there = datetime.now(timezone.utc) + store.clock_ahead()
    recorded = RecordedRun(
        id=run_id,
        store=shown_location(location),
        run=run,
        suspected=suspected,
        removed=removed,
        clocks=(*clock_notes(run, there.isoformat()), *clock_difference_note(store.clock_ahead())),
        pushed=pushed,
    )
    return _with_artifacts(recorded, config, environ, sources)


def _with_artifacts(
    recorded: RecordedRun, config: Config, environ: Mapping[str, str], sources: Iterable[Path | bytes]
) -> RecordedRun:
    """The record of a stored run with its artifacts, or the error that lost them; the run stays stored."""
    artifacts = set_of_run(recorded.run, recorded.id, now())
    store = open_artifacts(config, environ)
    if store is None or not artifacts.files:
        return recorded
    try:
        return replace(recorded, kept=keep_artifacts(store, artifacts, sources, lambda *_: None))
    except (StoreError, DocumentError, ForgeError) as error:
        return replace(recorded, not_kept=error)


def refuse_failed(run: RunDocument, where: str = "its log") -> None:
    """Raise MeasuringError if a part of the run could not be measured."""
    if exit_code(run) == EXIT_MEASURING:
        raise MeasuringError(
            "a part of the checklist could not be measured, so the run is not kept; see {where}",
            where=where,
        )


def record_measured(
    config: Config, environ: Mapping[str, str], measure: Callable[[], RunDocument], out: Path, *, allow_dirty: bool
) -> RecordedRun:
    """Measure with ``measure``, which writes to ``out``, and keep the run.

    Raises MeasuringError when a part of it failed.
    """
    _trusted_event(config, environ)
    if not allow_dirty:
        _refuse_changes(config)
    run = measure()
    refuse_failed(run, str(out / "run.json"))
    return keep(config, environ, run, [out], allow_dirty=allow_dirty)


def list_baseline(
    config: Config, environ: Mapping[str, str], *, limit: int | None = None, before: str | None = None
) -> tuple[list[StoredRun], list[str]]:
    """The runs of the project, newest first, and a line for each unreadable one.

    With ``before``, the beginning of an id, the runs that follow that one. Raises UnknownRunError if the project has no
    such run.
    """
    store = open_project_store(config, environ)
    if before is not None:
        before = store.documents(config.project, [before])[0].id
    page = Page(limit=limit, before=before)
    return stored_runs(store, config.project, page), store.damaged(config.project)


def show_baseline(config: Config, environ: Mapping[str, str], run_id: str) -> RunDocument:
    return stored_run(open_project_store(config, environ), config.project, run_id)


def accept_regressions(
    config: Config,
    environ: Mapping[str, str],
    *,
    metrics: Iterable[str],
    reason: str,
    revision: str,
    accepted_by: str | None,
    folder: Path | None = None,
    until: date | None = None,
) -> list[Acceptance]:
    """Accept regressions of one commit: of metrics, or of causes by their numbers in a check of that commit.

    The default of ``folder`` is the newest check. Raises UsageError for an unknown metric or cause, an empty reason, or a day
    in the past.
    """
    if _is_shared(config, environ):
        refuse_change_request(environ)
    repository, named = Repository(config.root), tuple(metrics)
    commit = repository.resolve(revision)
    if numbers := cause_numbers(named):
        named = _metrics_of(numbers, commit, folder, config)
    elif folder is not None:
        raise UsageError(
            "--from {folder} is for numbers of causes, and {named!a} is none; leave it out",
            folder=folder,
            named=named[0],
        )
    return store_acceptances(
        config,
        environ,
        commit=commit,
        metrics=named,
        reason=reason,
        accepted_by=accepted_by or repository.user(),
        until=until,
    )


def _metrics_of(numbers: tuple[int, ...], commit: str, folder: Path | None, config: Config) -> tuple[str, ...]:
    """The metrics of the numbered causes of a check of this commit."""
    file = folder / DECISION if folder else newest_result([DECISION], config.root)
    instead = Activity("name the folder of its check with --from, or the metrics instead of numbers")
    if file is None:
        raise UsageError(
            "{usual_folders} hold no decision that numbers causes; {instead}",
            usual_folders=" and ".join(map(str, USUAL_FOLDERS)),
            instead=instead,
        )
    decision = read_decision(file)
    if commit not in (decision.head.reviewed, decision.head.commit):
        other = (decision.head.reviewed or decision.head.commit or "no commit")[:12]
        raise UsageError(
            "{file} is about {other}, not about {commit}; measure that, {instead}",
            file=file,
            other=other,
            commit=commit[:12],
            instead=instead,
        )
    try:
        return metrics_of_causes(numbers, accepting_metrics(decision))
    except UnknownCauseError as error:
        raise UsageError(
            "{file}: {error}; its comment numbers those that can",
            file=file,
            error=error,
        ) from error


def list_accepted(config: Config, environ: Mapping[str, str]) -> list[Acceptance]:
    """Every accepted regression of the project, newest first."""
    return open_project_store(config, environ).entries(config.project, Acceptance)


def triage_regression(
    config: Config, environ: Mapping[str, str], *, revision: str, state: TriageState, reason: str, author: str | None
) -> Triage:
    """Give the regressions of main that began with a commit a state.

    The commit may be one of a stored run, by its first digits, as reports print it; a clone is then not needed. Raises
    UsageError for a revision that is neither this nor one of the clone, and without a reason.
    """
    if _is_shared(config, environ):
        refuse_change_request(environ)
    store = open_project_store(config, environ)
    commit = _commit_of_main(revision, stored_runs(store, config.project), config.root)
    author = author or Repository(config.root).user()
    return give_state(store, config.project, commit=commit, state=state, reason=reason, author=author)


def list_triages(config: Config, environ: Mapping[str, str]) -> list[Triage]:
    """The states of the project's regressions, newest first."""
    return open_project_store(config, environ).entries(config.project, Triage)


def _commit_of_main(revision: str, runs: Iterable[StoredRun], root: Path) -> str:
    known = {run.commit for run in runs if run.commit and run.commit.startswith(revision.lower())}
    if len(known) == 1 and len(revision) >= _FEWEST_DIGITS:
        return known.pop()
    try:
        return Repository(root).resolve(revision)
    except RepositoryError as error:
        raise UsageError(
            "no stored run of main is of commit {revision!a}, nor is it one of this clone: {error}",
            revision=revision,
            error=error,
        ) from error


def _is_shared(config: Config, environ: Mapping[str, str]) -> bool:
    return is_shared(store_location(config, environ))


def _trusted_event(config: Config, environ: Mapping[str, str]) -> CiEvent | None:
    return trusted_event(config, environ) if _is_shared(config, environ) else None


def _suspected(config: Config, environ: Mapping[str, str], run: RunDocument) -> tuple[str, ...]:
    history = stored_history(config, run, environ, warn=lambda _: None)  # `baseline list` names unreadable runs
    return tuple(
        f"{beside.metric} of {beside.workload}/{beside.shape} ({percent(beside.head / beside.typical - 1)})"
        for beside in compare_stored(run, history)
        if beside.typical and beside.outside is not None
        if beside.outside == _WORSE.get(metric(beside.metric).better)
    )


def _refuse_changes(config: Config) -> None:
    """Refuse uncommitted changes before measuring; the store would refuse them only afterwards."""
    try:
        repository = Repository(config.root)
    except RepositoryError:
        return
    if changed := repository.dirty_files():
        raise UsageError(
            "uncommitted changes, in {files}; commit them first, or keep the run on purpose with --allow-dirty",
            files=clean(", ".join(changed)),
        )


def record_artifact(
    config: Config,
    environ: Mapping[str, str],
    path: Path | None,
    *,
    key: str = DEFAULT_KEY,
    token_variable: str | None = None,
    sleep: Sleep,
    clock: Clock,
) -> RecordedRun:
    """Keep the run in an artifact of this event's pipeline: the folder or zip at ``path``, or the forge's of gate ``key``.

    Raises UsageError in a job that may not write to the store, InconclusiveError for an artifact that is missing, damaged or of
    another run, MeasuringError if a part of it could not be measured.
    """
    event = trusted_event(config, environ)
    if event is None:
        raise UsageError(
            "only a CI job can store an artifact, because it knows its origin; elsewhere `perfgate baseline record "
            "--run FILE` stores a run document"
        )
    token = find_token(event.forge, environ, token_variable)
    if token is None and path is None:
        raise UsageError(
            "no token in {names} to download the artifact with; pass it on to this job",
            names=" or ".join(token_variables(event.forge, token_variable)),
        )
    forge = connect(event, token, sleep=sleep, clock=clock) if token else None
    refuse_off_main(config, environ, event, forge)
    try:
        artifact: Path | bytes | None = path
        if artifact is None:
            assert forge is not None, "a token was required to get here"
            artifact = fetch_artifact(forge, event, key)
        run = read_artifact_run(artifact)
    except DocumentError as error:
        raise InconclusiveError(
            "artifact: {error}; nothing is kept",
            error=error,
        ) from error
    refuse_foreign(run, event)
    refuse_failed(run, "the log of the measuring job")
    return keep(config, environ, run, with_traces(artifact, forge, event, key), allow_dirty=False)
