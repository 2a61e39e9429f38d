"""How often does a gate of several workloads err, and what does it find?

    python benchmarks/gate/whole.py --times 1000

Simulated gates by the shipped rule, of pairs with normal noise. Heads of equal speed
differ by the luck of their code: the same in all pairs of a workload, and drawn anew
for every gate from a normal distribution. In the rows with a slowdown the first
workload has it and the others have none. ``pairs`` is the budget of a workload: 64 on a
busy machine, 106 on an idle one, and 24 where a pair takes 2.5 s. The exit code is 0 if
at most 1 % of equal code fails, 90 % of slowdowns of 1 % are found with five workloads,
and at most 5 % of unchanged code of a spread of 1.5 % is undecided.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import NamedTuple

import numpy as np
from simulated import SimulatedGate, SimulatedRule, simulate

LUCK = 0.002


class Row(NamedTuple):
    """Gates of so many workloads; ``fails`` and ``undecided`` are the goals: at most,
    or at least of a slowdown.
    """

    workloads: int
    spread: float
    slowdown: float
    pairs: int
    fails: float = 0.01
    undecided: float = 1.0
    lends: bool = True


ROWS = (
    *(
        Row(workloads, 0.0065, 0.0, pairs)
        for pairs in (24, 64, 106)
        for workloads in (1, 5, 20)
    ),
    *(Row(workloads, 0.0065, 0.005, 106, fails=0.0) for workloads in (1, 5)),
    *(
        Row(workloads, 0.0065, 0.01, pairs, fails=0.9)
        for pairs in (64, 106)
        for workloads in (1, 5)
    ),
    *(Row(workloads, 0.0065, 0.02, 64, fails=0.99) for workloads in (1, 5)),
    *(Row(5, 0.015, 0.0, pairs, undecided=0.05) for pairs in (24, 64)),
    *(
        Row(5, 0.03, 0.0, pairs, lends=lends)
        for pairs in (24, 64)
        for lends in (False, True)
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=1000, help="gates for each row")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        "workloads  spread  slower  pairs  left-over time    FAIL  undecided  pairs of a workload   goal"
    )
    good = True
    for row in ROWS:
        gates = gates_of(row, options.times, options.seed)
        failed, undecided = (
            float(np.mean([getattr(gate, name) for gate in gates]))
            for name in ("failed", "undecided")
        )
        pairs = np.mean([gate.pairs for gate in gates])
        reached = (
            failed >= row.fails if row.slowdown else failed <= row.fails
        ) and undecided <= row.undecided
        good &= reached
        lends = "lent" if row.lends else "-"
        print(
            f"{row.workloads:9} {row.spread:7.2%} {row.slowdown:7.1%} {row.pairs:6}  {lends:>14} {failed:7.2%} "
            f"{undecided:10.2%} {pairs:20.0f}  {'yes' if reached else 'NO':>5}",
            flush=True,
        )
    return 0 if good else 1


def gates_of(row: Row, times: int, seed: int) -> list[SimulatedGate]:
    """Simulate gates of a row; the first workload is slower."""
    random, rule = np.random.default_rng(seed), SimulatedRule()
    gates = []
    for _ in range(times):
        effects = LUCK * random.standard_normal(row.workloads)
        effects[0] += math.log1p(row.slowdown)
        noise = row.spread * random.standard_normal((row.workloads, rule.looks[-1]))
        gates.append(
            simulate(
                list(effects[:, None] + noise), rule, budget=row.pairs, lends=row.lends
            )
        )
    return gates


if __name__ == "__main__":
    sys.exit(main())
