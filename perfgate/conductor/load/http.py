"""HTTP servers as targets, the retry of a request on a connection that the server has
closed, and any HTTP request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from string import Template
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from perfgate.conductor.load.plan import PlannedRequest
from perfgate.conductor.load.record import Clock, Exchange, Send, describe
from perfgate.errors import ConfigError, MeasuringError

if TYPE_CHECKING:
    import aiohttp

# Left out of requests if a server closes connections that it has promised to keep open.
KEEP_ALIVE = "keep-alive"
# The bytes of the body of a failed answer that are read.
_LONGEST_FAILURE = 4096
# Servers close connections that are idle for a while (uvicorn's --timeout-keep-alive: 5
# s); no request may meet that.
_IDLE_SECONDS = 2.0
# A longer answer is an error: no request of a load asks for that much.
LONGEST_BODY = 256 * 2**20
# The bytes of an answer that are kept to compare base and head.
_LONGEST_TEXT = 2**20


def require_aiohttp() -> ModuleType:
    """The HTTP library, which few jobs need.

    Raises MeasuringError if it is not installed.
    """
    try:
        import aiohttp
    except ImportError as error:
        raise MeasuringError(
            "sending requests to a server needs aiohttp, which cannot be imported ({error}); run pip install "
            "'perfgate[serving]'",
            error=error,
        ) from error
    return aiohttp


class AnswerError(Exception):
    """An answer that is no success, or breaks its format."""


class HttpRequest(NamedTuple):
    """A request as it goes out, without a body if that is None."""

    method: str
    path: str
    body: bytes | None


@dataclass(frozen=True)
class HttpServer:
    """A server at ``url``, as in ``http://127.0.0.1:8000``.

    A request fails after ``timeout`` seconds. Requests go ``without`` fields that the
    server rejects, and without KEEP_ALIVE if that is among them.
    """

    url: str
    _: KW_ONLY
    timeout: float
    without: frozenset[str] = frozenset()

    @asynccontextmanager
    async def connect(self, clock: Clock) -> AsyncIterator[Send]:
        keep = KEEP_ALIVE not in self.without
        async with open_connections(self.timeout, keep=keep) as connections:
            yield lambda request: self._exchange(connections, request, clock)

    def http_request(self, request: PlannedRequest) -> HttpRequest:
        raise NotImplementedError

    async def read(
        self, response: aiohttp.ClientResponse, exchange: Exchange, clock: Clock
    ) -> None:
        """Read an answer into its exchange. Raises AnswerError if it is a failure."""
        raise NotImplementedError

    async def _exchange(
        self, connections: Connections, request: PlannedRequest, clock: Clock
    ) -> Exchange:
        sent = self.http_request(request)
        address = self.url.rstrip("/") + sent.path
        headers = {"X-Request-Id": request.id}
        if sent.body is not None:
            headers["Content-Type"] = "application/json"
        exchange = Exchange.begin(request, clock)
        try:
            async with connections.answer(
                exchange, sent.method, address, sent.body, headers
            ) as response:
                await self.read(response, exchange, clock)
        except AnswerError as error:
            return exchange.failed(str(error), clock.now())
        except request_errors() as error:
            return exchange.failed(explain(error, self.timeout), clock.now())
        return exchange


@dataclass(frozen=True)
class Connections:
    """Sends requests on connections that ``reused`` keeps open for further requests, or
    on ``new`` connections.
    """

    reused: aiohttp.ClientSession | None
    new: aiohttp.ClientSession

    @asynccontextmanager
    async def answer(
        self,
        exchange: Exchange,
        method: str,
        address: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to a request, from its status on.

        A server may close a kept connection at any time. A request that meets that
        before the first byte of its answer is sent once more on a new connection (RFC
        9112, 9.3.1); the delay is part of its time.
        """
        library = require_aiohttp()
        request: dict[str, Any] = {
            "data": body,
            "headers": headers,
            "allow_redirects": False,
            "trace_request_ctx": exchange,
        }
        async with AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(
                    (self.reused or self.new).request(method, address, **request)
                )
            except (library.ClientOSError, library.ServerDisconnectedError):
                if exchange.connections[-1:] != [True]:
                    raise
                response = await stack.enter_async_context(
                    self.new.request(method, address, **request)
                )
            exchange.status = response.status
            yield response


