"""The variance lab: what makes the effect of one process pair spread, and are heads of
equal speed ever biased?

    taskset -c 1 python benchmarks/gate/lab --experiment bias --seconds 600 --out
    perfgate-out/bias.jsonl python benchmarks/gate/lab --table perfgate-out/bias.jsonl

All conditions of an experiment and all workloads take turns pair by pair, in an order
drawn from --seed. One line of JSON a pair goes to --out as it ends, the raw samples to
a file beside it, so an interrupted series is not lost.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from bias import compare
from conditions import EXPERIMENTS, WORKLOADS
from measure import Lab
from table import print_tables


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--experiment", choices=sorted(EXPERIMENTS))
    parser.add_argument(
        "--workload", action="append", choices=WORKLOADS, help="default: all"
    )
    parser.add_argument(
        "--condition", action="append", help="only these conditions of the experiment"
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=20201120)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--table",
        type=Path,
        action="append",
        help="print the table of earlier --out files",
    )
    parser.add_argument(
        "--compare",
        nargs=2,
        metavar="CONDITION",
        help="with --table: which of the two spreads more",
    )
    options = parser.parse_args()
    if options.table:
        records = [
            json.loads(line)
            for path in options.table
            for line in path.read_text().splitlines()
        ]
        if options.compare:
            compare([one for one in records if "failed" not in one], *options.compare)
        else:
            print_tables(records)
        return 0
    if not options.experiment or not options.out:
        parser.error("--experiment and --out, or --table")
    _measure(options)
    return 0


def _measure(options: argparse.Namespace) -> None:
    options.out.parent.mkdir(parents=True, exist_ok=True)
    raw = options.out.with_suffix(".raw.jsonl")
    number = len(options.out.read_text().splitlines()) if options.out.exists() else 0
    lot = random.Random(f"{options.seed}/{number}")
    conditions = [
        one
        for one in EXPERIMENTS[options.experiment]()
        if not options.condition or one.name in options.condition
    ]
    cells = [
        (one, name)
        for one in conditions
        for name in options.workload or WORKLOADS
        for _ in range(one.times)
    ]
    deadline = time.monotonic() + options.seconds
    with (
        tempfile.TemporaryDirectory(prefix="perfgate-lab-") as scratch,
        options.out.open("a") as out,
        raw.open("ab") as samples,
    ):
        lab = Lab(Path(scratch), seed=options.seed)
        try:
            while time.monotonic() < deadline:
                lot.shuffle(cells)
                for condition, workload in cells:
                    if time.monotonic() >= deadline:
                        break
                    record, replicates = lab.measure(condition, workload, number)
                    print(
                        json.dumps(
                            {
                                "experiment": options.experiment,
                                "seed": options.seed,
                                **record,
                            }
                        ),
                        file=out,
                        flush=True,
                    )
                    samples.write(
                        msgspec.json.encode({"pair": number, "sides": replicates})
                        + b"\n"
                    )
                    number += 1
        finally:
            lab.close()


if __name__ == "__main__":
    sys.exit(main())
