"""``perfgate store upload`` and ``prune``: send the artifacts of a folder, and remove
those that need not be kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec

from perfgate.config import Config, load_config
from perfgate.document.artifact import read_check
from perfgate.document.files import content_sha256, read_decision, read_run
from perfgate.document.history import StoredRun
from perfgate.document.kept import ArtifactSet, set_of_check, set_of_run
from perfgate.errors import DocumentError, UsageError
from perfgate.flows.shared.artifacts import keep_artifacts, open_artifacts
from perfgate.flows.shared.doors import Doors, Progress
from perfgate.flows.shared.store import open_project_store
from perfgate.flows.shared.trend.read import Wanted, read_histories
from perfgate.flows.trust.provenance import refuse_change_request
from perfgate.judging.store.artifacts import ArtifactStore, KeptArtifacts, Sending
from perfgate.judging.store.index import read_log
from perfgate.judging.store.retention import expired_sets
from perfgate.judging.store.store import Store
from perfgate.judging.trend.find import with_changes
from perfgate.locale import sentence

# An upload without a record that is older than this will not be continued.
_ABANDONED = timedelta(days=1)
# A comparison with main needs no more than the newest runs of its level; as many give a
# prediction interval.
LEVEL_RUNS = 3
# The states of triage in which a regression is still open.
_OPEN_STATES = ("new", "acknowledged")


class PrunedArtifacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed of a project, or would be: ``removed`` sets of
    ``removed_bytes``, and broken-off uploads.

    Of what stays, ``retained`` sets are kept for their meaning, whatever their age.
    ``larger_by`` is by how many bytes those exceed the limit of size, 0 if they do not.
    """

    project: str
    removed: list[ArtifactSet]
    removed_bytes: int
    unfinished: int
    stay: int
    stay_bytes: int
    retained: int
    larger_by: int = 0
    dry_run: bool = False


def upload(
    root: Path, folder: Path, doors: Doors, sending: Sending
) -> tuple[ArtifactStore, KeptArtifacts]:
    """Keep the artifacts of a run or check folder of this project.

    Raises UsageError in the CI job of a change request.
    """
    refuse_change_request(doors.environ)
    config = load_config(root, environ=doors.environ, needs_workload=False)
    store, now = _store(config, doors), doors.now()
    page: str | None = None
    decided, measured = folder / "decision.json", folder / "base" / "run.json"
    if decided.is_file() and measured.is_file():
        base, head = read_check(folder)
        artifacts = set_of_check(base, head, read_decision(decided), head.project, now)
        report = folder / "report.html"
        try:
            page = report.read_text(encoding="utf-8")
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as error:
            raise DocumentError(
                "{path} cannot be read: {error}", path=report, error=error
            ) from error
    else:
        run = read_run(folder / "run.json")
        artifacts = set_of_run(run, content_sha256(run), now)
    if artifacts.project != config.project:
        raise UsageError(
            "{folder} is of project {project!a}, and this is {own!a}; upload it from its own project, or set `project` in "
            "perfgate.toml",
            folder=folder,
            project=artifacts.project,
            own=config.project,
        )
    return store, keep_artifacts(store, artifacts, [folder], sending, page=page)