@asynccontextmanager
async def open_connections(timeout: float, *, keep: bool) -> AsyncIterator[Connections]:
    """Connections without a bound on their number, as an open loop needs it; a request
    may take ``timeout`` seconds in all.
    """
    async with _session(timeout, keep=False) as new:
        if not keep:
            yield Connections(None, new)
            return
        async with _session(timeout, keep=True) as reused:
            yield Connections(reused, new)


def _session(timeout: float, *, keep: bool) -> aiohttp.ClientSession:
    """Proxies of the environment, cookies and redirects are ignored, so that only the
    named server is measured.
    """
    library: Any = require_aiohttp()
    headers = {"Accept-Encoding": "identity"}
    idle: dict[str, Any] = {"keepalive_timeout": _IDLE_SECONDS}
    if not keep:
        headers["Connection"] = "close"
        idle = {"force_close": True}
    session: aiohttp.ClientSession = library.ClientSession(
        connector=library.TCPConnector(limit=0, ttl_dns_cache=None, **idle),
        timeout=library.ClientTimeout(total=timeout, ceil_threshold=float("inf")),
        cookie_jar=library.DummyCookieJar(),
        headers=headers,
        auto_decompress=False,
        trust_env=False,
        trace_configs=[_noting_connections()],
    )
    return session


def _noting_connections() -> aiohttp.TraceConfig:
    """Report the connections of each request to its exchange."""

    async def on_reuse(_: object, context: Any, __: object) -> None:
        context.trace_request_ctx.connections.append(True)

    async def on_new(_: object, context: Any, __: object) -> None:
        context.trace_request_ctx.connections.append(False)

    noting: aiohttp.TraceConfig = require_aiohttp().TraceConfig()
    noting.on_connection_reuseconn.append(on_reuse)
    noting.on_connection_create_end.append(on_new)
    return noting


async def failure_text(response: aiohttp.ClientResponse) -> str:
    """The status of a failed answer and the first few thousand characters of its body."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) >= _LONGEST_FAILURE:
            response.close()
            break
    text = bytes(body[:_LONGEST_FAILURE]).decode("utf-8", errors="replace")
    return f"HTTP {response.status}: {' '.join(text.split())}"


def request_errors() -> tuple[type[Exception], ...]:
    """Exceptions of the client library for a server that is unreachable, breaks the
    protocol or takes too long.
    """
    return require_aiohttp().ClientError, OSError, ValueError, asyncio.TimeoutError


def explain(error: Exception, timeout: float) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return f"no complete answer within {timeout:g} s"
    return describe(error)


@dataclass(frozen=True)
class HttpTarget(HttpServer):
    """A server to which each request goes at ``path`` with ``body``, a GET without one.

    Both may hold ``$prompt``, ``$output_tokens`` and ``$id``, and ``$$`` for a dollar:
    escaped for a JSON string in the body, and for an address in the path. A status
    below 400 is a success. The first byte of an answer is its headers, and its last the
    end of its body.
    """

    path: str = "/"
    body: str = ""

    def __post_init__(self) -> None:
        for name, text in (("path", self.path), ("body", self.body)):
            try:
                Template(text).substitute(prompt="", output_tokens="", id="")
            except (KeyError, ValueError) as error:
                raise ConfigError(
                    "the {name} of a request, {text!r}, cannot be filled in: {error}; it may hold $prompt, $output_tokens "
                    "and $id, and $$ for a dollar",
                    name=name,
                    text=text,
                    error=describe(error),
                ) from error

    def http_request(self, request: PlannedRequest) -> HttpRequest:
        path = _fill(self.path, request, prompt=quote(request.prompt, safe=""))
        if not self.body:
            return HttpRequest("GET", path, None)
        body = _fill(self.body, request, prompt=json.dumps(request.prompt)[1:-1])
        return HttpRequest("POST", path, body.encode())

    async def read(
        self, response: aiohttp.ClientResponse, exchange: Exchange, clock: Clock
    ) -> None:
        if response.status >= 400:
            raise AnswerError(await failure_text(response))
        exchange.first = clock.now()
        body = bytearray()
        size = 0
        async for received in response.content.iter_any():
            size += len(received)
            body += received[: _LONGEST_TEXT - len(body)]
            if size > LONGEST_BODY:
                response.close()
                raise AnswerError(f"the answer is longer than {LONGEST_BODY} bytes")
        exchange.last = clock.now()
        exchange.text = bytes(body).decode("utf-8", errors="replace")


def _fill(template: str, request: PlannedRequest, *, prompt: str) -> str:
    return Template(template).substitute(
        prompt=prompt, output_tokens=request.output_tokens, id=request.id
    )
