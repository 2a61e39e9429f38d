"""How long every page of `perfgate serve` takes right after a run was recorded, and what an upload costs.

    PYTHONPATH=.:benchmarks/trend python benchmarks/store/pages.py --histories FOLDER --runs 20000 [--run RUN.JSON] [--times 8]

Six projects with the same number of runs, 16 values a run; the last project is recorded through the store, the others are
inserted as rows. A real server answers over HTTP. Two tables: a new server, whose first page reads the whole project, and each
page as the first request after an upload to its project, on the clock and by the CPU time of the server. ``--run`` is a
measured document, of which uploads are timed.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import fill
import made_runs
import msgspec
import numpy as np
import requests
from histories import BESIDE
from made_runs import made_testbeds, project_name

from perfgate.document.files import canonical_bytes, read_run
from perfgate.document.run import RunDocument
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.system.processes import process_cpu_ns, process_family

PROJECTS = 6
LISTS = (
    "index.html",
    "open.html",
    "gates.html",
    "fleet.html",
    "series/index.html",
    "runs/index.html",
    "runs/page-3.html",
)
SETTLE_SECONDS = 60.0


class Timing(NamedTuple):
    """Seconds on the clock, and of the server's CPU time meanwhile."""

    clock: float
    cpu: float


class Served:
    """A started server."""

    def __init__(self, pid: int, address: str, token: str) -> None:
        self.pid, self._address = pid, address
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str) -> tuple[Timing, str]:
        """The times of an answer, and its text."""
        cpu, began = self.own_cpu(), time.perf_counter()
        answer = self._session.get(f"{self._address}/{path}", timeout=600)
        timing = Timing(time.perf_counter() - began, self.own_cpu() - cpu)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:200]}"
        return timing, answer.text

    def own_cpu(self) -> float:
        """CPU seconds of the server alone."""
        return process_cpu_ns(self.pid) / 1e9

    def put(self, run: RunDocument) -> None:
        data = canonical_bytes(run, name="a made run")
        path = f"api/v1/projects/{run.project}/runs/{hashlib.sha256(data).hexdigest()}"
        answer = self._session.put(f"{self._address}/{path}", data=data, timeout=600)
        assert answer.status_code == 201, answer.text

    def cpu(self) -> float:
        """CPU seconds of the server and the processes below it."""
        return sum(map(process_cpu_ns, process_family(self.pid))) / 1e9

    def settle(self) -> None:
        """Wait until the server does nothing for half a second."""
        deadline = time.monotonic() + SETTLE_SECONDS
        last = -1.0
        while time.monotonic() < deadline and (cpu := self.cpu()) - last > 0.02:
            last = cpu
            time.sleep(0.5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=8)
    parser.add_argument("--histories", type=Path, default=BESIDE)
    parser.add_argument("--run", type=Path, help="a measured document")
    parser.add_argument("--keep", type=Path, help="the SQLite file; an existing file is used as it is")
    given = parser.parse_args()
    _size(given.runs)
    with _filled(given) as place:
        token = SqlStore(place).ledger().create_token("benchmark", None, "write").secret
        with _served(place, token) as served:
            cold = _time_pages(served, given.times, lambda: None)
        print(_table("first request to a new server", cold))
        with _served(place, token) as served:
            served.get(f"projects/{_project()}/index.html")
            served.settle()
            writes = _writes(served)
            print(_table("first request after an upload", _time_pages(served, given.times, lambda: next(writes))))
            if given.run:
                print(_uploads(served, read_run(given.run)))
    print(f"load {os.getloadavg()[0]:.1f}")
    return 0


