"""A Python function as the target of a load."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, cast

from perfgate.conductor.load.clock import Clock
from perfgate.conductor.load.connection import explain
from perfgate.conductor.load.plan import Request
from perfgate.conductor.load.record import Exchange, Recording
from perfgate.conductor.load.target import Send


@dataclass(frozen=True)
class FunctionTarget:
    """Calls ``function(request)`` for each request: a coroutine function in the event loop, any other in a thread of its own.

    The text of what it returns is the exchange's; its first token is its end. A call fails after ``timeout`` seconds; Python
    cannot end a thread, so it goes on until it returns.
    """

    function: Callable[[Request], Any]
    timeout: float = 120.0

    @asynccontextmanager
    async def connect(self, clock: Clock) -> AsyncIterator[Send]:
        async def send(request: Request) -> Exchange:
            recording = Recording(request, clock)
            try:
                value = await asyncio.wait_for(self._call(request), self.timeout)
            except Exception as error:  # noqa: BLE001 - the function is the user's, and one failure must not end the turn
                return recording.failed(explain(error, self.timeout))
            recording.first = recording.last = clock.now()
            recording.texts.append("" if value is None else str(value))
            return recording.done()

        yield send

    def _call(self, request: Request) -> Awaitable[Any]:
        if iscoroutinefunction(self.function):
            return cast("Awaitable[Any]", self.function(request))
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Any] = loop.create_future()

        def work() -> None:
            value, error = None, None
            try:
                value = self.function(request)
            except Exception as failure:  # noqa: BLE001 - raised again where the result is waited for
                error = failure
            with suppress(RuntimeError):  # the turn is over and its loop closed: nobody waits for the result
                loop.call_soon_threadsafe(_settle, result, value, error)

        # A daemon, unlike the threads of an executor, does not keep the process alive when the function never returns.
        threading.Thread(target=work, daemon=True, name=request.id).start()
        return result


def _settle(result: asyncio.Future[Any], value: Any, error: Exception | None) -> None:
    if result.done():  # it has timed out
        return
    if error is None:
        result.set_result(value)
    else:
        result.set_exception(error)
