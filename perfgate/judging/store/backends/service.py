"""The store behind `perfgate serve` on another machine, over its REST interface."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import requests
from requests.auth import AuthBase

from perfgate.document.served import ServedError
from perfgate.document.strict_json import MAX_BYTES
from perfgate.errors import (
    SessionKeptError,
    StoreError,
    StoreRefusedError,
    StoreUnreachableError,
    UnfitRunError,
    UnknownRunError,
)
from perfgate.judging.store.ledger import TOKEN_PREFIX
from perfgate.judging.store.store import (
    ALL_RUNS,
    COPIER,
    LOCAL,
    NO_DOCUMENTS,
    SERVICE_SCHEMES,
    Entry,
    LogEntry,
    LogState,
    Page,
    RunEntry,
    StoredDocument,
    StoredProjects,
    StorePlace,
    entry_name,
    shown_location,
    unknown_run,
)
from perfgate.system.loopback import is_loopback_host
from perfgate.version import __version__

# The first that is set counts. A job may need PERFGATE_TOKEN for its forge.
TOKEN_VARIABLES = ("PERFGATE_STORE_TOKEN", "PERFGATE_TOKEN")
_CONNECT_SECONDS, _READ_SECONDS = 10.0, 60.0
# Waits before another try. Every request may be repeated, as writing twice changes no
# entry.
_WAITS = (0.5, 1.0, 2.0, 4.0)
# A wait that the service asks for is kept up to this long; after the last try the run
# waits on disk.
_LONGEST_WAIT = 10.0
_TRANSIENT = (
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_PAGE = 1_000
_CHUNK = 65_536
# An id, or its beginning; anything else would be another address.
_RUN_ID = re.compile("[0-9A-Fa-f]{1,64}")
T = TypeVar("T")


def accepts(location: str) -> bool:
    return location.startswith(SERVICE_SCHEMES)


def open_backend(location: str, place: StorePlace) -> ServiceStore:
    """The store at an address, connected on first use. Raises StoreError for an unsafe
    address.
    """
    try:
        parts = urlsplit(location)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise StoreError(
            "{location} is not an address of a service: {error}",
            location=shown_location(location),
            error=error,
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
    return ServiceStore(
        location.rstrip("/"),
        service_token(place.environ),
        is_local=is_loopback_host(host),
    )


def service_token(environ: Mapping[str, str]) -> str | None:
    """The token of a service in the environment; None if no variable holds one. A token
    of a forge is never sent.
    """
    for name in TOKEN_VARIABLES:
        value = environ.get(name, "").strip()
        if value.startswith(TOKEN_PREFIX) and value.isascii():
            return value
    return None


class _Token(AuthBase):
    """The token as an auth object: without one requests would send the ~/.netrc entry
    of the host.
    """

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Sign a request."""
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class _Answer(NamedTuple):
    """The status and body of a response, and the seconds to wait that it asks for."""

    status: int
    body: bytes
    retry_after: float = 0.0