def _size(runs: int) -> None:
    """Spread the runs over four testbeds a project, and over more if a testbed would have more than [store] keep leaves."""
    of_project = runs // PROJECTS
    testbeds = max(made_runs.TESTBEDS, -(-of_project // made_runs.VERSIONS))
    for module in (made_runs, fill):
        module.TESTBEDS, module.VERSIONS = testbeds, of_project // testbeds  # type: ignore[attr-defined]


def _project() -> str:
    return project_name(PROJECTS - 1)


def _writes(served: Served) -> Iterator[None]:
    """Each upload adds one run of the newest version to the last project."""
    *_, made = made_testbeds(PROJECTS, BESIDE)
    newest = made.document(made_runs.VERSIONS - 1)
    for number in itertools.count():
        session = msgspec.structs.replace(newest.session, id=f"new-{os.getpid()}-{number}")
        source = msgspec.structs.replace(newest.source, commit=f"{number:040x}")
        served.put(msgspec.structs.replace(newest, session=session, source=source))
        yield


def _time_pages(served: Served, times: int, before: Callable[[], object]) -> dict[str, list[Timing]]:
    """The times of each page, with ``before`` done before each request."""
    timings: dict[str, list[Timing]] = {}
    for turn in range(times):
        pages = {name: name for name in LISTS} | _pages_of_turn(served, turn)
        for name, path in pages.items():
            before()
            timings.setdefault(name, []).append(served.get(f"projects/{_project()}/{path}")[0])
    return timings


def _pages_of_turn(served: Served, turn: int) -> dict[str, str]:
    """The page of a series, of a run and of two runs, others in each turn."""
    home = f"projects/{_project()}"
    series = sorted(set(re.findall(r'href="\.\./(series/[^"/]+\.html)"', served.get(f"{home}/series/index.html")[1])))
    series.remove("series/index.html")
    runs = list(
        dict.fromkeys(re.findall(r'href="\.\./runs/([0-9a-f]{8,})\.html"', served.get(f"{home}/runs/index.html")[1]))
    )
    return {
        "series": series[turn * 7 % len(series)],
        "run": f"runs/{runs[turn]}.html",
        "compare": f"compare/index.html?earlier={runs[turn + 4]}&later={runs[turn]}",
    }


def _table(title: str, timings: dict[str, list[Timing]]) -> str:
    rows = [f"| {title} | P50 | P95 | CPU P50 | CPU P95 |", "|---|--:|--:|--:|--:|"]
    everything = list(itertools.chain.from_iterable(timings.values()))
    for name, of_page in {**timings, "all pages": everything}.items():
        cells = [np.quantile(values, share) * 1e3 for values in zip(*of_page) for share in (0.5, 0.95)]
        rows.append(f"| {name} | " + " | ".join(f"{cell:.0f} ms" for cell in cells) + " |")
    return "\n".join(rows)


def _uploads(served: Served, template: RunDocument, count: int = 30) -> str:
    """CPU of the server for an upload of a measured document."""
    served.settle()
    before, own_before, began = served.cpu(), served.own_cpu(), time.perf_counter()
    for number in range(count):
        session = msgspec.structs.replace(template.session, id=f"upload-{os.getpid()}-{number}")
        source = msgspec.structs.replace(template.source, commit=f"{number:040x}", dirty=False)
        served.put(msgspec.structs.replace(template, session=session, source=source))
    answered = served.own_cpu() - own_before
    seconds = time.perf_counter() - began
    served.settle()
    size = len(canonical_bytes(template, name="the document")) / 1e3
    own, total = (1e3 * cpu / count for cpu in (answered, served.cpu() - before))
    return (
        f"{count} measured documents of {size:.0f} kB: {own:.1f} ms of the server's CPU and {1e3 * seconds / count:.1f} ms "
        f"on the clock each, {total:.1f} ms of CPU with the pages"
    )


@contextmanager
def _filled(given: Any) -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        place = given.keep or Path(folder) / "store.db"
        if not place.exists():
            runs = PROJECTS * made_runs.TESTBEDS * made_runs.VERSIONS
            store = SqlStore(place)
            store.ledger().create_token("made", None, "read")
            fill.fill_sqlite(place, runs, given.histories)
            fill.record_last(store, runs, given.histories)
            assert fill.bulk_projects(runs) == PROJECTS - 1
        yield place


@contextmanager
def _served(place: Path, token: str) -> Iterator[Served]:
    """A server on a store, which answers; ``place`` is not opened by others meanwhile."""
    command = [sys.executable, "-m", "perfgate.cli.main", "serve", "--store", str(place), "--port", "0"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(place.parent / "cache")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            address = re.match(r"(http://[^/]+)/", process.stdout.readline())
            assert address is not None, "the service did not start"
            yield Served(process.pid, address[1], token)
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.exit(main())
