"""How late the load generator sends: a plain server on one core, the generator on
another, and arrivals of a Poisson process.

"sent" is when a request was handed to the HTTP client, "there" when its bytes were at
the server, after the intended start; "preempted" is how often the generator lost its
CPU to another process, which is what delays most of the late ones.

python benchmarks/load/lateness.py --rates 500 1000 2000
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import numpy as np

from perfgate.conductor.load.generator import run_load
from perfgate.conductor.load.http import HttpTarget
from perfgate.conductor.load.plan import PlannedRequest, plan_load
from perfgate.conductor.load.record import Clock, Exchange, Send
from perfgate.load_settings import LoadSettings

# A bare answer, so that the server's own work disturbs little: the time of arrival, on
# the clock that all processes share.
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Type: text/plain\r\n\r\n%s"


@dataclass
class Noting:
    """A target that notes the absolute times of sending and of arrival at the server."""

    target: HttpTarget
    sent: dict[str, float] = field(default_factory=dict)

    @asynccontextmanager
    async def connect(self, clock: Clock) -> AsyncIterator[Send]:
        async with self.target.connect(clock) as send:

            async def noted(request: PlannedRequest) -> Exchange:
                exchange = await send(request)
                self.sent[exchange.id] = exchange.sent
                return exchange

            yield noted


def serve(port: Connection, core: int) -> None:
    import asyncio

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport
            self.received = b""

        def data_received(self, data: bytes) -> None:
            now = repr(time.perf_counter()).encode()
            self.received += data
            # A request without a body ends with its headers.
            while b"\r\n\r\n" in self.received:
                self.received = self.received.partition(b"\r\n\r\n")[2]
                assert isinstance(self.transport, asyncio.Transport)
                self.transport.write(ANSWER % (len(now), now))

    async def run() -> None:
        listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
        server = await asyncio.get_running_loop().create_server(Server, sock=listening)
        port.send(listening.getsockname()[1])
        await server.serve_forever()

    pin(core)
    asyncio.run(run())


def pin(core: int) -> None:
    with suppress(AttributeError, OSError):  # no such call on macOS
        os.sched_setaffinity(0, {core})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rates",
        type=float,
        nargs="+",
        default=[500.0, 1000.0, 2000.0],
        help="requests a second",
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a turn")
    parser.add_argument(
        "--cores",
        type=int,
        nargs=2,
        default=[0, 1],
        help="of the generator and of the server",
    )
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(theirs, options.cores[1]), daemon=True
    )
    server.start()
    server_target = HttpTarget(f"http://127.0.0.1:{ours.recv()}", timeout=10.0)
    pin(options.cores[0])
    print(
        f"{'rate':>8} {'reached':>8} {'failed':>7} {'sent P50':>11} {'sent P99':>11} {'there P50':>11} {'there P99':>11}"
    )
    for rate in options.rates:
        plan = plan_load(
            LoadSettings(rate=rate, requests=int(rate * options.seconds), input=1),
            seed=1,
        )
        target = Noting(server_target)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        load = run_load(plan, target)
        preempted = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - before
        well = [exchange for exchange in load.exchanges if not exchange.error]
        there = [
            float(each.text) - target.sent[each.id] + each.sent - each.at
            for each in well
        ]
        late = [
            float(np.quantile(times, share)) * 1e3
            for times in (load.lateness, there)
            for share in (0.5, 0.99)
        ]
        failed, reached = len(load.exchanges) - len(well), len(well) / load.seconds
        print(
            f"{rate:8.0f} {reached:8.0f} {failed:7d} "
            + " ".join(f"{time:8.3f} ms" for time in late),
            f"{preempted:8d}",
        )
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
