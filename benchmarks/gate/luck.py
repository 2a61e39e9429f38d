"""By how much do heads of other code and equal speed differ from base, with and without
scattered memory?

    python benchmarks/gate/luck.py --workload tiny --workload python --servers 10 --out
    perfgate-out/luck.jsonl python benchmarks/gate/luck.py --table
    perfgate-out/luck.jsonl

Every fork server runs some pairs of every head, once as the gate does and once with
workloads loaded into memory as it is. A line of the output is one head on one server.
The luck of heads is the sd of their mean effects over all servers, less what the spread
of servers puts there; that of a server is what is left of the spread between servers
after the spread of pairs. Times are CPU times, so that other processes matter little.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "lab"))

from models import SOURCES
from record import _config
from workloads import VARIANTS, write_checkouts, write_harness

from perfgate.catalogue.names import LATENCY
from perfgate.conductor.sides.function.pairs import measure_pairs
from perfgate.conductor.sides.function.workload import PairedMeasurement, WorkloadSides
from perfgate.conductor.workers.bench import Bench, open_bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.config import WorkloadReference
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.blocks import TimedLane
from perfgate.judging.gate.evidence.pairs import paired_effects, pairs_of

CONDITIONS = ("scattered", "as it is")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workload",
        action="append",
        choices=sorted(SOURCES),
        help="default: tiny and python",
    )
    parser.add_argument(
        "--head",
        action="append",
        type=int,
        choices=range(1, VARIANTS + 1),
        help="default: all",
    )
    parser.add_argument("--servers", type=int, default=10)
    parser.add_argument(
        "--pairs", type=int, default=8, help="pairs of a head on a server"
    )
    parser.add_argument("--out", type=Path, default=Path("perfgate-out/luck.jsonl"))
    parser.add_argument(
        "--table", type=Path, help="only print the table of an earlier --out"
    )
    options = parser.parse_args()
    if options.table is None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        _measure(options)
    _report(options.table or options.out)
    return 0


def _measure(options: argparse.Namespace) -> None:
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    done = max((json.loads(line)["server"] for line in lines), default=0)
    with (
        tempfile.TemporaryDirectory(prefix="perfgate-luck-") as folder,
        options.out.open("a") as out,
    ):
        scratch = Path(folder)
        config = _config(scratch, options.pairs)
        with open_bench(config, logs=scratch / "logs", say=lambda _: None) as bench:
            bench.servers.start_next = lambda *_, **__: None  # type: ignore[method-assign]
            for server in range(done + 1, done + 1 + options.servers):
                bench.servers.redraw(hash_seed=server)
                for workload in options.workload or ["tiny", "python"]:
                    for head in options.head or range(1, VARIANTS + 1):
                        for condition in CONDITIONS:
                            effects = _effects(
                                bench,
                                scratch / workload,
                                workload,
                                head,
                                server,
                                condition,
                            )
                            record = {
                                "workload": workload,
                                "head": head,
                                "server": server,
                            }
                            print(
                                json.dumps(
                                    {
                                        **record,
                                        "condition": condition,
                                        "effects": effects,
                                    }
                                ),
                                file=out,
                                flush=True,
                            )


def _effects(
    bench: Bench, roots: Path, workload: str, head: int, server: int, condition: str
) -> list[float]:
    if not roots.exists():
        write_checkouts(roots, workload, seed=1)
        write_harness(roots / "harness", workload)
    base, other = (
        Checkout(root=roots / f"{workload}-{number}", harness=roots / "harness")
        for number in (0, head)
    )
    measured = PairedMeasurement()
    with _memory(bench, condition):
        reference = WorkloadReference(workload, "workload.py", "workload")
        measure_pairs(
            WorkloadSides(bench, reference, base, other, measured),
            looks=bench.config.gate.looks,
            is_decided=lambda: True,
            needs_names=lambda: False,
            draw=server,
            budget_ends=None,
            first=0,
            traces=None,
            sizes=None,
        )
    shape = next(iter(measured.base[0].shapes))
    clocks = {TimedLane(ShapePlace(workload, shape), preprocess=False): "cpu"}
    pairs = pairs_of(measured.base, measured.head)[workload]
    found = paired_effects(pairs, ShapePlace(workload, shape), clocks)  # type: ignore[arg-type]
    return [float(value) for value in found[LATENCY].differences.values]


@contextmanager
def _memory(bench: Bench, condition: str) -> Iterator[None]:
    """Load workloads as the gate does, or into memory as it is."""
    original = bench.worker

    def worker(*given: Any, **named: Any) -> Any:
        return original(*given, **{**named, "scatters": condition == CONDITIONS[0]})

    bench.worker = worker  # type: ignore[method-assign]
    try:
        yield
    finally:
        bench.worker = original  # type: ignore[method-assign]


def _report(path: Path) -> None:
    of_heads: dict[tuple[str, str], dict[int, list[list[float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for line in path.read_text().splitlines():
        record = json.loads(line)
        of_heads[record["workload"], record["condition"]][record["head"]].append(
            record["effects"]
        )
    print(f"{'workload':10} {'memory':10} {'heads':>5} {'servers':>7} {'spread of pairs':>16} {'of servers':>14} "
          f"{'luck of heads':>14} {'its error':>14} {'largest':>8}")  # fmt: skip
    for (workload, condition), heads in sorted(of_heads.items()):
        on_servers = {
            head: np.array([np.median(effects) for effects in visits])
            for head, visits in heads.items()
        }
        pairs = [
            np.asarray(effects) - np.median(effects)
            for visits in heads.values()
            for effects in visits
        ]
        spread = 1.4826 * float(np.median(np.abs(np.concatenate(pairs))))
        count = min(len(visits) for visits in on_servers.values())
        between = float(np.mean([visits.var(ddof=1) for visits in on_servers.values()]))
        of_pairs = math.pi / 2 * spread**2 / float(np.mean([one.size for one in pairs]))
        means = np.array([visits.mean() for visits in on_servers.values()])
        luck = float(np.mean(means**2)) - between / count
        error = math.sqrt(2 / means.size) * between / count
        lucks = "".join(
            f"{_root(value):15.2%}" for value in (between - of_pairs, luck, error)
        )
        print(
            f"{workload:10} {condition:10} {means.size:5} {count:7} {spread:16.2%}{lucks} {np.abs(means).max():8.2%}"
        )


def _root(variance: float) -> float:
    return math.copysign(math.sqrt(abs(variance)), variance)


if __name__ == "__main__":
    sys.exit(main())
