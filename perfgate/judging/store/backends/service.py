"""The store behind `perfgate serve` on another machine: every method is one request of its REST interface."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import requests
from requests.auth import AuthBase

from perfgate.document.files import canonical_bytes, parse_run
from perfgate.document.history import StoredRun
from perfgate.document.run import RunDocument
from perfgate.document.served import ServedError
from perfgate.document.strict_json import MAX_BYTES
from perfgate.errors import (
    DocumentError,
    SessionKeptError,
    StoreError,
    StoreRefusedError,
    UnfitRunError,
    UnknownRunError,
)
from perfgate.judging.store.ledger import TOKEN_PREFIX
from perfgate.judging.store.store import (
    SERVICE_SCHEMES,
    HistoryValue,
    RecentValues,
    RunEntry,
    Series,
    SeriesPlace,
    Statement,
    StoredDocument,
    StorePlace,
    intact_run,
    recent_values,
    run_entry,
    shown_location,
    statement_name,
)
from perfgate.system.loopback import is_loopback_host
from perfgate.version import __version__

# The first that is set counts. A job may need PERFGATE_TOKEN for its forge.
TOKEN_VARIABLES = ("PERFGATE_STORE_TOKEN", "PERFGATE_TOKEN")
_CONNECT_SECONDS, _READ_SECONDS = 10.0, 60.0
# Waits before another try. Every request may be repeated: it reads, or it writes what is then there.
_WAITS = (0.5, 1.0, 2.0, 4.0)
_TRANSIENT = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
_PAGE = 1_000
_CHUNK = 65_536
# Their names stand in the address, of which many proxies take 8 KiB.
_SERIES_AT_ONCE = 40
T = TypeVar("T")


def accepts(location: str) -> bool:
    return location.startswith(SERVICE_SCHEMES)


def open_backend(location: str, place: StorePlace) -> ServiceStore:
    """The store at an address; nothing is sent before its first use. Raises StoreError for an address that is not safe."""
    try:
        parts = urlsplit(location)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise StoreError(
            "{location} is not an address of a service: {error}", location=shown_location(location), error=error
        ) from None
    if not host or "@" in parts.netloc or parts.query or parts.fragment:
        raise StoreError(
            "{location} is not an address of a service; give https://HOST[:PORT][/PATH], and its token in {variable}",
            location=shown_location(location),
            variable=TOKEN_VARIABLES[0],
        )
    if parts.scheme == "http" and not is_loopback_host(host):
        raise StoreError(
            "{location} would carry the token unencrypted; give https:// (http:// is for this machine alone)",
            location=shown_location(location),
        )
    return ServiceStore(location.rstrip("/"), service_token(place.environ), is_local=is_loopback_host(host))


def service_token(environ: Mapping[str, str]) -> str | None:
    """The token of a service in the environment; None if no variable holds one. A token of a forge is never sent."""
    values = (environ.get(name, "").strip() for name in TOKEN_VARIABLES)
    return next((value for value in values if value.startswith(TOKEN_PREFIX) and value.isascii()), None)


class _Token(AuthBase):
    """The token as an auth object: without one requests would send the ~/.netrc entry of the host."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Sign a request."""
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class _Answer(NamedTuple):
    """The status and body of a response."""

    status: int
    body: bytes


