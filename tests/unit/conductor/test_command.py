"""The lines of Python that a command runs: in all its processes and threads, and the same each time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from perfgate.conductor.sides.command.command import CommandSide
from perfgate.conductor.sides.program import SideError
from perfgate.conductor.sides.side import SidePlace
from perfgate.job_settings import JobReference, JobSettings

PROGRAM = """
import os, subprocess, threading

def total(n):
    result = 0
    for number in range(n):
        result += number
    return result

total(1000)
thread = threading.Thread(target=total, args=(1000,))
thread.start()
thread.join()
if os.fork() == 0:
    total(1000)
    os._exit(0)
os.wait()
subprocess.run(["true"], check=True)
"""


def side(command: str, folder: Path, **environment: str) -> CommandSide:
    settings = JobSettings(command=command, timeout=60.0)
    place = SidePlace(folder, {**os.environ, "PYTHONHASHSEED": "0", **environment}, folder / "log")
    return CommandSide(JobReference("bench", settings), place)


def test_count__of_a_program__has_the_lines_of_its_threads_and_processes(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    # The environment's own hook runs too.
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('own hook')\n", encoding="utf-8")
    bench = side(f"{sys.executable} program.py", tmp_path, PYTHONPATH=str(tmp_path / "own"))
    bench.count()  # compiles what is imported
    first, second = (bench.count()["python_lines"] for _ in range(2))
    assert first == pytest.approx(second, rel=0.01)
    # Two lines of each pass through a loop, of which there are three of a thousand.
    assert 6000 < first < 600_000
    # In the program, three times, and not in the keeper that measures it.
    assert (tmp_path / "log").read_text().count("own hook") == 3


@pytest.mark.parametrize("command", ["true", f"{sys.executable} -c 'raise SystemExit(3)'"])
def test_count__of_no_python_or_a_run_that_fails__is_none(command: str, tmp_path: Path) -> None:
    assert side(command, tmp_path).count() == {"python_lines": 0}


@pytest.mark.parametrize(
    "meanwhile",
    [
        "mkdir $PERFGATE_LINES/folder",
        "mkfifo $PERFGATE_LINES/pipe",
        "ln -s /nowhere $PERFGATE_LINES/link",
        "head -c 9 /dev/zero > $PERFGATE_LINES/longer",
    ],
)
def test_count__program_puts_other_things_into_the_folder__its_lines_count(meanwhile: str, tmp_path: Path) -> None:
    assert side(f"{meanwhile}; {sys.executable} -c 'print()'", tmp_path).count()["python_lines"] > 0


def test_count__program_removes_temporary_folders__none(tmp_path: Path) -> None:
    assert side("rm -r $PERFGATE_LINES", tmp_path).count() == {"python_lines": 0}


@pytest.mark.parametrize("instead", ["mkdir $PERFGATE_METRICS", "mkfifo $PERFGATE_METRICS"])
def test_turn__no_file_where_the_numbers_belong__said_and_removed_again(instead: str, tmp_path: Path) -> None:
    bench = side(instead, tmp_path)
    bench.count()  # leaves one behind
    with pytest.raises(SideError, match="PERFGATE_METRICS names a file to write"):
        bench.turn(0)
