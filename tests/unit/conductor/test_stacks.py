"""Stacks of a side's processes: what takes the time is named, and nothing dies of the signal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfgate.conductor.sides import stacks
from perfgate.conductor.sides.profiled import profile_of, write_trace
from perfgate.conductor.sides.stacks import SideStacks, profiling_environment, sample_stacks
from perfgate.jobs.shared.flame import tree_of
from perfgate.trace import read

ROOT = Path(__file__).parents[3]
PROGRAM = """
import asyncio, time

def heavy():
    return sum(number * number for number in range(600_000))

def naps():
    time.sleep(0.003)

async def waits():
    await asyncio.sleep(0.004)

async def main():
    while True:
        heavy()
        naps()
        await waits()
        print("done", flush=True)

asyncio.run(main())
"""


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A program at work that can be profiled, and its folder."""
    monkeypatch.setattr(stacks, "PROFILE_SECONDS", 0.6)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import os\nos.environ['HIDDEN'] = 'ran'\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "own"), str(ROOT)])}
    program = subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=profiling_environment(environment, tmp_path / "profile"),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield program, tmp_path
    finally:
        program.kill()
        program.communicate()


def test_sample_stacks__a_program_at_work__what_computes_sleeps_and_waits_is_named(
    started: tuple[subprocess.Popen[str], Path],
) -> None:
    program, root = started
    output = program.stdout
    assert output is not None
    output.readline()
    with subprocess.Popen(["sleep", "60"]) as deaf:
        sampled = sample_stacks(
            root / "profile", lambda: [program.pid, deaf.pid], lambda: len(output.readline()) // 5, "step"
        )
        assert deaf.poll() is None, "a process without a handler would have died of the signal"
        deaf.kill()
    profile = profile_of("loop", sampled, root)
    assert (profile.per, profile.units > 0, program.poll()) == ("step", True, None)
    heaviest = max(profile.lines, key=lambda line: line.cpu)
    assert (heaviest.function, heaviest.line) == ("heavy", "program.py:5")
    waited = {line.function: line.waited for line in profile.lines if line.waited > 0.001}
    assert waited.keys() >= {"naps", "waits"}
    heavy = next(function for function in profile.functions if function.name == "heavy")
    assert (heavy.first, heavy.callers[0]) == (4, "program.py:15")
    write_trace(sampled, root, root / "trace.json.gz")
    (timeline,) = read(root / "trace.json.gz").timelines
    assert "program.py: heavy" in tree_of(timeline, "loop").texts


def test_startup__a_hidden_sitecustomize__runs_too(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.hidden = 'ran'\n")
    environment = profiling_environment({**os.environ, "PYTHONPATH": str(own)}, tmp_path)
    program = "import signal, sys; print(hidden, 'perfgate' in sys.modules, signal.getsignal(signal.SIGRTMAX - 4) is not None)"
    printed = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
    assert printed.split() == ["ran", "False", "True"]


@pytest.mark.parametrize(
    "change",
    [
        {"frames": []},
        {"samples": [["t", 7, 0, 1, 0, False, 1]]},
        {"samples": [["t", 0, 5, 1, 0, False, 1]]},
        {"pid": "x"},
    ],
)
def test_read__stacks_that_somebody_else_wrote__are_none(tmp_path: Path, change: dict[str, object]) -> None:
    document = {
        "pid": 1,
        "rank": -1,
        "began": 0,
        "ended": 9,
        "library": "/usr/lib/python3",
        "frames": [["model.py", "forward", 1, 4, 2]],
        "stacks": [[0]],
        "samples": [["main", 0, 0, 5, 5, False, 1]],
    }
    file = tmp_path / "1.stacks"
    file.write_text(json.dumps(document))
    assert stacks._read(file) is not None
    file.write_text(json.dumps({**document, **change}))
    assert stacks._read(file) is None


def test_profile__nobody_can_be_asked__is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "PROFILE_SECONDS", 0.0)
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "1.stacks").write_text("left by somebody else")
    sampled = sample_stacks(tmp_path / "profile", list, lambda: 1, "token")
    assert sampled == SideStacks("token", 0, sampled.seconds, [], [], tmp_path / "profile")
    assert profile_of("chat", sampled, tmp_path).lines == []
