"""``perfgate baseline``: record runs of main, and list stored runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timezone
from pathlib import Path

from perfgate.catalogue.lookup import metric
from perfgate.config import Config
from perfgate.document.artifact import read_artifact_run
from perfgate.document.clocks import clock_difference_note, clock_notes
from perfgate.document.files import read_decision, read_run
from perfgate.document.history import Acceptance, Triage, TriageState
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
    UnfitRunError,
    UsageError,
)
from perfgate.flows.shared.artifacts import keep_artifacts, open_artifacts
from perfgate.flows.shared.ci_artifact import DEFAULT_KEY, fetch_artifact, with_traces
from perfgate.flows.shared.doors import Doors
from perfgate.flows.shared.options import exit_code
from perfgate.flows.shared.results import USUAL_FOLDERS, newest_result
from perfgate.flows.shared.session import now
from perfgate.flows.shared.store import open_project_store, read_history
from perfgate.flows.shared.unsent import (
    NONE_WAITED,
    PushedRuns,
    UnsentRuns,
    unsent_runs,
)
from perfgate.flows.trust.acceptance import (
    UnknownCauseError,
    give_state,
    metrics_of_causes,
    store_acceptances,
)
from perfgate.flows.trust.provenance import (
    refuse_change_request,
    refuse_foreign,
    refuse_off_main,
    trusted_event,
)
from perfgate.git.repository import Repository
from perfgate.judging.forge.forge import token_variables
from perfgate.judging.forge.orders import cause_numbers
from perfgate.judging.gate.compare.stored import compare_stored
from perfgate.judging.gate.evidence.checklist import numbers_of_head
from perfgate.judging.report.render.comment import accepting_metrics
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.numbers import percent
from perfgate.judging.store.artifacts import KeptArtifacts
from perfgate.judging.store.runs import (
    prune_runs,
    record_run,
    refuse_unfit,
    stored_runs,
)
from perfgate.judging.store.store import (
    SERVICE_SCHEMES,
    Page,
    Store,
    is_shared,
    shown_location,
    store_location,
)
from perfgate.locale import Activity

DECISION = "decision.json"
SLACK = 20
# As git abbreviates a commit at least.
_FEWEST_DIGITS = 4
_WORSE = {"lower": "above", "higher": "below"}


@dataclass(frozen=True)
class BaselineRequest:
    """The options of ``perfgate baseline record``.

    The run comes from the document ``run_file``, or from the CI job's ``artifact``,
    which ``download`` fetches from the forge for the gate ``key``. Without any of these
    it is measured into ``out``, ``quick`` or at full length.
    """

    out: Path
    run_file: Path | None = None
    artifact: Path | None = None
    download: bool = False
    key: str = DEFAULT_KEY
    allow_dirty: bool = False
    quick: bool = True


@dataclass(frozen=True)
class RecordedRun:
    """A run that was stored.

    ``suspected`` are the places that are slower than in main's earlier runs.

    ``removed`` is the number of old runs that were pruned to make room; ``clocks`` are
    notes about wrong clocks. ``kept`` are its artifacts, None if there are none or the
    project keeps none; ``not_kept`` is the error that kept them out. ``pushed`` are
    earlier runs that had waited for the service.
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


def record(
    request: BaselineRequest,
    config: Config,
    doors: Doors,
    measure: Callable[[], RunDocument],
) -> RecordedRun:
    """Take or ``measure`` a run of main, and store it with its artifacts.

    In a CI job, a shared store accepts only runs of main measured by the same pipeline.
    Raises UsageError in a job that may not write to the store, InconclusiveError for an
    artifact that is missing, damaged or of another run, and MeasuringError if a part of
    the run could not be measured.
    """
    if request.artifact is not None or request.download:
        return _record_artifact(request, config, doors)
    event = None
    if is_shared(store_location(config, doors.environ)):
        event = trusted_event(config, doors.environ)
    if request.run_file is None:
        if not request.allow_dirty:
            # The store would refuse uncommitted changes only after measuring.
            repository = None
            with suppress(RepositoryError):
                repository = Repository(config.root)
            if repository and (changed := repository.dirty_files()):
                raise UsageError(
                    "uncommitted changes, in {files}; commit them first, or keep the run on purpose with --allow-dirty",
                    files=clean(", ".join(changed)),
                )
        run, folder = measure(), request.out
        _refuse_failed(run, str(request.out / "run.json"))
    else:
        run, folder = read_run(request.run_file), request.run_file.parent
        if event is not None:
            refuse_foreign(run, event)
            _refuse_failed(run, "its log")
    return keep(config, doors.environ, run, [folder], allow_dirty=request.allow_dirty)


