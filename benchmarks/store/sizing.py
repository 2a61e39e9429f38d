"""What a service needs for its runs: bytes in the store, memory of its process, and how
long its pages take.

    PYTHONPATH=. python benchmarks/store/sizing.py --run RUN.JSON [--runs 1000 10000]

``--run`` is a run document of `perfgate run --quick`. The store is filled with runs of
one project that differ from it in session, commit, time, values and samples, on one
testbed for each 2,000 runs, as many as [store] keep leaves of each. A real
`perfgate serve` is started on it. Memory is that of its processes, at rest and at most
while the pages were made (proc(5), VmRSS and VmHWM); the seconds of a page are CPU time
of the service, which an idle machine needs as well.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import requests

from perfgate.document.files import read_run
from perfgate.document.run import RunDocument, StepResult
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.runs import record_runs
from perfgate.system.processes import process_cpu_ns, process_family

# The default of [store] keep.
RUNS_OF_A_TESTBED = 2_000
AT_ONCE = 100
FIRST = datetime(2025, 1, 1, tzinfo=timezone.utc)
TOKEN = "the-token-of-the-benchmark"  # noqa: S105 - of a service of its own


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--run", type=Path, required=True, help="the run document to vary"
    )
    parser.add_argument("--runs", type=int, nargs="+", default=[1_000, 10_000])
    given = parser.parse_args()
    template = read_run(given.run)
    print(
        "| runs | store, in all | a run | memory at rest | most while pages are made | CPU of the first page | of the next |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "store.db"
        filled = 0
        for runs in sorted(given.runs):
            fill(place, template, range(filled, runs))
            filled = runs
            print(row(place, template.project, runs), flush=True)
    print(
        f"\nload {os.getloadavg()[0]:.1f}, a document of {given.run.stat().st_size / 1e3:.0f} kB"
    )


def fill(place: Path, template: RunDocument, numbers: range) -> None:
    store = SqlStore(place)
    for first in range(numbers.start, numbers.stop, AT_ONCE):
        record_runs(
            store,
            [
                varied(template, number)
                for number in range(first, min(first + AT_ONCE, numbers.stop))
            ],
            allow_dirty=False,
            now=None,
        )


def varied(template: RunDocument, number: int) -> RunDocument:
    """Another run: its times are scaled, so that it compresses no better than a
    measured one.
    """
    random_of_run = random.Random(number)
    started = (FIRST + timedelta(hours=number)).isoformat()
    fingerprint = hashlib.sha256(str(number // RUNS_OF_A_TESTBED).encode()).hexdigest()
    steps = _scaled(msgspec.to_builtins(template.checklist.steps), random_of_run)
    return msgspec.structs.replace(
        template,
        session=msgspec.structs.replace(
            template.session,
            id=f"run-{number}",
            started_at=started,
            finished_at=started,
        ),
        source=msgspec.structs.replace(
            template.source, commit=f"{number:040x}", dirty=False
        ),
        testbed=msgspec.structs.replace(template.testbed, fingerprint=fingerprint),
        checklist=msgspec.structs.replace(
            template.checklist, steps=msgspec.convert(steps, list[StepResult])
        ),
    )


def _scaled(value: Any, random_of_run: random.Random) -> Any:
    """Every float of a tree a little smaller: shares stay shares."""
    if isinstance(value, float):
        return value * random_of_run.uniform(0.98, 1.0)
    if isinstance(value, list):
        return [_scaled(one, random_of_run) for one in value]
    if isinstance(value, dict):
        return {name: _scaled(one, random_of_run) for name, one in value.items()}
    return value


def row(place: Path, project: str, runs: int) -> str:
    """The numbers of a store, as a row of the table."""
    stored = sum(path.stat().st_size for path in place.parent.glob(f"{place.name}*"))
    with _served(place) as (pid, address):
        page = f"{address}/projects/{project}/index.html"
        at_rest = _memory(pid, "VmRSS")
        first, following = _cpu_of(page, pid), _cpu_of(page, pid)
        for name in ("runs/index.html", "series/index.html", "open.html", "fleet.html"):
            _get(f"{address}/projects/{project}/{name}")
        most = _memory(pid, "VmHWM")
    return (
        f"| {runs:,} | {stored / 1e6:,.1f} MB | {stored / runs / 1e3:.1f} kB | {at_rest / 1e6:.0f} MB | {most / 1e6:.0f} MB "
        f"| {first:.1f} s | {following:.2f} s |"
    )


@contextmanager
def _served(place: Path) -> Iterator[tuple[int, str]]:
    """The process of a service, and its address."""
    command = [
        sys.executable,
        "-m",
        "perfgate",
        "serve",
        "--store",
        str(place),
        "--port",
        "0",
    ]
    environment = {
        **os.environ,
        "PERFGATE_SERVE_TOKEN": TOKEN,
        "XDG_CACHE_HOME": str(place.parent),
    }
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            address = re.match(r"(http://[^/]+)/", process.stdout.readline())
            assert address is not None, "the service did not start"
            yield process.pid, address[1]
        finally:
            process.terminate()


def _memory(pid: int, name: str) -> int:
    """Bytes of a process and of those below it (proc(5), status)."""
    total = 0
    for process in process_family(pid):
        found = re.search(
            rf"^{name}:\s+(\d+) kB$",
            Path(f"/proc/{process}/status").read_text(),
            flags=re.MULTILINE,
        )
        total += int(found[1]) * 1024 if found else 0
    return total


def _cpu_of(page: str, pid: int) -> float:
    """Seconds of CPU that a service spends on a page."""
    before = sum(map(process_cpu_ns, process_family(pid)))
    _get(page)
    return (sum(map(process_cpu_ns, process_family(pid))) - before) / 1e9


def _get(page: str) -> None:
    answer = requests.get(
        page, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=600
    )
    assert answer.status_code == 200, answer.text


if __name__ == "__main__":
    main()
