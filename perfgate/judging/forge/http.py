"""Requests to a forge: the token is sent to its API only; answers and waits are
bounded.
"""

from __future__ import annotations

import contextlib
import email.utils
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec
import requests

from perfgate.errors import ForgeError, ForgeGoneError, ForgeUnansweredError
from perfgate.judging.forge.forge import Sleep, WallClock
from perfgate.judging.forge.session import (
    BearerAuth,
    NothingArrivedError,
    TooSlowError,
    download,
    open_session,
    read_bounded,
    within,
)
from perfgate.judging.forge.url import api_root, check_page_url, is_same_host, shown
from perfgate.locale import Activity

Query = Mapping[str, str | int | list[str]]
T = TypeVar("T")

CONNECT_TIMEOUT, READ_TIMEOUT, ANSWER_TIMEOUT = 10.0, 30.0, 120.0
# Enough for an artifact; a page of an API list is far smaller.
MAX_ANSWER_BYTES = 20 * 1024 * 1024
MAX_REQUEST_BYTES = 1024 * 1024
MAX_PAGES = 500
TRIES = 5
# Seconds over all requests: CI ends our job after 15 minutes, and then it could not
# report the reason.
MAX_WAIT = 600.0
SHORT_WAIT, SECONDARY_WAIT = 1.0, 60.0
TRANSIENT = (500, 502, 503, 504)
REDIRECTS = (302, 303, 307)
DOWNLOADS = 3
RIGHTS = (
    "give the job write permission for comments and statuses (a change request from a fork never gets it: post from a "
    "workflow_run job instead)"
)


@dataclass(frozen=True)
class HttpAnswer:
    """An answer of an expected status: its bytes and the address of the next page,
    checked to be on the same host.

    ``location`` is the target of a redirect, unchecked.
    """

    status: int
    body: bytes
    next_url: str | None
    location: str = ""


class _Request(NamedTuple):
    """A request to send.

    ``where`` names it in errors; ``repeatable`` means idempotent.
    """

    method: str
    url: str
    where: str
    expected: tuple[int, ...]
    query: Query | None
    data: bytes | None
    repeatable: bool


