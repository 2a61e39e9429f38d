"""Stacks of a side's processes: what takes the time is named, and nothing dies of the signal."""

from __future__ import annotations

import dis
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from perfgate.conductor.sides.stacks import stacks
from perfgate.conductor.sides.stacks.profiled import operators_of, profile_of, write_trace
from perfgate.conductor.sides.stacks.stacks import (
    SideStacks,
    profiling_environment,
    record_operators,
    sample_run,
    sample_stacks,
)
from perfgate.document.job import CpuTime
from perfgate.flows.shared.trees import tree_of
from perfgate.measuring import operator_recorder, stack_sampler
from perfgate.system.profiling import PROFILE_VARIABLE
from perfgate.trace import read

ROOT = Path(__file__).parents[3]
ENOUGH = CpuTime(used=2.0, waited=0.0, seconds=2.0)
PROGRAM = """
import asyncio, time

def heavy():
    return sum(number * number for number in range(600_000))

def naps():
    time.sleep(0.01)

async def waits():
    await asyncio.sleep(0.02)

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
            root / "profile",
            lambda: [program.pid, deaf.pid],
            lambda: len(output.readline()) // 5,
            "step",
            lambda: ENOUGH,
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


def test_read__a_pipe_instead_of_stacks__none_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.stacks")
    assert stacks._read(tmp_path / "1.stacks") is None


def test_profile__nobody_can_be_asked__is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "PROFILE_SECONDS", 0.0)
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "1.stacks").write_text("left by somebody else")
    sampled = sample_stacks(tmp_path / "profile", list, lambda: 1, "token", lambda: ENOUGH)
    assert sampled == SideStacks("token", 0, sampled.seconds, [], [], tmp_path / "profile")
    assert profile_of("chat", sampled, tmp_path).lines == []


def test_line__of_a_jump_back__is_that_of_the_loop() -> None:
    def loops(values: list[int]) -> int:
        found = 0
        for value in values:
            if value in (1, 2):
                found += value
        return found

    code, first = loops.__code__, loops.__code__.co_firstlineno
    jumps = [
        one.offset for one in dis.get_instructions(code) if one.opname.startswith(("JUMP_BACKWARD", "JUMP_ABSOLUTE"))
    ]
    assert {stack_sampler._line_without_number(code, at) for at in jumps} == {first + 2}


@pytest.mark.parametrize(
    ("used", "waited", "is_starved"), [(2.0, 9.0, False), (0.5, 0.4, False), (0.5, 0.6, True), (0.5, None, True)]
)
def test_starved__little_cpu_time_and_longer_waits_for_it__is_profiled_longer(
    used: float, waited: float | None, is_starved: bool
) -> None:
    assert stacks._is_starved(CpuTime(used=used, waited=waited, seconds=2.0)) is is_starved


RUN = """
import os

def heavy():
    return sum(number * number for number in range(4_000_000))

def child():
    return sum(number * number for number in range(9_000_000))

heavy()
if not os.fork():
    child()
    os._exit(0)
os.wait()
"""


def test_sample_run__a_command_and_what_it_forks__both_are_named_however_they_end(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(RUN)
    environment = profiling_environment({**os.environ, "PYTHONPATH": str(ROOT)}, tmp_path / "profile")
    ended = []

    def run() -> bool:
        ended.append(subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, check=False))
        return ended[-1].returncode == 0

    sampled = sample_run(tmp_path / "profile", run)
    assert sampled is not None
    profile = profile_of("bench", sampled, tmp_path)
    # What a function holds in itself is no function: the callers of a line in it are those of the whole.
    assert {(one.name, one.callers[0]) for one in profile.functions if one.callers} == {
        ("heavy", "program.py:10"),
        ("child", "program.py:12"),
    }
    assert (profile.per, len(sampled.processes)) == ("run", 2 * profile.units)
    assert {line.function for line in profile.lines} >= {"heavy", "child"}
    (tmp_path / "program.py").write_text("raise SystemExit(3)")
    assert sample_run(tmp_path / "profile", run) is None


def test_record_operators__threads_of_a_program__by_the_function_that_calls_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROFILE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(stacks, "signal_processes", lambda pids: operator_recorder.toggle() or set(pids))
    values = torch.ones(64)

    def twice() -> None:
        values.sort().values.sort()

    def work() -> int:
        pool.submit(lambda: [twice() for _ in range(5)]).result()
        return 5

    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        recorded = record_operators(SideStacks("token", 5, 1.0, [], [], tmp_path), lambda: [os.getpid()], work)
    assert (recorded.operator_units, len(recorded.traces)) == (5, 1)
    (sort,) = [operator for operator in operators_of(recorded, ROOT) if operator.name == "aten::sort"]
    assert (sort.calls, sort.seconds > 0, sort.line.rpartition(":")[0]) == (
        2,
        True,
        "tests/unit/conductor/test_stacks.py",
    )


def test_record_operators__a_server_that_records_itself__its_trace_and_no_other(tmp_path: Path) -> None:
    ended = []
    recorded = record_operators(
        SideStacks("token", 5, 1.0, [], [], tmp_path),
        list,
        lambda: 7,
        begin=lambda folder: bool((folder / "own.json").write_text("{}")),
        end=lambda: ended.append(True),
    )
    assert (recorded.operator_units, [file.name for file in recorded.traces], ended) == (7, ["own.json"], [True])
    assert operators_of(recorded, tmp_path) == []


def test_operators__one_call_was_interrupted__the_others_tell_what_it_takes(tmp_path: Path) -> None:
    durations = [100.0] * 10 + [20_000.0]
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::zeros", "ts": 30_000 * at, "dur": duration, "pid": 1, "tid": 1}
        for at, duration in enumerate(durations)
    ]
    (tmp_path / "1.operators.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    sampled = SideStacks("token", 11, 1.0, [], [tmp_path / "1.operators.json"], tmp_path, operator_units=11)
    (operator,) = operators_of(sampled, tmp_path)
    assert (operator.name, operator.calls, operator.seconds, operator.spread) == ("aten::zeros", 1, 1e-4, 0)
