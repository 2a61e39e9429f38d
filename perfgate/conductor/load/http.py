"""Any HTTP request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from string import Template
from typing import TYPE_CHECKING
from urllib.parse import quote

from perfgate.conductor.load.clock import Clock
from perfgate.conductor.load.connection import (
    KEEP_ALIVE,
    LONGEST_BODY,
    Connections,
    explain,
    failure_text,
    open_connections,
    request_errors,
)
from perfgate.conductor.load.plan import PlannedRequest
from perfgate.conductor.load.record import Exchange, ExchangeRecording, describe
from perfgate.conductor.load.target import Send
from perfgate.errors import ConfigError

if TYPE_CHECKING:
    import aiohttp

# The bytes of an answer that are kept to compare base and head.
_LONGEST_TEXT = 2**20


@dataclass(frozen=True)
class HttpTarget:
    """A server at ``url``; each request goes to ``path`` with ``body``.

    Both may hold ``$prompt``, ``$output_tokens`` and ``$id``, and ``$$`` for a dollar: escaped for a JSON string if
    ``content_type`` is JSON, and for an address in the path. A status below 400 is a success. The first byte of an answer
    is its headers, and its last the end of its body. A request fails after ``timeout`` seconds. Requests may go ``without``
    KEEP_ALIVE.
    """

    url: str
    method: str = "POST"
    path: str = "/"
    body: str = ""
    content_type: str = "application/json"
    timeout: float = 120.0
    headers: Mapping[str, str] = field(default_factory=dict)
    without: frozenset[str] = frozenset()

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

    @asynccontextmanager
    async def connect(self, clock: Clock) -> AsyncIterator[Send]:
        async with open_connections(
            self.timeout, keep=KEEP_ALIVE not in self.without
        ) as connections:
            yield lambda request: self._exchange(connections, request, clock)

    async def _exchange(
        self, connections: Connections, request: PlannedRequest, clock: Clock
    ) -> Exchange:
        address = self.url.rstrip("/") + _fill(
            self.path, request, prompt=quote(request.prompt, safe="")
        )
        prompt = (
            json.dumps(request.prompt)[1:-1]
            if "json" in self.content_type
            else request.prompt
        )
        body = _fill(self.body, request, prompt=prompt).encode() if self.body else None
        headers = {**self.headers, "X-Request-Id": request.id}
        if body is not None:
            headers["Content-Type"] = self.content_type
        recording = ExchangeRecording(request, clock)
        try:
            async with connections.answer(
                recording, self.method, address, body, headers
            ) as response:
                if response.status >= 400:
                    return recording.failed(await failure_text(response))
                recording.first = clock.now()
                error = await _read(response, recording)
        except request_errors() as failure:
            return recording.failed(explain(failure, self.timeout))
        return recording.failed(error) if error else recording.done()


def _fill(template: str, request: PlannedRequest, *, prompt: str) -> str:
    return Template(template).substitute(
        prompt=prompt, output_tokens=request.output_tokens, id=request.id
    )


async def _read(response: aiohttp.ClientResponse, recording: ExchangeRecording) -> str:
    """Reads the body into the recording; returns its error, if any."""
    body = bytearray()
    size = 0
    async for received in response.content.iter_any():
        size += len(received)
        body += received[: _LONGEST_TEXT - len(body)]
        if size > LONGEST_BODY:
            response.close()
            return f"the answer is longer than {LONGEST_BODY} bytes"
    recording.last = recording.clock.now()
    recording.texts.append(bytes(body).decode("utf-8", errors="replace"))
    return ""
