"""A program of a side: how it ends is told, and it ends with us, whatever it started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfgate.conductor.sides.program import SideError, SideProgram
from perfgate.document.message import Message
from tests.waiting import wait_until


def start(line: str, folder: Path, **options: object) -> SideProgram:
    given = {"cpus": (), "room": None, **options}
    return SideProgram(line, folder=folder, environment=dict(os.environ), log=folder / "log", **given)  # type: ignore[arg-type]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_program__ends__code_time_and_memory_are_told(tmp_path: Path) -> None:
    program = start("python -c 'sum(range(3_000_000))'; exit 7", tmp_path)
    end = program.wait(60)
    program.stop()
    assert end.code == 7
    assert 0 < end.cpu <= end.seconds + 0.5
    assert end.memory > 2**20


def test_program__prints__its_output_is_that_of_this_run(tmp_path: Path) -> None:
    for word in ("first", "second"):
        program = start(f"echo {word}; echo oops >&2", tmp_path)
        program.wait(60)
        program.stop()
    assert program.output() == "second\noops\n"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("kill -9 $$", "SIGKILL"),
        ("sh -c 'kill -ABRT $$'; exit $?", "SIGABRT"),
        ("exit 126", ""),
        ("kill -40 $$", "signal 40"),
    ],
)
def test_program__killed__the_signal_is_told_also_by_its_shell(tmp_path: Path, line: str, name: str) -> None:
    program = start(line, tmp_path)
    end = program.ended(within=60)
    assert end is not None
    assert end.signal == name
    program.stop()


@pytest.mark.parametrize(
    "replaced", ["rm $LOG", "rm $LOG; mkfifo $LOG", "rm $LOG; mkdir $LOG", "ln -sf /dev/zero $LOG"]
)
def test_program__replaces_its_log__said_instead_of_waiting_for_it(replaced: str, tmp_path: Path) -> None:
    line = replaced.replace("$LOG", str(tmp_path / "log"))
    program = start(line, tmp_path)
    program.wait(60)
    program.stop()
    with pytest.raises(SideError, match="must not remove or replace log"):
        program.output()


def test_program__another_one_replaced_its_log__not_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(SideError, match="must not remove or replace log"):
        start("true", tmp_path)


def test_program__takes_too_long__ends_with_the_limit_and_its_last_words(tmp_path: Path) -> None:
    program = start("echo working; sleep 600", tmp_path)
    wait_until(lambda: "working" in program.output())
    with pytest.raises(SideError) as caught:
        program.wait(0.3)
    program.stop()
    assert caught.value.detail.kind == "timeout"
    assert isinstance(caught.value.detail.message, Message)
    assert caught.value.detail.message.values == {"line": "echo working; sleep 600", "seconds": 0.3}
    assert caught.value.detail.log_tail == "working"


def test_program__stopped__everything_below_it_is_gone(tmp_path: Path) -> None:
    line = "setsid sh -c 'sleep 600 & echo $! > child; wait' & sleep 600"
    program = start(line, tmp_path)
    wait_until(lambda: (tmp_path / "child").is_file() and (tmp_path / "child").read_text().strip() != "")
    child = int((tmp_path / "child").read_text())
    assert runs(child)
    assert program.ended() is None
    program.stop()
    assert not runs(child)
    assert not runs(program.pid)


def test_program__its_owner_is_killed__it_ends_too(tmp_path: Path) -> None:
    script = (
        "import os, sys, time; from pathlib import Path\n"
        "from perfgate.conductor.sides.program import SideProgram\n"
        "folder = Path(sys.argv[1])\n"
        "program = SideProgram('sleep 600', folder=folder, environment=dict(os.environ),\n"
        "                      log=folder / 'log', cpus=(), room=None)\n"
        "(folder / 'pid').write_text(str(program.pid)); time.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
    wait_until(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text() != "")
    pid = int((tmp_path / "pid").read_text())
    owner.kill()
    owner.wait()
    wait_until(lambda: not runs(pid))


def test_program__bound_later__every_process_below_it_moves(tmp_path: Path) -> None:
    program = start("sleep 600 & wait", tmp_path)
    granted = sorted(os.sched_getaffinity(0))
    wait_until(lambda: Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().strip() != "")
    child = int(Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()[0])
    program.bind(granted[:1])
    assert os.sched_getaffinity(program.pid) == os.sched_getaffinity(child) == {granted[0]}
    program.stop()


def test_program__nothing_of_that_name__ends_with_the_shells_word(tmp_path: Path) -> None:
    program = start("exec no-such-program", tmp_path)
    began = time.monotonic()
    assert program.wait(60).code == 127
    program.stop()
    assert "no-such-program" in program.output()
    assert time.monotonic() - began < 60


WORK = """import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while time.process_time() < 0.4: pass
        time.sleep(float(sys.argv[1]))
    os._exit(0)
os.wait()
"""


def test_program__daemon_works_for_it__its_cpu_time_counts_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)
    program = start(f"{sys.executable} work.py 0", tmp_path)
    end = program.wait(60)
    program.stop()
    assert end.code == 0
    assert end.cpu >= 0.4
    assert end.left == []


def test_program__daemon_outlives_it__its_cpu_time_counts_and_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)
    program = start(f"{sys.executable} work.py 600", tmp_path)
    end = program.wait(60)
    program.stop()
    assert end.cpu >= 0.4
    assert [name for name in end.left if name.startswith("python")] == end.left != []


def test_program__fork_server_that_nobody_waits_for__its_cpu_time_counts(tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(
        "import multiprocessing, time\n"
        "def work(_):\n"
        "    while time.process_time() < 0.4: pass\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('forkserver').Pool(1) as pool: pool.map(work, [1])\n"
    )
    program = start(f"{sys.executable} pool.py", tmp_path)
    end = program.wait(60)
    program.stop()
    assert end.code == 0
    assert end.cpu >= 0.4
    assert end.left == []


def test_program__daemon_of_a_server__its_cpu_time_counts_after_its_parent_ended(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)
    program = start(f"{sys.executable} work.py 600; sleep 600", tmp_path)
    wait_until(lambda: program.cpu_ns() >= 0.4e9)
    program.stop()


def test_program__prints_without_end__log_stays_bounded_and_its_end_is_read(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("result: 1\n")
    program = start("head -c 300000000 /dev/zero | tr '\\0' x; echo; echo result: 2; sleep 600", tmp_path)
    wait_until(lambda: program.output().endswith("result: 2\n") and space_of(tmp_path / "log") < 64 * 1024**2)
    assert len(program.output()) <= 1024**2
    program.stop()
    log = (tmp_path / "log").read_bytes()
    assert len(log) < 3 * 1024**2
    assert log.startswith(b"result: 1\n")
    assert log.endswith(b"result: 2\n")


def space_of(file: Path) -> int:
    """Its bytes on the disk, without holes."""
    return file.stat().st_blocks * 512
