"""How many pairs is a lean towards a regression worth, and what does the last look
find?

    python benchmarks/gate/looks.py --times 400

Simulated gates by the shipped rule, of pairs with normal noise. A gate that finds
"unchanged" waits for more pairs while the estimate leans towards a regression: up to 64
pairs as shipped, or up to the last look. Without a look at 128 pairs, an undecided time
ends there too. Shown are the gates that fail, and the mean and 90th percentile of
pairs; 0.2 % is what different code of equal speed differs by (docs/deciding.md), and
the allowance of the rule for it is left out. Times that the last look leaves above the
sought margin are judged by the sufficient one, as in a gate.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import NamedTuple

import numpy as np
from simulated import SimulatedRule, simulate

from perfgate.document.decision import DEFAULT_LOOKS
from perfgate.judging.gate.compare.rule import LEANING_PAIRS

SPREADS = (0.003, 0.0065, 0.013, 0.026)
SLOWDOWNS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05)


class Schedule(NamedTuple):
    """The looks of a gate, and the pairs up to which it waits because of a lean."""

    name: str
    looks: tuple[int, ...]
    leaning_pairs: int


SCHEDULES = (
    Schedule("lean waits for 64", tuple(DEFAULT_LOOKS), LEANING_PAIRS),
    Schedule("lean waits for 128", (8, 16, 32, 64, 128), 128),
    Schedule("last look at 64", (8, 16, 32, 64), 64),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=400, help="gates for each cell")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        f"{'spread':>7}  {'schedule':20}"
        + "".join(f"{slowdown:>20.1%}" for slowdown in SLOWDOWNS)
    )
    for spread in SPREADS:
        for schedule in SCHEDULES:
            cells = [
                cell(schedule, spread, slowdown, options) for slowdown in SLOWDOWNS
            ]
            print(
                f"{spread:7.2%}  {schedule.name:20}"
                + "".join(f"{text:>20}" for text in cells),
                flush=True,
            )
    return 0


def cell(
    schedule: Schedule, spread: float, slowdown: float, options: argparse.Namespace
) -> str:
    """The share of gates that fail, and the pairs that they take."""
    # The same draws for all schedules and spreads.
    random = np.random.default_rng([options.seed, round(1e4 * slowdown)])
    rule = SimulatedRule(schedule.looks, leaning_pairs=schedule.leaning_pairs, luck=0.0)
    failed, taken = [], []
    for _ in range(options.times):
        gate = simulate(
            [math.log1p(slowdown) + spread * random.standard_normal(128)], rule
        )
        failed.append(gate.failed)
        taken += gate.pairs
    return (
        f"{np.mean(failed):.1%} ({np.mean(taken):.0f}, {np.percentile(taken, 90):.0f})"
    )


if __name__ == "__main__":
    sys.exit(main())
