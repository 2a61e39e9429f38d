"""``perfgate serve``: recordings over HTTP, as JSON and as pages.

Only recordings listed by the library can be requested, so no request leads out of its folder. On the loopback interface no
token is needed, and only requests to a name of this machine are answered, so that no foreign page can send requests through
a browser (DNS rebinding). On any other interface, every request needs a token.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import msgspec

from perfgate.conductor.load.connection import require_aiohttp
from perfgate.document.served import RecordingList, ServedError
from perfgate.errors import PerfgateError, UsageError
from perfgate.flows.trace.library import Library, folder_of, is_below, jobs_of, within
from perfgate.flows.trace.openapi import PROFILE_FORMATS, openapi_document
from perfgate.flows.trace.pages import Drawers, PageKind, PageRequest
from perfgate.judging.report.render.served import render_index
from perfgate.locale import Language

if TYPE_CHECKING:
    from aiohttp import web

_COOKIE = "perfgate-token"
_SHORTEST_TOKEN = 16
_EVERY_INTERFACE = ("0.0.0.0", "::")  # noqa: S104 - to compare with
_LOCAL_NAMES = {"localhost", "127.0.0.1", "::1"}
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_MOST_ROWS = 1_000
_Handler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]


@dataclass(frozen=True)
class ServeRequest:
    """The folder of recordings, the address to listen on (port 0: any free one), and the token (None: made if needed)."""

    folder: Path
    host: str
    port: int
    token: str | None
    language: Language
    is_open: bool = False


def serve(request: ServeRequest, say: Callable[[str], None]) -> None:
    """Serve until interrupted; ``say`` receives the address. Raises UsageError if listening there fails."""
    if not request.folder.is_dir():
        raise UsageError(f"{request.folder} is no folder; name the one that the recordings lie in")
    asyncio.run(_serve(request, say))


async def _serve(request: ServeRequest, say: Callable[[str], None]) -> None:
    aiohttp: ModuleType = require_aiohttp("serving recordings")
    from aiohttp import web

    if request.token is not None and len(request.token) < _SHORTEST_TOKEN:
        raise UsageError(
            f"the token has {len(request.token)} characters; anyone could guess it, take {_SHORTEST_TOKEN} or more"
        )
    if request.is_open and not is_loopback(request.host):
        raise UsageError(f"--no-token lets everyone read who reaches {request.host}; it is for 127.0.0.1 alone")
    token = None if request.is_open else request.token or secrets.token_urlsafe(24)
    with ThreadPoolExecutor(1) as readers:
        drawers = Drawers()
        server = _Server(aiohttp, Library(request.folder), readers, drawers, token, request.language)
        runner = web.AppRunner(server.app(), access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, request.host, request.port)
            try:
                await site.start()
            except OSError as error:
                raise UsageError(
                    f"cannot listen on {request.host} port {request.port}: {error.strerror}; choose another by --port"
                ) from error
            port = runner.addresses[0][1]
            host = socket.gethostname() if request.host in _EVERY_INTERFACE else request.host
            host = f"[{host}]" if ":" in host else host
            stop = asyncio.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
            say(f"http://{host}:{port}/" + (f"?token={quote(token)}" if token else ""))
            await stop.wait()
        finally:
            await runner.cleanup()
            drawers.close()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Server:
    def __init__(
        self,
        aiohttp: ModuleType,
        library: Library,
        readers: ThreadPoolExecutor,
        drawers: Drawers,
        token: str | None,
        language: Language,
    ) -> None:
        self._web: Any = aiohttp.web
        self._library, self._readers, self._drawers = library, readers, drawers
        self._token, self._language = token, language

    def app(self) -> web.Application:
        async def safely(request: web.Request, handler: _Handler) -> web.StreamResponse:
            return self._with_headers(await self._admitted(request, handler))

        application: web.Application = self._web.Application(middlewares=[self._web.middleware(safely)])
        application.router.add_get("/", self._index)
        application.router.add_get("/openapi.json", self._openapi)
        application.router.add_get("/api/recordings", partial(self._recordings, kinds=("run", "recording")))
        application.router.add_get("/api/runs", partial(self._recordings, kinds=("run",)))
        application.router.add_get("/api/requests", self._requests)
        application.router.add_get("/api/profile", self._profile)
        application.router.add_get("/flame", partial(self._page, kind="flame"))
        application.router.add_get("/timeline", partial(self._page, kind="timeline"))
        application.router.add_get("/ranks", self._ranks)
        return application

    async def _admitted(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            host = request.url.host or ""
        except ValueError:
            return self._json(ServedError(error="the Host header is no name of a machine"), 400)
        if self._token is None:
            if host not in _LOCAL_NAMES:
                return self._json(ServedError(error="this server answers to a name of its own machine alone"), 403)
        elif (given := request.query.get("token")) is not None and self._is_token(given):
            # Keeps the token out of the browser's history: the browser stores it in a cookie and repeats the request.
            rest = [(name, value) for name, value in request.query.items() if name != "token"]
            # Two leading slashes would redirect to another machine.
            location = "/" + str(request.rel_url.with_query(rest)).lstrip("/")
            response = self._web.Response(status=303, headers={"Location": location})
            response.set_cookie(_COOKIE, self._token, httponly=True, samesite="Strict")
            return response  # type: ignore[no-any-return]
        elif not self._is_token(_bearer(request.headers) or request.cookies.get(_COOKIE, "")):
            return self._json(ServedError(error="a token is needed: Authorization: Bearer TOKEN, or ?token=TOKEN"), 401)
        try:
            return await handler(request)
        except _BadParameterError as error:
            return self._json(ServedError(error=str(error)), 400)
        except UsageError as error:
            return self._json(ServedError(error=self._library.without_folder(str(error))), 404)
        except PerfgateError as error:
            return self._json(ServedError(error=self._library.without_folder(str(error))), 422)
        except self._web.HTTPException as error:
            response = self._json(ServedError(error=error.reason), error.status)
            response.headers.update({name: error.headers[name] for name in ("Allow",) if name in error.headers})
            return response

    def _is_token(self, given: str) -> bool:
        # Undecodable bytes of a header arrive as surrogates.
        sent = given.encode(errors="surrogateescape")
        return self._token is not None and hmac.compare_digest(sent, self._token.encode())

    def _with_headers(self, response: web.StreamResponse) -> web.StreamResponse:
        response.headers.update(_HEADERS)
        return response

    async def _read(self, action: Callable[[], Any]) -> Any:
        """Run on the library's own thread, because it is not thread-safe. Pages, which take seconds, are drawn elsewhere."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, within, action)

    async def _index(self, request: web.Request) -> web.Response:
        folder, contains = request.query.get("folder", ""), request.query.get("contains", "")
        await self._read(partial(self._library.job, folder) if folder else list)
        found = await self._read(self._library.recordings)
        below = [one for one in found if is_below(one.name, folder) and contains.lower() in one.name.lower()]
        jobs = [job for job in jobs_of(below) if job.name != folder]
        of_jobs = {job.name for job in jobs}
        single = [one for one in below if folder_of(one.name) not in of_jobs]
        return self._html(render_index(single, jobs, self._language, folder=folder, contains=contains))

    async def _openapi(self, _request: web.Request) -> web.Response:
        return self._web.json_response(openapi_document())  # type: ignore[no-any-return]

    async def _recordings(self, _request: web.Request, *, kinds: tuple[str, ...]) -> web.Response:
        found = await self._read(self._library.recordings)
        listed = [one for one in found if one.kind in kinds]
        return self._json(RecordingList(recordings=listed, jobs=jobs_of(listed)))

    async def _requests(self, request: web.Request) -> web.Response:
        name, limit = _text(request, "recording"), _limit(request)
        return self._json(await self._read(partial(self._library.requests, name, request=None, limit=limit)))

    async def _profile(self, request: web.Request) -> web.Response:
        wanted, limit, form = request.query.get("request_id") or None, _limit(request), _format(request)
        if form == "chrome":
            return self._json(await self._read(partial(self._library.trace_events, wanted)))
        return self._json(await self._read(partial(self._library.profiles, wanted, limit=limit)))

    async def _page(self, request: web.Request, *, kind: PageKind) -> web.Response:
        name, head = _text(request, "recording"), request.query.get("head") if kind == "flame" else None
        path = await self._read(partial(self._library.path, name))
        beside = cast("Path", await self._read(partial(self._library.path, head))) if head else None
        return self._html(await self._drawers.draw(PageRequest(kind, path, name, self._language, beside)))

    async def _ranks(self, request: web.Request) -> web.Response:
        name = request.query.get("folder", "")
        folder = await self._read(partial(self._library.job, name))
        return self._html(await self._drawers.draw(PageRequest("ranks", folder, name, self._language)))

    def _json(self, value: object, status: int = 200) -> web.Response:
        return self._web.Response(  # type: ignore[no-any-return]
            body=msgspec.json.encode(value), status=status, content_type="application/json", charset="utf-8"
        )

    def _html(self, text: str) -> web.Response:
        return self._web.Response(text=text, content_type="text/html", charset="utf-8")  # type: ignore[no-any-return]


class _BadParameterError(UsageError):
    """A parameter is missing or invalid."""


def _bearer(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _text(request: web.Request, name: str) -> str:
    value = request.query.get(name)
    if not value:
        raise _BadParameterError(f"the parameter {name} is missing")
    return value


def _format(request: web.Request) -> str:
    value = request.query.get("format", PROFILE_FORMATS[0])
    if value not in PROFILE_FORMATS:
        raise _BadParameterError(f"format must be one of {', '.join(PROFILE_FORMATS)}")
    return value


def _limit(request: web.Request) -> int:
    value = request.query.get("limit", str(_MOST_ROWS))
    if not (value.isascii() and value.isdecimal() and 1 <= int(value[:9]) <= _MOST_ROWS and len(value) < 9):
        raise _BadParameterError(f"limit must be a whole number from 1 to {_MOST_ROWS}")
    return int(value)
