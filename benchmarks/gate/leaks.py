"""How often equal code is called a leak, and how often a planted leak is found at its
line.

    python benchmarks/gate/leaks.py --runs 20
    python benchmarks/gate/leaks.py --planted

Only counters: a side is a fresh process of a project in ``mistakes/projects``, and a
regression is counted again in a second process of each side, as a check does. Without
--planted both sides are the same code.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfgate.catalogue.lookup import METRICS
from perfgate.conductor.sides.checklist.recount import confirmed, count_calls
from perfgate.conductor.workers.bench import Bench, open_bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.config import load_config
from perfgate.document.comparison import Checked, Exact
from perfgate.document.decision import Policy
from perfgate.document.run import CounterSet
from perfgate.judging.gate.compare.counters import compare_counters
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.work_table import WorkTable
from perfgate.locale import Activity
from perfgate.protocol import COUNTED_PARTS
from tests.fakes.documents import make_run

PROJECTS = Path(__file__).parent / "mistakes" / "projects"
LEAKS = tuple(name for name, entry in METRICS.items() if entry.origin.leak)
SETTINGS = 'project = "{0}"\ndevice = "cpu"\nworkload = "perf.py:{1}"\n'


@dataclass(frozen=True)
class Plant:
    """A leak: ``head`` is put at the end of a file, and ``call`` before the last return
    of the method that is called.
    """

    name: str
    header: str
    call: str


PLANTS = (
    Plant("a list that grows", "_SEEN = []", "_SEEN.append(bytes(20_000))"),
    Plant(
        "a cache without bound", "_CACHE = {}", "_CACHE[object()] = list(range(500))"
    ),
    Plant(
        "every second call",
        "_SEEN, _CALLS = [], []",
        "_CALLS.append(None); len(_CALLS) % 2 and _SEEN.append(bytearray(65_536))",
    ),
    Plant(
        "a closure that is kept",
        "_LATER = []",
        "_LATER.append((lambda text: lambda: text)(str(len(_LATER)) * 3_000))",
    ),
    Plant(
        "a tensor in every second call",
        "_SEEN, _CALLS = [], []",
        "_CALLS.append(None); len(_CALLS) % 2 and _SEEN.append(__import__('torch').zeros(16_384))",
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=int, default=20, help="runs of equal code for each project"
    )
    parser.add_argument(
        "--planted", action="store_true", help="gate planted leaks instead"
    )
    parser.add_argument(
        "--projects", nargs="*", help="names of projects; by default all"
    )
    options = parser.parse_args()
    names = options.projects or sorted(path.name for path in PROJECTS.iterdir())
    results = [_gate_project(name, options) for name in names]
    wrong, runs = (sum(column) for column in zip(*results))
    print(
        f"{runs - wrong} of {runs} planted leaks found at their line"
        if options.planted
        else f"{wrong} of {runs} FAIL"
    )
    return 1 if wrong else 0


def _gate_project(name: str, options: argparse.Namespace) -> tuple[int, int]:
    """How many runs of a project gave a wrong answer, of how many."""
    with tempfile.TemporaryDirectory(prefix="perfgate-leaks-") as folder:
        root = Path(folder) / "base"
        shutil.copytree(PROJECTS / name, root)
        workload = re.search(
            r"^(\w+) = Workload", (root / "perf.py").read_text(), re.MULTILINE
        )
        assert workload is not None
        (root / "perfgate.toml").write_text(SETTINGS.format(name, workload[1]))
        config = load_config(root)
        with open_bench(
            config, logs=Path(folder) / "logs", say=lambda _: None
        ) as bench:
            if options.planted:
                found = [
                    _finds(bench, root, plant, Path(folder) / f"head{at}")
                    for at, plant in enumerate(PLANTS)
                ]
                return found.count(False), len(found)
            wrong = sum(
                _fails(bench, root, root, f"{name} {run}") != []
                for run in range(options.runs)
            )
            print(f"{name}: {wrong} of {options.runs} FAIL", flush=True)
            return wrong, options.runs


def _finds(bench: Bench, base: Path, plant: Plant, head: Path) -> bool:
    """Whether a leak that is planted into the model is a regression at its line."""
    shutil.copytree(base, head)
    model = next(
        path for name in ("model.py", "train.py") if (path := head / name).exists()
    )
    lines = model.read_text().splitlines()
    at = max(
        number
        for number, line in enumerate(lines)
        if line.startswith("        return ")
    )
    planted = [*lines[:at], f"        {plant.call}", *lines[at:], "", plant.header, ""]
    model.write_text("\n".join(planted))
    named = {
        part.line
        for found in _fails(bench, base, head, plant.name)
        for part in found.parts
    }
    print(
        f"{bench.config.project} with {plant.name}: {sorted(map(str, named))}, planted at {model.name}:{at + 1}",
        flush=True,
    )
    return f"{model.name}:{at + 1}" in named


def _fails(bench: Bench, base: Path, head: Path, what: str) -> list[Exact | Checked]:
    """The leaks that fail the gate, after a second count if there are any."""
    (reference,) = bench.config.references
    sides = [Checkout(root, root) for root in (base, head)]
    doing = Activity("counting the calls of {name}", name=reference.name)
    counted = [
        count_calls(bench, side, reference, COUNTED_PARTS, doing) for side in sides
    ]
    assert all(counted), f"{what} could not be counted"
    found = _regressed(*counted)
    if not found:
        return []
    print(
        f"{what}: {[(c.metric, c.base, c.head) for c in found]} in the first processes",
        flush=True,
    )
    again = [
        count_calls(bench, side, reference, COUNTED_PARTS, doing) for side in sides
    ]
    return _regressed(
        *(confirmed(first, second) for first, second in zip(counted, again))
    )


def _regressed(
    base: Sequence[CounterSet], head: Sequence[CounterSet]
) -> list[Exact | Checked]:
    before = msgspec.structs.replace(
        make_run("base"),
        checklist=msgspec.structs.replace(
            make_run("base").checklist, counters=list(base)
        ),
    )
    after = msgspec.structs.replace(
        make_run("head"),
        checklist=msgspec.structs.replace(
            make_run("head").checklist, counters=list(head)
        ),
    )
    compared = compare_counters(WorkTable(Evidence(before, after)).counted, Policy())
    return [
        c
        for c in compared
        if c.metric in LEAKS and c.gating and c.outcome == "regressed"
    ]


if __name__ == "__main__":
    sys.exit(main())
