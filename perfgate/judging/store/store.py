"""The store of the runs of main: its Protocol, the checks of a run, its rows, and the lookup of a project's store."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import msgspec

from perfgate.config import Config
from perfgate.document.conditions import StepConditions, conditions_of
from perfgate.document.files import canonical_bytes, parse_run
from perfgate.document.gates import GateRecord
from perfgate.document.history import Acceptance, Confirmation, StoredRun, Triage, moment
from perfgate.document.job import typical_values
from perfgate.document.run import RunDocument
from perfgate.errors import DocumentError, SessionKeptError, StoreError, UnfitRunError
from perfgate.judging.store import backends
from perfgate.plugins import STORES, load_members

if TYPE_CHECKING:
    from perfgate.judging.store.ledger import Ledger

STORE_VARIABLE = "PERFGATE_STORE"
# Locations of `perfgate serve`, which bounds its own store.
SERVICE_SCHEMES = ("https://", "http://")
# The user information of an address, up to its last @, and the secrets in its query.
_USER = re.compile(r"(?<=//).*@")
# What stands for a port and is none: a password in an address without the @ and the host.
_NO_PORT = re.compile(r"(?<=://)[^/@?\[\]]*:(?=[^/@?]*[^0-9/@?])[^/@?]*")
_SECRET = re.compile(r"(?i)(password|token|secret)=[^&]*")
# Limit on how far the clock of a measuring machine may be ahead: a trend omits runs dated later.
AHEAD = timedelta(weeks=4)
# What people and gates state about commits: of two with one key, the one that was stated later counts.
AnyStatement = Acceptance | Triage | Confirmation | GateRecord
Statement = TypeVar("Statement", bound=AnyStatement)
# The kinds of statements by their name in tables, files and addresses.
STATEMENTS: Mapping[str, type[AnyStatement]] = {
    "acceptances": Acceptance,
    "triages": Triage,
    "confirmations": Confirmation,
    "gates": GateRecord,
}


class SeriesPlace(NamedTuple):
    """The key of a series of a project, in the sort order of lists; ``labels`` as `labels_text` writes them."""

    workload: str
    shape: str
    metric: str
    labels: str
    fingerprint: str


class StoredValue(msgspec.Struct, frozen=True, array_like=True):
    """One value of a run, with its workload, shape, metric and further labels as `labels_text` writes them."""

    workload: str
    shape: str
    metric: str
    labels: str
    value: float

    def place(self, fingerprint: str) -> SeriesPlace:
        return SeriesPlace(self.workload, self.shape, self.metric, self.labels, fingerprint)


class RunEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What lists, series and histories hold of a run; all follows from its document. ``started`` is in seconds since 1970."""

    run: StoredRun
    started: float
    values: list[StoredValue] = []
    conditions: list[StepConditions] = []


class StoredDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a run document as they were recorded; ``fault`` is why they cannot be read, and empty if they can."""

    id: str
    recorded_at: str
    data: bytes = b""
    fault: str = ""


class HistoryValue(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a series: one run, which is one session."""

    run_id: str
    session: str
    commit: str | None
    started_at: str
    value: float


class RecentRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a comparison with the values of a stored run depends on: its commit, and how its steps were measured."""

    id: str
    commit: str | None
    conditions: list[StepConditions] = []


class RecentValues(msgspec.Struct, frozen=True, kw_only=True):
    """The newest values of some series of a testbed.

    ``values`` has a list for each series, oldest session first: the position of the run in ``runs``, and its value.
    """

    runs: list[RecentRun]
    values: list[list[tuple[int, float]]]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one workload and shape over time, on comparable testbeds.

    ``labels`` are those beside the shape (e.g. batch); ``runs`` is the number of runs with a value.
    """

    workload: str
    shape: str
    metric: str
    fingerprint: str
    device_kind: str
    labels: dict[str, str] = {}
    runs: int = 0


@dataclass(frozen=True)
class GitAccess:
    """A CI job's access to its git server: the address of its repository, and the job's token.

    The token is sent to ``server`` only, as the password of ``user``. ``ca_file`` is the server's own certificate authority.
    """

    server: str
    repository: str
    user: str = ""
    token: str = field(default="", repr=False)
    ca_file: str | None = None


@dataclass(frozen=True)
class StorePlace:
    """The context to open a store in: the project's folder, the environment and, in a CI job, the access to its server.

    ``is_served`` is whether a service opens it, which may keep connections between calls.
    """

    root: Path
    environ: Mapping[str, str]
    access: GitAccess | None = None
    is_served: bool = False


