"""Where the wall of the pairs goes: what share is recorded calls, and how many pairs
fit into a budget?

    python benchmarks/gate/wall.py --times 3 --out perfgate-out/wall.jsonl
    python benchmarks/gate/wall.py --project trainer --project decoder --seconds 60
    python benchmarks/gate/wall.py --table perfgate-out/wall.jsonl

Measures pairs of each project in benchmarks/gate/mistakes/projects against a copy of
itself, as a check does, until the budget is spent. On a machine that others use too
compare the shares and not the seconds. ``beside calls`` is what else a block takes in
the worker: the call that is not recorded, and garbage. ``alike`` is the correlation of
the effects (CPU time) of neighbouring pairs, and ``by server`` the share of their
variance that lies between the fork servers, less what chance alone would put there:
both are near 0 where pairs are independent. The table at the end has the median of each
project. The exit code is 0 if all have 60 pairs in a minute, and 60 % of the wall
recorded.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "lab"))

from measure import Clock, low

from perfgate.conductor.sides.function.pairs import measure_pairs
from perfgate.conductor.sides.function.workload import PairedMeasurement, WorkloadSides
from perfgate.conductor.workers.bench import Bench, open_bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.config import (
    Config,
    GateSettings,
    MeasureSettings,
    StoreSettings,
    WorkloadReference,
)
from perfgate.document.samples import Replicate, unpack
from perfgate.stats.summary import neighbour_correlation

PROJECTS = Path(__file__).parent / "mistakes" / "projects"
# The goals.
PAIRS_A_MINUTE, RECORDED_SHARE = 60, 0.6
PARTS = {
    "loading": ("LoadRequest", "fork", "SpawnRequest"),
    "warm-up": ("WarmUpRequest",),
    "moving": ("MoveRequest",),
    "profiling": (
        "ProfileRequest",
        "ProfileTimesRequest",
        "TraceRequest",
        "RecordRequest",
    ),
    "closing": ("CollectRequest", "close"),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = sorted(path.name for path in PROJECTS.iterdir())
    parser.add_argument(
        "--project", action="append", choices=names, help="default: all"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="the budget of a project's pairs"
    )
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument(
        "--profiled",
        action="store_true",
        help="as where something looks worse, so that its operators are sought",
    )
    parser.add_argument(
        "--out", type=Path, help="add a line of JSON a measurement to this file"
    )
    parser.add_argument(
        "--table", type=Path, help="only print the table of an earlier --out"
    )
    options = parser.parse_args()
    if options.table:
        records = [json.loads(line) for line in options.table.read_text().splitlines()]
    else:
        records = []
        for number in range(options.times):
            for name in options.project or names:
                records.append(
                    _measure(
                        name, options.seconds, draw=number, profiled=options.profiled
                    )
                )
                print(_row(records[-1]), flush=True)
                if options.out:
                    options.out.parent.mkdir(parents=True, exist_ok=True)
                    with options.out.open("a") as out:
                        print(json.dumps(records[-1]), file=out)
    return _print_table(records)


def _measure(name: str, seconds: float, *, draw: int, profiled: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="perfgate-wall-") as scratch:
        base, head = (Path(scratch, side) for side in ("base", "head"))
        for root in (base, head):
            shutil.copytree(
                PROJECTS / name, root, ignore=shutil.ignore_patterns("__pycache__")
            )
        attribute = re.search(
            r"^(\w+) = Workload", (base / "perf.py").read_text(), re.MULTILINE
        )
        assert attribute is not None, name
        config = Config(
            root=base, project=name, device="cpu", measure=MeasureSettings(),
            gate=GateSettings(budget=seconds), store=StoreSettings(),
        )  # fmt: skip
        clock, measured, servers = Clock(), PairedMeasurement(), list[int]()
        with open_bench(
            config, logs=Path(scratch, "logs"), say=lambda _: None
        ) as bench:
            began = time.perf_counter()
            sides = WorkloadSides(
                bench, WorkloadReference(name, "perf.py", attribute[1]), Checkout(base, base), Checkout(head, base),
                measured, before_start=lambda: servers.append(_server_of(bench)),
            )  # fmt: skip
            measure_pairs(
                sides,
                looks=config.gate.looks,
                is_decided=lambda: False,
                needs_names=lambda: profiled,
                draw=draw,
                budget_ends=None,
                first=0,
                traces=None,
                sizes=None,
            )
            wall = time.perf_counter() - began
    clock.stop()
    return {"project": name, "seconds": wall, "budget": seconds, "failed": len(measured.failed),
            **_shares(measured, clock.seconds, wall), **_effects(measured, servers)}  # fmt: skip


def _server_of(bench: Bench) -> int:
    """The process id of the fork server that runs."""
    return next(iter(bench.servers.running.values())).process.pid


def _shares(
    measured: PairedMeasurement, asked: dict[str, float], wall: float
) -> dict[str, Any]:
    lanes = [
        blocks for side in (*measured.base, *measured.head) for _, blocks in side.lanes
    ]
    recorded = sum(float(unpack(blocks.times.wall).sum()) for blocks in lanes) / 1e9
    took, seen = (
        sum(sum(times) for times in column) / 1e9
        for column in zip(*((b.worker.took_ns, b.conductor.seen_ns) for b in lanes))
    )
    parts = {
        part: sum(asked.get(name, 0.0) for name in names) / wall
        for part, names in PARTS.items()
    }
    parts |= {
        "beside calls": (took - recorded) / wall,
        "messages": (seen - took) / wall,
    }
    pairs = sum(side.member == "first" for side in measured.base)
    return {"pairs": pairs, "recorded": recorded / wall, "parts": {**parts, "rest": 1 - recorded / wall - sum(parts.values())},
            "quads": float(np.median([len(set(blocks.quad)) for blocks in lanes]))}  # fmt: skip


def _effects(measured: PairedMeasurement, servers: list[int]) -> dict[str, Any]:
    """The effects by arm in the order of the pairs, each with the server that it comes
    from.
    """
    sides: dict[int, list[Replicate]] = defaultdict(list)
    for side in (*measured.base, *measured.head):
        sides[side.pair].append(side)
    found: dict[str, list[tuple[int, float]]] = {"ab": [], "aa": []}
    for pair, (first, second) in sorted(sides.items()):
        shape = next(iter(first.shapes))
        found[first.arm].append(
            (
                servers[pair],
                low(second.shapes[shape], cpu=True)
                - low(first.shapes[shape], cpu=True),
            )
        )
    return {"effects": found}


def between_servers(effects: list[tuple[int, float]]) -> float:
    """The share of the variance of the effects that belongs to their servers
    (intraclass correlation of a random model).
    """
    groups: dict[int, list[float]] = defaultdict(list)
    for server, effect in effects:
        groups[server].append(effect)
    count, pairs = len(groups), len(effects)
    if count < 2 or pairs <= count:
        return float("nan")
    whole = np.mean([effect for _, effect in effects])
    between = sum(len(one) * (np.mean(one) - whole) ** 2 for one in groups.values()) / (
        count - 1
    )
    within = sum(
        float(np.sum((np.array(one) - np.mean(one)) ** 2)) for one in groups.values()
    ) / (pairs - count)
    size = (pairs - sum(len(one) ** 2 for one in groups.values()) / pairs) / (count - 1)
    return float((between - within) / (between + (size - 1) * within))


def _row(record: dict[str, Any]) -> str:
    effects = [(server, effect) for server, effect in record["effects"]["ab"]]
    values = np.array([effect for _, effect in effects])
    around = values - np.median(values)
    spread = 148.26 * float(np.median(np.abs(around)))
    parts = "  ".join(f"{name} {share:.0%}" for name, share in record["parts"].items())
    return (
        f"{record['project']:10} {pairs_a_minute(record):5.0f} pairs in 60 s  recorded {record['recorded']:4.0%}  "
        f"quads {record['quads']:2.0f}  sd {spread:5.2f} %  alike {neighbour_correlation(around):+.2f}  "
        f"by server {between_servers(effects):+.2f}   {parts}"
    )


def pairs_a_minute(record: dict[str, Any]) -> float:
    pairs, seconds, budget = (
        float(record[name]) for name in ("pairs", "seconds", "budget")
    )
    return pairs * min(1.0, budget / seconds) * 60 / budget


def _print_table(records: list[dict[str, Any]]) -> int:
    """Print the medians of each project; return the exit code."""
    by_project: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        by_project[record["project"]].append(record)
    enough = bool(by_project)
    print(f"\n{'project':10} {'times':>5} {'pairs in 60 s':>14} {'recorded':>9}")
    for name, of_project in by_project.items():
        pairs = float(np.median([pairs_a_minute(record) for record in of_project]))
        recorded = float(np.median([record["recorded"] for record in of_project]))
        enough &= pairs >= PAIRS_A_MINUTE and recorded >= RECORDED_SHARE
        print(f"{name:10} {len(of_project):5} {pairs:14.0f} {recorded:9.0%}")
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
