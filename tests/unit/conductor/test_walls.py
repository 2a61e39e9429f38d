"""Walls: a process within them does not reach a process or a file of the other side, whoever it runs as."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfgate.system.walls import can_build_walls

pytestmark = pytest.mark.skipif(not can_build_walls(), reason="this kernel has no walls: Landlock since ABI 2")

# What a process tries within its walls; it prints which attempts succeeded.
INSIDE = """
import ctypes, json, multiprocessing, os, pathlib, struct, subprocess, sys
from perfgate.system.walls import Room, enter_room
closed, room, outside, other = sys.argv[1:5]
assert enter_room(Room(closed, room))
theirs, ours = pathlib.Path(closed, "other"), pathlib.Path(room)
def copy_and_move():
    path = pathlib.Path(outside, "made"); path.write_text("1"); path.rename(ours / "moved")
def sample():
    # Its CPU clock, in user space: what an ordinary user may see of a process that it may trace (perf_event_open(2)).
    number = {"x86_64": 298, "aarch64": 241}[os.uname().machine]
    attributes = struct.pack("=IIQQQQQIIQQQQIiQII", 1, 112, 0, 10_000, 7, 0, 3 << 5, 1 << 30, *[0] * 10)
    buffer = ctypes.create_string_buffer(attributes, 112)
    if ctypes.CDLL(None).syscall(number, buffer, int(other), -1, -1, 8) < 0:
        raise OSError
ATTEMPTS = {
    "reads what is outside": lambda: pathlib.Path(outside, "file").read_text(),
    "writes what is outside, and moves it in": copy_and_move,
    "starts processes": lambda: subprocess.run([sys.executable, "-c", "import json"], check=True),
    "starts processes that share memory": lambda: multiprocessing.Value("i"),
    "sends a signal to its own": lambda: subprocess.Popen(["sleep", "60"]).kill(),
    "reads the other's file": lambda: (theirs / "file").read_text(),
    "writes the other's file": lambda: (theirs / "file").write_text("x"),
    "adds a file to the other's": lambda: (theirs / "more").write_text("x"),
    "removes the other's file": lambda: (theirs / "file").unlink(),
    "puts another folder in its place": lambda: theirs.rename(ours / "taken"),
    "links the other's file": lambda: os.link(theirs / "file", ours / "linked"),
    "reads the other's environment": lambda: pathlib.Path(f"/proc/{other}/environ").read_bytes(),
    "opens the other's memory": lambda: open(f"/proc/{other}/mem", "r+b"),
    "reads a file through the other's root": lambda: pathlib.Path(f"/proc/{other}/root/etc/passwd").read_text(),
    "samples the other": sample,
    "sets a state of the kernel": lambda: open("/proc/sys/kernel/perf_event_paranoid", "r+"),
    "lowers the other's priority": lambda: open(f"/proc/{other}/autogroup", "w"),
}
done = []
for name, attempt in ATTEMPTS.items():
    try:
        attempt()
        done.append(name)
    except OSError:
        pass
print(json.dumps(done))
"""
ALLOWED = [
    "reads what is outside",
    "writes what is outside, and moves it in",
    "starts processes",
    "starts processes that share memory",
    "sends a signal to its own",
]


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_enter_room__everything_that_reaches_the_other_side__refused(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    closed, outside = tmp_path / "parent" / "closed", tmp_path / "outside"
    for folder in (closed / "room", closed / "other", outside):
        folder.mkdir(parents=True)
    (closed / "other" / "file").write_text("secret")
    (outside / "file").write_text("common")
    command = [sys.executable, "-c", INSIDE, str(closed), str(closed / "room"), str(outside), str(other.pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ALLOWED
    assert (closed / "other" / "file").read_text() == "secret"
    assert other.poll() is None


def test_enter_room__rights_of_root__gone_and_not_given_back() -> None:
    inside = (
        "import tempfile; from perfgate.system.walls import Room, enter_room; folder = tempfile.mkdtemp()\n"
        "enter_room(Room(folder, folder))\n"
        "import subprocess; print(subprocess.run(['cat', '/proc/self/status'], capture_output=True, text=True).stdout)"
    )
    done = subprocess.run([sys.executable, "-c", inside], capture_output=True, text=True, check=True)
    status = dict(line.split(":\t") for line in done.stdout.splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    tracing_and_administration = 1 << 19 | 1 << 21
    assert not int(status["CapEff"], 16) & tracing_and_administration
