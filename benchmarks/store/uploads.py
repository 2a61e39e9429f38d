"""Uploads of many runners to one process of `perfgate serve`: how many a second, at
which CPU, and whether any is lost.

    PYTHONPATH=.:benchmarks/trend python benchmarks/store/uploads.py [--rate 100]
    [--seconds 30] [--run RUN.JSON] [--postgres]

Fifty runners, each with a connection of its own, send ``--rate`` uploads a second
together, each at its planned time: a slow service does not slow them down but makes
them late. The documents differ in session and values; ``--run`` takes a measured one.
In the end the store is read: every acknowledged run has to be there, once. CPU is the
user and system time that the service spends on an upload; an idle machine needs as
much.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
import msgspec
import numpy as np

from perfgate.document.files import canonical_bytes, parse_run, read_run
from perfgate.document.run import RunDocument
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.postgres import PostgresDatabase
from perfgate.judging.store.runs import stored_runs
from tests.fakes.documents import make_run

RUNNERS = 50
PROJECT = "demo"
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=100.0,
        help="uploads a second of all runners together",
    )
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument(
        "--run", type=Path, help="a run document to vary; default: a small made one"
    )
    parser.add_argument("--postgres", action="store_true")
    given = parser.parse_args()
    made = canonical_bytes(make_run(None, project=PROJECT), name="the made run")
    template = (
        read_run(given.run) if given.run else parse_run(made, name="the made run")
    )
    documents = [
        _document(template, number)
        for number in range(round(given.rate * given.seconds))
    ]
    with ExitStack() as stack:
        location = stack.enter_context(_place(given.postgres))
        store = SqlStore(
            PostgresDatabase(location) if "://" in location else Path(location)
        )
        token = store.ledger().create_token("runners", None, "write").secret
        pid, address = stack.enter_context(served(location))
        before = _cpu(pid)
        late, seconds, took = asyncio.run(
            _upload(address, token, template.project, documents, given.rate)
        )
        cpu = (_cpu(pid) - before) / len(documents)
        stored = [run.id for run in stored_runs(store, template.project)]
    acknowledged = {hashlib.sha256(document).hexdigest() for document in documents}
    lost, twice = len(acknowledged - set(stored)), len(stored) - len(set(stored))
    quantiles = np.quantile(took, [0.5, 0.95]) * 1e3
    print(
        f"{len(documents)} documents of {np.mean([len(one) for one in documents]) / 1e3:.1f} kB from {RUNNERS} runners in "
        f"{seconds:.1f} s: {len(documents) / seconds:.0f} a second, {1e3 * cpu:.2f} ms of the service's CPU each, answered in "
        f"{quantiles[0]:.0f} ms (P95 {quantiles[1]:.0f} ms), sent at most {max(late):.2f} s late; lost {lost}, twice {twice}; "
        f"load {os.getloadavg()[0]:.1f}"
    )
    return 1 if lost or twice else 0


def _document(template: RunDocument, number: int) -> bytes:
    session = msgspec.structs.replace(template.session, id=f"upload-{number}")
    return msgspec.json.encode(
        msgspec.structs.replace(template, session=session), order="deterministic"
    )


@contextmanager
def _place(in_postgres: bool) -> Iterator[str]:
    if in_postgres:
        from tests.fakes.postgres import running_postgres

        with running_postgres(durable=True) as server:
            yield server.address(server.create_database())
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield str(Path(folder) / "store.db")


@contextmanager
def served(location: str) -> Iterator[tuple[int, str]]:
    """The process of a service, and its address."""
    command = [
        sys.executable,
        "-m",
        "perfgate.cli.main",
        "serve",
        "--store",
        location,
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = re.match(r"(http://[^/]+)/", process.stdout.readline())
            assert address is not None, "the service did not start"
            yield process.pid, address[1]
        finally:
            process.terminate()


def _cpu(pid: int) -> float:
    """User and system time of a process (proc(5), stat, fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def _upload(
    address: str, token: str, project: str, documents: list[bytes], rate: float
) -> tuple[list[float], float, list[float]]:
    """How late each upload was sent, the seconds of all, and how long each took to be
    acknowledged.
    """
    late: list[float] = []
    took: list[float] = []
    connector = aiohttp.TCPConnector(limit=RUNNERS)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        began = time.perf_counter()

        async def runner(first: int) -> None:
            for number in range(first, len(documents), RUNNERS):
                planned = began + number / rate
                await asyncio.sleep(max(0.0, planned - time.perf_counter()))
                sent = time.perf_counter()
                late.append(sent - planned)
                name = hashlib.sha256(documents[number]).hexdigest()
                url = f"{address}/api/v1/projects/{project}/runs/{name}"
                async with session.put(url, data=documents[number]) as answer:
                    assert answer.status == 201, await answer.text()
                took.append(time.perf_counter() - sent)

        await asyncio.gather(*map(runner, range(RUNNERS)))
        return late, time.perf_counter() - began, took


if __name__ == "__main__":
    sys.exit(main())
