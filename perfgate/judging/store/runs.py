"""Runs of main in a store: which are fit to be stored, their entries in the log, and
their documents.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from perfgate.document.conditions import conditions_of
from perfgate.document.files import (
    canonical_bytes,
    content_sha256,
    parse_canonical_run,
    parse_run,
)
from perfgate.document.history import StoredRun, moment
from perfgate.document.job import typical_values
from perfgate.document.run import RunDocument
from perfgate.errors import (
    DocumentError,
    StoreError,
    StoreRefusedError,
    UnfitRunError,
    UnknownRunError,
)
from perfgate.judging.store.store import (
    ALL_RUNS,
    Page,
    RunEntry,
    Store,
    StoredDocument,
    StoredValue,
    labels_text,
    utc_now,
)

# Limit on how far the clock of a measuring machine may be ahead: a trend omits runs
# dated later.
AHEAD = timedelta(weeks=4)
_READ_AT_ONCE = 1000


def record_run(
    store: Store,
    run: RunDocument,
    *,
    allow_dirty: bool = False,
    now: datetime | None = None,
) -> str:
    """Store a run and return its id; a stored run is not stored again.

    Raises UnfitRunError for an unfit run.
    """
    record_runs(store, [run], allow_dirty=allow_dirty, now=now)
    return content_sha256(run)


def record_runs(
    store: Store,
    runs: Sequence[RunDocument],
    *,
    allow_dirty: bool,
    now: datetime | None,
) -> list[str]:
    """Store several runs of one project in one write, and return the ids of the new
    runs. Raises UnfitRunError.
    """
    recorded_at = now or utc_now()
    entries: list[RunEntry] = []
    documents: dict[str, bytes] = {}
    for run in runs:
        refuse_unfit(run, allow_dirty=allow_dirty, now=recorded_at)
        data = canonical_bytes(run, name="the run")
        run_id = hashlib.sha256(data).hexdigest()
        entries.append(run_entry(run, run_id, recorded_at.isoformat()))
        documents[run_id] = data
    if not runs:
        return []
    return store.append(runs[0].project, entries, documents)


def stored_runs(store: Store, project: str, page: Page = ALL_RUNS) -> list[StoredRun]:
    """The runs of a project as they are listed, newest session first."""
    return [entry.run for entry in run_entries(store, project, page)]


def run_entries(
    store: Store, project: str, page: Page = ALL_RUNS
) -> Iterator[RunEntry]:
    """The runs of a project with their values, newest session first, read in parts: the
    values take ten times the memory of the rest.
    """
    before, listed = page.before, 0
    while page.limit is None or listed < page.limit:
        size = _READ_AT_ONCE
        if page.limit is not None:
            size = min(size, page.limit - listed)
        part = replace(page, before=before, limit=size)
        try:
            entries = store.entries(project, RunEntry, part)
        except UnknownRunError as error:
            if before == page.before:
                raise
            raise StoreRefusedError(
                "runs of {project!a} were removed while they were read; repeat it",
                project=project,
            ) from error
        yield from entries
        if len(entries) < size:
            break
        listed += size
        before = entries[-1].run.id


def stored_run(store: Store, project: str, run_id: str) -> RunDocument:
    """The run with an id, or the only run with this beginning of an id.

    Raises StoreError if it is unknown or damaged.
    """
    return intact_run(store.documents(project, [run_id])[0])


def stored_document(store: Store, project: str, run_id: str) -> bytes:
    """The document of a run as it was recorded: its SHA-256 is the id.

    Raises StoreError if it is unknown or damaged.
    """
    document = store.documents(project, [run_id])[0]
    intact_run(document)
    return document.data


def prune_runs(store: Store, project: str, *, keep: int) -> int:
    """Remove all but the newest ``keep`` runs of each testbed of a project; return how
    many were removed.
    """
    if keep < 0:
        raise StoreError(
            "the number of runs to keep must be 0 or more, found {keep}", keep=keep
        )
    newer: Counter[str] = Counter()
    old: list[str] = []
    for run in stored_runs(store, project):
        if newer[run.fingerprint] >= keep:
            old.append(run.id)
        newer[run.fingerprint] += 1
    return store.remove(project, old)


def refuse_unfit(run: RunDocument, *, allow_dirty: bool, now: datetime) -> None:
    """Refuse a run that must not become the baseline. Raises UnfitRunError."""
    if started(run) > (now + AHEAD).timestamp():
        raise UnfitRunError(
            "this run is dated {started_at}, and it is {now} here; it would stay the newest of main forever: set the "
            "measuring machine's clock and measure again",
            started_at=run.session.started_at,
            now=now.isoformat(timespec="seconds"),
        )
    if started(run) < 0:
        raise UnfitRunError(
            "this run is dated {started_at}, before any computer's clock begins; set the measuring machine's clock and "
            "measure again",
            started_at=run.session.started_at,
        )
    if run.side == "head":
        raise UnfitRunError(
            "this run is the head of a change; only runs of main are kept: record a run of main"
        )
    if run.source.dirty and not allow_dirty:
        raise UnfitRunError(
            "this run was measured with uncommitted changes; commit them and measure again, or record it "
            "on purpose with --allow-dirty"
        )
    for result in run.checklist.correctness:
        if result.status == "failed":
            raise UnfitRunError(
                "the correctness check of workload {workload!r} failed in this run; a wrong model is no baseline: repair "
                "it and measure again",
                workload=result.workload,
            )


def intact_run(document: StoredDocument) -> RunDocument:
    """The run of a document that a store gave. Raises StoreError, with the remedy if
    its bytes differ from the recorded bytes.

    Intact bytes that cannot be read come from a newer or a very old perfgate: the store
    is not damaged.
    """
    if document.fault:
        raise StoreError(document.fault)
    if hashlib.sha256(document.data).hexdigest() != document.id:
        raise StoreError(
            "{name} differs from the recorded document; {remedy}",
            name=document.name,
            remedy=document.remedy,
        )
    try:
        canonical = parse_canonical_run(document.data, name=document.name)
        return canonical or parse_run(document.data, name=document.name)
    except DocumentError as error:
        raise StoreError("{error}", error=error) from error


def run_entry(run: RunDocument, run_id: str, recorded_at: str) -> RunEntry:
    """The entry of a run in the log. ``run_id`` is the SHA-256 of its document."""
    stored = StoredRun(
        id=run_id,
        project=run.project,
        session=run.session.id,
        started_at=run.session.started_at,
        recorded_at=recorded_at,
        fingerprint=run.testbed.fingerprint,
        device_kind=run.testbed.device_kind,
        commit=run.source.commit,
        branch=run.source.branch,
        subject=run.source.subject,
        author=run.source.author,
        dirty=run.source.dirty,
        workloads=workload_names(run),
    )
    return RunEntry(
        run=stored,
        started=started(run),
        values=stored_values(run),
        conditions=conditions_of(run),
    )


def workload_names(run: RunDocument) -> list[str]:
    """The names of the workloads and jobs of a run."""
    names = [workload.name for workload in run.workloads]
    return names + [job.name for job in run.jobs.records]


def stored_values(run: RunDocument) -> list[StoredValue]:
    """Every available value and counter of a run, one per workload, shape, metric and
    further labels.
    """
    values: dict[tuple[str, str, str, str], float] = {}
    for step in run.checklist.steps:
        for value in step.values:
            if value.value is not None:
                key = (
                    step.workload,
                    value.labels.get("shape", ""),
                    value.metric,
                    labels_text(value.labels),
                )
                values.setdefault(key, value.value)
    for counters in run.checklist.counters:
        for metric, count in counters.values.items():
            if metric not in counters.unstable:
                values.setdefault(
                    (counters.workload, counters.shape, metric, ""), float(count)
                )
    for job in run.jobs.records:
        for metric, number in typical_values(job, run.jobs.turns).items():
            values[job.name, "", metric, ""] = number
    return [StoredValue(*key, value) for key, value in values.items()]


def started(run: RunDocument) -> float:
    """The start of the session, in seconds since 1970.

    Raises UnfitRunError if it is not a valid time.
    """
    text = run.session.started_at
    try:
        return moment(text).timestamp()
    except (ValueError, OverflowError) as error:
        raise UnfitRunError(
            "the run's start {text!a} is not an ISO 8601 time; measure again",
            text=text[:80],
        ) from error
