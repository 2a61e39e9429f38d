"""Admission of requests: by the name of the host and by token, before any other code of
the service sees them.

Without a token, which is possible on the loopback interface alone, only requests to a
name of this machine are answered, so that no foreign page can send requests through a
browser (DNS rebinding). With a token every request needs one, except for the health.
"""

from __future__ import annotations

import re
from dataclasses import replace
from http import HTTPStatus
from urllib.parse import parse_qsl, quote, urlencode

from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perfgate.errors import StoreError
from perfgate.locale import Activity, Language
from perfgate.service.answers import refused_request
from perfgate.service.callers import NEIGHBOUR, PROBE, Authenticator, Caller, form_key
from perfgate.service.project_names import with_whole_name
from perfgate.service.trouble_log import TroubleLog

HEALTH = "/api/v1/health"
_COOKIE = "perfgate-token"
_LOCAL_NAMES = {"localhost", "127.0.0.1", "::1"}
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# A name or address, and a port (RFC 3986, 3.2.2 and 3.2.3).
_HOST = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._~-]*))(?::(?P<port>[0-9]{0,5}))?"
)
_LARGEST_PORT = 65535


class Admission:
    """Wraps an application: refuses, or passes on with the caller, and gives every
    response the same security headers.
    """

    def __init__(
        self,
        application: ASGIApp,
        authenticator: Authenticator,
        troubles: TroubleLog,
        language: Language,
    ) -> None:
        self._application = application
        self._authenticator = authenticator
        self._troubles = troubles
        self._language = language

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        # FastAPI has no HEAD; the server sends the headers of a GET alone (RFC 9110,
        # 9.3.2).
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        try:
            refusal = await run_in_threadpool(self._refusal, Request(scope))
        except StoreError as error:
            # Clients repeat a request that was answered with 503.
            self._troubles.note(str(error))
            refusal = self._refused(
                Request(scope),
                Activity("the store with the tokens cannot be read now; repeat it"),
                HTTPStatus.SERVICE_UNAVAILABLE,
            )
        answer = refusal or self._application
        await answer(with_whole_name(scope), receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """The response to a request that is not admitted: a refusal, or the redirect
        without the token.
        """
        try:
            host = host_name(request.headers.get("Host", ""))
        except ValueError:
            return self._refused(
                request,
                Activity("the Host header is not a host name"),
                HTTPStatus.BAD_REQUEST,
            )
        if self._authenticator.is_open and host not in _LOCAL_NAMES:
            return self._refused(
                request,
                Activity(
                    "this server only accepts requests addressed to its own machine"
                ),
                HTTPStatus.FORBIDDEN,
            )
        token = request.query_params.get("token", "")
        if not self._authenticator.is_open and self._authenticator.caller(token):
            return _without_token(request, token)
        caller = self._caller(request)
        if caller is None:
            return self._refused(
                request,
                Activity(
                    "a token is needed: Authorization: Bearer TOKEN, or ?token=TOKEN"
                ),
                HTTPStatus.UNAUTHORIZED,
            )
        request.state.caller = caller
        return None

    def _refused(self, request: Request, error: str, status: HTTPStatus) -> Response:
        return refused_request(request, error, status, self._language)

    def _caller(self, request: Request) -> Caller | None:
        if bearer := _bearer(request):
            return self._authenticator.caller(bearer)
        cookie = _sent(request.cookies.get(_COOKIE, ""))
        if by_cookie := self._authenticator.caller(cookie):
            # A browser sends its cookie with requests that a foreign page made up, too.
            key = form_key(cookie) if by_cookie.may_write else ""
            return replace(by_cookie, may_write=False, form_key=key)
        if self._authenticator.is_open:
            return NEIGHBOUR
        if request.scope["path"] == HEALTH:
            return PROBE
        return None


def _without_token(request: Request, token: str) -> Response:
    """Keep the token out of the browser's history: the browser stores it in a cookie
    and repeats the request.
    """
    query = parse_qsl(
        request.scope["query_string"].decode("latin-1"), keep_blank_values=True
    )
    rest = [(name, value) for name, value in query if name != "token"]
    # Two leading slashes would redirect to another machine, and browsers take a
    # backslash for a slash.
    address = request.scope["raw_path"].decode("latin-1")
    location = "/" + quote(address.lstrip("/"), safe="/%")
    if rest:
        location += f"?{urlencode(rest)}"
    response = Response(
        status_code=HTTPStatus.SEE_OTHER, headers={"Location": location}
    )
    response.set_cookie(_COOKIE, token, httponly=True, samesite="strict")
    return response


def host_name(header: str) -> str:
    """The name or address in a Host header, in lower case. Raises ValueError for
    anything else.
    """
    match = _HOST.fullmatch(header)
    if match is None or int(match["port"] or 0) > _LARGEST_PORT:
        raise ValueError(header)
    return str(match["address"] or match["name"]).lower()


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return ""
    return _sent(token.strip())


def _sent(header: str) -> str:
    """The text that was sent as UTF-8; bytes that are none become surrogates."""
    return header.encode("latin-1").decode(errors="surrogateescape")
