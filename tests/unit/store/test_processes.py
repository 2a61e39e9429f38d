"""Real processes on one store at once, one of them killed in the middle."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.runs import record_run, stored_runs
from tests.forking import exit_code, forked
from tests.unit.document.minimal import minimal_run


def record(path: Path, name: str, count: int, gate: int, told: int | None = None) -> None:
    """Record so many runs once a byte can be read from ``gate``, and tell the number of each that is recorded."""
    store = SqlStore(path)
    assert os.read(gate, 1)
    for number in range(count):
        record_run(store, minimal_run(session=f"{name}-{number}"))
        if told is not None:
            os.write(told, f"{number}\n".encode())


def assert_sound(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        without_document = "SELECT count(*) FROM log WHERE run NOT IN (SELECT run FROM run_documents)"
        assert connection.execute(without_document).fetchone() == (0,)


def test_record__four_processes_start_on_no_file__every_run_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "new" / "store.db"
    gate, release = os.pipe()
    processes = [forked(partial(record, path, name, 10, gate)) for name in "abcd"]
    os.write(release, b"....")
    assert [exit_code(process) for process in processes] == [0, 0, 0, 0]
    for descriptor in (gate, release):
        os.close(descriptor)
    sessions = sorted(run.session for run in stored_runs(SqlStore(path), "shop"))
    assert sessions == sorted(f"{name}-{number}" for name in "abcd" for number in range(10))
    assert_sound(path)


def test_record__a_process_killed_while_writing__its_whole_runs_are_kept_and_others_go_on(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    gate, release = os.pipe()
    reading, told = os.pipe()
    victim = forked(partial(record, path, "victim", 100_000, gate, told))
    other = forked(partial(record, path, "other", 10, gate))
    os.write(release, b"..")
    with os.fdopen(reading, encoding="ascii") as lines:
        for _ in range(5):
            printed = lines.readline()
        os.kill(victim, signal.SIGKILL)
        assert exit_code(victim) == -signal.SIGKILL
        assert exit_code(other) == 0
    sessions = {run.session for run in stored_runs(SqlStore(path), "shop")}
    assert {f"victim-{number}" for number in range(int(printed) + 1)} <= sessions
    assert {f"other-{number}" for number in range(10)} <= sessions
    assert_sound(path)
    for descriptor in (gate, release, told):
        os.close(descriptor)
