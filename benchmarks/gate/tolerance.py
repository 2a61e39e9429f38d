"""What would a smaller tolerance of the fast path find, and what would it cost in false
alarms?

    python benchmarks/gate/tolerance.py --times 400

Simulated gates by the shipped rule: pairs with normal noise of 0.65 % (the median of
the recorded models), looks as far as 64 pairs, which fit into a minute. Heads of equal
speed differ by luck of their code: the same in all pairs of a gate, and drawn anew for
every gate from a normal distribution. Twelve recorded models have heads of equal speed
that are 0.15 to 0.8 % slower or faster over 20 servers (docs/deciding.md), which is a
luck of about 0.2 %. No pair of base against base shows it.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from simulated import SimulatedRule, simulate

PAIR_NOISE = 0.0065
LUCKS = (0.0, 0.001, 0.002, 0.003)
SLOWDOWNS = (0.0, 0.005, 0.01)
# A tolerance, and the slowdown that the gate seeks to exclude before it says
# "unchanged": today's two first.
BOUNDS = ((0.005, 0.01), (0.0025, 0.01), (0.005, 0.005), (0.0025, 0.005))
LOOKS = (8, 16, 32, 64)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=400, help="gates for each cell")
    parser.add_argument(
        "--allowed",
        type=float,
        default=SimulatedRule().luck,
        help="the luck that the rule allows for",
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        "luck of a head  tolerance  excluded  false alarms  finds 0.5 %    1 %  pairs of unchanged code"
    )
    for luck in LUCKS:
        for tolerated, excluded in BOUNDS:
            bounds = tolerated, excluded
            (alarms, pairs), (half, _), (whole, _) = (
                gates(slowdown, luck, bounds, options) for slowdown in SLOWDOWNS
            )
            print(
                f"{luck:14.1%} {tolerated:10.2%} {excluded:9.1%} {alarms:13.1%} {half:12.0%} {whole:6.0%} {pairs:24.0f}",
                flush=True,
            )
    return 0


def gates(
    slowdown: float,
    luck: float,
    bounds: tuple[float, float],
    options: argparse.Namespace,
) -> tuple[float, float]:
    """The share of gates that fail, and how many pairs they take on average."""
    # The same draws for all bounds.
    random = np.random.default_rng(
        [options.seed, round(1e4 * slowdown), round(1e4 * luck)]
    )
    tolerated, excluded = bounds
    rule = SimulatedRule(
        LOOKS, tolerated, sought=excluded, sufficient=excluded, luck=options.allowed
    )
    found = []
    for _ in range(options.times):
        effect = slowdown + luck * random.standard_normal()
        found.append(
            simulate([effect + PAIR_NOISE * random.standard_normal(LOOKS[-1])], rule)
        )
    return float(np.mean([gate.failed for gate in found])), float(
        np.mean([gate.pairs for gate in found])
    )


if __name__ == "__main__":
    sys.exit(main())
