"""What recording costs: time per call that a block adds to a bare loop, and bytes per
sample in the run document.

    python benchmarks/gate/recording.py

Both loops run the same call in turns, in this one process, and the fastest turn of each
counts; the cost is a difference of two times measured side by side. A sample is one
call, with its wall time and its CPU time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from perfgate.document.samples import pack
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.timing.blocks import BlockTimes, run_block

TURNS = 200


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=200, help="calls of one turn")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    device = open_device("cpu")
    print(
        f"{'call':24} {'bare':>10} {'recorded':>10} {'cost a sample':>14} {'share':>8} {'B a sample':>11}"
    )
    for name, rows in (
        ("nothing", 0),
        ("matmul of 8 x 64", 8),
        ("matmul of 512 x 256", 512),
        ("matmul of 2048 x 512", 2048),
    ):
        call = _call(torch, rows)
        calls = options.calls if rows < 2048 else options.calls // 10
        bare, recorded, sizes = [], [], []
        for _ in range(TURNS if rows < 2048 else TURNS // 10):
            bare.append(_bare(call, calls))
            block = run_block(call, device, calls=calls)
            recorded.append((block.calls.end_ns - block.calls.start_ns) / calls)
            sizes.append(block)
        cost = min(recorded) - min(bare)
        print(
            f"{name:24} {min(bare) / 1e3:8.2f} µs {min(recorded) / 1e3:8.2f} µs {cost / 1e3:11.2f} µs "
            f"{cost / min(bare):8.2%} {_bytes(sizes):11.2f}"
        )
    return 0


def _call(torch: Any, rows: int) -> Callable[[], Any]:
    if not rows:
        return lambda: None
    width = {8: 64, 512: 256, 2048: 512}[rows]
    left, right = torch.randn(rows, width), torch.randn(width, width)
    return lambda: left @ right


def _bare(call: Callable[[], Any], calls: int) -> float:
    started = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return (time.perf_counter_ns() - started) / calls


def _bytes(blocks: Sequence[BlockTimes]) -> float:
    packed = [
        pack(np.concatenate([getattr(block.calls, clock) for block in blocks]))
        for clock in ("wall", "cpu")
    ]
    return sum(len(msgspec.json.encode(one)) for one in packed) / packed[0].count


if __name__ == "__main__":
    raise SystemExit(main())
