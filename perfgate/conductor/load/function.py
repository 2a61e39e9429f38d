"""A Python function of the project that sends requests; it runs in a separate process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import msgspec

from perfgate.conductor.load.connection import LONGEST_BODY, explain
from perfgate.conductor.load.plan import PlannedRequest
from perfgate.conductor.load.record import Clock, Exchange, Send

_ENDED = "the process of the function has ended"


class _Answer(msgspec.Struct, frozen=True):
    id: str
    text: str
    error: str


@dataclass(frozen=True)
class FunctionTarget:
    """Has a server at ``url`` asked by the function behind the Unix socket ``address`` (``measuring/request_client.py``).

    The function's result as text is the exchange's; its first token is its end. A request fails after ``timeout`` seconds;
    Python cannot end a thread, so its call goes on until it returns.
    """

    address: str
    url: str
    timeout: float = 120.0

    @asynccontextmanager
    async def connect(self, clock: Clock) -> AsyncIterator[Send]:
        try:
            reader, writer = await asyncio.open_unix_connection(
                self.address, limit=LONGEST_BODY
            )
        except OSError:

            async def refuse(request: PlannedRequest) -> Exchange:
                return Exchange.begin(request, clock).failed(_ENDED, clock.now())

            yield refuse
            return
        answers: dict[str, asyncio.Future[_Answer]] = {}
        reading = asyncio.create_task(_read(reader, answers))

        async def send(request: PlannedRequest) -> Exchange:
            exchange = Exchange.begin(request, clock)
            if reading.done():
                return exchange.failed(_ENDED, clock.now())
            answers[request.id] = asyncio.get_running_loop().create_future()
            message = {
                "url": self.url,
                "id": request.id,
                "prompt": request.prompt,
                "output_tokens": request.output_tokens,
            }
            writer.write(msgspec.json.encode(message) + b"\n")
            try:
                answer = await asyncio.wait_for(answers[request.id], self.timeout)
            except asyncio.TimeoutError as error:
                return exchange.failed(explain(error, self.timeout), clock.now())
            if answer.error:
                return exchange.failed(answer.error, clock.now())
            exchange.first = exchange.last = clock.now()
            exchange.text = answer.text
            return exchange

        try:
            yield send
        finally:
            reading.cancel()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _read(
    reader: asyncio.StreamReader, answers: dict[str, asyncio.Future[_Answer]]
) -> None:
    """Pass every answer to its waiter; once the process has ended, fail all pending requests."""
    try:
        while line := await reader.readline():
            answer = msgspec.json.decode(line, type=_Answer)
            if (future := answers.get(answer.id)) is not None and not future.done():
                future.set_result(answer)
        error = _ENDED
    except ConnectionResetError:  # it ended with unread requests
        error = _ENDED
    except (OSError, ValueError) as failure:  # an invalid line, or too long
        error = f"the process of the function answered something else: {failure}"
    for future in answers.values():
        if not future.done():
            future.set_result(_Answer("", "", error))
