"""Eight writers and eight readers at once, two writers killed, the database server killed: no acknowledged run is lost."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfgate.judging.store.runs import stored_runs
from perfgate.judging.store.store import Store, StorePlace, open_location
from perfgate.judging.store.verify import verify_store
from tests.fakes.postgres import PostgresServer, running_postgres
from tests.waiting import wait_until

EACH = 8
BEFORE, AFTER = 5, 20
MOST_SECONDS = 900.0
ROOT = Path(__file__).parents[3]
WRITE = """
import sys, time
from pathlib import Path
from perfgate.errors import StoreRefusedError
from perfgate.judging.store.runs import record_run
from perfgate.judging.store.store import StorePlace, open_location
from tests.unit.document.minimal import minimal_run
location, name, stop = sys.argv[1], sys.argv[2], Path(sys.argv[3])
store = open_location(location, StorePlace(Path(), {}))
number = 0
while not stop.exists():
    try:
        record_run(store, minimal_run(session=f"{name}-{number}"))
    except StoreRefusedError:  # then the same run again, as the error says
        print("refused", flush=True)
        time.sleep(0.05)
    else:
        print(f"{name}-{number}", flush=True)
        number += 1
"""
READ = """
import sys, time
from pathlib import Path
from perfgate.errors import StoreRefusedError
from perfgate.judging.store.index import read_index
from perfgate.judging.store.runs import stored_run, stored_runs
from perfgate.judging.store.store import SeriesPlace, StorePlace, open_location
location, name, stop = sys.argv[1], sys.argv[2], Path(sys.argv[3])
store = open_location(location, StorePlace(Path(), {}))
most = 0
while not stop.exists():
    try:
        runs = stored_runs(store, "shop")
        values = read_index(store, "shop").history(SeriesPlace("encoder", "short", "latency.p50", "", "f1"))
        for run in runs[:1]:
            stored_run(store, "shop", run.id)
    except StoreRefusedError:
        print("refused", flush=True)
        time.sleep(0.05)
        continue
    # What was seen stays, and no run comes without its values.
    assert most <= len(runs) <= len(values), (most, len(runs), len(values))
    most = len(runs)
    print(name, flush=True)
"""


@pytest.fixture
def durable_postgres() -> Iterator[PostgresServer]:
    with running_postgres(durable=True) as server:
        yield server


def start(program: str, location: str, name: str, out: Path) -> subprocess.Popen[bytes]:
    with (out / name).open("wb") as file, (out / f"{name}.errors").open("wb") as errors:
        command = [sys.executable, "-c", program, location, name, str(out / "stop")]
        return subprocess.Popen(command, stdout=file, stderr=errors, cwd=ROOT)


def lines(out: Path, name: str) -> list[str]:
    return (out / name).read_text().splitlines()


class Crowd:
    """Writers and readers of one store, by their names."""

    def __init__(self, location: str, out: Path) -> None:
        self.out = out
        self.writers = {name: start(WRITE, location, name, out) for name in (f"w{number}" for number in range(EACH))}
        self.readers = {name: start(READ, location, name, out) for name in (f"r{number}" for number in range(EACH))}
        self.killed: list[str] = []

    def kill_writers(self, count: int) -> None:
        self.killed = random.sample(sorted(self.writers), count)
        for name in self.killed:
            self.writers[name].kill()

    def wait_for(self, holds: Callable[[str], bool]) -> None:
        """Wait until something holds for all who are alive."""
        left = {name for name in (*self.writers, *self.readers) if name not in self.killed}

        def holds_for_all() -> bool:
            left.difference_update([name for name in left if holds(name)])
            ended = [name for name in left if {**self.writers, **self.readers}[name].poll() is not None]
            assert not ended, [lines(self.out, f"{name}.errors")[-3:] for name in ended]
            return not left

        wait_until(holds_for_all, MOST_SECONDS)

    def end(self) -> None:
        (self.out / "stop").touch()
        for name, process in {**self.writers, **self.readers}.items():
            code = process.wait()
            assert code == (-signal.SIGKILL if name in self.killed else 0), lines(self.out, f"{name}.errors")[-3:]


def storm(location: str, out: Path, server: PostgresServer | None = None) -> dict[str, int]:
    """Let all of them work, kill two writers at random and the server once, and go on; return what was counted."""
    out.mkdir()
    crowd = Crowd(location, out)
    try:
        crowd.wait_for(lambda name: len(lines(out, name)) >= BEFORE)
        crowd.kill_writers(2)
        if server is not None:
            server.stop()
            crowd.wait_for(lambda name: "refused" in lines(out, name))
            server.start()
        so_far = {path.name: len(lines(out, path.name)) for path in out.iterdir()}
        crowd.wait_for(lambda name: len(lines(out, name)) >= so_far[name] + AFTER)
    finally:
        crowd.end()
    return counted(location, out, list(crowd.writers), list(crowd.readers))


def counted(location: str, out: Path, writers: list[str], readers: list[str]) -> dict[str, int]:
    """Hold what is stored against what the writers were told."""
    acknowledged = [line for name in writers for line in lines(out, name) if line.startswith("w")]
    store = open_location(location, StorePlace(Path(), {}))
    kept = [run.session for run in stored_runs(store, "shop")]
    assert len(kept) == len(set(kept))
    assert set(acknowledged) <= set(kept)
    # The run that a writer was about to hear of when it was killed may be there all the same.
    assert len(kept) - len(acknowledged) <= EACH
    assert_sound(store, len(kept))
    return {
        "acknowledged": len(acknowledged),
        "kept": len(kept),
        "reads": sum(lines(out, name).count(name) for name in readers),
        "refused": sum(lines(out, name).count("refused") for name in (*writers, *readers)),
    }


def assert_sound(store: Store, runs: int) -> None:
    verified = verify_store(store, ["shop"], lambda _project, _done, _runs: None)
    assert (verified.runs, verified.faults) == (runs, [])


@pytest.mark.slow
def test_storm__sqlite__every_acknowledged_run_is_there_once(tmp_path: Path) -> None:
    print("sqlite", storm(str(tmp_path / "store.db"), tmp_path / "out"))


@pytest.mark.slow
def test_storm__postgres_killed_once__every_acknowledged_run_is_there_once(
    tmp_path: Path, durable_postgres: PostgresServer
) -> None:
    location = durable_postgres.address(durable_postgres.create_database())
    print("postgres", storm(location, tmp_path / "out", durable_postgres))
