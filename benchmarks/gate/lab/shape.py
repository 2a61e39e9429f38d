"""What a pair would have said with fewer quads, shorter blocks or another statistic,
from the raw samples of a series.

    python benchmarks/gate/lab/shape.py perfgate-out/bias.jsonl --condition "as shipped"

Cutting a recorded pair short keeps its luck with memory, so shapes are compared on the
same processes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from table import LOW_QUANTILES, robust_sd

from perfgate.document.samples import Replicate, unpack

Floats = npt.NDArray[np.float64]
Quads = list[list[Floats]]  # per quad the calls of its two blocks, in seconds

QUADS = (1, 2, 3, 4, 6, 8, 10)
BLOCK_SHARES = (1.0, 0.5, 0.25)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("series", type=Path, nargs="+")
    parser.add_argument("--condition", action="append")
    options = parser.parse_args()
    pairs = list(_pairs(options.series, options.condition))
    for workload in dict.fromkeys(record["workload"] for record, _, _ in pairs):
        mine = [
            (base, head)
            for record, base, head in pairs
            if record["workload"] == workload
        ]
        print(f"{workload}, {len(mine)} pairs: robust sd % of the effect")
        print("  quads             " + " ".join(f"{count:6}" for count in QUADS))
        for share in BLOCK_SHARES:
            row = [_sd(mine, low, quads=count, share=share) for count in QUADS]
            print(
                f"  low, {share:4.0%} of blocks"
                + " ".join(f"{100 * one:6.2f}" for one in row)
            )
        for name, statistic in {
            "mean of quads": by_quad(np.mean),
            "median of quads": by_quad(np.median),
        }.items():
            row = [_sd(mine, statistic, quads=count, share=1.0) for count in QUADS]
            print(f"  {name:18}" + " ".join(f"{100 * one:6.2f}" for one in row))


def low(base: Quads, head: Quads) -> float:
    """Return the product's effect: mean of the log low quantiles over all calls."""
    return _low(np.concatenate([call for quad in head for call in quad])) - _low(
        np.concatenate([call for quad in base for call in quad])
    )


def by_quad(centre: Callable[[Any], Any]) -> Callable[[Quads, Quads], float]:
    """Return the statistic that takes the effect of every quad by itself and then their
    centre.
    """

    def effect(base: Quads, head: Quads) -> float:
        each = [
            _low(np.concatenate(second)) - _low(np.concatenate(first))
            for first, second in zip(base, head)
        ]
        return float(centre(each))

    return effect


def _sd(
    pairs: list[tuple[Quads, Quads]],
    statistic: Callable[[Quads, Quads], float],
    *,
    quads: int,
    share: float,
) -> float:
    def cut(side: Quads) -> Quads:
        return [
            [block[: max(3, int(share * block.size))] for block in quad]
            for quad in side[:quads]
        ]

    return robust_sd(
        np.array([statistic(cut(base), cut(head)) for base, head in pairs])
    )


def _low(calls: Floats) -> float:
    return float(np.mean(np.log(np.quantile(calls, LOW_QUANTILES))))


def _pairs(
    series: list[Path], conditions: list[str] | None
) -> Iterator[tuple[dict[str, Any], Quads, Quads]]:
    for path in series:
        records = [json.loads(line) for line in path.read_text().splitlines()]
        wanted = {
            one["pair"]: one
            for one in records
            if not conditions or one["condition"] in conditions
        }
        with path.with_suffix(".raw.jsonl").open("rb") as lines:
            for line in lines:
                number = json.loads(line[:40].split(b",")[0] + b"}")["pair"]
                if number in wanted and "failed" not in wanted[number]:
                    sides = msgspec.convert(
                        msgspec.json.decode(line)["sides"], list[Replicate]
                    )
                    yield (wanted[number], *(_quads(side) for side in sides))


def _quads(side: Replicate) -> Quads:
    blocks = side.shapes["default"]
    calls = np.split(unpack(blocks.times.wall) / 1e9, np.cumsum(blocks.calls)[:-1])
    found: Quads = [[] for _ in range(max(blocks.quad) + 1)]
    for quad, block in zip(blocks.quad, calls):
        found[quad].append(block)
    return found


if __name__ == "__main__":
    main()