class Store(Protocol):
    """The runs of main. One run per session, because sessions are the true replicate (facts: noise between sessions).

    Every method raises StoreError if the store cannot be opened, read or written; reading never creates one.
    """

    def record(self, run: RunDocument, *, allow_dirty: bool = False) -> str:
        """Store a run and return its id; repeating it changes nothing. Raises StoreError for an unfit run."""

    def record_all(
        self, runs: Iterable[RunDocument], *, allow_dirty: bool = False, data: Sequence[bytes] | None = None
    ) -> list[str]:
        """Store several runs and return the ids of those that were not there before, in their order.

        They are one write, all or none; a service stores one a request. ``data`` are the canonical bytes of the documents, if
        the caller has checked both. Raises StoreError for an unfit one.
        """

    def revision(self, project: str) -> str:
        """A text that is another one after every change of what is stored of a project; empty if nothing is."""

    def runs(self, project: str, *, limit: int | None = None, before: StoredRun | None = None) -> list[StoredRun]:
        """The runs of a project, newest session first; with ``before`` those that follow it in this order."""

    def find(self, project: str, run_id: str) -> StoredRun | None:
        """The run of a project with this id, as it is listed; None if there is none."""

    def damaged(self, project: str) -> list[str]:
        """The unreadable runs of a project: one message each, with location and remedy.

        Lists, series and histories omit these runs; nothing removes them.
        """

    def show(self, run_id: str) -> RunDocument:
        """The document of a run, by its id or a prefix of it."""

    def history(
        self,
        project: str,
        workload: str,
        fingerprint: str,
        metric: str,
        shape: str,
        *,
        labels: Mapping[str, str] | None = None,
        newest: int | None = None,
    ) -> list[HistoryValue]:
        """One metric of a series, oldest session first; ``labels`` are those beside the shape (e.g. batch).

        With ``newest`` only so many, those of the newest sessions.
        """

    def recent(self, project: str, places: Sequence[SeriesPlace], *, newest: int) -> RecentValues:
        """The values of the newest sessions in each of several series of one testbed, in the order of ``places``."""

    def series(self, project: str) -> list[Series]:
        """Every series of a project, in the order of workload, shape, metric, labels and fingerprint."""

    def append(self, project: str, statements: Sequence[Statement]) -> None:
        """Store statements of one kind in one write; each replaces an earlier one with the same key."""

    def statements(self, project: str, kind: type[Statement]) -> list[Statement]:
        """The statements of a kind about a project, newest first."""

    def prune(self, project: str, *, keep: int) -> int:
        """Remove all but the newest ``keep`` runs of each testbed of a project; return how many were removed."""

    def projects(self) -> list[str]:
        """The projects with a stored run, in alphabetical order."""

    def documents(self, runs: Sequence[StoredRun]) -> list[StoredDocument]:
        """The documents of stored runs as they were recorded, in their order; none of them is checked."""

    def entries(self, runs: Sequence[StoredRun]) -> list[RunEntry]:
        """What lists and series hold of stored runs, in their order."""

    def restore(self, documents: Iterable[StoredDocument]) -> None:
        """Store the runs of another store in one write, all or none, under their ids; those that are there stay.

        Raises StoreError for a damaged document, and for a session that is kept with another one.
        """

    def ledger(self) -> Ledger | None:
        """The tokens and the audit log of the store; None if it keeps none."""

    def clock_ahead(self) -> timedelta:
        """How far the store's own clock is ahead of this machine's, by its last answer; 0 for a store without one."""

    def acting_as(self, actor: str) -> Store:
        """The same store, with ``actor`` as the writer in its audit log."""


def utc_now() -> datetime:
    """The clock of a store."""
    return datetime.now(timezone.utc)


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
        raise UnfitRunError("this run is the head of a change; only runs of main are kept: record a run of main")
    if run.source.dirty and not allow_dirty:
        raise UnfitRunError(
            "this run was measured with uncommitted changes; commit them and measure again, or record it "
            "on purpose with --allow-dirty"
        )
    for result in run.correctness:
        if result.status == "failed":
            raise UnfitRunError(
                "the correctness check of workload {workload!r} failed in this run; a wrong model is no baseline: repair "
                "it and measure again",
                workload=result.workload,
            )


def recorded_document(data: bytes, run_id: str, *, name: str, remedy: str) -> RunDocument:
    """The document of a run. Raises StoreError, with the remedy if its bytes are not the recorded ones.

    Intact bytes that cannot be read come from a newer or a very old perfgate: the store is not damaged.
    """
    if hashlib.sha256(data).hexdigest() != run_id:
        raise StoreError("{name} differs from the recorded document; {remedy}", name=name, remedy=remedy)
    try:
        return parse_run(data, name=name)
    except DocumentError as error:
        raise StoreError("{error}", error=error) from error


def intact_run(document: StoredDocument) -> RunDocument:
    """The run of a document that a store gave. Raises StoreError if it is damaged."""
    if document.fault:
        raise StoreError(document.fault)
    return recorded_document(
        document.data, document.id, name=f"run {document.id[:12]}", remedy="bring back a copy of its store"
    )


def kept_already(session: str, run_id: str) -> SessionKeptError:
    return SessionKeptError(
        "session {session!a} is already stored, as {run_id}; a session is stored once: measure again",
        session=session,
        run_id=run_id[:12],
    )


