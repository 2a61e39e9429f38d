"""A server that streams completions on $PORT; what it does wrong stands in fault.txt beside it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from aiohttp import web

from tests.fakes.openai_server import FakeOpenAI


async def _healthy(_: web.Request) -> web.Response:
    return web.Response()


if __name__ == "__main__":
    fault, _, seconds = Path(__file__).with_name("fault.txt").read_text().strip().partition(" ")
    if fault == "exits":
        sys.exit("no weights")
    if fault == "never-ready":
        time.sleep(600)
    port = int(os.environ["PORT"]) + (1 if fault == "port" else 0)
    server = FakeOpenAI(fault="none" if fault == "port" else fault, seconds=float(seconds or 0.002))  # type: ignore[arg-type]
    app = server.app()
    app.router.add_get("/health", _healthy)
    web.run_app(app, host="127.0.0.1", port=port, print=None)
