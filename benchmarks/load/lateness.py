"""How late the load generator sends: a plain server on one core, the generator on another, and arrivals of a Poisson process.

python benchmarks/load/lateness.py --rates 500 1000 2000
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
from contextlib import suppress
from multiprocessing.connection import Connection

import numpy as np

from perfgate.conductor.load.generator import run_load
from perfgate.conductor.load.http import HttpTarget
from perfgate.conductor.load.plan import plan_load
from perfgate.load_settings import LoadSettings

# A bare answer, so that the server's own work disturbs little.
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok"


def serve(port: Connection, core: int) -> None:
    import asyncio

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport
            self.received = b""

        def data_received(self, data: bytes) -> None:
            self.received += data
            # A request without a body ends with its headers.
            while b"\r\n\r\n" in self.received:
                self.received = self.received.partition(b"\r\n\r\n")[2]
                assert isinstance(self.transport, asyncio.Transport)
                self.transport.write(ANSWER)

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
    parser.add_argument("--rates", type=float, nargs="+", default=[500.0, 1000.0, 2000.0], help="requests a second")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a turn")
    parser.add_argument("--cores", type=int, nargs=2, default=[0, 1], help="of the generator and of the server")
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, options.cores[1]), daemon=True)
    server.start()
    target = HttpTarget(f"http://127.0.0.1:{ours.recv()}", method="GET", timeout=10.0)
    pin(options.cores[0])
    print(f"{'rate':>8} {'reached':>8} {'failed':>7} {'P50 late':>10} {'P99 late':>10} {'most late':>10}")
    for rate in options.rates:
        plan = plan_load(LoadSettings(rate=rate, requests=int(rate * options.seconds), input=1), seed=1)
        load = run_load(plan, target)
        middle, high, most = (float(np.quantile(load.lateness, share)) * 1e3 for share in (0.5, 0.99, 1.0))
        failed = sum(bool(exchange.error) for exchange in load.exchanges)
        reached = len(load.exchanges) / load.seconds
        print(f"{rate:8.0f} {reached:8.0f} {failed:7d} {middle:7.3f} ms {high:7.3f} ms {most:7.3f} ms")
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