def pack_document(run: RunDocument, recorded_at: datetime, data: bytes | None = None) -> StoredDocument:
    """The document to store of a run; the same run gives the same id. ``data`` are its canonical bytes, if they are known."""
    data = canonical_bytes(run, name="the run") if data is None else data
    return StoredDocument(id=hashlib.sha256(data).hexdigest(), recorded_at=recorded_at.isoformat(), data=data)


def run_entry(run: RunDocument, document: StoredDocument) -> RunEntry:
    """What a store lists of a run, made from its document."""
    stored = StoredRun(
        id=document.id,
        project=run.project,
        session=run.session.id,
        started_at=run.session.started_at,
        recorded_at=document.recorded_at,
        fingerprint=run.testbed.fingerprint,
        device_kind=run.testbed.device_kind,
        commit=run.source.commit,
        branch=run.source.branch,
        subject=run.source.subject,
        dirty=run.source.dirty,
        workloads=[*(workload.name for workload in run.workloads), *(job.name for job in run.jobs)],
    )
    return RunEntry(run=stored, started=started(run), values=stored_values(run), conditions=conditions_of(run))


def stored_values(run: RunDocument) -> list[StoredValue]:
    """Every available value and counter of a run, one per workload, shape, metric and further labels."""
    values: dict[tuple[str, str, str, str], float] = {}
    for step in run.steps:
        for value in step.values:
            if value.value is not None:
                key = step.workload, value.labels.get("shape", ""), value.metric, labels_text(value.labels)
                values.setdefault(key, value.value)
    for counters in run.counters:
        for metric, count in counters.values.items():
            if metric not in counters.unstable:
                values.setdefault((counters.workload, counters.shape, metric, ""), float(count))
    for job in run.jobs:
        values.update({(job.name, "", metric, ""): value for metric, value in typical_values(job, run.turns).items()})
    return [StoredValue(*key, value) for key, value in values.items()]


def recent_values(histories: Iterable[Iterable[tuple[RecentRun, float]]]) -> RecentValues:
    """Series of values that stand beside their runs, with each run once."""
    runs: dict[str, RecentRun] = {}
    at: dict[str, int] = {}
    values: list[list[tuple[int, float]]] = []
    for history in histories:
        values.append([])
        for run, value in history:
            runs[run.id] = run
            values[-1].append((at.setdefault(run.id, len(at)), value))
    return RecentValues(runs=list(runs.values()), values=values)


def statement_name(kind: type[object]) -> str:
    """The name of a kind of statements."""
    return next(name for name, one in STATEMENTS.items() if one is kind)


def labels_text(labels: Mapping[str, str]) -> str:
    rest = {key: value for key, value in labels.items() if key != "shape"}
    return json.dumps(rest, sort_keys=True) if rest else ""


def started(run: RunDocument) -> float:
    """The start of the session, in seconds since 1970. Raises UnfitRunError if it is not a valid time."""
    text = run.session.started_at
    try:
        return moment(text).timestamp()
    except (ValueError, OverflowError) as error:
        raise UnfitRunError(
            "the run's start {text!a} is not an ISO 8601 time; measure again", text=text[:80]
        ) from error


def store_location(config: Config, environ: Mapping[str, str]) -> str:
    """The file or URL of the store: PERFGATE_STORE, then ``[store] path``, then the user's data folder."""
    if environ.get(STORE_VARIABLE):
        return environ[STORE_VARIABLE]
    if "://" in config.store.path:
        return config.store.path
    if config.store.path:
        return str(config.root / config.store.path)
    return str(_data_folder(environ) / "perfgate" / "store.db")


def shown_location(location: str) -> str:
    """A location for messages: without the secrets in its address or query."""
    return _SECRET.sub(r"\1=***", _NO_PORT.sub("***", _USER.sub("***@", location)))


def is_shared(location: str) -> bool:
    """Whether others write to the store too, so that in a CI job the rules for main's runs hold."""
    return "://" in location and not location.startswith("sqlite:///")


def open_location(location: str, place: StorePlace) -> Store:
    """The store at a location; nothing is opened before its first use. Raises StoreError for an unknown kind of location."""
    for backend in load_members(backends, STORES):
        if backend.accepts(location):
            store: Store = backend.open_backend(location, place)
            return store
    raise StoreError(
        "no store can be kept at {location!r}; give a file path, sqlite:///PATH, branch://NAME for a branch of the git "
        "repository, postgresql://USER@HOST/DATABASE, or https://HOST of a `perfgate serve`, in {variable} or as [store] "
        "path in perfgate.toml",
        location=shown_location(location),
        variable=STORE_VARIABLE,
    )


def _data_folder(environ: Mapping[str, str]) -> Path:
    """The folder of the XDG Base Directory Specification 0.8, which ignores a relative XDG_DATA_HOME."""
    folder = Path(environ.get("XDG_DATA_HOME", ""))
    if folder.is_absolute():
        return folder
    if not environ.get("HOME"):
        raise StoreError(
            "neither HOME nor XDG_DATA_HOME is set; set {variable} to the path of the store", variable=STORE_VARIABLE
        )
    return Path(environ["HOME"]) / ".local" / "share"
