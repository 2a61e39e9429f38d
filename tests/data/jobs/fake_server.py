"""A server that streams completions on the port that it is given; what it does wrong stands in fault.txt beside it.

With the fault ``alone`` it needs a device on which there is room for one: a file that it locks, unless it sleeps.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.fakes.openai_server import FakeOpenAI


class Device:
    """A device with room for one server."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def take(self) -> None:
        """Raises BlockingIOError where another has it."""
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def leave(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def add_routes(self, app: web.Application) -> None:
        async def sleep(_: web.Request) -> web.Response:
            self.leave()
            return web.Response()

        async def wake_up(_: web.Request) -> web.Response:
            self.take()
            return web.Response()

        app.router.add_post("/sleep", sleep)
        app.router.add_post("/wake_up", wake_up)


@web.middleware
async def _logging(request: web.Request, handler: Any) -> web.StreamResponse:
    print(request.method, request.path, flush=True)
    return await handler(request)


async def _healthy(_: web.Request) -> web.Response:
    return web.Response()


if __name__ == "__main__":
    print("starts on", sorted(os.sched_getaffinity(0)), flush=True)
    fault, seconds, device = [*Path(__file__).with_name("fault.txt").read_text().split(), "", ""][:3]
    if fault == "exits":
        sys.exit("no weights")
    if fault == "never-ready":
        time.sleep(600)
    # Any free port but the one that is asked.
    port = 0 if fault == "port" else int(sys.argv[1])
    is_sound = fault in ("port", "alone", "queue")
    server = FakeOpenAI(
        fault="none" if is_sound else fault,  # type: ignore[arg-type]
        seconds=float(seconds or 0.002),
        queues=fault == "queue",
    )
    app = server.app()
    if fault == "alone":
        room = Device(device)
        try:
            room.take()
        except BlockingIOError:
            sys.exit("out of memory")
        room.add_routes(app)
    app.middlewares.append(_logging)
    app.router.add_get("/health", _healthy)
    web.run_app(app, host="127.0.0.1", port=port, print=None)
