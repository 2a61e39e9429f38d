"""How long a store of a million runs takes to answer: screening a run, pages of main's
history, lists and filters.

    PYTHONPATH=.:benchmarks/trend python benchmarks/store/queries.py --histories FOLDER
    [--postgres] [--keep FILE]

125 projects of four testbeds with 2,000 runs each, which is the default of
``[store] keep``, and 16 values a run. The noise of the values is that of recorded
histories, as they lie beside the repository. Every question is asked ``--times`` times,
each time of another project chosen by lot; pages are those of the last project, whose
documents are real ones.

Columns: P50 and P95 on the clock, and the same of the CPU time of this process and of
PostgreSQL's server together. On a machine that does nothing else the two differ by
little; on a busy one the clock tells how busy it is.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import psycopg
from fill import bulk_projects, fill_postgres, fill_sqlite
from histories import BESIDE
from made_runs import LEVELS, ends_at, made_testbeds, project_name
from rich.console import Console
from rich.table import Table

from perfgate.catalogue.lookup import metric
from perfgate.config import Config, parse_config
from perfgate.document.run import RunDocument
from perfgate.flows.shared.store import stored_history
from perfgate.judging.gate.compare.stored import compare_stored
from perfgate.judging.gate.evidence.checklist import numbers_of_head
from perfgate.judging.report.render.site.page import series_address
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.index import read_index
from perfgate.judging.store.postgres import PostgresDatabase
from perfgate.judging.store.runs import stored_run, stored_runs
from perfgate.judging.store.store import STORE_VARIABLE, Page, SeriesPlace
from perfgate.service.project_sites import ProjectSites
from perfgate.service.served_store import ServedStore


@dataclass(frozen=True)
class Question:
    """Something that a store is asked, and what is done with the answer."""

    name: str
    ask: Callable[[], object]
    times: int


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument(
        "--histories",
        type=Path,
        default=BESIDE,
        help="folder with the recorded histories",
    )
    parser.add_argument(
        "--postgres",
        action="store_true",
        help="in PostgreSQL, on a server that is started for it",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        help="the SQLite file; one that is there already is asked as it is",
    )
    parser.add_argument(
        "--only", default="", help="only the questions with these words"
    )
    given = parser.parse_args()
    if not (given.histories / "labels.csv").exists():
        print(
            f"no histories in {given.histories}; give their folder with --histories",
            file=sys.stderr,
        )
        return 2
    with _filled(given) as (location, server):
        _ask(location, given, server)
    return 0


@contextmanager
def _filled(given: Any) -> Any:
    """The location of a filled store, and the process id of its server, None for
    SQLite.
    """
    began = time.monotonic()
    if given.postgres:
        from tests.fakes import postgres

        settings = (
            *(one for one in postgres.SETTINGS if "buffers" not in one),
            "shared_buffers=1GB",
        )
        vars(postgres)["SETTINGS"] = settings
        with postgres.running_postgres() as server:
            database = server.create_database()
            location = server.address(database)
            SqlStore(PostgresDatabase(location)).ledger().create_token(
                "made", None, "read"
            )
            address = f"host={server._folder} user=postgres dbname={database}"
            with psycopg.connect(address) as connection:
                fill_postgres(connection, given.runs, given.histories)
            print(
                f"{given.runs} runs inserted in {time.monotonic() - began:.0f} s",
                flush=True,
            )
            # Or the server writes the filled tables to disk while it answers the first
            # questions.
            size = server.execute(
                "CHECKPOINT", f"SELECT pg_database_size('{database}')"
            )[0][0]
            print(
                f"filled in {time.monotonic() - began:.0f} s, {int(str(size)) / 1e9:.2f} GB",
                flush=True,
            )
            yield location, server.pid
        return
    with TemporaryDirectory() as folder:
        path = given.keep or Path(folder) / "store.db"
        if not path.exists():
            SqlStore(path).ledger().create_token("made", None, "read")
            fill_sqlite(path, given.runs, given.histories)
            print(
                f"filled in {time.monotonic() - began:.0f} s, {path.stat().st_size / 1e9:.2f} GB",
                flush=True,
            )
        yield str(path), None


def _ask(location: str, given: Any, server: int | None) -> None:
    table = Table(
        title=f"{given.runs} runs in {'PostgreSQL' if '://' in location else 'SQLite'}, load {_load()}"
    )
    for column in ("question", "P50", "P95", "CPU P50", "CPU P95", "times"):
        table.add_column(column)
    questions = _questions(location, given.runs, given.times, given.histories)
    # The garbage collector need not visit what was made and imported to fill a store: a
    # command has nothing of it.
    gc.freeze()
    for question in questions:
        if given.only not in question.name:
            continue
        taken = []
        for _ in range(question.times):
            began = time.perf_counter(), time.process_time() + _cpu_of_server(server)
            question.ask()
            taken.append(
                (
                    time.perf_counter() - began[0],
                    time.process_time() + _cpu_of_server(server) - began[1],
                )
            )
        wall, cpu = (np.quantile(one, [0.5, 0.95]) for one in zip(*taken))
        table.add_row(
            question.name,
            *(f"{1e3 * value:.1f} ms" for value in (*wall, *cpu)),
            str(question.times),
        )
    Console(width=130).print(table)
    print(f"load at the end {_load()}")


def _cpu_of_server(server: int | None) -> float:
    """Seconds on a CPU of the processes that serve connections, those of closed ones to
    the tick.

    Kernel, sched-stats.rst, "/proc/<pid>/schedstat"; proc(5), stat, fields 16 and 17.
    """
    if server is None:
        return 0.0
    used = 0.0
    for child in Path(f"/proc/{server}/task/{server}/children").read_text().split():
        with suppress(OSError):  # it has ended, and counts below
            used += int(Path(f"/proc/{child}/schedstat").read_text().split()[0]) / 1e9
    fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    return used + (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def _load() -> str:
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def _questions(location: str, runs: int, times: int, histories: Path) -> list[Question]:
    lot = random.Random(1)
    last = bulk_projects(runs)
    store = ServedStore(location, Path.cwd(), {}).store()
    made = {one.project: one for one in made_testbeds(last + 1, histories)}
    environ = {STORE_VARIABLE: location}
    heads = {name: _head(one.document(0)) for name, one in made.items()}

    def project() -> str:
        return project_name(lot.randrange(last))

    def screen() -> object:
        name = project()
        config = _config(name)
        history = stored_history(config, heads[name], environ, warn=_refuse)
        assert len(history.series) >= 10
        return compare_stored(numbers_of_head(heads[name]), history)

    def filtered() -> object:
        name, workload, number = (
            project(),
            lot.choice(("encoder", "decoder")),
            lot.choice(list(LEVELS)),
        )
        testbed = made[name].fingerprint
        index = read_index(store, name, Page(testbed=testbed, limit=1000))
        found = index.history(SeriesPlace(workload, "long", number, "", testbed))
        assert len(found) == 1000
        return found

    def page_of_runs() -> object:
        name = project()
        return stored_runs(
            store,
            name,
            Page(limit=200, before=f"{lot.choice(made[name].numbers):016x}" * 4),
        )

    def one_run() -> object:
        name = project()
        return store.documents(name, [f"{lot.choice(made[name].numbers):016x}" * 4])

    service = ServedStore(location, Path.cwd(), {})
    sites = ProjectSites(
        service,
        "en",
        clock=lambda: ends_at().timestamp(),
        recordings="",
        webhooks="",
        artifacts=None,
        run_recordings=None,
    )
    shown = project_name(last)

    def read() -> object:
        pages = ProjectSites(
            service,
            "en",
            clock=lambda: ends_at().timestamp(),
            recordings="",
            webhooks="",
            artifacts=None,
            run_recordings=None,
        )
        return pages.page(shown, "index.html")

    def page_of_a_series() -> object:
        return sites.series(shown, lot.choice(addresses))

    addresses = [
        series_address(one, branch="").removeprefix("series/")
        for one in _content(sites, shown).trend.series
    ]
    return [
        Question("screen a run: 12 numbers beside the newest 500 runs", screen, times),
        Question(
            "the newest 20 runs of a project (baseline list)",
            lambda: stored_runs(store, project(), Page(limit=20)),
            times,
        ),
        Question("200 runs behind any run (a page of the list)", page_of_runs, times),
        Question(
            "a series by workload, metric and testbed (a filter)", filtered, times
        ),
        Question(
            "every series of a project",
            lambda: read_index(store, project()).series(),
            times,
        ),
        Question("the projects", store.projects, times),
        Question(
            "a run by the beginning of its id",
            lambda: stored_run(store, shown, _newest(store, shown)[:12]),
            times,
        ),
        Question("whether a run is stored", one_run, times),
        Question("the pages of a project, read for the first time", read, 1),
        Question("the page of a series", page_of_a_series, times),
        Question("the overview", lambda: sites.page(shown, "index.html"), times),
        Question(
            "a page of the list of runs",
            lambda: sites.page(shown, "runs/page-7.html"),
            times,
        ),
    ]


def _newest(store: Any, project: str) -> str:
    return str(stored_runs(store, project, Page(limit=1))[0].id)


def _content(sites: ProjectSites, project: str) -> Any:
    return sites.content(project)


def _head(run: RunDocument) -> RunDocument:
    """The run as the head of a change, measured after all stored ones."""
    assert any(
        metric(value.metric).display.leading
        for step in run.checklist.steps
        for value in step.values
    )
    source = msgspec.structs.replace(run.source, commit="e" * 40, branch="change")
    session = msgspec.structs.replace(
        run.session, id="head", started_at=ends_at().isoformat()
    )
    return msgspec.structs.replace(run, side="head", source=source, session=session)


def _config(project: str) -> Config:
    return msgspec.structs.replace(
        parse_config("", Path.cwd() / "perfgate.toml", needs_workload=False),
        project=project,
    )


def _refuse(why: str) -> None:
    raise AssertionError(why)


if __name__ == "__main__":
    sys.exit(main())
