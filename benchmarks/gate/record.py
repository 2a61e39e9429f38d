"""Record pairs of the lab's models as the gate measures them, by server and layout, for
the yardstick.

    python benchmarks/gate/record.py --out perfgate-out/live
    python benchmarks/gate/record.py --out perfgate-out/live --load 3 --servers 5
    python benchmarks/gate/yardstick.py --recordings perfgate-out/live --sets live

Every server runs some pairs of every workload. The head is a variant that differs in
code and not in speed, the same on every fifth server. A file holds what one server saw
of one shape (or of its preprocessing), in the columns that recordings.py reads, and is
written when the server is done, so an interrupted series keeps the servers before.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "lab"))

from models import SOURCES
from neighbours import running
from workloads import write_checkouts, write_harness

from perfgate.conductor.sides.function.pairs import measure_pairs
from perfgate.conductor.sides.function.workload import PairedMeasurement, WorkloadSides
from perfgate.conductor.workers.bench import Bench, open_bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.config import (
    Config,
    GateSettings,
    MeasureSettings,
    StoreSettings,
    WorkloadReference,
)
from perfgate.document.samples import BlockColumns, Replicate, unpack

# The ten that the table in docs/deciding.md is about; the lab has more.
WORKLOADS = (
    "ewise",
    "conv",
    "tiny",
    "prefill",
    "decode",
    "lstm",
    "unet",
    "images",
    "python",
    "lengths",
)
HEADS = (1, 3, 5, 7, 8)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the .npz files"
    )
    parser.add_argument(
        "--workload",
        action="append",
        choices=sorted(SOURCES),
        help="default: ten of them",
    )
    parser.add_argument("--servers", type=int, default=20)
    parser.add_argument(
        "--pairs", type=int, default=10, help="pairs of a workload on a server"
    )
    parser.add_argument(
        "--load",
        type=int,
        default=0,
        help="other processes that are runnable meanwhile",
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    name = f"live-load{options.load}" if options.load else "live"
    done = len(
        {
            path.stem.rpartition("-pass")[2]
            for path in options.out.glob(f"{name}-*-pass*.npz")
        }
    )
    with (
        tempfile.TemporaryDirectory(prefix="perfgate-record-") as scratch,
        running(options.load),
    ):
        config = _config(Path(scratch), options.pairs)
        with open_bench(
            config, logs=Path(scratch) / "logs", say=lambda _: None
        ) as bench:
            # A file is what one server saw.
            bench.servers.start_next = lambda *_, **__: None  # type: ignore[method-assign]
            for server in range(done, options.servers):
                bench.servers.redraw(hash_seed=server + 1)
                for workload in options.workload or WORKLOADS:
                    _record(bench, Path(scratch), workload, server, options.out / name)
    return 0


def _record(bench: Bench, scratch: Path, workload: str, server: int, out: Path) -> None:
    """Measure the pairs of one workload on the running server, and write a file for
    each shape.
    """
    roots = scratch / workload
    if not roots.exists():
        write_checkouts(roots, workload, seed=1)
        write_harness(roots / "harness", workload)
    variant = HEADS[server % len(HEADS)]
    base, head = (
        Checkout(root=roots / f"{workload}-{number}", harness=roots / "harness")
        for number in (0, variant)
    )
    measured = PairedMeasurement()
    started = time.perf_counter()
    reference = WorkloadReference(workload, "workload.py", "workload")
    measure_pairs(
        WorkloadSides(bench, reference, base, head, measured),
        looks=bench.config.gate.looks,
        is_decided=lambda: True,
        needs_names=lambda: False,
        draw=server,
        budget_ends=None,
        first=0,
        traces=None,
        sizes=None,
    )
    each = (time.perf_counter() - started) / max(1, len(measured.base))
    for failed in measured.failed:
        print(f"{workload}, server {server}: {failed.error.message}", file=sys.stderr)
    lanes = {
        f"{workload}_{shape}".removesuffix("_default"): [
            (one.shapes[shape], two.shapes[shape]) for one, two in _pairs(measured)
        ]
        for shape in measured.base[0].shapes
    } | {
        f"{workload}_preprocess": [
            (one.preprocess[shape], two.preprocess[shape])
            for one, two in _pairs(measured)
        ]
        for shape in measured.base[0].preprocess
    }
    for name, pairs in lanes.items():
        np.savez_compressed(
            f"{out}-{name}-pass{server:02}.npz",
            **_columns(pairs, seconds=each, variant=variant),
        )
    print(
        f"server {server + 1}: {workload}, {len(measured.base)} pairs of {each:.2f} s",
        flush=True,
    )


def _pairs(measured: PairedMeasurement) -> Iterator[tuple[Replicate, Replicate]]:
    return zip(measured.base, measured.head)


def _columns(
    pairs: list[tuple[BlockColumns, BlockColumns]], *, seconds: float, variant: int
) -> dict[str, Any]:
    """Return the blocks of all pairs: a row a block, the calls of all of them in the
    same order.
    """
    blocks = [
        (number, side, one)
        for number, pair in enumerate(pairs)
        for side, one in enumerate(pair)
    ]
    counts = [len(one.calls) for _, _, one in blocks]
    return {
        "b_pair": np.repeat([number for number, _, _ in blocks], counts),
        "b_side": np.repeat([side for _, side, _ in blocks], counts),
        "b_quad": np.concatenate([one.quad for _, _, one in blocks]),
        "b_n": np.concatenate([one.calls for _, _, one in blocks]),
        "b_t0": np.concatenate([one.worker.start_ns for _, _, one in blocks]),
        "b_t1": np.concatenate([one.worker.end_ns for _, _, one in blocks]),
        "wall": np.concatenate([unpack(one.times.wall) for _, _, one in blocks]),
        "cpu": np.concatenate([unpack(one.times.cpu) for _, _, one in blocks]),
        "pair_seconds": np.full(len(pairs), seconds),
        "variant": np.full(len(pairs), variant),
    }


def _config(root: Path, pairs: int) -> Config:
    return Config(
        root=root,
        project="lab",
        device="cpu",
        measure=MeasureSettings(),
        gate=GateSettings(looks=[pairs], aa_pairs=0),
        store=StoreSettings(),
    )


if __name__ == "__main__":
    sys.exit(main())
