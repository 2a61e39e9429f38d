"""The store of a project: an append-only log of main's runs and of statements about its
commits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import msgspec

from perfgate.config import Config
from perfgate.document.conditions import StepConditions
from perfgate.document.history import (
    Acceptance,
    Confirmation,
    GateRecord,
    StoredRun,
    Triage,
)
from perfgate.errors import SessionKeptError, StoreError, UnknownRunError
from perfgate.judging.store import backends
from perfgate.plugins import STORES, load_members

if TYPE_CHECKING:
    from perfgate.judging.store.ledger import Ledger

STORE_VARIABLE = "PERFGATE_STORE"
# What may stand before the path of a SQLite file.
FILE_URL = "sqlite:///"
# Locations of `perfgate serve`, which bounds its own store.
SERVICE_SCHEMES = ("https://", "http://")
# The writer in an audit log if it was a command on the machine of the store, and no
# service.
LOCAL = "local"
# The writer of entries that `perfgate store copy` adds.
COPIER = "store copy"
# The user information of an address, up to its last @, and the secrets in its query.
_USER = re.compile(r"(?<=//).*@")
# Not a port but in its place: a password in an address without the @ and the host.
_NO_PORT = re.compile(r"(?<=://)[^/@?\[\]]*:(?=[^/@?]*[^0-9/@?])[^/@?]*")
_SECRET = re.compile(r"(?i)(password|token|secret)=[^&]*")


class SeriesPlace(NamedTuple):
    """The key of a series of a project, in the sort order of lists; ``labels`` as
    `labels_text` writes them.
    """

    workload: str
    shape: str
    metric: str
    labels: str
    fingerprint: str


class StoredValue(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One value of a run, with its workload, shape, metric and further labels as
    `labels_text` writes them.
    """

    workload: str
    shape: str
    metric: str
    labels: str
    value: float

    def place(self, fingerprint: str) -> SeriesPlace:
        return SeriesPlace(
            self.workload, self.shape, self.metric, self.labels, fingerprint
        )


class RunEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the log, derived from its document.

    ``started`` is in seconds since 1970.
    """

    run: StoredRun
    started: float
    values: list[StoredValue] = []
    conditions: list[StepConditions] = []

    @property
    def key(self) -> tuple[str, ...]:
        """The session: it is stored once."""
        return (self.run.session,)

    @property
    def stated_at(self) -> str:
        return self.run.recorded_at


Statement = Acceptance | Triage | Confirmation | GateRecord
LogEntry = RunEntry | Statement
Entry = TypeVar("Entry", bound=LogEntry)
# The kinds of statements by their name in files, addresses and exports.
STATEMENTS: Mapping[str, type[Statement]] = {
    "acceptances": Acceptance,
    "triages": Triage,
    "confirmations": Confirmation,
    "gates": GateRecord,
}
# All kinds of entries.
ENTRIES: Mapping[str, type[LogEntry]] = {"runs": RunEntry, **STATEMENTS}
_NAMES: Mapping[type[object], str] = {kind: name for name, kind in ENTRIES.items()}


class StoredDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a run document as they were recorded; ``fault`` is why they cannot
    be read, and empty if they can.

    ``name`` is its name in messages, and ``remedy`` the way out if the bytes differ
    from the recorded bytes.
    """

    id: str
    name: str
    data: bytes = b""
    fault: str = ""
    remedy: str = "bring back a copy of its store"


