"""A server as a side, with a real process that answers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from perfgate.conductor.sides.server.server import ServerSide
from perfgate.conductor.sides.side import SidePlace
from perfgate.job_settings import JobReference, JobSettings
from perfgate.load_settings import LoadSettings

ROOT = Path(__file__).parents[3]
# Answers in one piece as long as there is a file called `whole`.
SERVER = """
import sys
from pathlib import Path
from aiohttp import web
from tests.fakes.openai_server import FakeOpenAI

server = FakeOpenAI(seconds=0.01)

@web.middleware
async def choosing(request, handler):
    server.fault = "whole" if Path("whole").exists() else "none"
    return await handler(request)

async def healthy(_):
    return web.Response()

app = server.app()
app.middlewares.append(choosing)
app.router.add_get("/health", healthy)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
"""


@pytest.fixture
def side(tmp_path: Path) -> ServerSide:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "whole").touch()
    load = LoadSettings(concurrency=1, requests=2, input=4, output=4)
    settings = JobSettings(serve=f"exec {sys.executable} server.py $PORT", model="fake", load=load)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    place = SidePlace(tmp_path, environment, tmp_path / "log", cpus=sorted(os.sched_getaffinity(0)))
    return ServerSide(JobReference("chat", settings), place)


def test_numbers__answers_of_the_first_turn_come_in_one_piece__token_times_of_later_turns_gate(
    side: ServerSide, tmp_path: Path
) -> None:
    side.start()
    try:
        side.warm_up()
        assert "serving.tpot" not in side.turn(0).values
        (tmp_path / "whole").unlink()
        assert side.turn(1).values["serving.tpot"] > 0.001
    finally:
        side.stop()
    gating = {number.metric for number in side.numbers if number.gating}
    assert gating == {"serving.ttft", "serving.tpot", "serving.cpu", "serving.throughput"}
