"""From raw blocks to paired effects: one number a pair and metric, the logarithm of second over first.

The process, not the call, is the unit of evidence: calls of one process share its luck with memory layout and cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Optional

import numpy as np
import numpy.typing as npt

from perfgate.document.run import Arm, BlockColumns, Replicate
from perfgate.document.samples import unpack

LOW_QUANTILES = (0.02, 0.04, 0.06, 0.08, 0.10)
GAP_QUANTILE = 0.25
P99_MIN_CALLS = 500

Floats = npt.NDArray[np.float64]


class Statistics(NamedTuple):
    """One process and shape: log seconds of the low quantiles, P50 and P99 (None below 500 calls); gap in seconds."""

    low: float
    p50: float
    p99: Optional[float]
    gap: float


class Effects(NamedTuple):
    """Paired effects of one metric and shape: one log ratio a pair.

    ``level`` is the first side's median of the metric in seconds, ``call_level`` that of its call.
    """

    differences: Floats
    level: float
    call_level: float


def statistics(blocks: BlockColumns) -> Statistics:
    """Summarise one process: see the metrics' explanations for the formulas."""
    wall = unpack(blocks.wall) / 1e9
    ends = np.cumsum(blocks.calls)
    sums = np.diff(np.concatenate([[0.0], np.cumsum(wall)[ends - 1]]))
    spans = (np.asarray(blocks.end_ns) - np.asarray(blocks.start_ns)) / 1e9
    gaps = (spans - sums) / np.asarray(blocks.calls)
    cpu = unpack(blocks.cpu) / 1e9
    return Statistics(
        low=float(np.mean(np.log(np.quantile(wall, LOW_QUANTILES)))),
        p50=float(np.log(np.quantile(wall, 0.5))),
        p99=float(np.log(max(np.quantile(cpu, 0.99), 1e-9))) if cpu.size >= P99_MIN_CALLS else None,
        gap=float(np.quantile(gaps, GAP_QUANTILE)),
    )


def paired_effects(
    first: Iterable[Replicate], second: Iterable[Replicate], *, workload: str, shape: str, arm: Arm
) -> dict[str, Effects]:
    """Return the effects per metric over all pairs in which both members have samples of the shape."""
    firsts = _by_pair(first, workload, shape, arm, "first")
    seconds = _by_pair(second, workload, shape, arm, "second")
    pairs = [(firsts[pair], seconds[pair]) for pair in sorted(firsts.keys() & seconds.keys())]
    if not pairs:
        return {}
    effects = {
        "latency.low": _log_ratio([(a.low, b.low) for a, b in pairs]),
        "latency.p50": _log_ratio([(a.p50, b.p50) for a, b in pairs]),
        "throughput.gap": _gap(pairs),
    }
    tails = [(a.p99, b.p99) for a, b in pairs if a.p99 is not None and b.p99 is not None]
    if len(tails) == len(pairs):
        effects["latency.p99"] = _log_ratio(tails)
    return effects


def _by_pair(
    replicates: Iterable[Replicate], workload: str, shape: str, arm: Arm, member: str
) -> dict[int, Statistics]:
    return {
        replicate.pair: statistics(replicate.shapes[shape])
        for replicate in replicates
        if replicate.workload == workload
        and replicate.arm == arm
        and replicate.member == member
        and shape in replicate.shapes
    }


def _log_ratio(levels: list[tuple[float, float]]) -> Effects:
    table = np.array(levels)
    level = float(np.exp(np.median(table[:, 0])))
    return Effects(table[:, 1] - table[:, 0], level, level)


def _gap(pairs: list[tuple[Statistics, Statistics]]) -> Effects:
    """Return the change of the gap as a share of one call: a gap of near zero has no meaningful ratio of its own."""
    differences = np.array([np.log1p((b.gap - a.gap) / np.exp(a.low)) for a, b in pairs])
    call_level = float(np.exp(np.median([a.low for a, _ in pairs])))
    return Effects(differences, float(np.median([a.gap for a, _ in pairs])), call_level)
