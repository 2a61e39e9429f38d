"""Connections of the service: a client that sends nothing for a while is disconnected,
and there may be thousands of others.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# A client that is measuring has no connection open, and a slow network sends something
# every few seconds.
IDLE_SECONDS = 30.0
_MOST_FILES = 65_536


class EndingConnection(H11Protocol):
    """A connection that ends if the service waits for the rest of a request and
    receives nothing for ``idle_seconds``.

    uvicorn itself ends only connections that are idle after a response (uvicorn,
    "Timeouts").
    """

    idle_seconds = IDLE_SECONDS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        self._wait()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._idle is not None:
            self._idle.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self.loop.call_later(self.idle_seconds, self._end_if_idle)

    def _end_if_idle(self) -> None:
        is_sending = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        # While reading is paused the service itself is behind, and not the client.
        if is_sending and not self.flow.read_paused:
            self.transport.close()
        else:
            self._wait()


def allow_many_connections() -> None:
    """Raise the soft limit of open files, often 1,024: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
