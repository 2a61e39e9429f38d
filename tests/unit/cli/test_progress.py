"""What a terminal shows of the time left, on a real terminal of the kernel's, and what everybody else gets."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from perfgate.cli.progress import time_left
from perfgate.conductor.workers.foresight import Foresight

SHOWS = """
from perfgate.cli.progress import TerminalProgress
from perfgate.conductor.workers.foresight import Foresight
with TerminalProgress() as progress:
    progress.expect(Foresight(part=3, parts=3, at_least=20.0, at_most=3000.0))
    progress.status("pair 5, at most 71")
    progress.note("a line that stays")
"""


@pytest.mark.parametrize(
    ("foresight", "elapsed", "words"),
    [
        (Foresight(), 0, ""),
        (Foresight(part=1, parts=1, number=1, count=1), 0, ""),
        (Foresight(part=1, parts=3, number=2, count=12), 0, "part 1 of 3, 2 of 12 steps"),
        (Foresight(at_least=13.2, at_most=58.1), 0, "10–60 s left"),
        (Foresight(at_least=13.2, at_most=58.1), 10, "at most 50 s left"),
        (Foresight(at_least=13.2, at_most=58.1), 50, "at most 9 s left"),
        (Foresight(at_least=13.2, at_most=58.1), 59, ""),
        (Foresight(at_least=2.1, at_most=4.4), 0, "2–5 s left"),
        (Foresight(at_least=100.0, at_most=500.0), 0, "1–9 min left"),
        (Foresight(number=3, count=19, at_least=30.0, at_most=200.0), 0, "3 of 19 steps, at most 4 min left"),
    ],
)
def test_time_left__what_is_known__rounded_away_from_each_other(
    foresight: Foresight, elapsed: float, words: str
) -> None:
    assert time_left(foresight, elapsed) == words


def on_terminal(**environment: str) -> str:
    reader, writer = pty.openpty()
    environ = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environ |= {"TERM": "xterm", "COLUMNS": "100", **environment}
    done = subprocess.Popen([sys.executable, "-c", SHOWS], env=environ, stderr=writer, stdin=writer)
    os.close(writer)
    seen = b""
    try:
        while piece := os.read(reader, 65536):
            seen += piece
    except OSError:  # Linux says so where the last writer has gone
        pass
    os.close(reader)
    assert done.wait() == 0
    return seen.decode()


def test_progress__terminal__the_line_begins_with_the_time_left() -> None:
    seen = on_terminal()
    assert "part 3 of 3, at most 50 min left · pair 5, at most 71" in seen
    assert "a line that stays" in seen


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_progress__terminal_without_colours__plain_lines(environment: dict[str, str]) -> None:
    assert on_terminal(**environment).splitlines() == ["pair 5, at most 71", "a line that stays"]


def test_progress__no_terminal__plain_lines() -> None:
    done = subprocess.run([sys.executable, "-c", SHOWS], capture_output=True, text=True, check=True)
    assert done.stderr == "pair 5, at most 71\na line that stays\n"
