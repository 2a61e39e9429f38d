"""What a job of many ranks costs `perfgate trace ranks`.

    python benchmarks/trace/ranks.py --ranks 200 --kernels 330

Every rank has the folder of torch_npu.profiler: tables of steps, kernels, collectives
and links, and a timeline of some 8 MB. Seconds on the clock of as many CPUs as there
are, and CPU seconds. No bound is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STEPS, COLLECTIVES = 8, 12
SLOW = 5  # the rank that computes a quarter longer in the later half of each step
KERNEL_HEADER = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us)\n"
STEP_HEADER = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,Preparing\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=200)
    parser.add_argument(
        "--kernels", type=int, default=330, help="between two collectives"
    )
    parser.add_argument(
        "--no-tables",
        action="store_true",
        help="leave out the tables of kernels: timelines are read",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "job"
        write_job(folder, options.ranks, options.kernels, tables=not options.no_tables)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(
            f"{options.ranks} ranks, {size / 1e6 / options.ranks:.1f} MB each, {os.cpu_count()} CPUs"
        )
        begun, before = time.perf_counter(), os.times()
        command = [
            sys.executable,
            "-m",
            "perfgate",
            "trace",
            "ranks",
            str(folder),
            "--json",
        ]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        )
        after = os.times()
        cpu = (
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
        slow = [row["rank"] for row in json.loads(done.stdout)["slow_ranks"]]
        print(f"{time.perf_counter() - begun:8.2f} s{cpu:8.2f} CPU s   slow: {slow}")


def write_job(folder: Path, ranks: int, kernels: int, *, tables: bool) -> None:
    """All ranks end every collective together; the clock of each is somewhere within
    ten seconds.
    """
    lot = random.Random(1)
    works = [
        [
            [
                1000
                * lot.uniform(0.98, 1.02)
                * (1.25 if rank == SLOW and number >= COLLECTIVES // 2 else 1)
                for rank in range(ranks)
            ]
            for number in range(COLLECTIVES)
        ]
        for _ in range(STEPS)
    ]
    for rank in range(ranks):
        output = (
            folder
            / f"host_{rank}_20251101000000000_ascend_pt"
            / "ASCEND_PROFILER_OUTPUT"
        )
        output.mkdir(parents=True)
        (output.parent / f"profiler_info_{rank}.json").write_text(
            json.dumps({"rank_id": rank})
        )
        write_rank(
            output, rank, works, kernels, 1.7e15 + lot.uniform(0, 1e7), tables=tables
        )
    if shutil.disk_usage(folder).free < 1 << 28:
        raise SystemExit("the disk is nearly full; choose fewer ranks")


def write_rank(
    output: Path,
    rank: int,
    works: list[list[list[float]]],
    kernels: int,
    at: float,
    *,
    tables: bool,
) -> None:
    """The files of one rank, whose clock shows ``at`` microseconds in the beginning."""
    rows: list[tuple[int, str, str, float, float]] = []
    steps = [STEP_HEADER]
    collectives: dict[str, Any] = {}
    for step, parts in enumerate(works):
        own = 0.0
        for number, work in enumerate(parts):
            each, elapsed = work[rank] / kernels, max(work) + 300 - work[rank]
            rows += [
                (
                    step,
                    "aclnnMatmul_MatMulCommon_MatMulV2",
                    "AI_CORE",
                    at + each * one,
                    each * 0.95,
                )
                for one in range(kernels)
            ]
            rows.append(
                (
                    step,
                    f"hcom_allReduce__586_{number}_1",
                    "HCCL",
                    at + work[rank],
                    elapsed,
                )
            )
            times = {
                "Start Timestamp(us)": at + work[rank],
                "Elapse Time(ms)": elapsed / 1000,
                "Wait Time(ms)": 0.1,
            }
            operation = {
                "Communication Time Info": times,
                "Communication Bandwidth Info": {},
            }
            entry = collectives.setdefault(f"step{step}", {"p2p": {}, "collective": {}})
            entry["collective"][f"hcom_allReduce__586_{number}_1@17"] = operation
            own += work[rank]
            at += work[rank] + elapsed
        steps.append(f"{step},{own * 0.95},0,0,0,{own * 0.05},0,0,0\n")
    (output / "step_trace_time.csv").write_text("".join(steps))
    (output / "communication.json").write_text(json.dumps(collectives))
    if tables:
        lines = (
            f"{step},{name},MatMulV2,{core},{start:.3f},{length:.3f}\n"
            for step, name, core, start, length in rows
        )
        (output / "kernel_details.csv").write_text(KERNEL_HEADER + "".join(lines))
    events: list[dict[str, object]] = [
        {
            "ph": "M",
            "pid": 1,
            "name": "process_name",
            "args": {"name": "Ascend Hardware"},
        },
        {
            "ph": "M",
            "pid": 2,
            "name": "process_name",
            "args": {"name": "Communication"},
        },
    ]
    events += [
        {
            "ph": "X",
            "name": name,
            "pid": 2 if core == "HCCL" else 1,
            "tid": 2,
            "ts": f"{start:.3f}",
            "dur": round(length, 3),
            "args": {
                "Task Type": core,
                "Stream Id": 2,
                "Task Id": task,
                "connection_id": task,
            },
        }
        for task, (_, name, core, start, length) in enumerate(rows)
    ]
    (output / "trace_view.json").write_text(json.dumps(events))


if __name__ == "__main__":
    main()
