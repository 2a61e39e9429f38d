"""What a terminal shows of the time left, on a real terminal of the kernel's, and what everybody else gets."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from perfgate.cli.progress import outlook
from perfgate.conductor.workers.foresight import Foresight

SHOWS = """
from perfgate.cli.progress import TerminalProgress
from perfgate.conductor.workers.foresight import Foresight
with TerminalProgress() as progress:
    progress.status("loading workload classify")
    progress.expect(Foresight(part="pairs", number=12, left=60.0, elapsed=60.0, so_far=(-0.02, 0.016)))
    progress.note("a line that stays")
    progress.status("loading workload classify: building classify with inputs of shape typical, and more words " * 2)
"""


@pytest.mark.parametrize(
    ("foresight", "elapsed", "words"),
    [
        (Foresight(), 0, ""),
        (Foresight(number=1, count=1), 0, ""),
        (Foresight(part="checklist", number=2, count=17), 0, "checklist 2/17"),
        (Foresight(number=3, count=19, left=31.0), 0, "3/19 steps · about 35 s left"),
        (
            Foresight(part="checklist", number=9, count=17, left=300.0, elapsed=100.0),
            0,
            "███░░░░░░░░░ checklist 9/17 · about 5 min left",
        ),
        (
            Foresight(part="pairs", number=12, left=60.0, elapsed=60.0, so_far=(-0.02, 0.016)),
            0,
            "██████░░░░░░ pair 12 · −0.2 % ± 1.8 % · about 60 s left",
        ),
        (
            Foresight(part="pairs", number=12, left=60.0, elapsed=60.0, so_far=(0.121, 0.129)),
            57.6,
            "████████████ pair 12 · +12.5 % ± 0.4 % · about 2 s left",
        ),
        (Foresight(part="pairs", number=8, so_far=(-0.004, 0.0032)), 0, "pair 8 · 0.0 % ± 0.4 %"),
        (Foresight(part="turns", left=20.0, elapsed=100.0), 30, "████████████ checklist in turns"),
    ],
)
def test_outlook__what_is_known__bar_part_estimate_and_one_time(
    foresight: Foresight, elapsed: float, words: str
) -> None:
    assert outlook(foresight, elapsed) == words


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


def test_progress__terminal__one_line_that_keeps_pair_and_estimate() -> None:
    seen = on_terminal(COLUMNS="80")
    assert "██████░░░░░░ pair 12 · −0.2 % ± 1.8 % · about 60 s left · loading worklo" in seen
    assert "a line that stays" in seen
    drawn = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", seen)]
    assert max(map(len, drawn)) < 80


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_progress__terminal_without_colours__plain_lines(environment: dict[str, str]) -> None:
    assert on_terminal(**environment).splitlines() == ["loading workload classify", "a line that stays"]


def test_progress__no_terminal__plain_lines() -> None:
    done = subprocess.run([sys.executable, "-c", SHOWS], capture_output=True, text=True, check=True)
    assert done.stderr == "loading workload classify\na line that stays\n"
