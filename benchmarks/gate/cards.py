"""How often do simulated gates on a card pass equal code, and find what became slower?

    python benchmarks/gate/cards.py --gates 1000

Every gate draws its own luck of starts, noise of quads and of the host, with and
without a power limit that the card reaches (tests/fakes/card_times.py), and is judged
by the gate's own rule at its looks. Lone sides take the card in turns as whole
processes. A row is a cell: the share of its gates by verdict. The exit code is 0 if
every cell reaches its goal: of equal code 95 % pass and at most 1 % fail; of slower
code 95 % fail, and name the kernel.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from perfgate.document.decision import DecisionDocument
from tests.fakes.card_times import Call, CardGate, CardNoise

KERNEL = "kernel_3"
BUSY_CALL = Call()
# The device waits for the host for half of the call.
WAITING_CALL = Call(exposed=1e-3)
# The sd of the host's time in a quad: 6.5 %, or as much in the effect of a pair of four
# quads.
NOISY_HOST, NOISIER_HOST = 0.065, 0.13
_ONE = 0.01


class Cell(NamedTuple):
    """Gates of one kind: what they compare, the noise, and the verdict that 95 % of
    them must end with.
    """

    name: str
    base: Call
    head: Call
    noise: CardNoise
    goal: str
    lone: bool = False


def cells() -> Iterator[Cell]:
    for cap in (False, True):
        for luck in (0.0005, 0.002, 0.01):
            for quad in (0.003, 0.01, 0.03):
                noise = CardNoise(luck=luck, quad=quad, cap=cap)
                name = f"equal code, luck {luck:.2%}, quad {quad:.1%}" + (
                    ", power limit" if cap else ""
                )
                yield Cell(name, BUSY_CALL, BUSY_CALL, noise, "PASS")
    noisy = CardNoise(quad=0.03, host=NOISY_HOST)
    yield Cell(
        "equal code, waiting for a noisy host",
        WAITING_CALL,
        WAITING_CALL,
        noisy,
        "PASS",
    )
    noisy = replace(noisy, host=NOISIER_HOST)
    for cap in (False, True):
        noise = replace(noisy, cap=cap)
        slower = BUSY_CALL.slower_kernel(KERNEL, share_of_call=_ONE)
        yield Cell(
            "a kernel +1 % of all" + (", power limit" if cap else ""),
            BUSY_CALL,
            slower,
            noise,
            KERNEL,
        )
    waiting = WAITING_CALL.slower_kernel(KERNEL, share_of_call=_ONE)
    yield Cell(
        "a kernel +1 % of all, waiting for a noisy host",
        WAITING_CALL,
        waiting,
        noisy,
        KERNEL,
    )
    yield Cell(
        "a host +7 %, device waits",
        WAITING_CALL,
        WAITING_CALL.slower_host(0.07),
        CardNoise(),
        "FAIL",
    )
    for share in (0.01, 0.02, 0.03):
        yield Cell(
            f"all kernels +{share:.0%}",
            BUSY_CALL,
            BUSY_CALL.slower_kernels(share),
            CardNoise(),
            "FAIL",
        )
    yield from lone_cells()


def lone_cells() -> Iterator[Cell]:
    for visit, disturbed in (
        (0.0, 0.0),
        (0.003, 0.0),
        (0.01, 0.0),
        (0.003, 0.1),
        (0.003, 0.5),
    ):
        noise = CardNoise(visit=visit, disturbed=disturbed)
        name = f"lone, equal code, visit {visit:.1%}, {disturbed:.0%} disturbed"
        yield Cell(name, BUSY_CALL, BUSY_CALL, noise, "PASS", lone=True)
    slower = BUSY_CALL.slower_kernel(KERNEL, share_of_call=_ONE)
    yield Cell(
        "lone, a kernel +1 % of all",
        BUSY_CALL,
        slower,
        CardNoise(visit=0.003),
        KERNEL,
        lone=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gates", type=int, default=1000, help="gates of each cell")
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="processes at a time",
    )
    parser.add_argument(
        "--cell", default="", help="only cells whose name contains this"
    )
    options = parser.parse_args()
    missed = 0
    with ProcessPoolExecutor(options.jobs) as executor:
        for cell in cells():
            if options.cell not in cell.name:
                continue
            ends = Counter(
                executor.map(
                    partial(end_of_gate, cell), range(options.gates), chunksize=5
                )
            )
            reached = is_reached(cell, ends, options.gates)
            missed += not reached
            shares = ", ".join(
                f"{end} {count / options.gates:.1%}"
                for end, count in ends.most_common()
            )
            print(
                f"{cell.name:55} {shares}{'' if reached else '  (missed)'}", flush=True
            )
    return int(missed > 0)


def end_of_gate(cell: Cell, seed: int) -> str:
    """The verdict of a gate, or the kernel that it names."""
    decision = CardGate(
        cell.base, cell.head, cell.noise, seed=seed, lone=cell.lone
    ).decide()
    return KERNEL if KERNEL in _named(decision) else decision.verdict


def _named(decision: DecisionDocument) -> set[str]:
    """The causes of what failed the gate."""
    failing = [
        row for row in decision.comparisons if row.gating and row.outcome == "regressed"
    ]
    return {
        decision.explained.causes[row.cause].op
        for row in failing
        if row.cause is not None
    }


def is_reached(cell: Cell, ends: Counter[str], gates: int) -> bool:
    enough = ends[cell.goal] >= math.floor(0.95 * gates)
    fails = ends["FAIL"] + ends[KERNEL]
    return enough and (cell.goal != "PASS" or fails <= math.ceil(0.01 * gates))


if __name__ == "__main__":
    sys.exit(main())
