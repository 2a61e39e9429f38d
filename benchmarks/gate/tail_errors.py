"""Simulate the verdict on mean and stalls: how often does equal code fail, and how
often are rare slow calls found?

    python benchmarks/gate/tail_errors.py --gates 2000
    python benchmarks/gate/tail_errors.py --gates 2000 --noise ../shared/gate-noise

Each gate takes stretches start by start, looks as a check does, and ends as it would.
The noise of synthetic gates is a log-normal call with a heavy tail, bursts that hit
whole turns, and luck that a start keeps. With --noise it is drawn from recorded
base-against-base pairs (wall time, their waits for CPUs included, so the noise is
larger than a check's): a start is the blocks of one recorded pair. ``planted`` gates
add a stall in every n-th call of head.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from perfgate.document.decision import Policy
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.judge import AlphaShares, judge_numbers
from perfgate.judging.gate.compare.stretches import leans_slower
from perfgate.judging.gate.evidence.numbers import Rules
from perfgate.judging.gate.evidence.producers.long_stretches import of_sample
from perfgate.judging.gate.evidence.stretches import (
    LOOKS,
    SideQuad,
    StretchSample,
    StretchSide,
)

Floats = npt.NDArray[np.float64]
# The calls of both sides in the quads of a start, in the order they were made: quads x
# calls.
Start = tuple[Floats, Floats]
PLACE = ShapePlace("simulated", "default")
SHARES = AlphaShares.of_subjects(Policy(), subjects=1)
# Synthetic: log-sd of a call, of a start and of a burst; the shares of stalled calls
# and of disturbed turns.
CALL_SPREAD, START_LUCK, BURST = 0.05, 0.01, 0.3
STALLED, DISTURBED = 0.002, 0.05
QUADS, CALLS = 8, 126
# in every so many calls a stall of so many median calls: +5 to +22 % of the mean
PLANTED = {
    "every 60th, 6 calls": (60, 6.0),
    "every 200th, 30 calls": (200, 30.0),
    "every 250th, 55 calls": (250, 55.0),
    "every 400th, 30 calls": (400, 30.0),
    "every 500th, 25 calls": (500, 25.0),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gates", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--noise", type=Path, help="a folder of recorded pairs, aa-*.npz"
    )
    options = parser.parse_args()
    lot = np.random.default_rng(options.seed)
    draw = synthetic(lot)
    if options.noise:
        draw = recorded(lot, options.noise)
    print(
        f"{'':24} {'FAIL':>7} {'by mean':>8} {'stalls':>7} {'PASS':>7} {'open':>7} {'quads':>6}"
    )
    for name, stall in {"equal code": None, **PLANTED}.items():
        gates = options.gates if stall is None else max(1, options.gates // 10)
        print_row(name, [gate(draw, stall) for _ in range(gates)])
    return 0


def print_row(name: str, ends: list[tuple[frozenset[str], str, int]]) -> None:
    count = len(ends)
    by_metric = Counter(metric for failed, _, _ in ends for metric in failed)
    failed = sum(bool(failed) for failed, _, _ in ends) / count
    outcomes = Counter(outcome for _, outcome, _ in ends)
    quads = np.mean([quads for _, _, quads in ends])
    shares = (
        by_metric["latency.mean"],
        by_metric["latency.stalls"],
        outcomes["unchanged"],
        outcomes["inconclusive"],
    )
    print(
        f"{name:24} {failed:7.2%} "
        + " ".join(f"{share / count:7.1%}" for share in shares)
        + f" {quads:6.0f}"
    )


def gate(
    draw: Callable[[], Start], stall: tuple[int, float] | None
) -> tuple[frozenset[str], str, int]:
    """One gate: the metrics that failed it, the outcome of the mean, and the quads that
    it took.
    """
    starts: list[Start] = []
    for look in LOOKS:
        while sum(base.shape[0] for base, _ in starts) < look:
            starts.append(planted(draw(), stall))
        sample = sample_of(starts)
        compared = judge_numbers(
            list(of_sample(PLACE, sample, Rules(Policy()))), SHARES, floors=()
        )
        failed = frozenset(
            c.metric for c in compared if c.outcome == "regressed" and c.gating
        )
        if failed or not leans_slower(sample, compared):
            break
    return failed, compared[0].outcome, sample.quads


def sample_of(starts: list[Start]) -> StretchSample:
    base = [
        SideQuad(float(calls.mean()), calls) for start in starts for calls in start[0]
    ]
    head = [
        SideQuad(float(calls.mean()), calls) for start in starts for calls in start[1]
    ]
    return StretchSample(StretchSide.of(base), StretchSide.of(head), len(starts))


def planted(start: Start, stall: tuple[int, float] | None) -> Start:
    if stall is None:
        return start
    every, length = stall
    base, head = start
    slow = head.copy().reshape(-1)
    slow[every - 1 :: every] += length * np.median(head)
    return base, slow.reshape(head.shape)


def synthetic(lot: np.random.Generator) -> Callable[[], Start]:
    def side() -> Floats:
        shape = QUADS, CALLS
        calls = np.exp(
            CALL_SPREAD * lot.standard_normal(shape)
            + START_LUCK * lot.standard_normal()
        )
        stalled = lot.random(shape) < STALLED
        calls[stalled] *= 3 + lot.pareto(1.5, int(stalled.sum()))
        disturbed = lot.random(QUADS) < DISTURBED
        calls[disturbed] *= np.exp(
            BURST * np.abs(lot.standard_normal((int(disturbed.sum()), 1)))
        )
        return calls

    return lambda: (side(), side())


def recorded(lot: np.random.Generator, folder: Path) -> Callable[[], Start]:
    """Starts from recorded pairs: as many consecutive quads as there are, pooled to
    QUADS.
    """
    pairs = [pair for path in sorted(folder.glob("aa-*.npz")) for pair in _pairs(path)]
    print(f"{len(pairs)} recorded pairs")

    def draw() -> Start:
        base, head = pairs[int(lot.integers(len(pairs)))]
        return (base, head) if lot.random() < 0.5 else (head, base)

    return draw


def _pairs(path: Path) -> list[Start]:
    data = np.load(path)
    ends = np.cumsum(data["b_n"])
    blocks = np.split(data["wall"].astype(np.float64), ends[:-1])
    found = []
    for pair in np.unique(data["b_pair"]):
        quads = np.unique(data["b_quad"][data["b_pair"] == pair])
        pools = np.array_split(quads, QUADS)
        sides = []
        for side in (0, 1):
            chosen = (data["b_pair"] == pair) & (data["b_side"] == side)
            pooled = [
                np.concatenate(
                    [
                        blocks[at]
                        for at in np.flatnonzero(chosen & np.isin(data["b_quad"], pool))
                    ]
                )
                for pool in pools
            ]
            fewest = min(calls.size for calls in pooled)
            sides.append(np.array([calls[:fewest] for calls in pooled]))
        calls = min(side.shape[1] for side in sides)
        found.append((sides[0][:, :calls], sides[1][:, :calls]))
    return found


if __name__ == "__main__":
    sys.exit(main())
