"""Any HTTP request."""

from __future__ import annotations

import json
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING
from urllib.parse import quote

from perfgate.conductor.load.connection import (
    LONGEST_BODY,
    AnswerError,
    HttpRequest,
    HttpServer,
    failure_text,
)
from perfgate.conductor.load.plan import PlannedRequest
from perfgate.conductor.load.record import Clock, Exchange, describe
from perfgate.errors import ConfigError

if TYPE_CHECKING:
    import aiohttp

# The bytes of an answer that are kept to compare base and head.
_LONGEST_TEXT = 2**20


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
