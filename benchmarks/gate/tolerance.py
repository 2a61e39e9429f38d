"""What would a smaller tolerance of the fast path find, and what would it cost in false alarms?

    python benchmarks/gate/tolerance.py --times 400

Simulated gates by the shipped rule: pairs with normal noise of 0.65 % (the median of the recorded models), looks as far as 64
pairs, which fit into a minute. Heads of equal speed differ by luck of their code: the same in all pairs of a gate, and drawn
anew for every gate from a normal distribution. Twelve recorded models have heads of equal speed that are 0.15 to 0.8 % slower
or faster over 20 servers (docs/deciding.md), which is a luck of about 0.2 %. No pair of base against base shows it.
"""

from __future__ import annotations

import argparse
import math
import sys

import numpy as np

from perfgate.catalogue.lookup import FAMILIES, METRICS
from perfgate.document.decision import Policy
from perfgate.judging.gate.rule import Differences, Errors, Limits, alarm_margin, answer, leans_slower, p_slower

PAIR_NOISE = 0.0065
LUCKS = (0.0, 0.001, 0.002, 0.003)
SLOWDOWNS = (0.0, 0.005, 0.01)
# A tolerance, and the slowdown that the gate seeks to exclude before it says "unchanged": today's two first.
BOUNDS = ((0.005, 0.01), (0.0025, 0.01), (0.005, 0.005), (0.0025, 0.005))
LOOKS = (8, 16, 32, 64)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=400, help="gates for each cell")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("luck of a head  tolerance  excluded  false alarms  finds 0.5 %    1 %  pairs of unchanged code")
    for luck in LUCKS:
        for tolerated, excluded in BOUNDS:
            limits = Limits(math.log1p(tolerated), math.log1p(excluded))
            (alarms, pairs), (half, _), (whole, _) = (gates(slowdown, luck, limits, options) for slowdown in SLOWDOWNS)
            print(
                f"{luck:14.1%} {tolerated:10.2%} {excluded:9.1%} {alarms:13.1%} {half:12.0%} {whole:6.0%} {pairs:24.0f}",
                flush=True,
            )
    return 0


def gates(slowdown: float, luck: float, limits: Limits, options: argparse.Namespace) -> tuple[float, float]:
    """The share of gates that fail, and how many pairs they take on average."""
    # The same draws for all bounds.
    random = np.random.default_rng([options.seed, round(1e4 * slowdown), round(1e4 * luck)])
    family = FAMILIES[METRICS["latency.low"].family]
    policy = Policy()
    errors = Errors(policy.alpha * family.share / len(family.metrics), policy.alpha_ok, LOOKS)
    answers = []
    for _ in range(options.times):
        effect = slowdown + luck * random.standard_normal()
        pairs = effect + PAIR_NOISE * random.standard_normal(LOOKS[-1])
        answers.append(judge(pairs, limits, errors))
    failed, taken = np.mean(answers, axis=0)
    return float(failed), float(taken)


def judge(pairs: np.ndarray, limits: Limits, errors: Errors) -> tuple[bool, int]:
    """Look as the gate does until there is an answer: whether it is FAIL, and after how many pairs."""
    for look in LOOKS:
        differences = Differences.of(pairs[:look])
        margin = alarm_margin(look, LOOKS, interim=look < LOOKS[-1])
        p = p_slower(differences, 0.0, errors.alarm_looks, alike_margin=margin)
        given = answer(differences, limits, errors, p_adjusted=p)
        leans = leans_slower(differences.estimate, limits.tolerated, pairs=look)
        waits = look < LOOKS[-1] and given == "unchanged" and leans
        if given != "inconclusive" and not waits:
            return given == "regressed", look
    return False, LOOKS[-1]


if __name__ == "__main__":
    sys.exit(main())
