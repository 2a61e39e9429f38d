"""How often does a check find a slowdown within its budget, by live pairs of models
that nobody tuned for?

    python benchmarks/gate/wall.py --times 2 --out perfgate-out/wall.jsonl
    python benchmarks/gate/power.py perfgate-out/wall.jsonl

Pairs of unchanged code are drawn again, those of one pair of processes together, as
many as fit into a minute; the slowdown is added to their effects, and the gate's own
rule looks at them as a check does. A row is a project: the share of gates that fail, by
size of the slowdown; 0 % is unchanged code, and 0.5 % the tolerance (docs/deciding.md
explains it). A rare wild pair that the minute did not contain is missing from the
draws. The exit code is 0 if the means of all sizes reach the goals.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from rule import decide_effects
from wall import pairs_a_minute

from perfgate.conductor.sides.function.plan import FORKED_PAIRS
from perfgate.config import GateSettings
from perfgate.judging.gate.evidence.effect import Differences

SIZES = (0.0, 0.005, 0.01, 0.02)
# The shares that are to be found, by size.
GOALS = {0.005: 0.5, 0.01: 0.95, 0.02: 0.999}
LOOKS = GateSettings().looks


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "series", type=Path, nargs="+", metavar="FILE", help="an --out of wall.py"
    )
    parser.add_argument(
        "--gates", type=int, default=400, help="gates drawn of each project and size"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    by_project: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in options.series:
        for line in path.read_text().splitlines():
            record = json.loads(line)
            by_project[record["project"]].append(record)
    lot = np.random.default_rng(options.seed)
    shares: dict[float, list[float]] = defaultdict(list)
    print(
        f"{'project':10} {'pairs in 60 s':>14} "
        + " ".join(f"{size:>7.1%}" for size in SIZES)
    )
    for name, records in by_project.items():
        count = int(np.median([pairs_a_minute(record) for record in records]))
        of_project = [
            _share_of_failures(records, count, size, options.gates, lot)
            for size in SIZES
        ]
        print(
            f"{name:10} {count:14} " + " ".join(f"{share:7.1%}" for share in of_project)
        )
        for size, share in zip(SIZES, of_project):
            shares[size].append(share)
    means = {size: float(np.mean(found)) for size, found in shares.items()}
    print(f"{'mean':25} " + " ".join(f"{mean:7.1%}" for mean in means.values()))
    return 0 if all(means[size] >= goal for size, goal in GOALS.items()) else 1


def _share_of_failures(
    records: list[dict[str, Any]],
    count: int,
    size: float,
    gates: int,
    lot: np.random.Generator,
) -> float:
    groups = [
        [effect for _, effect in effects[start : start + FORKED_PAIRS]]
        for effects in (record["effects"]["ab"] for record in records)
        for start in range(0, len(effects), FORKED_PAIRS)
    ]
    failed = 0
    for _ in range(gates):
        order = lot.integers(len(groups), size=count)
        effects = np.concatenate([groups[index] for index in order])[
            :count
        ] + math.log1p(size)
        failed += _fails(effects)
    return failed / gates


def _fails(effects: np.ndarray[Any, np.dtype[np.float64]]) -> bool:
    """Look at the effects after the planned numbers of pairs, and at the last for the
    last time.
    """
    planned = [look for look in LOOKS if look < effects.size]
    for look in (*planned, effects.size):
        decision = decide_effects(
            "latency.low",
            Differences.of(effects[:look]),
            {"paired": True, "moved": True, "last": look == effects.size},
        )["decision"]
        if decision != "undecided":
            return decision == "regressed"
    return False


if __name__ == "__main__":
    sys.exit(main())
