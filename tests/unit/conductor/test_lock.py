from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfgate.conductor.lock import lock_path, machine_lock
from perfgate.errors import MeasuringError

HOLD = """
import sys
from pathlib import Path
from perfgate.conductor.lock import machine_lock
with machine_lock(Path(sys.argv[1]), purpose="perfgate run in /project", say=print):
    print("held", flush=True)
    sys.stdin.readline()
"""


def _holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_machine_lock__held_by_another__says_who_and_gives_up_in_time(tmp_path: Path) -> None:
    holder = _holder(tmp_path / "lock")
    said: list[str] = []
    with (
        pytest.raises(MeasuringError, match=r"the machine was busy for 0 s .* try again later"),
        machine_lock(tmp_path / "lock", purpose="", say=said.append, timeout=0.1),
    ):
        pass
    holder.communicate("\n")
    assert said == [
        f"waiting for the machine: process {holder.pid}: perfgate run in /project is measuring "
        f"(lock {tmp_path / 'lock'}); two at once would spoil both"
    ]


def test_machine_lock__holder_killed__free_at_once(tmp_path: Path) -> None:
    holder = _holder(tmp_path / "lock")
    holder.kill()
    holder.communicate()
    said: list[str] = []
    with machine_lock(tmp_path / "lock", purpose="perfgate check", say=said.append, timeout=5):
        assert (tmp_path / "lock").read_text() == f"process {os.getpid()}: perfgate check\n"
    assert (tmp_path / "lock").read_text() == ""
    assert said == []


@pytest.mark.parametrize("kind", ["folder", "no folder", "link", "pipe"])
def test_machine_lock__path_that_is_no_lock_file__remedy(tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path = tmp_path / "lock"
    if kind == "folder":
        path.mkdir()
    elif kind == "no folder":
        path = tmp_path / "absent" / "lock"
    elif kind == "link":  # planted by another user, to have us empty a file of ours
        path.symlink_to(victim)
    else:
        os.mkfifo(path)
    with (
        pytest.raises(
            MeasuringError, match=r"cannot be opened: .*; set PERFGATE_LOCK to a file you can write"
        ) as refusal,
        machine_lock(path, purpose="", say=print),
    ):
        pass
    assert refusal.value.exit_code == 4
    assert victim.read_text() == "precious"


def test_lock_path__environment__named_or_the_temporary_folder() -> None:
    assert lock_path({"PERFGATE_LOCK": "/shared/lock"}) == Path("/shared/lock")
    assert lock_path({}).name == "perfgate.lock"
