"""The tables of a series of pairs: how far the effect of a pair spreads, from where,
and what that lets a gate see.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from bias import print_bias

from perfgate.stats.signed_rank import estimate, lower_bound, upper_bound

WILD = 0.05
WALL_SECONDS = 60.0
# One test at one-sided alpha 1 %, power 95 %: 2.33 + 1.64 standard errors. It compares
# conditions; the gate looks several times and needs more (judging/gate/compare/rule.py,
# detectable).
DETECTABLE = 3.97

Record = dict[str, Any]
Floats = npt.NDArray[np.float64]


# The statistic of the findings up to section 5: the mean logarithm of these quantiles
# of the calls.
LOW_QUANTILES = (0.02, 0.04, 0.06, 0.08, 0.10)


def print_tables(records: list[Record]) -> None:
    """Print one row per workload and condition, then where a pair's seconds go."""
    good = [record for record in records if "failed" not in record]
    if len(good) < len(records):
        print(f"{len(records) - len(good)} pairs failed")
    print(f"{'workload':8} {'condition':28} {'pairs':>5} {'sd %':>6} {'rms %':>6} {'wild':>4} {'within':>6} {'process':>7} "
          f"{'effect %':>8} {'98 % interval':>16} {'s/pair':>6} {'sees %':>6}")  # fmt: skip
    variants = [
        {**one, "condition": "all variants"}
        for one in good
        if one["condition"].startswith("variant ")
    ]
    for workload, condition in _cells([*good, *variants]):
        mine = [
            one
            for one in [*good, *variants]
            if (one["workload"], one["condition"]) == (workload, condition)
        ]
        print(_row(workload, condition, mine))
    print_bias(good)
    _print_parts(good)


def robust_sd(values: Floats) -> float:
    """Return 1.4826 times the median absolute deviation from the median."""
    return float(1.4826 * np.median(np.abs(values - np.median(values))))


def _cells(records: Iterable[Record]) -> list[tuple[str, str]]:
    return list(
        dict.fromkeys(sorted((one["workload"], one["condition"]) for one in records))
    )


def _row(workload: str, condition: str, records: list[Record]) -> str:
    effects = np.array([one["effect"] for one in records])
    halves = np.array([one["halves"] for one in records])
    sd = robust_sd(effects)
    # Two halves of one pair share its processes: what they differ by is the part that
    # more quads would average out.
    within = robust_sd((halves[:, 1] - halves[:, 0]) / 2)
    process = float(np.sqrt(max(0.0, sd**2 - within**2)))
    seconds = float(np.mean([one["seconds"] for one in records]))
    sees = DETECTABLE * sd / np.sqrt(WALL_SECONDS / seconds)
    interval = f"{100 * lower_bound(effects, 0.01):+.2f} … {100 * upper_bound(effects, 0.01):+.2f}"
    return (
        f"{workload:8} {condition:28} {len(records):5} {100 * sd:6.2f} {100 * np.sqrt(np.mean(effects**2)):6.2f} "
        f"{int(np.sum(np.abs(effects) > WILD)):4} {100 * within:6.2f} {100 * process:7.2f} {100 * estimate(effects):+8.2f} "
        f"{interval:>16} {seconds:6.2f} {100 * sees:6.2f}"
    )


def _print_parts(records: list[Record]) -> None:
    names = sorted({name for one in records for name in one["parts"]})
    print(
        f"\n{'median ms of a pair':37} {'total':>6} {'timed':>6} "
        + " ".join(f"{name[:15]:>15}" for name in names)
    )
    for workload, condition in _cells(records):
        mine = [
            one
            for one in records
            if (one["workload"], one["condition"]) == (workload, condition)
        ]
        total = 1000 * np.median([one["seconds"] for one in mine])
        timed = 1000 * np.median(
            [sum(side["timed_seconds"] for side in one["sides"]) for one in mine]
        )
        parts = [
            1000 * np.median([one["parts"].get(name, 0.0) for one in mine])
            for name in names
        ]
        print(
            f"{workload:8} {condition:28} {total:6.0f} {timed:6.0f} "
            + " ".join(f"{part:15.0f}" for part in parts)
        )