class ServiceStore:
    """The Store of a service. Its connections are kept between calls, and made anew after a fork."""

    def __init__(
        self, address: str, token: str | None, *, is_local: bool = False, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._address, self._token, self._is_local, self._sleep = address, token, is_local, sleep
        self._session, self._process = requests.Session(), 0
        self._ahead = timedelta()

    def record(self, run: RunDocument, *, allow_dirty: bool = False) -> str:
        """Store a run and return its id; repeating it changes nothing. Raises StoreError for an unfit run."""
        data = canonical_bytes(run, name="the run")
        self._upload(run.project, data, allow_dirty)
        return hashlib.sha256(data).hexdigest()

    def record_all(
        self, runs: Iterable[RunDocument], *, allow_dirty: bool = False, data: Sequence[bytes] | None = None
    ) -> list[str]:
        """Store several runs, one a request, and return the ids of those that were not there."""
        several = list(runs)
        encoded = data or [canonical_bytes(run, name="the run") for run in several]
        new = []
        for run, document in zip(several, encoded):
            if self._upload(run.project, document, allow_dirty):
                new.append(hashlib.sha256(document).hexdigest())
        return new

    def revision(self, project: str) -> str:
        return self._read(f"{_project(project)}/revision", str)

    def runs(self, project: str, *, limit: int | None = None, before: StoredRun | None = None) -> list[StoredRun]:
        """The runs of a project, newest session first; with ``before`` those that follow it in this order."""
        runs: list[StoredRun] = []
        while limit is None or len(runs) < limit:
            most = _PAGE if limit is None else min(_PAGE, limit - len(runs))
            last = runs[-1] if runs else before
            query = {"limit": str(most), **({"before": last.id} if last is not None else {})}
            page = self._read(f"{_project(project)}/runs", list[StoredRun], query)
            runs += page
            if len(page) < most:
                break
        return runs

    def find(self, project: str, run_id: str) -> StoredRun | None:
        try:
            return self._read(f"{_project(project)}/runs/{run_id}/listed", StoredRun)
        except UnknownRunError:
            return None

    def damaged(self, project: str) -> list[str]:
        return self._read(f"{_project(project)}/damaged", list[str])

    def projects(self) -> list[str]:
        return self._read("projects", list[str])

    def show(self, run_id: str) -> RunDocument:
        """The document of a run, by its id or a prefix of it."""
        try:
            return parse_run(self._send("GET", "runs", query={"id": run_id}).body, name=f"run {run_id[:12]!a}")
        except DocumentError as error:
            raise StoreError(str(error)) from error

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
        """One metric of a series, oldest session first; ``labels`` are those beside the shape (e.g. batch)."""
        query = {"workload": workload, "fingerprint": fingerprint, "metric": metric, "shape": shape}
        query["labels"] = msgspec.json.encode(dict(labels or {})).decode()
        if newest is not None:
            query["newest"] = str(newest)
        return self._read(f"{_project(project)}/history", list[HistoryValue], query)

    def recent(self, project: str, places: Sequence[SeriesPlace], *, newest: int) -> RecentValues:
        """The values of the newest sessions in each of several series of one testbed, in the order of ``places``."""
        answers = [
            self._recent(project, places[start : start + _SERIES_AT_ONCE], newest)
            for start in range(0, len(places), _SERIES_AT_ONCE)
        ]
        return recent_values(
            [(answer.runs[at], value) for at, value in values] for answer in answers for values in answer.values
        )

    def _recent(self, project: str, places: Sequence[SeriesPlace], newest: int) -> RecentValues:
        names = [[place.workload, place.shape, place.metric, place.labels] for place in places]
        query = {
            "series": msgspec.json.encode(names).decode(),
            "fingerprint": places[0].fingerprint,
            "newest": str(newest),
        }
        return self._read(f"{_project(project)}/recent", RecentValues, query)

    def series(self, project: str) -> list[Series]:
        return self._read(f"{_project(project)}/series", list[Series])

    def append(self, project: str, statements: Sequence[Statement]) -> None:
        """Store statements of one kind, one a request; each replaces an earlier one with the same key."""
        for statement in statements:
            path = f"{_project(project)}/{statement_name(type(statement))}"
            self._send("POST", path, msgspec.json.encode(statement))

    def statements(self, project: str, kind: type[Statement]) -> list[Statement]:
        """The statements of a kind about a project, newest first."""
        return self._read(f"{_project(project)}/{statement_name(kind)}", list[kind])  # type: ignore[valid-type]

    def prune(self, project: str, *, keep: int) -> int:
        """Always refused: a token that can upload must not be able to remove main's history."""
        raise StoreError(
            "runs of {project!a} are not removed through {address}; run `perfgate baseline prune --keep {keep}` with "
            "--store and --project on the machine of the service",
            project=project,
            address=self._address,
            keep=keep,
        )

    def documents(self, runs: Sequence[StoredRun]) -> list[StoredDocument]:
        """The documents of stored runs as they were recorded, in their order; none of them is checked."""
        return [
            StoredDocument(
                id=run.id,
                recorded_at=run.recorded_at,
                data=self._send("GET", f"{_project(run.project)}/runs/{run.id}").body,
            )
            for run in runs
        ]

    def entries(self, runs: Sequence[StoredRun]) -> list[RunEntry]:
        """What lists and series hold of stored runs, made here from their documents."""
        return [run_entry(intact_run(document), document) for document in self.documents(runs)]

    def restore(self, documents: Iterable[StoredDocument]) -> None:  # noqa: ARG002 - always refused
        """Always refused: when a run was recorded is the service's own to say."""
        raise StoreError(
            "runs of another store are not copied through {address}; copy them into its store on its own machine",
            address=self._address,
        )

    def ledger(self) -> None:
        """None: the service keeps it, and `perfgate token` runs on its machine."""

    def clock_ahead(self) -> timedelta:
        """How far the service's clock is ahead of this machine's, by its last answer."""
        return self._ahead

    def acting_as(self, actor: str) -> ServiceStore:  # noqa: ARG002 - the service knows the actor by the token
        return self

    def _upload(self, project: str, document: bytes, allow_dirty: bool) -> bool:
        """Store a document; return whether it was not there before."""
        path = f"{_project(project)}/runs/{hashlib.sha256(document).hexdigest()}"
        answer = self._send("PUT", path, document, {"allow_dirty": "true" if allow_dirty else "false"})
        return answer.status == HTTPStatus.CREATED

    def _read(self, path: str, kind: type[T], query: Mapping[str, str] | None = None) -> T:
        return self._decoded(self._send("GET", path, query=query).body, kind)

    def _decoded(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreRefusedError(
                "{address} sent something that is not the answer of a perfgate service ({error}); is the address right, "
                "and its perfgate as new as this one?",
                address=self._address,
                error=error,
            ) from None

    def _send(
        self, method: str, path: str, data: bytes | None = None, query: Mapping[str, str] | None = None
    ) -> _Answer:
        for wait in (*_WAITS, None):
            try:
                answer = self._try(method, f"{self._address}/api/v1/{path}", data, query)
            except requests.exceptions.SSLError as error:
                raise StoreRefusedError(
                    "{address}: {error}; set REQUESTS_CA_BUNDLE to the file with the authority that signed its certificate",
                    address=self._address,
                    error=str(error)[:300],
                ) from None
            except requests.RequestException as error:
                why = str(error)[:300]
            else:
                if answer.status not in _TRANSIENT:
                    self._refuse(answer)
                    return answer
                why = _refusal(answer.body) or f"HTTP {answer.status}"
            if wait is not None:
                self._sleep(wait)
        raise StoreRefusedError(
            "{address} cannot be reached, after {tries} tries: {why}; nothing is lost, repeat the command later",
            address=self._address,
            tries=len(_WAITS) + 1,
            why=why,
        )

    def _try(self, method: str, url: str, data: bytes | None, query: Mapping[str, str] | None) -> _Answer:
        # No redirect is followed: the token would go along.
        with self._open().request(
            method,
            url,
            params=query,
            data=data,
            headers={"Content-Type": "application/json"} if data is not None else {},
            timeout=(_CONNECT_SECONDS, _READ_SECONDS),
            allow_redirects=False,
            stream=True,
        ) as response:
            self._ahead = _ahead(response.headers.get("Date", ""))
            body = bytearray()
            for chunk in response.iter_content(_CHUNK):
                body += chunk
                if len(body) > MAX_BYTES:
                    raise StoreRefusedError(
                        "{address} sent more than {most} bytes; is it a perfgate service?",
                        address=self._address,
                        most=MAX_BYTES,
                    )
            return _Answer(response.status_code, bytes(body))

    def _open(self) -> requests.Session:
        if self._process != os.getpid():
            self._session, self._process = requests.Session(), os.getpid()
            self._session.auth = _Token(self._token)
            # A proxy of the environment must not get requests to this machine.
            self._session.trust_env = not self._is_local
            self._session.headers["User-Agent"] = f"perfgate/{__version__}"
        return self._session

    def _refuse(self, answer: _Answer) -> None:
        """Raise StoreError unless the answer is a success."""
        status = answer.status
        if status in (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT):
            return
        said = _refusal(answer.body)
        kind = _ERRORS.get(status)
        if said is not None and kind is not None:
            raise kind("{said}", said=said)
        if status == HTTPStatus.UNAUTHORIZED:
            raise StoreRefusedError(
                "{address} knows no such token; put a valid one into {variable}, made by `perfgate token create` on the "
                "machine of the service. A command that measures removes it first: measure, then record the result with --run",
                address=self._address,
                variable=TOKEN_VARIABLES[0],
            )
        raise StoreRefusedError(
            "{address} answers HTTP {status}: {said}", address=self._address, status=status, said=said or "no reason"
        )


_ERRORS: dict[int, type[StoreError]] = {
    HTTPStatus.NOT_FOUND: UnknownRunError,
    HTTPStatus.CONFLICT: SessionKeptError,
    HTTPStatus.UNPROCESSABLE_ENTITY: UnfitRunError,
}


def _refusal(body: bytes) -> str | None:
    """The reason in a refusal of the service; None for the page of a proxy or another server."""
    try:
        return msgspec.json.decode(body, type=ServedError).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _ahead(date: str) -> timedelta:
    """How far the clock that wrote a Date header (RFC 9110, 6.6.1) is ahead of this machine's; 0 without one."""
    try:
        return parsedate_to_datetime(date) - datetime.now(timezone.utc)
    except (TypeError, ValueError):
        return timedelta()


def _project(project: str) -> str:
    return f"projects/{quote(project, safe='')}"