class ServiceStore:
    """The Store of a service. Its connections are kept between calls, and made anew
    after a fork.
    """

    def __init__(
        self,
        address: str,
        token: str | None,
        *,
        is_local: bool,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address = address
        self._token = token
        self._is_local = is_local
        self._sleep = sleep
        self._session = requests.Session()
        self._process = 0
        self._ahead = timedelta()

    def append(
        self,
        project: str,
        entries: Sequence[LogEntry],
        documents: Mapping[str, bytes] = NO_DOCUMENTS,
        *,
        actor: str = LOCAL,
    ) -> list[str]:
        """Add entries, one a request; return the ids of the new runs.

        The service knows the writer by the token.
        """
        new: list[str] = []
        for entry in entries:
            if not isinstance(entry, RunEntry):
                self._send(
                    "POST",
                    _path(project, entry_name(type(entry))),
                    msgspec.json.encode(entry),
                )
            elif actor == COPIER:
                raise StoreError(
                    "runs of another store are not copied through {address}; copy them into its store on its own machine",
                    address=self._address,
                )
            elif self._upload(project, entry, documents[entry.run.id]):
                new.append(entry.run.id)
        return new

    def entries(
        self, project: str, kind: type[Entry], page: Page = ALL_RUNS
    ) -> list[Entry]:
        """The entries of a kind, newest first; ``page`` selects runs."""
        entries: list[Entry] = []
        query: dict[str, str] = {}
        if page.testbed is not None:
            query["testbed"] = page.testbed
        if page.before is not None:
            query["before"] = page.before
        while page.limit is None or len(entries) < page.limit:
            limit = _PAGE
            if page.limit is not None:
                limit = min(_PAGE, page.limit - len(entries))
            query["limit"] = str(limit)
            path = _path(project, entry_name(kind))
            part: list[Entry] = self._read(path, list[kind], query)  # type: ignore[valid-type]
            entries += part
            # Statements have no pages.
            if len(part) < limit or not isinstance(part[-1], RunEntry):
                break
            query["before"] = part[-1].run.id
        return entries

    def documents(self, project: str, run_ids: Sequence[str]) -> list[StoredDocument]:
        """The documents of runs as they were recorded, by their ids or the beginnings
        of these.
        """
        return [self._document(project, run_id) for run_id in run_ids]

    def remove(
        self,
        project: str,
        run_ids: Sequence[str],  # noqa: ARG002 - refused
        *,
        actor: str = LOCAL,  # noqa: ARG002 - refused
    ) -> int:
        """Always refused: a token that can upload must not be able to remove main's
        history.
        """
        raise StoreError(
            "runs of {project!a} are not removed through {address}; run `perfgate baseline remove` or `prune` with --store "
            "and --project on the machine of the service",
            project=project,
            address=self._address,
        )

    def projects(self) -> list[str]:
        return self._read("projects", list[str])

    def stored_projects(self) -> StoredProjects:
        """The projects that the service lists: those with a stored run."""
        return StoredProjects(self.projects())

    def revision(self, project: str) -> str:
        return self._state(project).revision

    def damaged(self, project: str) -> list[str]:
        return self._state(project).damaged

    def ledger(self) -> None:
        """None: the service keeps it, and `perfgate token` runs on its machine."""

    def clock_ahead(self) -> timedelta:
        """How far the service's clock is ahead of this machine's, by its last answer."""
        return self._ahead

    def _upload(self, project: str, entry: RunEntry, document: bytes) -> bool:
        """Store a document; return whether it was not there before."""
        # A run with uncommitted changes was packed only because that was allowed.
        query = {"allow_dirty": "true" if entry.run.dirty else "false"}
        answer = self._answer(
            "PUT", _path(project, f"runs/{entry.run.id}"), document, query
        )
        if _may_be_taken_later(answer.status):
            raise StoreUnreachableError(
                "{address} answers HTTP {status}: {said}",
                address=self._address,
                status=answer.status,
                said=_refusal(answer.body) or "no reason",
            )
        self._refuse(answer)
        return answer.status == HTTPStatus.CREATED

    def _document(self, project: str, run_id: str) -> StoredDocument:
        if not _RUN_ID.fullmatch(run_id):
            raise unknown_run(run_id, name=self._address)
        data = self._send("GET", _path(project, f"runs/{run_id}")).body
        digest = hashlib.sha256(data).hexdigest()
        if digest.startswith(run_id.lower()):
            run_id = digest
        return StoredDocument(id=run_id, name=f"run {run_id[:12]}", data=data)

    def _state(self, project: str) -> LogState:
        return self._read(_path(project, "state"), LogState)

    def _read(
        self, path: str, kind: type[T], query: Mapping[str, str] | None = None
    ) -> T:
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
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        query: Mapping[str, str] | None = None,
    ) -> _Answer:
        answer = self._answer(method, path, data, query)
        self._refuse(answer)
        return answer

    def _answer(
        self,
        method: str,
        path: str,
        data: bytes | None,
        query: Mapping[str, str] | None,
    ) -> _Answer:
        """The answer that is not one of a service that is away for a moment."""
        for wait in (*_WAITS, None):
            retry_after = 0.0
            try:
                answer = self._try(
                    method, f"{self._address}/api/v1/{path}", data, query
                )
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
                    return answer
                why = _refusal(answer.body) or f"HTTP {answer.status}"
                retry_after = answer.retry_after
            if wait is not None:
                self._sleep(max(wait, retry_after))
        raise StoreUnreachableError(
            "{address} cannot be reached, after {tries} tries: {why}; repeat the command later",
            address=self._address,
            tries=len(_WAITS) + 1,
            why=why,
        )

    def _try(
        self, method: str, url: str, data: bytes | None, query: Mapping[str, str] | None
    ) -> _Answer:
        headers: dict[str, str] = {}
        if data is not None:
            headers["Content-Type"] = "application/json"
        # No redirect is followed: the token would go along.
        with self._open().request(
            method,
            url,
            params=query,
            data=data,
            headers=headers,
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
            return _Answer(
                response.status_code,
                bytes(body),
                _seconds(response.headers.get("Retry-After", "")),
            )

    def _open(self) -> requests.Session:
        if self._process != os.getpid():
            self._session = requests.Session()
            self._process = os.getpid()
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
        reason = _refusal(answer.body)
        kind = _ERRORS.get(status)
        if reason is not None and kind is not None:
            raise kind("{said}", said=reason)
        if status == HTTPStatus.UNAUTHORIZED:
            raise StoreRefusedError(
                "{address} knows no such token; put a valid one into {variable}, made by `perfgate token create` on the "
                "machine of the service. A command that measures removes it first: measure, then record the result with --run",
                address=self._address,
                variable=TOKEN_VARIABLES[0],
            )
        raise StoreRefusedError(
            "{address} answers HTTP {status}: {said}",
            address=self._address,
            status=status,
            said=reason or "no reason",
        )


_ERRORS: dict[int, type[StoreError]] = {
    HTTPStatus.NOT_FOUND: UnknownRunError,
    HTTPStatus.CONFLICT: SessionKeptError,
    HTTPStatus.UNPROCESSABLE_ENTITY: UnfitRunError,
}


def _may_be_taken_later(status: int) -> bool:
    """Whether an upload failed by the service or a proxy before it, which may have
    numbers of its own, and not by the run.
    """
    return (
        status >= HTTPStatus.INTERNAL_SERVER_ERROR
        or status == HTTPStatus.TOO_MANY_REQUESTS
    )


def _refusal(body: bytes) -> str | None:
    """The reason in a refusal of the service; None for the page of a proxy or another
    server.
    """
    try:
        return msgspec.json.decode(body, type=ServedError).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _ahead(date: str) -> timedelta:
    """How far the clock that wrote a Date header (RFC 9110, 6.6.1) is ahead of this
    machine's; 0 without one.
    """
    try:
        return parsedate_to_datetime(date) - datetime.now(timezone.utc)
    except (TypeError, ValueError):
        return timedelta()


def _seconds(retry_after: str) -> float:
    """The seconds of a Retry-After header (RFC 9110, 10.2.3), within bounds; 0 without
    one, and for a date.
    """
    seconds = (
        float(retry_after[:9])
        if retry_after.isascii() and retry_after.isdecimal()
        else 0.0
    )
    return min(seconds, _LONGEST_WAIT)


def _path(project: str, rest: str) -> str:
    return f"projects/{quote(project, safe='')}/{rest}"
