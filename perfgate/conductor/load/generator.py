"""Send the requests of a plan, each at its time (open loop) or a number of them at once
(closed loop).

In an open loop the server cannot delay a request: a request that is sent late counts
from its intended start all the same (coordinated omission:
perfgate/measuring/timing/open_loop.py).
"""

from __future__ import annotations

import asyncio

import numpy as np

from perfgate.conductor.load.plan import LoadPlan, PlannedRequest
from perfgate.conductor.load.record import (
    Clock,
    Exchange,
    Load,
    Send,
    Target,
    describe,
)
from perfgate.system.garbage import quiet
from perfgate.system.interrupts import safe_point

# Time for the first request's task to be made before it is due.
_LEAD = 0.001
# How often a load looks for a signal.
_SIGNAL_SECONDS = 0.2

_WALL = Clock()


def run_load(plan: LoadPlan, target: Target) -> Load:
    """Send the plan in a new event loop, without garbage collection, and wait for all
    answers.

    Failed requests are exchanges with an ``error``. Raises MeasuringError if a package
    of the target is missing.
    """
    with quiet():
        exchanges = asyncio.run(_turn(plan, target))
    return Load(
        exchanges=exchanges,
        seconds=max((exchange.last for exchange in exchanges), default=0.0),
        lateness=np.array(
            [exchange.sent - exchange.at for exchange in exchanges], dtype=np.float64
        ),
    )


async def _turn(plan: LoadPlan, target: Target) -> list[Exchange]:
    """Send the plan, and stop on a signal: a load may take minutes."""
    async with target.connect(_WALL) as send:
        sending = asyncio.ensure_future(send_load(plan, send))
        try:
            while not sending.done():
                await asyncio.wait([sending], timeout=_SIGNAL_SECONDS)
                safe_point()
        finally:
            sending.cancel()
            await asyncio.wait([sending])
        return sending.result()


async def send_load(plan: LoadPlan, send: Send, clock: Clock = _WALL) -> list[Exchange]:
    """The exchanges of a plan, in its order; in a closed loop a request is intended for
    when it is sent.

    An exception of ``send`` becomes an exchange with an ``error``. Cancelling it
    cancels all requests that are under way and waits until they have ended.
    """
    begin = clock.now()
    if plan.concurrency is None:
        begin += _LEAD
        exchanges = await _open_loop(plan.requests, send, clock, begin)
    else:
        exchanges = await _closed_loop(plan.requests, plan.concurrency, send, clock)
    for exchange in exchanges:
        exchange.count_from(begin)
        if plan.concurrency is not None:
            exchange.at = exchange.sent
    return exchanges


async def _open_loop(
    requests: tuple[PlannedRequest, ...], send: Send, clock: Clock, begin: float
) -> list[Exchange]:
    tasks = []
    try:
        for request in requests:
            await clock.sleep_until(begin + request.at)
            tasks.append(asyncio.create_task(_exchange(request, send, clock)))
        return await asyncio.gather(*tasks)
    finally:
        await _end(tasks)


async def _closed_loop(
    requests: tuple[PlannedRequest, ...], concurrency: int, send: Send, clock: Clock
) -> list[Exchange]:
    exchanges = {}
    waiting = iter(enumerate(requests))

    async def client() -> None:
        for number, request in waiting:
            exchanges[number] = await _exchange(request, send, clock)

    clients = [
        asyncio.create_task(client()) for _ in range(min(concurrency, len(requests)))
    ]
    try:
        await asyncio.gather(*clients)
    finally:
        await _end(clients)
    return [exchanges[number] for number in range(len(requests))]


async def _exchange(request: PlannedRequest, send: Send, clock: Clock) -> Exchange:
    exchange = Exchange.begin(request, clock)
    try:
        return await send(request)
    except Exception as error:  # noqa: BLE001 - a target may be a user's function, and one failure must not end the turn
        return exchange.failed(describe(error), clock.now())


async def _end(tasks: list[asyncio.Task[Exchange]] | list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
