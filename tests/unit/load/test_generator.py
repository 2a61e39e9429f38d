"""Open and closed loops on a simulated clock, against queueing theory."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from perfgate.conductor.load.generator import run_load, send_load
from perfgate.conductor.load.http import HttpTarget
from perfgate.conductor.load.plan import LoadPlan, PlannedRequest
from perfgate.conductor.load.record import Clock, Exchange
from perfgate.stats.arrivals import draw
from perfgate.stats.summary import quantile
from tests.fakes.virtual_time import VirtualClock, run_virtually
from tests.unit.load.queues import Floats, Queue, open_plan, waiting_times

RATE = 50.0  # half of what a server of 10 ms a request can do
SERVICE = 0.01


def services(kind: str, count: int) -> Floats:
    if kind == "M/D/1":
        return np.full(count, SERVICE)
    return np.random.default_rng(2).exponential(SERVICE, size=count)


@pytest.mark.parametrize("kind", ["M/M/1", "M/D/1"])
def test_send_load__queue_with_one_server__every_waiting_time_is_that_of_the_recursion(kind: str) -> None:
    count = 20_000
    times, work = draw(RATE, burstiness=1.0, count=count, seed=1), services(kind, count)
    clock = VirtualClock()
    exchanges = run_virtually(send_load(open_plan(times), Queue(clock, work).send, clock))
    waits = np.array([exchange.last - exchange.at for exchange in exchanges]) - work
    assert waits == pytest.approx(waiting_times(times, work), abs=1e-6)


@pytest.mark.parametrize(("kind", "mean_wait"), [("M/M/1", 0.01), ("M/D/1", 0.005)])
def test_waiting_times__half_loaded_server__mean_within_one_percent_of_theory(kind: str, mean_wait: float) -> None:
    """M/M/1: u / (1 - u) services; M/D/1: half of that (Pollaczek and Khinchine). The test above ties them to the generator."""
    count = 4_000_000
    times = draw(RATE, burstiness=1.0, count=count, seed=1)
    assert waiting_times(times, services(kind, count)).mean() == pytest.approx(mean_wait, rel=0.01)


def test_send_load__server_stalls_one_second_in_ten__p99_from_the_intended_start_shows_what_sending_hides() -> None:
    clock = VirtualClock()
    count = 1200  # a minute at 20 a second
    queue = Queue(clock, np.full(count, 0.001), stalls=[(10.0 * n + 5, 10.0 * n + 6) for n in range(6)])
    one_connection = asyncio.Lock()

    async def send(request: PlannedRequest) -> Exchange:
        async with one_connection:
            return await queue.send(request)

    exchanges = run_virtually(send_load(open_plan(np.arange(count) / 20), send, clock))
    from_intended = np.array([exchange.last - exchange.at for exchange in exchanges])
    from_sending = np.array([exchange.last - exchange.sent for exchange in exchanges])
    assert quantile(from_intended, 0.99).value > 0.9
    assert quantile(from_sending, 0.99).value == pytest.approx(0.001, abs=1e-6)


def test_send_load__closed_loop__never_more_under_way_than_asked_for_and_all_are_sent() -> None:
    clock = VirtualClock()
    under_way, most = 0, 0

    async def send(request: PlannedRequest) -> Exchange:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        exchange = Exchange.begin(request, clock)
        await clock.sleep_until(clock.now() + (0.02 if request.id == "3" else 0.01))
        under_way -= 1
        exchange.first = exchange.last = clock.now()
        return exchange

    plan = LoadPlan(open_plan(np.zeros(10)).requests, 3)
    exchanges = run_virtually(send_load(plan, send, clock))
    assert most == 3
    assert [exchange.id for exchange in exchanges] == [str(number) for number in range(10)]
    assert all(exchange.at == exchange.sent for exchange in exchanges)
    assert max(exchange.last for exchange in exchanges) == pytest.approx(0.04)


def test_send_load__fewer_requests_than_concurrency__all_at_once() -> None:
    clock = VirtualClock()
    queue = Queue(clock, np.full(2, 0.01))
    exchanges = run_virtually(send_load(LoadPlan(open_plan(np.zeros(2)).requests, 8), queue.send, clock))
    assert [exchange.sent for exchange in exchanges] == [0.0, 0.0]


def test_send_load__target_raises__an_exchange_with_the_error_and_the_others_go_on() -> None:
    clock = VirtualClock()
    queue = Queue(clock, np.full(3, 0.01))

    async def send(request: PlannedRequest) -> Exchange:
        if request.id == "1":
            raise KeyError("no such model")
        return await queue.send(request)

    exchanges = run_virtually(send_load(open_plan(np.arange(3) / 10), send, clock))
    assert [exchange.error for exchange in exchanges] == ["", "KeyError: 'no such model'", ""]
    assert exchanges[1].first is None
    assert exchanges[1].at == 0.1


@pytest.mark.parametrize("concurrency", [None, 2])
def test_send_load__cancelled__requests_under_way_are_cancelled_and_awaited(concurrency: int | None) -> None:
    clock = VirtualClock()
    ended: list[str] = []

    async def send(request: PlannedRequest) -> Exchange:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(request.id)
        raise AssertionError

    async def cancel_soon() -> None:
        plan = LoadPlan(open_plan(np.array([0.0, 0.1, 100.0])).requests, concurrency)
        turn = asyncio.create_task(send_load(plan, send, clock))
        await asyncio.sleep(1)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

    run_virtually(cancel_soon())
    assert ended == ["0", "1"]


def test_wall_clock__moment_ahead__not_before_it() -> None:
    clock = Clock()

    async def late() -> float:
        moment = clock.now() + 0.005
        await clock.sleep_until(moment)
        return clock.now() - moment

    assert asyncio.run(late()) >= 0


def test_run_load__no_requests__empty_turn() -> None:
    load = run_load(LoadPlan((), None), HttpTarget("http://127.0.0.1:1", timeout=5.0))
    assert load.exchanges == []
    assert load.seconds == 0.0
