"""Real processes on one store at once, one of them killed in the middle."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from perfgate.judging.store.backends.sql import SqlStore

RECORD = """
import sys
from pathlib import Path
from perfgate.judging.store.backends.sql import SqlStore
from tests.unit.document.minimal import minimal_run
path, name, count = sys.argv[1:]
store = SqlStore(Path(path))
sys.stdin.readline()
for number in range(int(count)):
    store.record(minimal_run(session=f"{name}-{number}"))
    print(number, flush=True)
"""


def start(path: Path, name: str, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", RECORD, str(path), name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


def release(*processes: "subprocess.Popen[str]") -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def finish(process: "subprocess.Popen[str]") -> int:
    process.communicate(timeout=600)
    return process.returncode


def assert_sound(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        without_values = "SELECT count(*) FROM runs WHERE number NOT IN (SELECT run FROM run_values)"
        assert connection.execute(without_values).fetchone() == (0,)


def test_record__four_processes_start_on_no_file__every_run_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "new" / "store.db"
    processes = [start(path, name, 10) for name in "abcd"]
    release(*processes)
    assert [finish(process) for process in processes] == [0, 0, 0, 0]
    sessions = sorted(run.session for run in SqlStore(path).runs("shop"))
    assert sessions == sorted(f"{name}-{number}" for name in "abcd" for number in range(10))
    assert_sound(path)


def test_record__a_process_killed_while_writing__its_whole_runs_are_kept_and_others_go_on(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    victim, other = start(path, "victim", 100_000), start(path, "other", 10)
    release(victim, other)
    assert victim.stdout is not None
    for _ in range(5):
        printed = victim.stdout.readline()
    victim.send_signal(signal.SIGKILL)
    assert finish(victim) == -signal.SIGKILL
    assert finish(other) == 0
    sessions = {run.session for run in SqlStore(path).runs("shop")}
    assert {f"victim-{number}" for number in range(int(printed) + 1)} <= sessions
    assert {f"other-{number}" for number in range(10)} <= sessions
    assert_sound(path)
