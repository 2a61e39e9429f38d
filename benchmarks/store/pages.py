"""How long every page of `perfgate serve` takes right after a run was recorded, and
what an upload costs.

    PYTHONPATH=.:benchmarks/trend python benchmarks/store/pages.py --histories FOLDER
    --runs 20000 [--run RUN.JSON] [--times 8]

Six projects with the same number of runs, 16 values a run, inserted as rows. The last
one, which is asked, has real documents, 2,000 verdicts of gates and five triaged
regressions; the service has a webhook and 40 recordings. A real server answers over
HTTP. Three numbers: what the first page of a server without kept pages takes, which
reads the whole project; each page as the first request to a server that was started
again after an upload; and each page and each question as the first request after an
upload to its project, on the clock and by the CPU time of the server. ``--run`` is a
measured document, of which uploads are timed.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import fill
import made_runs
import msgspec
import numpy as np
import requests
from histories import BESIDE
from made_runs import made_testbeds, project_name

from perfgate.document.decision import Verdict
from perfgate.document.files import canonical_bytes, read_run
from perfgate.document.history import GateRecord, Triage, TwinEffect
from perfgate.document.run import RunDocument
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.store import LogEntry
from perfgate.system.processes import process_cpu_ns, process_family

PROJECTS = 6
OF_SERVICE = ("", "audit", "webhooks", "recordings", "metrics")
OF_PROJECT = (
    "index.html",
    "open.html",
    "gates.html",
    "fleet.html",
    "series/index.html",
    "runs/index.html",
    "runs/page-3.html",
    "compare/index.html",
)
SETTLE_SECONDS = 120.0
VERDICTS, TRIAGED, RECORDINGS = 2000, 5, 40


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
        assert answer.status_code == 200, (
            f"{path}: {answer.status_code} {answer.text[:200]}"
        )
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=8)
    parser.add_argument("--histories", type=Path, default=BESIDE)
    parser.add_argument("--run", type=Path, help="a measured document")
    parser.add_argument(
        "--keep", type=Path, help="the SQLite file; an existing file is used as it is"
    )
    given = parser.parse_args()
    _size(given.runs)
    with _filled(given) as place:
        token = SqlStore(place).ledger().create_token("benchmark", None, "write").secret
        writes = _writes(given.histories)
        with _served(place, token) as served:
            served.settle()
            first, _ = served.get(f"projects/{_project()}/index.html")
            print(
                f"first page of all: {first.clock:.1f} s, {served.cpu():.1f} s of CPU in all processes",
                flush=True,
            )
            served.settle()
            known = _known_pages(served)
            print(
                _table(
                    "first request after an upload",
                    _time_pages(served, given.times, known, writes),
                ),
                flush=True,
            )
            if given.run:
                print(_uploads(served, read_run(given.run)))
        print(
            _table(
                "first request to a server started again",
                _time_restarts(place, token, writes),
            )
        )
    print(f"load {os.getloadavg()[0]:.1f}")
    return 0


def _size(runs: int) -> None:
    """Spread the runs over four testbeds a project, and over more if a testbed would
    have more than [store] keep leaves.
    """
    of_project = runs // PROJECTS
    testbeds = max(made_runs.TESTBEDS, -(-of_project // made_runs.VERSIONS))
    for module in (made_runs, fill):
        module.TESTBEDS, module.VERSIONS = testbeds, of_project // testbeds  # type: ignore[attr-defined]


def _project() -> str:
    return project_name(PROJECTS - 1)


def _writes(histories: Path) -> Iterator[RunDocument]:
    """Runs of the newest version of the last project, one for each upload."""
    *_, made = made_testbeds(PROJECTS, histories)
    newest = made.document(made_runs.VERSIONS - 1)
    for number in itertools.count():
        session = msgspec.structs.replace(
            newest.session, id=f"new-{os.getpid()}-{number}"
        )
        source = msgspec.structs.replace(newest.source, commit=f"{number:040x}")
        yield msgspec.structs.replace(newest, session=session, source=source)


def _time_pages(
    served: Served, times: int, known: KnownPages, writes: Iterator[RunDocument]
) -> dict[str, list[Timing]]:
    """The times of each page as the first request after an upload."""
    timings: dict[str, list[Timing]] = {}
    for turn in range(times):
        for name, path in known.of_turn(turn).items():
            served.put(next(writes))
            timings.setdefault(name, []).append(served.get(path)[0])
    return timings


def _time_restarts(
    place: Path, token: str, writes: Iterator[RunDocument]
) -> dict[str, list[Timing]]:
    """The times of each page as the first request to a server, which was stopped at
    once after an upload.
    """
    with _served(place, token) as served:
        served.settle()
        # The runs of the table before may have moved a change.
        known = _known_pages(served)
    timings: dict[str, list[Timing]] = {}
    for name, path in known.of_turn(0).items():
        with _served(place, token) as served:
            served.put(next(writes))
        with _served(place, token) as served:
            timings[name] = [served.get(path)[0]]
    return timings


class KnownPages(NamedTuple):
    """The series, runs and open regressions of the last project, which have pages."""

    series: list[str]
    runs: list[str]
    commit: str

    def of_turn(self, turn: int) -> dict[str, str]:
        """The addresses of all pages and questions; in each turn another series, run
        and comparison.
        """
        home = f"projects/{_project()}"
        later, earlier = self.runs[turn], self.runs[turn + 4]
        pages = {name or "projects": name for name in OF_SERVICE}
        for name in OF_PROJECT:
            pages[name] = f"{home}/{name}"
        pages["series"] = f"{home}/{self.series[turn * 7 % len(self.series)]}"
        pages["run"] = f"{home}/runs/{later}.html"
        pages["two runs"] = f"{home}/compare/index.html?earlier={earlier}&later={later}"
        pages["two runs, by address"] = f"{home}/compare/{earlier}-{later}.html"
        asked = f"?project={_project()}"
        pages["ask projects"] = "api/v1/ask/projects"
        pages["ask regressions"] = f"api/v1/ask/regressions{asked}"
        pages["ask explain"] = f"api/v1/ask/explain{asked}&commit={self.commit}"
        pages["ask compare"] = (
            f"api/v1/ask/compare{asked}&earlier={earlier}&later={later}"
        )
        pages["ask suggest"] = f"api/v1/ask/suggest{asked}"
        pages["ask gates"] = f"api/v1/ask/gates{asked}"
        return pages


def _known_pages(served: Served) -> KnownPages:
    home = f"projects/{_project()}"
    series = set(
        re.findall(
            r'href="\.\./(series/[^"/]+\.html)"',
            served.get(f"{home}/series/index.html")[1],
        )
    )
    series.remove("series/index.html")
    listed = re.findall(
        r'href="\.\./runs/([0-9a-f]{8,})\.html"',
        served.get(f"{home}/runs/index.html")[1],
    )
    # A change at an upload of ours, whose commits begin with zeros, moves with the
    # next.
    commits = re.findall(
        r'id="commit-((?!0000)[0-9a-f]+)"', served.get(f"{home}/open.html")[1]
    )
    assert commits, "the store has no open regression"
    return KnownPages(sorted(series), list(dict.fromkeys(listed)), commits[0])


def _table(title: str, timings: dict[str, list[Timing]]) -> str:
    rows = [f"| {title} | P50 | P95 | CPU P50 | CPU P95 |", "|---|--:|--:|--:|--:|"]
    everything = list(itertools.chain.from_iterable(timings.values()))
    for name, of_page in {**timings, "all pages": everything}.items():
        cells = [
            np.quantile(values, share) * 1e3
            for values in zip(*of_page)
            for share in (0.5, 0.95)
        ]
        rows.append(
            f"| {name} | " + " | ".join(f"{cell:.0f} ms" for cell in cells) + " |"
        )
    return "\n".join(rows)


def _uploads(served: Served, template: RunDocument, count: int = 30) -> str:
    """CPU of the server for an upload of a measured document."""
    served.settle()
    before, own_before, began = served.cpu(), served.own_cpu(), time.perf_counter()
    for number in range(count):
        session = msgspec.structs.replace(
            template.session, id=f"upload-{os.getpid()}-{number}"
        )
        source = msgspec.structs.replace(
            template.source, commit=f"{number:040x}", dirty=False
        )
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
def _filled(given: argparse.Namespace) -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        place = given.keep or Path(folder) / "store.db"
        if not place.exists():
            runs = PROJECTS * made_runs.TESTBEDS * made_runs.VERSIONS
            store = SqlStore(place)
            store.ledger().create_token("made", None, "read")
            fill.fill_sqlite(place, runs, given.histories)
            assert fill.bulk_projects(runs) == PROJECTS - 1
            _judge_changes(store, given.histories)
            _make_recordings(place.parent / "recordings")
        yield place


def _judge_changes(store: SqlStore, histories: Path) -> None:
    """Verdicts of gates, a failure in 20, and states of regressions."""
    *_, made = made_testbeds(PROJECTS, histories)
    gates: list[LogEntry] = []
    for number in range(VERDICTS):
        verdict: Verdict = "PASS" if number % 20 else "FAIL"
        machine = f"runner-{number % 4}"
        effect = 0.003 * math.sin(number)
        gates.append(
            GateRecord(
                gate="default", commit=f"{number:040x}", change=number + 1,
                verdict=verdict, judged_at=made.started_at(number % made_runs.VERSIONS),
                twins=TwinEffect(machine=machine, effect=effect, pairs=7),
            )
        )  # fmt: skip
    store.append(_project(), gates)
    triages: list[LogEntry] = []
    for number in range(TRIAGED):
        version = made_runs.STEP_EVERY - number
        triages.append(
            Triage(
                commit=made.commit(version), state="acknowledged", reason="known", author="benchmark",
                changed_at=made.started_at(version),
            )
        )  # fmt: skip
    store.append(_project(), triages)


def _make_recordings(folder: Path) -> None:
    folder.mkdir(parents=True)
    event = {
        "ph": "X",
        "cat": "kernel",
        "name": "mm",
        "pid": 0,
        "tid": 7,
        "ts": 1.0,
        "dur": 5.0,
        "args": {"stream": 7},
    }
    for number in range(RECORDINGS):
        (folder / f"rank-{number}.pt.trace.json").write_text(
            json.dumps({"traceEvents": [event]})
        )


@contextmanager
def _served(place: Path, token: str) -> Iterator[Served]:
    """A server on a store, which answers; ``place`` is not opened by others meanwhile."""
    command = [
        sys.executable,
        "-m",
        "perfgate.cli.main",
        "serve",
        "--store",
        str(place),
        "--port",
        "0",
    ]
    command += ["--traces", str(place.parent / "recordings")]
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(place.parent / "cache"),
        "PERFGATE_WEBHOOK_SECRET": "a secret of the benchmark",
    }
    with (
        _receiver() as receiver,
        subprocess.Popen(
            [*command, "--webhook", receiver],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            address = re.match(r"(http://[^/]+)/", process.stdout.readline())
            assert address is not None, "the service did not start"
            yield Served(process.pid, address[1], token)
        finally:
            process.terminate()


@contextmanager
def _receiver() -> Iterator[str]:
    """The address of a receiver of webhooks."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
