"""HTTP connections of one turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from perfgate.conductor.load.record import describe, shortened
from perfgate.errors import MeasuringError

if TYPE_CHECKING:
    import aiohttp

# The bytes of the body of a failed answer that are read.
_LONGEST_FAILURE = 4096
# Servers close connections that are idle for a while (uvicorn's --timeout-keep-alive: 5 s); no request may meet that.
_IDLE_SECONDS = 2.0
# A longer answer is an error: no request of a load asks for so much.
LONGEST_BODY = 256 * 2**20


def require_aiohttp(purpose: str = "sending requests to a server") -> ModuleType:
    """The HTTP library, which few jobs need. Raises MeasuringError where it is not installed."""
    try:
        import aiohttp
    except ImportError as error:
        raise MeasuringError(
            f"{purpose} needs aiohttp, which cannot be imported ({error}); run pip install 'perfgate[serving]'"
        ) from error
    return aiohttp


@asynccontextmanager
async def open_session(timeout: float) -> AsyncIterator[aiohttp.ClientSession]:
    """A session without a bound on connections, as an open loop needs it; a request may take ``timeout`` seconds in all.

    Proxies of the environment, cookies and redirects are left out: what is measured is the server that is named.
    """
    library: Any = require_aiohttp()
    async with library.ClientSession(
        connector=library.TCPConnector(limit=0, ttl_dns_cache=None, keepalive_timeout=_IDLE_SECONDS),
        timeout=library.ClientTimeout(total=timeout, ceil_threshold=float("inf")),
        cookie_jar=library.DummyCookieJar(),
        headers={"Accept-Encoding": "identity"},
        auto_decompress=False,
        trust_env=False,
    ) as session:
        yield session


async def failure_text(response: aiohttp.ClientResponse) -> str:
    """The status and the beginning of the body of a failed answer."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) >= _LONGEST_FAILURE:
            response.close()
            break
    text = bytes(body[:_LONGEST_FAILURE]).decode("utf-8", errors="replace")
    return shortened(f"HTTP {response.status}: {' '.join(text.split())}")


def request_errors() -> tuple[type[Exception], ...]:
    """What the client library raises if a server is unreachable, breaks the protocol or takes too long."""
    return require_aiohttp().ClientError, OSError, ValueError, asyncio.TimeoutError


def explain(error: Exception, timeout: float) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return f"no complete answer within {timeout:g} s"
    return describe(error)