class LogState(msgspec.Struct, frozen=True, kw_only=True):
    """The ``revision`` of a log, and a message for each unreadable run."""

    revision: str
    damaged: list[str]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a list of runs: of one testbed, the newest ``limit``, and only runs
    listed after the run with id ``before``.
    """

    testbed: str | None = None
    limit: int | None = None
    before: str | None = None


ALL_RUNS = Page()
NO_DOCUMENTS: Mapping[str, bytes] = {}


@dataclass(frozen=True)
class GitAccess:
    """A CI job's access to its git server: the address of its repository, and the job's
    token.

    The token is sent to ``server`` only, as the password of ``user``. ``ca_file`` is
    the server's own certificate authority.
    """

    server: str
    repository: str
    user: str = ""
    token: str = field(default="", repr=False)
    ca_file: str | None = None


@dataclass(frozen=True)
class StorePlace:
    """The context to open a store in: the project's folder, the environment and, in a
    CI job, the access to its server.

    ``is_served`` is whether a service opens it, which may keep connections between
    calls.
    """

    root: Path
    environ: Mapping[str, str]
    access: GitAccess | None = None
    is_served: bool = False


class StoredProjects(NamedTuple):
    """The projects of a store with any entry, in alphabetical order; and a message for
    each whose name is not known, because none of its runs can be read, or because it
    has statements alone, which do not name it.
    """

    names: list[str]
    unreadable: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()


class Store(Protocol):
    """An append-only log of each project.

    Of two statements with one key the later counts. The key of a run is its session,
    because sessions are the true replicate (facts: noise between sessions). Every
    method raises StoreError if the store cannot be opened, read or written; reading
    never creates one.
    """

    def append(
        self,
        project: str,
        entries: Sequence[LogEntry],
        documents: Mapping[str, bytes] = ...,
        *,
        actor: str = ...,
    ) -> list[str]:
        """Add entries and return the ids of the runs that were not there, in their
        order.

        They are one write, all or none; a service stores one a request. ``documents``
        has the canonical bytes of each run. A run that is there stays as it is. Raises
        SessionKeptError for a session that is stored with another document.
        """

    def entries(self, project: str, kind: type[Entry], page: Page = ...) -> list[Entry]:
        """The entries of a kind, newest first; ``page`` selects runs.

        Raises UnknownRunError for an unknown ``before``.
        """

    def documents(self, project: str, run_ids: Sequence[str]) -> list[StoredDocument]:
        """The documents of runs as they were recorded, by their ids or the beginnings
        of these; none of them is checked.

        Raises UnknownRunError for an id that the log lacks, and for the beginning of
        several.
        """

    def remove(self, project: str, run_ids: Sequence[str], *, actor: str = ...) -> int:
        """Remove runs with their documents; return how many were there."""

    def projects(self) -> list[str]:
        """The projects with a stored run, in alphabetical order."""

    def stored_projects(self) -> StoredProjects:
        """The projects with any entry."""

    def revision(self, project: str) -> str:
        """A text that is another one after every change of the log; empty if there is
        none.
        """

    def damaged(self, project: str) -> list[str]:
        """The unreadable runs: one message each, with location and remedy.

        `entries` omits them; they are never removed.
        """

    def ledger(self) -> Ledger | None:
        """The tokens and the audit log of the store; None if it keeps none."""

    def clock_ahead(self) -> timedelta:
        """How far the store's own clock is ahead of this machine's, by its last answer;
        0 for a store without one.
        """


def utc_now() -> datetime:
    """The clock of a store."""
    return datetime.now(timezone.utc)


def entry_name(kind: type[object]) -> str:
    """The name of a kind of entries."""
    return _NAMES[kind]


def newest_first(statements: Iterable[Entry]) -> list[Entry]:
    """Statements by their time, and of one moment by their key."""
    by_key = sorted(statements, key=lambda statement: statement.key)
    return sorted(by_key, key=lambda statement: statement.stated_at, reverse=True)


def revision_text(runs: int, changes: str) -> str:
    """The revision of a log that counts its runs; ``changes`` differs after each write
    and is empty before the first.
    """
    return f"{runs} {changes or 0}" if runs or changes else ""


def run_count(revision: str) -> float:
    """The number of runs in a log at a revision; NaN, which equals no number, if the
    revision does not contain it.
    """
    runs, _, changes = revision.partition(" ")
    if not changes:
        return math.nan
    return int(runs)


def labels_text(labels: Mapping[str, str]) -> str:
    if not labels or (len(labels) == 1 and "shape" in labels):
        return ""
    rest = tuple((name, value) for name, value in labels.items() if name != "shape")
    return _text_of_labels(rest)


# A run repeats the same few labels for many of its values.
@lru_cache(maxsize=4096)
def _text_of_labels(labels: tuple[tuple[str, str], ...]) -> str:
    return json.dumps(dict(labels), sort_keys=True)


def kept_already(session: str, run_id: str) -> SessionKeptError:
    return SessionKeptError(
        "session {session!a} is already stored, as {run_id}; a session is stored once: measure again",
        session=session,
        run_id=run_id[:12],
    )


def unknown_run(run_id: str, *, name: str) -> UnknownRunError:
    return UnknownRunError(
        "{name} holds no run {run_id!a}; `perfgate baseline list` shows what there is",
        name=name,
        run_id=run_id,
    )


def the_only_run(run_ids: Sequence[str], beginning: str, *, name: str) -> str:
    """The id of the only run that begins so.

    Raises UnknownRunError if there is none, or several.
    """
    if not run_ids or not beginning:
        raise unknown_run(beginning, name=name)
    if len(run_ids) > 1:
        raise UnknownRunError(
            "{name} holds several runs that begin with {run_id!a}; give more of the id",
            name=name,
            run_id=beginning,
        )
    return run_ids[0]


def store_location(config: Config, environ: Mapping[str, str]) -> str:
    """The file or URL of the store: PERFGATE_STORE, then ``[store] path``, then the
    user's data folder.
    """
    if environ.get(STORE_VARIABLE):
        return environ[STORE_VARIABLE]
    path = config.store.path
    if path.startswith(FILE_URL):
        return FILE_URL + place_in(config.root, path.removeprefix(FILE_URL))
    if "://" in path:
        return path
    if path:
        return place_in(config.root, path)
    return str(_data_folder(environ) / "perfgate" / "store.db")


def place_in(root: Path, path: str) -> str:
    """A path in perfgate.toml: relative to its folder ``root``, unless it begins in a
    home folder.
    """
    if path.startswith("~"):
        return path
    return str(root / path)


def shown_location(location: str) -> str:
    """A location for messages: without the secrets in its address or query."""
    return _SECRET.sub(r"\1=***", _NO_PORT.sub("***", _USER.sub("***@", location)))


def is_shared(location: str) -> bool:
    """Whether others write to the store too, so that in a CI job the rules for main's
    runs hold.
    """
    return "://" in location and not location.startswith(FILE_URL)


def open_location(location: str, place: StorePlace) -> Store:
    """The store at a location, opened on first use. Raises StoreError for an unknown
    kind of location.
    """
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
    """The folder of the XDG Base Directory Specification 0.8, which ignores a relative
    XDG_DATA_HOME.
    """
    folder = Path(environ.get("XDG_DATA_HOME", ""))
    if folder.is_absolute():
        return folder
    if not environ.get("HOME"):
        raise StoreError(
            "neither HOME nor XDG_DATA_HOME is set; set {variable} to the path of the store",
            variable=STORE_VARIABLE,
        )
    return Path(environ["HOME"]) / ".local" / "share"
