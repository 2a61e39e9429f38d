"""A project's own programs next to the server of its side: its function that sends a
request, and its check of the answers.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import msgspec

from perfgate.conductor.load.http import LONGEST_BODY, explain
from perfgate.conductor.load.plan import PlannedRequest
from perfgate.conductor.load.record import Clock, Exchange, Send
from perfgate.conductor.sides.side import SidePlace
from perfgate.system.folders import make_socket_folder
from perfgate.system.interrupts import safe_point

ANSWERS_VARIABLE = "PERFGATE_ANSWERS"
_ENDED = "the process of the function has ended"
_POLL_SECONDS = 0.02
_SOCKET = "requests"


class _Answer(msgspec.Struct, frozen=True):
    id: str
    text: str
    error: str


@dataclass(frozen=True)
class FunctionTarget:
    """Has a server at ``url`` asked by the function behind the Unix socket ``address``
    (``measuring/request_client.py``).

    The function's result as text is the exchange's; its first token is its end. A
    request fails after ``timeout`` seconds; Python cannot end a thread, so its call
    goes on until it returns.
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
    """Pass every answer to its waiter; once the process has ended, fail all pending
    requests.
    """
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


class RequestClient:
    """Runs ``FILE:NAME`` of the checkout on the CPUs of the load generator."""

    def __init__(self, reference: str, place: SidePlace) -> None:
        self._reference = reference
        self._folder = make_socket_folder("perfgate-client-", f"{_SOCKET}.new")
        self._program = place.run(
            f"exec python -m perfgate.measuring.request_client {quote(reference)} {quote(str(self._address))}",
            {},
            cpus=sorted(os.sched_getaffinity(0)),
            log=place.log.with_suffix(".client.log"),
        )

    @property
    def _address(self) -> Path:
        return self._folder / _SOCKET

    def target(
        self, url: str, *, ready_timeout: float, timeout: float
    ) -> FunctionTarget:
        """The target for requests to ``url``.

        Raises SideError if the function cannot be loaded in time.
        """
        deadline = time.monotonic() + ready_timeout
        while not self._address.exists():
            safe_point()
            if end := self._program.ended():
                raise self._program.failed(
                    "exit", "job.client-ended", client=self._reference, code=end.code
                )
            if time.monotonic() > deadline:
                raise self._program.failed(
                    "timeout",
                    "job.client-not-ready",
                    client=self._reference,
                    seconds=ready_timeout,
                )
            time.sleep(_POLL_SECONDS)
        return FunctionTarget(str(self._address), url, timeout)

    def stop(self) -> None:
        self._program.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def check_answers(
    line: str,
    requests: Iterable[PlannedRequest],
    exchanges: Iterable[Exchange],
    place: SidePlace,
    *,
    timeout: float,
) -> str:
    """The last line that the program ``line`` prints about the answers."""
    answers = []
    for request, exchange in zip(requests, exchanges):
        answers.append(
            {"id": request.id, "prompt": request.prompt, "answer": exchange.text}
        )
    file = place.log.with_suffix(".answers.jsonl")
    file.write_bytes(msgspec.json.Encoder().encode_lines(answers))
    program = place.run(
        line, {ANSWERS_VARIABLE: str(file)}, log=place.log.with_suffix(".check.log")
    )
    try:
        code = program.wait(timeout).code
        verdict = program.output().strip().rpartition("\n")[2].strip()
        if code or not verdict:
            raise program.failed("exit", "job.check-failed", line=line, code=code)
    finally:
        program.stop()
    return verdict
