"""PostgreSQL stops for minutes while many runners record runs at one `perfgate serve`:
is any run lost?

    PYTHONPATH=.:benchmarks/trend:benchmarks/store python benchmarks/store/outage.py
    [--runners 50] [--down 300] [--every 40]

Each runner is a machine with its own state folder and records a run every ``--every``
seconds, as `perfgate baseline record` does: it repeats a refused upload, then keeps the
run and sends it with a later one. The database stops at once, as in a crash, and starts
again after ``--down`` seconds. In the end the store is read: every run has to be there,
once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec
from uploads import served

from perfgate.config import Config, load_config
from perfgate.document.run import RunDocument
from perfgate.errors import StoreUnreachableError
from perfgate.flows.baseline import keep
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.postgres import PostgresDatabase
from perfgate.judging.store.runs import stored_runs
from tests.fakes.documents import make_run
from tests.fakes.postgres import running_postgres

PROJECT = "demo"
# Seconds before the database stops, and after it is back.
BEFORE, AFTER = 20.0, 60.0


class Recorded(NamedTuple):
    """The sessions that a runner recorded, and how many of them had to wait."""

    sessions: list[str]
    waited: int


class Runner:
    """A machine that records a run again and again until the end, and once more then."""

    def __init__(
        self, number: int, config: Config, address: str, token: str, folder: Path
    ) -> None:
        self._number, self._config = number, config
        self._environ = {
            "PERFGATE_STORE": address,
            "PERFGATE_STORE_TOKEN": token,
            "XDG_STATE_HOME": str(folder / f"runner-{number}"),
        }

    def record_until(self, end: float, every: float, runners: int) -> Recorded:
        time.sleep(every * self._number / runners)
        sessions: list[str] = []
        waited = 0
        is_over = False
        while not is_over:
            is_over = time.monotonic() >= end
            session = f"runner-{self._number}-run-{len(sessions)}"
            waited += not self._record(make_run(None, project=PROJECT), session)
            sessions.append(session)
            if not is_over:
                time.sleep(every)
        return Recorded(sessions, waited)

    def _record(self, run: RunDocument, session: str) -> bool:
        """Whether the run was stored at once."""
        named = msgspec.structs.replace(
            run, session=msgspec.structs.replace(run.session, id=session)
        )
        try:
            keep(self._config, self._environ, named, [], allow_dirty=False)
        except StoreUnreachableError:
            return False
        return True


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runners", type=int, default=50)
    parser.add_argument(
        "--down", type=float, default=300.0, help="seconds without the database"
    )
    parser.add_argument(
        "--every", type=float, default=40.0, help="seconds between two runs of a runner"
    )
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "perfgate.toml").write_text(
            f'project = "{PROJECT}"\nworkload = "perf/workload.py:encoder"\n'
        )
        config = load_config(folder, environ={})
        server = stack.enter_context(running_postgres(durable=True))
        location = server.address(server.create_database())
        store = SqlStore(PostgresDatabase(location))
        token = store.ledger().create_token("runners", None, "write").secret
        _, address = stack.enter_context(served(location))
        end = time.monotonic() + BEFORE + arguments.down + AFTER
        pool = stack.enter_context(ThreadPoolExecutor(arguments.runners))
        answers = []
        for number in range(arguments.runners):
            runner = Runner(number, config, address, token, folder)
            answers.append(
                pool.submit(
                    runner.record_until, end, arguments.every, arguments.runners
                )
            )
        outage = threading.Timer(BEFORE, server.stop)
        outage.start()
        time.sleep(BEFORE + arguments.down)
        server.start()
        recorded = [answer.result() for answer in answers]
        stored = [
            run.session
            for run in stored_runs(SqlStore(PostgresDatabase(location)), PROJECT)
        ]
    sessions = {session for of_runner in recorded for session in of_runner.sessions}
    waited = sum(of_runner.waited for of_runner in recorded)
    lost, twice = len(sessions - set(stored)), len(stored) - len(set(stored))
    print(
        f"{arguments.runners} runners recorded {len(sessions)} runs, the database was down for {arguments.down:.0f} s: "
        f"{waited} waited on their machines; lost {lost}, twice {twice}"
    )
    return 1 if lost or twice else 0


if __name__ == "__main__":
    sys.exit(main())