def _record_artifact(
    request: BaselineRequest, config: Config, doors: Doors
) -> RecordedRun:
    """Store the run in an artifact of this event's pipeline: a folder or zip, or the
    forge's.
    """
    event = trusted_event(config, doors.environ)
    if event is None:
        raise UsageError(
            "only a CI job can store an artifact, because it knows its origin; elsewhere `perfgate baseline record "
            "--run FILE` stores a run document"
        )
    forge = doors.connect(event)
    if forge is None and request.artifact is None:
        raise UsageError(
            "no token in {names} to download the artifact with; pass it on to this job",
            names=" or ".join(token_variables(event.forge)),
        )
    refuse_off_main(config, doors.environ, event, forge)
    try:
        artifact: Path | bytes | None = request.artifact
        if artifact is None:
            assert forge is not None, "a token was required to get here"
            artifact = fetch_artifact(forge, event, request.key)
        run = read_artifact_run(artifact)
    except DocumentError as error:
        raise InconclusiveError(
            "artifact: {error}; nothing is kept", error=error
        ) from error
    refuse_foreign(run, event)
    _refuse_failed(run, "the log of the measuring job")
    sources = with_traces(artifact, forge, event, request.key)
    return keep(config, doors.environ, run, sources, allow_dirty=False)


def keep(
    config: Config,
    environ: Mapping[str, str],
    run: RunDocument,
    sources: Iterable[Path | bytes],
    *,
    allow_dirty: bool,
) -> RecordedRun:
    """Keep a run of this project, and its artifacts from the folders or zips.

    Raises UsageError for one of another project.

    A run that is slower than main's earlier runs is kept too, for the trend; the level
    leaves it out until it is accepted.
    """
    if run.project != config.project:
        raise UsageError(
            "this is a run of project {project!a}, and this is {own!a}; record it in its own project, "
            "or set `project` in perfgate.toml",
            project=run.project,
            own=config.project,
        )
    unsent = unsent_runs(store_location(config, environ), config.project, environ)
    try:
        return _keep_now(config, environ, run, sources, unsent, allow_dirty=allow_dirty)
    except StoreUnreachableError as error:
        if unsent is None:
            raise
        refuse_unfit(run, allow_dirty=allow_dirty, now=datetime.now(timezone.utc))
        try:
            path = unsent.add(run)
        except (OSError, PerfgateError):
            # The document itself stays where it was measured.
            raise error from None
        raise StoreUnreachableError(
            "{error}. The run waits in {path}: the next `perfgate baseline record` on this machine sends it, or "
            "`perfgate store push`",
            error=error,
            path=path,
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
    """Keep a run and its artifacts, after the runs that wait for the service."""
    store = open_project_store(config, environ)
    location = store_location(config, environ)
    pushed = NONE_WAITED
    if unsent is not None:
        pushed = unsent.push(store)
    suspected = _suspected(config, environ, run)
    run_id = record_run(store, run, allow_dirty=allow_dirty)
    ahead = store.clock_ahead()
    there = datetime.now(timezone.utc) + ahead
    recorded = RecordedRun(
        id=run_id,
        store=shown_location(location),
        run=run,
        suspected=suspected,
        removed=0
        if location.startswith(SERVICE_SCHEMES)
        else _remove_oldest(store, config, run, run_id),
        clocks=(*clock_notes(run, there.isoformat()), *clock_difference_note(ahead)),
        pushed=pushed,
    )
    artifacts = set_of_run(run, run_id, now())
    artifact_store = open_artifacts(config, environ)
    if artifact_store is None or not artifacts.files:
        return recorded
    try:
        return replace(
            recorded,
            kept=keep_artifacts(artifact_store, artifacts, sources, lambda *_: None),
        )
    except (StoreError, DocumentError, ForgeError) as error:  # the run stays stored
        return replace(recorded, not_kept=error)


def _remove_oldest(store: Store, config: Config, run: RunDocument, run_id: str) -> int:
    """Remove the oldest runs above the project's limit; return how many.

    Not before the limit is clearly exceeded: each removal rewrites a branch store from
    scratch. Raises UnfitRunError if the new run is one of the oldest.
    """
    most = config.store.keep
    if not most:
        return 0
    stored = stored_runs(store, config.project, Page(testbed=run.testbed.fingerprint))
    if len(stored) <= most + most // SLACK:
        return 0
    if any(entry.id == run_id for entry in stored[most:]):
        store.remove(config.project, [run_id])
        raise UnfitRunError(
            "this run is dated {started_at}, before the newest {keep} runs of its testbed, and [store] keep leaves no others; "
            "it is not kept: set the measuring machine's clock and measure again, or raise keep",
            started_at=run.session.started_at,
            keep=most,
        )
    return prune_runs(store, config.project, keep=most)


def _refuse_failed(run: RunDocument, where: str) -> None:
    """Raise MeasuringError if a part of the run could not be measured."""
    if exit_code(run) == EXIT_MEASURING:
        raise MeasuringError(
            "a part of the checklist could not be measured, so the run is not kept; see {where}",
            where=where,
        )


def _suspected(
    config: Config, environ: Mapping[str, str], run: RunDocument
) -> tuple[str, ...]:
    """The numbers of a run that are worse than main's level; none if the store cannot
    be read.

    Raises StoreUnreachableError, because recording the run would wait as long for the
    same server.
    """
    try:
        history = read_history(
            config, run, environ, warn=lambda _: None
        )  # `baseline list` names unreadable runs
    except StoreUnreachableError:
        raise
    except StoreError:
        return ()
    places: list[str] = []
    for compared in compare_stored(numbers_of_head(run), history):
        is_worse = compared.outside is not None and compared.outside == _WORSE.get(
            metric(compared.metric).better
        )
        if compared.typical and is_worse:
            difference = percent(compared.head / compared.typical - 1)
            places.append(
                f"{compared.metric} of {compared.workload}/{compared.shape} ({difference})"
            )
    return tuple(places)


def accept_regressions(
    config: Config,
    environ: Mapping[str, str],
    *,
    metrics: Iterable[str],
    reason: str,
    revision: str,
    accepted_by: str | None,
    folder: Path | None,
    until: date | None,
) -> list[Acceptance]:
    """Accept regressions of one commit: of metrics, or of causes by their numbers in a
    check of that commit.

    The default of ``folder`` is the newest check. Raises UsageError for an unknown
    metric or cause, an empty reason, or a day in the past.
    """
    if is_shared(store_location(config, environ)):
        refuse_change_request(environ)
    repository, accepted = Repository(config.root), tuple(metrics)
    commit = repository.resolve(revision)
    if numbers := cause_numbers(accepted):
        accepted = _metrics_of(numbers, commit, folder, config)
    elif folder is not None:
        raise UsageError(
            "--from {folder} is for numbers of causes, and {named!a} is none; leave it out",
            folder=folder,
            named=accepted[0],
        )
    return store_acceptances(
        config,
        environ,
        commit=commit,
        metrics=accepted,
        reason=reason,
        accepted_by=accepted_by or repository.user(),
        until=until,
    )


def _metrics_of(
    numbers: tuple[int, ...], commit: str, folder: Path | None, config: Config
) -> tuple[str, ...]:
    """The metrics of the numbered causes of a check of this commit."""
    file = newest_result([DECISION], config.root)
    if folder:
        file = folder / DECISION
    instead = Activity(
        "name the folder of its check with --from, or the metrics instead of numbers"
    )
    if file is None:
        raise UsageError(
            "{usual_folders} hold no decision that numbers causes; {instead}",
            usual_folders=" and ".join(map(str, USUAL_FOLDERS)),
            instead=instead,
        )
    decision = read_decision(file)
    if commit not in (decision.sides.head.reviewed, decision.sides.head.commit):
        change = (
            decision.sides.head.reviewed or decision.sides.head.commit or "no commit"
        )[:12]
        raise UsageError(
            "{file} is about {other}, not about {commit}; measure that, {instead}",
            file=file,
            other=change,
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


def triage_regression(
    config: Config,
    environ: Mapping[str, str],
    *,
    revision: str,
    state: TriageState,
    reason: str,
    author: str | None,
) -> Triage:
    """Give the regressions of main that began with a commit a state.

    The commit may be one of a stored run, by its first digits, as reports print it; a
    clone is then not needed. Raises UsageError for a revision that is neither this nor
    one of the clone, and without a reason.
    """
    if is_shared(store_location(config, environ)):
        refuse_change_request(environ)
    store = open_project_store(config, environ)
    commits: set[str] = set()
    for run in stored_runs(store, config.project):
        if run.commit and run.commit.startswith(revision.lower()):
            commits.add(run.commit)
    if len(commits) == 1 and len(revision) >= _FEWEST_DIGITS:
        commit = commits.pop()
    else:
        try:
            commit = Repository(config.root).resolve(revision)
        except RepositoryError as error:
            raise UsageError(
                "no stored run of main is of commit {revision!a}, nor is it one of this clone: {error}",
                revision=revision,
                error=error,
            ) from error
    author = author or Repository(config.root).user()
    return give_state(
        store, config.project, commit=commit, state=state, reason=reason, author=author
    )
