"""Ctrl-C, SIGTERM and kill -9 at any moment: nothing is left but whole files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.conftest import SECONDS, Clone, Perfgate
from tests.waiting import left_in_the_end

Project = Callable[..., Path]

# From the first imports to the pairs, on a machine of any speed: seconds after the start.
DELAYS = [0.0, 0.3, 0.6, 1.0, 1.6, 2.5, 4.0, 6.0]


def _interrupted(process: subprocess.Popen[str], delay: float, number: signal.Signals) -> int:
    _wait_until_heard(process.pid)
    time.sleep(delay)
    process.send_signal(number)
    process.communicate(timeout=SECONDS)
    return process.returncode


def _wait_until_heard(pid: int) -> None:
    """Wait until the command has its signal handlers: before that an interpreter that starts slowly just dies."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        caught = next(
            line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt")
        )
        if int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.02)
    raise AssertionError("the command never listened to signals")


def _assert_clean(perfgate: Perfgate) -> None:
    assert left_in_the_end(perfgate.processes) == []
    assert perfgate.scratch_folders == []


def _assert_whole_files(out: Path) -> None:
    for path in out.rglob("*"):
        assert not path.name.endswith(".tmp")
        assert not path.name.startswith(".perfgate-")
        if path.suffix == ".json" and path.is_file():
            json.loads(path.read_text())


@pytest.mark.slow
def test_check__interrupted_at_many_moments__130_and_nothing_left(perfgate: Perfgate, clone: Clone) -> None:
    # Long enough that no machine has finished when the last signal comes.
    settings = clone.root / "perfgate.toml"
    settings.write_text(settings.read_text().replace("looks = [8]", "looks = [200]"))
    clone.git("commit", "-qam", "a longer gate")
    for index, delay in enumerate(DELAYS):
        number = signal.SIGTERM if index % 2 else signal.SIGINT
        out = clone.root / f"out-{index}"
        process = perfgate.start(
            "check", "--base", "main", "--out", str(out), "--steps", "4", cwd=clone.root,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert _interrupted(process, delay, number) == 130, f"{number.name} after {delay} s"
        _assert_clean(perfgate)
        _assert_whole_files(out)
        assert len(clone.git("worktree", "list").splitlines()) == 1
        assert list(clone.root.glob(".git/perfgate-worktrees/*")) == []


@pytest.mark.slow
def test_run__ctrl_c_twice_in_a_hanging_workload__130_and_nothing_left(perfgate: Perfgate, failing: Project) -> None:
    root = failing("build_hangs")
    process = perfgate.start("run", "--steps", "3", cwd=root, stderr=subprocess.PIPE)
    assert process.stderr is not None
    while "building build_hangs" not in (line := process.stderr.readline()):
        assert line
    for _ in range(2):  # the second, of the impatient, must not spoil the cleaning up
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert said.strip().endswith("perfgate: interrupted")
    _assert_clean(perfgate)
    assert not (root / "perfgate-out" / "run.json").exists()


def test_run__interrupted_while_waiting_for_the_machine__130_at_once(perfgate: Perfgate, failing: Project) -> None:
    import fcntl

    root = failing("well")
    with Path(perfgate.environment["PERFGATE_LOCK"]).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = perfgate.start("run", "--steps", "3", cwd=root, stderr=subprocess.PIPE)
        assert process.stderr is not None
        assert "waiting for the machine: next in line, another perfgate is measuring" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)  # ends, although nobody lets go of the machine
        assert process.returncode == 130
    _assert_clean(perfgate)


@pytest.mark.parametrize("victim", [pytest.param("conductor", marks=pytest.mark.slow), "everyone at once"])
def test_check__conductor_killed__workers_die_by_themselves_and_the_next_check_sweeps(
    perfgate: Perfgate, clone: Clone, victim: str
) -> None:
    clone.commit("hang", model=("def build():", "def build():\n    import time; time.sleep(3600)"))
    process = perfgate.start(
        "check", "--base", "HEAD", "--steps", "4", cwd=clone.root, stderr=subprocess.PIPE, start_new_session=True
    )
    assert process.stderr is not None
    while "building small" not in (line := process.stderr.readline()):
        assert line
    assert len(perfgate.processes()) == 3  # conductor, fork server, worker
    if victim == "conductor":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=SECONDS)
    assert left_in_the_end(perfgate.processes) == []
    # The clone, the two sides, and the harness of base.
    assert len(clone.git("worktree", "list").splitlines()) == 4
    second = perfgate.start(
        "check", "--base", "HEAD", "--steps", "4", cwd=clone.root, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert second.stderr is not None
    while "building small" not in (line := second.stderr.readline()):
        assert line
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=SECONDS)
    assert len(clone.git("worktree", "list").splitlines()) == 1
