"""Are heads that differ in code but not in speed biased? Per variant over all servers,
and per gate on one server.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, chdtri, ndtri

from perfgate.stats.signed_rank import estimate, lower_bound, p_above, upper_bound

LEAST_PAIRS = 6
BOOTSTRAPS = 300
LEVEL = 0.05
MARGINS = (0.0, 0.0025, 0.005, 0.01)

Record = dict[str, Any]
Floats = npt.NDArray[np.float64]


def print_bias(records: list[Record]) -> None:
    """Print per workload the effect of all variants together and of each, and how large
    their biases can be.
    """
    heads = [one for one in records if one["head"] == "variant"]
    if not heads:
        return
    print(
        "\nvariants together: effect % (98 %); each: effect ± standard error (pairs); root mean square of the biases, 95 %"
    )
    for workload in dict.fromkeys(one["workload"] for one in heads):
        mine = [one for one in heads if one["workload"] == workload]
        whole = np.array([one["effect"] for one in mine])
        found = _by_key(mine, ("variant",))
        interval = f"{100 * lower_bound(whole, 0.01):+.2f} … {100 * upper_bound(whole, 0.01):+.2f}"
        print(
            f"{workload:8} {100 * estimate(whole):+.2f} ({interval})   {_each(found)}"
        )
    _print_servers(heads)


def compare(records: list[Record], first: str, second: str) -> None:
    """Print whether the effects of two conditions differ in size: all workloads
    together, by the rank test.
    """
    sizes: list[list[float]] = [[], []]
    ratios = {}
    for workload in dict.fromkeys(one["workload"] for one in records):
        both = [
            np.abs(
                [
                    one["effect"]
                    for one in records
                    if (one["workload"], one["condition"]) == (workload, name)
                ]
            )
            for name in (first, second)
        ]
        if not all(one.size for one in both):
            continue
        scale = float(np.median(np.concatenate(both)))
        for kept, effects in zip(sizes, both):
            kept.extend(effects / scale)
        ratios[workload] = float(np.median(both[1]) / np.median(both[0]))
    mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
    texts = "  ".join(f"{workload} {ratio:.2f}" for workload, ratio in ratios.items())
    from scipy.stats import mannwhitneyu

    p = float(mannwhitneyu(*sizes).pvalue)
    pairs = f"{len(sizes[0])} and {len(sizes[1])} pairs"
    print(
        f"median |effect|, {second!r} over {first!r}: {texts}; mean {mean:.2f}, p {p:.4f}, {pairs}"
    )


def _each(found: dict[tuple[Any, ...], Floats]) -> str:
    groups = {
        key: effects for key, effects in found.items() if effects.size >= LEAST_PAIRS
    }
    if len(groups) < 3:
        return "too few pairs of each"
    lot = np.random.default_rng(1)
    centres = np.array([estimate(one) for one in groups.values()])
    errors = np.array([
        np.std([estimate(lot.choice(one, one.size)) for _ in range(BOOTSTRAPS)]) for one in groups.values()
    ])  # fmt: skip
    texts = "  ".join(
        f"{key[0]}: {100 * centre:+.2f} ± {100 * error:.2f} ({groups[key].size})"
        for key, centre, error in zip(groups, centres, errors)
    )
    p = float(chdtrc(centres.size, np.sum((centres / errors) ** 2)))
    return f"{texts}   no bias: p {p:.3f}; at most {100 * largest_bias(centres, errors):.2f}"


def largest_bias(centres: Floats, errors: Floats) -> float:
    """Return the root mean square of the true biases that would give estimates as small
    as these 5 % of the time.
    """
    from scipy.optimize import brentq

    def excess(bias: float) -> float:
        return float(
            np.sum(centres**2 / (errors**2 + bias**2)) - chdtri(centres.size, 1 - LEVEL)
        )

    return 0.0 if excess(0.0) < 0 else float(brentq(excess, 0.0, 1.0))


def _print_servers(heads: list[Record]) -> None:
    """Print what the signed-rank test says of each variant on each server: a gate has
    one server and one head.
    """
    gates = {
        key: effects
        for key, effects in _by_key(heads, ("workload", "variant", "server")).items()
        if effects.size >= 16
    }
    if not gates:
        return
    p = np.array([p_above(effects, 0.0) for effects in gates.values()])
    z = -ndtri(np.clip(p, 1e-9, 1 - 1e-9))
    alarms = {
        one: sum(p_above(effects, one) < 0.01 for effects in gates.values())
        for one in MARGINS
    }
    pairs = int(np.median([one.size for one in gates.values()]))
    evidence = f"sd of z {np.std(z):.2f} (1 without bias), p {float(chdtrc(z.size, np.sum(z**2))):.3f}"
    counts = ", ".join(
        f"{count} at margin {100 * margin:g} %" for margin, count in alarms.items()
    )
    print(
        f"\n{len(gates)} gates of one variant on one server, {pairs} pairs each: {evidence}; alarms at alpha 1 %: {counts}"
    )


def _by_key(
    records: list[Record], names: tuple[str, ...]
) -> dict[tuple[Any, ...], Floats]:
    keys = sorted({tuple(one[name] for name in names) for one in records})
    return {
        key: np.array(
            [
                one["effect"]
                for one in records
                if tuple(one[name] for name in names) == key
            ]
        )
        for key in keys
    }
