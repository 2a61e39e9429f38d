from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from perfgate.conductor.machine.lock import POLL_SECONDS, lock_path, machine_lock
from perfgate.errors import MachineBusyError, MeasuringError

HOLD = """
import sys
from pathlib import Path
from perfgate.conductor.machine.lock import machine_lock
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
        pytest.raises(
            MachineBusyError, match=rf"busy for 0 s: process {holder.pid} on .* holds it \(lock .*\); try again later"
        ),
        machine_lock(tmp_path / "lock", purpose="", say=said.append, timeout=0.1),
    ):
        pass
    holder.communicate("\n")
    assert len(said) == 1
    assert re.fullmatch(
        rf"waiting for the machine: next in line, process {holder.pid} on \S+: perfgate run in /project, since "
        rf"[-0-9]+ [:0-9]+ UTC is measuring \(lock {tmp_path / 'lock'}\); two at once would spoil both",
        said[0],
    )


def test_machine_lock__held_by_this_process__no_wait_and_held_until_the_outer_end(tmp_path: Path) -> None:
    path = tmp_path / "lock"

    def is_free() -> bool:
        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    with machine_lock(path, purpose="perfgate bisect", say=print, timeout=0.0):
        with machine_lock(path, purpose="perfgate check", say=print, timeout=0.0) as queued:
            assert queued == 0.0
            assert not is_free()
        assert not is_free()
    assert is_free()


def test_machine_lock__holder_killed__free_at_once(tmp_path: Path) -> None:
    holder = _holder(tmp_path / "lock")
    holder.kill()
    holder.communicate()
    said: list[str] = []
    with machine_lock(tmp_path / "lock", purpose="perfgate check", say=said.append, timeout=5):
        held = (tmp_path / "lock").read_text()
    assert held.startswith(f"process {os.getpid()} on ")
    assert ": perfgate check, since " in held
    assert (tmp_path / "lock").read_text() == ""
    assert list((tmp_path / "lock.queue").iterdir()) == []
    assert said == []


WAIT = """
import sys
from pathlib import Path
from perfgate.conductor.machine.lock import machine_lock
def say(text):
    print(text, flush=True)
with machine_lock(Path(sys.argv[1]), purpose=sys.argv[2], say=say) as queued:
    print("held", flush=True)
    sys.stdin.readline()
print(queued)
"""


def _become(user: int) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


class _Waiter:
    def __init__(self, path: Path, purpose: str, *, user: int = 0) -> None:
        command = [*(_become(user) if user else ()), sys.executable, "-c", WAIT, str(path), purpose]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def leave(self) -> float:
        """Return the seconds that it waited."""
        return float(self.process.communicate("\n", timeout=600)[0])

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_machine_lock__three_wait__each_sees_its_place_and_they_come_in_order(tmp_path: Path) -> None:
    holder = _holder(tmp_path / "lock")
    first = _Waiter(tmp_path / "lock", "first")
    assert "next in line, process " in first.says()
    second = _Waiter(tmp_path / "lock", "second")
    line = second.says()
    assert re.search(r"2nd in line behind process \d+ on \S+: first, waiting since [-0-9]+ [:0-9]+ UTC; process", line)
    third = _Waiter(tmp_path / "lock", "third")
    assert "3rd in line behind process" in third.says()

    first.kill()  # who is gone is out of the line at once, and those behind move up
    assert "next in line" in second.says()
    assert re.search(r"2nd in line behind process \d+ on \S+: second, waiting", third.says())
    holder.communicate("\n")
    assert second.says() == "held"
    # Between two holders nobody may be named, and the next one may still stand in line.
    while ": second, since " not in (line := third.says()):
        assert "next in line" in line or "2nd in line behind" in line
    assert second.leave() >= POLL_SECONDS
    assert third.says() == "held"
    third.leave()
    assert list((tmp_path / "lock.queue").iterdir()) == []


@pytest.fixture
def other_user() -> int:
    """Return the number of a user who can run this Python; one whose libraries lie in root's home nobody else can."""
    user = 12345
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    if subprocess.run([*_become(user), sys.executable, "-c", ""], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("another user cannot run this Python")
    return user


def test_machine_lock__waiters_of_two_users__one_line(other_user: int) -> None:
    folder = _folder_for_all()
    try:
        other = _Waiter(folder / "lock", "other user", user=other_user)
        assert other.says() == "held"
        ours = _Waiter(folder / "lock", "root")
        assert "next in line, process " in ours.says()
        third = _Waiter(folder / "lock", "other user again", user=other_user)
        assert "2nd in line behind process" in third.says()
        ours.kill()
        assert "next in line" in third.says()
        other.leave()
        assert third.says() == "held"
        third.leave()
    finally:
        shutil.rmtree(folder)


def _folder_for_all() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="lock-for-all-"))
    folder.chmod(0o777)
    return folder


@pytest.mark.parametrize("obstacle", ["file", "link", "held"])
def test_machine_lock__no_queue_possible__the_lock_alone(tmp_path: Path, obstacle: str) -> None:
    queue = tmp_path / "lock.queue"
    if obstacle == "file":
        queue.write_text("")
    elif obstacle == "link":
        (tmp_path / "elsewhere").mkdir()
        queue.symlink_to(tmp_path / "elsewhere")
    else:  # somebody sits on the folder and does not let go
        queue.mkdir()
        guard = os.open(queue, os.O_RDONLY)
        fcntl.flock(guard, fcntl.LOCK_EX)
    with machine_lock(tmp_path / "lock", purpose="", say=print, timeout=5):
        assert (tmp_path / "lock").read_text() != ""
    if obstacle == "link":
        assert list((tmp_path / "elsewhere").iterdir()) == []


def test_machine_lock__folder_that_cannot_be_written__the_lock_alone(other_user: int) -> None:
    folder = _folder_for_all()
    try:
        (folder / "lock").touch()
        (folder / "lock").chmod(0o666)
        folder.chmod(0o755)
        waiter = _Waiter(folder / "lock", "other user", user=other_user)
        assert waiter.says() == "held"
        waiter.leave()
        assert not (folder / "lock.queue").exists()
    finally:
        shutil.rmtree(folder)


def test_machine_lock__disk_full__place_and_lock_without_names(tmp_path: Path) -> None:
    # Nobody may write a byte: what a full disk does to a file that is made already.
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); import signal; "
    full += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    command = [sys.executable, "-B", "-c", full + WAIT, str(tmp_path / "lock"), "full"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    waiter = _Waiter(tmp_path / "lock", "waits")
    assert "next in line, another perfgate is measuring" in waiter.says()
    process.communicate("\n")
    assert waiter.says() == "held"
    waiter.leave()


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
