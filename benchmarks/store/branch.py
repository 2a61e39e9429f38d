"""A store in a branch with many runs: the seconds to record one more and to read a
history, and the size of the branch.

    PYTHONPATH=.:benchmarks/trend python benchmarks/store/branch.py --runs 500 2000 7900
    --histories FOLDER

Seconds are on the clock, and in brackets those of CPU time, git's included. The
repository lies on the same machine, so that a network adds to all of it: what is
fetched for a reading is printed as "small files".
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
from histories import BESIDE
from made_runs import made_testbeds
from rich.console import Console
from rich.table import Table

from perfgate.document.run import RunDocument
from perfgate.judging.store.backends.gitbranch import GitBranchStore, open_backend
from perfgate.judging.store.index import SeriesValue, read_index
from perfgate.judging.store.runs import record_run, record_runs
from perfgate.judging.store.store import SeriesPlace, StorePlace

LOCATION = "branch://perfgate-data"
AT_ONCE = 500


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, nargs="+", default=[500, 2000, 7900])
    parser.add_argument(
        "--histories",
        type=Path,
        default=BESIDE,
        help="folder with the recorded histories",
    )
    given = parser.parse_args()
    table = Table(title=f"A store in a branch, load {os.getloadavg()[0]:.1f}")
    for column in ("runs", "record one", "read a history", "branch", "small files"):
        table.add_column(column)
    for count in sorted(given.runs):
        table.add_row(*_measured(count, given.histories))
    Console(width=120).print(table)
    return 0


def _measured(count: int, histories: Path) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        git(folder, "init", "--quiet", "--bare", "remote.git")
        git(folder / "remote.git", "config", "uploadpack.allowFilter", "true")
        git(folder, "clone", "--quiet", "remote.git", "clone")
        place = StorePlace(root=folder / "clone", environ=os.environ)
        runs = [
            made.document(version)
            for made in made_testbeds(1, histories)
            for version in range(len(made.numbers))
        ]
        assert count < len(runs), "one project of four testbeds has 8,000 runs"
        last = runs[count]
        some = iter(runs[:count])
        while batch := list(islice(some, AT_ONCE)):
            record_runs(
                open_backend(LOCATION, place), batch, allow_dirty=False, now=None
            )
        moments = [_now()]
        record_run(open_backend(LOCATION, place), last)
        moments.append(_now())
        assert _history(open_backend(LOCATION, place), last)
        moments.append(_now())
        files = git(
            folder / "remote.git", "ls-tree", "-r", "--long", "perfgate-data"
        ).splitlines()
        sizes = [(int(line.split()[3]), line.split("\t")[1]) for line in files]
        small = sum(size for size, path in sizes if not path.startswith("documents/"))
        packed = sum(
            path.stat().st_size
            for path in (folder / "remote.git").rglob("*")
            if path.is_file()
        )
        return [
            str(count),
            *(f"{wall:.1f} s ({cpu:.1f} s)" for wall, cpu in np.diff(moments, axis=0)),
            f"{packed / 1e6:.1f} MB",
            f"{small / 1e6:.1f} MB",
        ]


def _now() -> tuple[float, float]:
    """The clock, and the CPU time of this process and its children so far."""
    return time.perf_counter(), sum(os.times()[:4])


def _history(store: GitBranchStore, run: RunDocument) -> list[SeriesValue]:
    place = SeriesPlace("encoder", "long", "latency.p50", "", run.testbed.fingerprint)
    return read_index(store, run.project).history(place)


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