class ForgeSession:
    """Requests to one API root with one token.

    ``sleep`` and ``clock`` (seconds since the epoch) are parameters, so that tests do
    not wait. ``rights`` is the advice about the rights the token needs on this forge.
    An answer may take ``answer_timeout`` seconds in all.
    """

    def __init__(
        self,
        api_url: str,
        token: str,
        *,
        accept: str,
        sleep: Sleep,
        clock: WallClock,
        ca_file: str | None = None,
        scheme: str = "Bearer",
        rights: str = RIGHTS,
        answer_timeout: float = ANSWER_TIMEOUT,
    ) -> None:
        self._root = api_root(api_url)
        self._auth = BearerAuth(token, scheme)
        self._rights = rights
        self._sleep = sleep
        self._clock = clock
        self._answer_timeout = answer_timeout
        self._waited = 0.0
        # As an argument of every request: requests lets REQUESTS_CA_BUNDLE overwrite
        # the session's own setting.
        self._verify: bool | str = ca_file or True
        self._session = open_session(self._root, self._auth, {"Accept": accept})

    def __repr__(self) -> str:
        return f"ForgeSession({self._root})"

    def get(
        self,
        path: str,
        kind: type[T],
        *,
        query: Query | None = None,
        field: str | None = None,
    ) -> T:
        """Read one value, or one field of it.

        ``kind`` is the record that the value or field must fit.
        """
        return self._decode(
            self._request("GET", path, (200,), query=query).body, kind, path, field
        )

    def get_unless_refused(
        self, path: str, kind: type[T], *, refused: int, field: str | None = None
    ) -> T | None:
        """Read one value or field, or None if the forge answers with the status
        ``refused``.
        """
        answer = self._request("GET", path, (200, refused))
        if answer.status == refused:
            return None
        return self._decode(answer.body, kind, path, field)

    def pages(
        self,
        path: str,
        kind: type[T],
        *,
        query: Query | None = None,
        field: str | None = None,
    ) -> Iterator[T]:
        """Yield the elements of a list over all its pages; the list may be a field of
        each answer.
        """
        for answer in self._answers(path, query):
            elements = self._decode(answer.body, list[kind], path, field)  # type: ignore[valid-type]  # made here, for msgspec
            yield from elements

    def _answers(self, path: str, query: Query | None) -> Iterator[HttpAnswer]:
        url: str | None = self._root + path
        for _ in range(MAX_PAGES):
            answer = self._request("GET", url or "", (200,), query=query)
            yield answer
            url, query = answer.next_url, None
            if url is None:
                return
        raise ForgeError(
            "{path} has more than {most} pages; perfgate stops here",
            path=path,
            most=MAX_PAGES,
        )

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any],
        kind: type[T],
        *,
        expect: int | tuple[int, ...],
        repeatable: bool,
        field: str | None = None,
    ) -> T:
        """Send a write and read the answer, or one field of it; ``repeatable`` means
        idempotent.

        Raises ForgeUnansweredError if a write that is not repeatable got no answer, and
        ForgeGoneError if its target is gone.
        """
        expected = expect if isinstance(expect, tuple) else (expect,)
        answer = self._request(
            method, path, expected, data=_bounded(body, path), repeatable=repeatable
        )
        return self._decode(answer.body, kind, path, field)

    def replace(self, method: str, path: str, body: Mapping[str, Any]) -> None:
        """Overwrite something that others may overwrite too; the request is sent once.

        If the forge asks to wait or does not answer, this waits and raises
        ForgeUnansweredError: by then the forge may hold a newer text, so the caller
        must read again. Raises ForgeGoneError if the target is gone.
        """
        self._request(method, path, (200,), data=_bounded(body, path), again=False)

    def delete(self, path: str) -> None:
        """Delete something; not an error if it is already gone."""
        self._request("DELETE", path, (204, 200, 404))

    def download(self, path: str) -> bytes:
        for attempt in range(1, DOWNLOADS + 1):
            answer = self._request("GET", path, (200, *REDIRECTS))
            if answer.status == 200:
                return answer.body
            try:
                # The forge's own CA file applies to its host only.
                on_forge = isinstance(self._verify, str) and is_same_host(
                    answer.location, self._root
                )
                return download(
                    answer.location,
                    api_root=self._root,
                    most_bytes=MAX_ANSWER_BYTES,
                    verify=self._verify if on_forge else True,
                )
            except NothingArrivedError:
                # Storage addresses are valid for a minute: ask for a new one.
                if attempt == DOWNLOADS:
                    raise
                self._sleep(2.0**attempt)
        raise AssertionError("the last try returns or raises")

    def refusal(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any],
        *,
        expect: int,
        refused: int,
    ) -> str | None:
        """Send a write that may be refused with one known status; return the forge's
        text if it was, else None.
        """
        answer = self._request(
            method, path, (expect, refused), data=_bounded(body, path), repeatable=True
        )
        if answer.status == refused:
            return answer.body.decode(errors="replace")
        return None

    def _request(
        self,
        method: str,
        path: str,
        expected: tuple[int, ...],
        *,
        query: Query | None = None,
        data: bytes | None = None,
        repeatable: bool = True,
        again: bool = True,
    ) -> HttpAnswer:
        url = path if path.startswith(self._root) else self._root + path
        request = _Request(
            method,
            url,
            f"{method} {urlsplit(url).path}",
            expected,
            query,
            data,
            repeatable,
        )
        for attempt in range(TRIES):
            refusal = self._try(request)
            if isinstance(refusal, HttpAnswer):
                return refusal
            wait = wait_after(refusal, attempt, self._clock())
            if attempt == TRIES - 1 or self._waited + wait > MAX_WAIT:
                raise ForgeError(
                    "{where}: {reason}, after {attempt} tries; run the job again later",
                    where=request.where,
                    reason=refusal.reason,
                    attempt=attempt + 1,
                )
            self._waited += wait
            self._sleep(wait)
            if not again:
                raise ForgeUnansweredError(
                    "{where}: {reason}; the request may or may not have been carried out",
                    where=request.where,
                    reason=refusal.reason,
                )
        raise AssertionError("the last try returns or raises")

    def _try(self, request: _Request) -> HttpAnswer | Refusal:
        """Send once: an HttpAnswer, a Refusal that a later try may lift, or ForgeError."""
        try:
            response, body = within(
                self._answer_timeout, request.where, lambda: self._send(request)
            )
        except TooSlowError as error:
            if request.repeatable:
                raise
            raise ForgeUnansweredError(
                "{error}; the request may or may not have been carried out", error=error
            ) from None
        except requests.exceptions.SSLError as error:
            # Waiting does not repair a certificate.
            raise ForgeError(
                "{where}: {error}; is the forge's CA file configured?",
                where=self._auth.scrub(request.where),
                error=self._auth.scrub(str(error)),
            ) from None
        except requests.RequestException as error:
            # The request may have been carried out before the connection broke.
            if not request.repeatable and not isinstance(
                error, requests.ConnectTimeout
            ):
                raise ForgeUnansweredError(
                    "{where}: no answer ({error}); the request may or may not have been carried out",
                    where=self._auth.scrub(request.where),
                    error=self._auth.scrub(str(error)),
                ) from None
            return Refusal(
                Activity("no answer ({error})", error=self._auth.scrub(str(error))), {}
            )
        return self._judge(response, body, request)

    def _send(self, request: _Request) -> tuple[requests.Response, bytes]:
        with self._session.request(
            request.method,
            request.url,
            params=request.query,
            data=request.data,
            headers={"Content-Type": "application/json"}
            if request.data is not None
            else {},
            timeout=(CONNECT_TIMEOUT, READ_TIMEOUT),
            allow_redirects=False,
            verify=self._verify,
            stream=True,
        ) as response:
            body = read_bounded(
                response,
                request.where,
                most_bytes=MAX_ANSWER_BYTES,
                advice=Activity("this is not the API"),
            )
            return response, body

    def _judge(
        self, response: requests.Response, body: bytes, request: _Request
    ) -> HttpAnswer | Refusal:
        status = response.status_code
        headers = {name.lower(): value for name, value in response.headers.items()}
        limited = is_rate_limit(status, headers, body)
        if status in request.expected and not limited:
            next_url = response.links.get("next", {}).get("url")
            page = None
            if next_url:
                page = check_page_url(next_url, self._root)
            return HttpAnswer(status, body, page, headers.get("location", ""))
        if limited:
            return Refusal(
                Activity("the forge asks to slow down (HTTP {status})", status=status),
                headers,
                limited=True,
            )
        if request.repeatable and (status in TRANSIENT or status == 409):
            # 409: GitLab, while another update of the same pipeline runs.
            return Refusal(
                Activity("the forge answers HTTP {status}", status=status), headers
            )
        kind = {
            404: ForgeGoneError,
            **dict.fromkeys(TRANSIENT, ForgeUnansweredError),
        }.get(status, ForgeError)
        moved = self._auth.scrub(response.headers.get("Location", ""))
        text = "".join(
            c if c.isprintable() else " " for c in body[:2000].decode(errors="replace")
        )
        words = self._auth.scrub(" ".join(text.split())[:300])
        why = _explain(status, words, self._rights)
        if 300 <= status < 400:
            why = Activity(
                "HTTP {status}, a redirect to {address}, is not followed, because the token would go along; was the "
                "repository renamed, or is the API address wrong?",
                status=status,
                address=shown(moved),
            )
        raise kind("{where}: {why}", where=self._auth.scrub(request.where), why=why)

    def _decode(
        self, body: bytes, kind: type[T], path: str, field: str | None = None
    ) -> T:
        try:
            answer: Any = msgspec.json.decode(
                body,
                type=kind
                if field is None
                else msgspec.defstruct("Answer", [(field, kind)]),
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ForgeError(
                "{path}: the answer is not what the API documents ({error}); is the API address right?",
                path=path,
                error=error,
            ) from None
        value: T = answer if field is None else getattr(answer, field)
        return value


def _bounded(body: Mapping[str, Any], path: str) -> bytes:
    data = json.dumps(body).encode()
    if len(data) > MAX_REQUEST_BYTES:
        raise ForgeError(
            "a request of {count} bytes to {path} is too large; {most_bytes} are sent at most",
            count=len(data),
            path=path,
            most_bytes=MAX_REQUEST_BYTES,
        )
    return data


def _explain(status: int, words: str, rights: str) -> Activity:
    return Activity(
        "HTTP {status}: {advice}. Response of the forge: {words}",
        status=status,
        advice={
            401: Activity(
                "the token is not valid (expired, revoked, or of another server)"
            ),
            202: Activity(
                "the forge interpreted the whole text as quick actions and stored nothing"
            ),
            403: Activity("the token may not do this; {rights}", rights=rights),
            404: Activity("not found, or the token may not see it"),
            413: Activity("the text is too long"),
            422: Activity("the forge found the request invalid"),
        }.get(status, Activity("an unexpected response")),
        words=words or Activity("(nothing)"),
    )


@dataclass(frozen=True)
class Refusal:
    """A failed try that may succeed later.

    ``headers`` are the response's, names in lower case.
    """

    reason: str
    headers: Mapping[str, str]
    limited: bool = False


def is_rate_limit(status: int, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether an answer means "later" rather than "no".

    GitHub uses 403 for both (docs.github.com, REST API, "Rate limits": retry-after,
    x-ratelimit-remaining 0, or a message about the secondary limit); GitLab uses 429
    only.
    """
    if status == 429:
        return True
    if status != 403:
        return False
    return (
        "retry-after" in headers
        or headers.get("x-ratelimit-remaining") == "0"
        or b"secondary rate limit" in body
    )


def wait_after(refusal: Refusal, attempt: int, now: float) -> float:
    """The seconds to wait before the next try; ``attempt`` counts from 0, ``now`` is
    seconds since the epoch.

    In the order GitHub documents: retry-after, then the reset time, then at least a
    minute, doubled each time. GitLab sends Retry-After and RateLimit-Reset.
    """
    headers = refusal.headers
    if (text := headers.get("retry-after")) is not None:
        # Seconds, or a date (RFC 9110, section 10.2.3).
        if text.strip().isdecimal():
            return float(text)
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    for prefix in ("x-ratelimit", "ratelimit"):
        reset = headers.get(f"{prefix}-reset", "")
        if headers.get(f"{prefix}-remaining") == "0" and reset.isdecimal():
            # One second more, for clock skew.
            return max(0.0, float(reset) - now) + 1.0
    return (SECONDARY_WAIT if refusal.limited else SHORT_WAIT) * 2.0**attempt