def prune(
    root: Path,
    doors: Doors,
    progress: Progress,
    *,
    older_than: timedelta | None = None,
    larger_than: int | None = None,
    dry_run: bool = False,
) -> PrunedArtifacts:
    """Remove old artifacts, or the oldest above the size in bytes, except those that a
    regression or main's level needs.

    Missing limits come from perfgate.toml. Raises UsageError if it has none either, and
    in the CI job of a change request.
    """
    refuse_change_request(doors.environ)
    config = load_config(root, environ=doors.environ, needs_workload=False)
    days, gigabytes = config.artifacts.keep_days, config.artifacts.keep_gb
    if older_than is None and days:
        older_than = timedelta(days=days)
    larger_than = larger_than or int(gigabytes * 1e9) or None
    if older_than is None and larger_than is None:
        raise UsageError(
            "there is no rule for what to remove; give --older-than 90d or --larger-than 20GB, or set "
            "keep_days or keep_gb under [artifacts] in perfgate.toml"
        )
    store = _store(config, doors)
    now = datetime.fromtimestamp(doors.clock(), timezone.utc)
    progress.status(sentence("listing the artifacts in {place}", place=store.name))
    sets = store.sets(config.project)
    runs = open_project_store(config, doors.environ)
    runs_that_stay: frozenset[str] = frozenset()
    if sets:
        runs_that_stay = retained_runs(
            config, runs, progress, seconds_since_1970=doors.clock()
        )
    expired, retained, larger_by = expired_sets(
        sets, runs_that_stay, now, older_than=older_than, larger_than=larger_than
    )
    removed_bytes = sum(entry.bytes for entry in expired)
    unfinished = store.unfinished(config.project, now - _ABANDONED)
    if not dry_run:
        gone = [entry.id for entry in expired] + list(unfinished)
        for number, set_id in enumerate(gone, 1):
            progress.status(
                sentence("removing {number} of {sets}", number=number, sets=len(gone))
            )
            store.remove(config.project, set_id)
        if gone and (ledger := runs.ledger()) is not None:
            ledger.record(
                "artifacts pruned",
                config.project,
                f"{len(gone)} sets, {removed_bytes} bytes",
            )
    stay = [entry for entry in sets if entry not in expired]
    return PrunedArtifacts(
        project=config.project,
        removed=expired,
        removed_bytes=removed_bytes,
        unfinished=len(unfinished),
        stay=len(stay),
        stay_bytes=sum(entry.bytes for entry in stay),
        retained=retained,
        larger_by=larger_by,
        dry_run=dry_run,
    )


def _store(config: Config, doors: Doors) -> ArtifactStore:
    store = open_artifacts(config, doors.environ)
    if store is None:
        raise UsageError(
            "this project keeps no artifacts; set path under [artifacts] in perfgate.toml, or PERFGATE_ARTIFACTS, to a folder "
            "or a URL such as s3://BUCKET/PREFIX"
        )
    return store


def retained_runs(
    config: Config, store: Store, progress: Progress, *, seconds_since_1970: float
) -> frozenset[str]:
    """The ids of the runs on both sides of each regression of main, found or in triage,
    and of the newest on main's level.

    Raises StoreError if main's runs cannot be read, because then every artifact may be
    needed.
    """
    log = read_log(store, config.project)
    if not log.index.runs and not log.damaged:
        return frozenset()
    stored = read_histories(
        log, Wanted(), progress, seconds_since_1970=seconds_since_1970
    )
    open_commits = {
        entry.commit for entry in log.triages if entry.state in _OPEN_STATES
    }
    retained = set(_first_and_before(stored.runs, open_commits))
    for series in stored.series:
        if series.informing:
            continue
        # Elsewhere no change is searched for on a testbed that is no longer measured.
        entry = series if series.current else with_changes(series)
        for change in entry.changes:
            if change.direction == "worse":
                retained.update(
                    point.run_id
                    for point in entry.points[change.at - 1 : change.at + 1]
                )
        level_begins = max((change.at for change in entry.changes), default=0)
        retained.update(
            point.run_id for point in entry.points[level_begins:][-LEVEL_RUNS:]
        )
    return frozenset(retained)


def _first_and_before(
    newest_first: Iterable[StoredRun], commits: Collection[str]
) -> Iterator[str]:
    """The runs of some commits, and on each testbed the run before them."""
    before: dict[str, StoredRun] = {}
    for run in reversed(list(newest_first)):
        if run.commit in commits:
            yield run.id
            if run.fingerprint in before:
                yield before[run.fingerprint].id
        else:
            before[run.fingerprint] = run
