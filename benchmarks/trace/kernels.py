"""What a table of kernels of a million rows costs: `perfgate trace top` beside polars
and the csv module, in turns.

    python benchmarks/trace/kernels.py --rows 1000000

Each is a process of its own that says how long the kernels of each type took. polars
has to be installed by hand and is left out where it is not. Ratios within one run are
the result. No bound is asserted.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import tempfile
from pathlib import Path

from cost import TRACE, Command, cheapest

HEADER = (
    "Step Id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,"
    "Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,"
    "Context ID,aicore_time(us),aic_total_cycles,aic_mac_time(us),aic_mac_ratio,aiv_time(us),aiv_total_cycles,aiv_vec_time(us)"
)
WAYS = {
    "polars": """
import sys, polars
table = polars.read_csv(sys.argv[1], infer_schema_length=1000, null_values=["N/A"], ignore_errors=True)
print(table.group_by("Type").agg(polars.col("Duration(us)").sum(), polars.len()).sort("Duration(us)"))
""",
    "polars, lazy": """
import sys, polars
table = polars.scan_csv(sys.argv[1], infer_schema_length=1000, null_values=["N/A"], ignore_errors=True)
print(table.group_by("Type").agg(polars.col("Duration(us)").sum(), polars.len()).sort("Duration(us)").collect())
""",
    "csv": """
import csv, sys
from collections import defaultdict
totals = defaultdict(float)
with open(sys.argv[1], newline="") as stream:
    for row in csv.DictReader(stream):
        totals[row["Type"]] += float(row["Duration(us)"])
print(dict(totals))
""",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
        path.parent.mkdir()
        write_kernels(path, options.rows)
        ways = [
            way
            for way in WAYS
            if not way.startswith("polars") or importlib.util.find_spec("polars")
        ]
        commands: dict[str, Command] = {
            way: [sys.executable, "-c", WAYS[way], path] for way in ways
        }
        costs = cheapest(
            {"perfgate": [*TRACE, "top", path.parent], **commands}, options.turns
        )
        size, ours = path.stat().st_size, costs["perfgate"].cpu_seconds
        print(
            f"{options.rows:,} rows, {size / 1e6:.0f} MB\n{'':12}{'CPU s':>8}{'perfgate/it':>13}{'memory/file':>13}"
        )
        for way, (seconds, memory, _) in costs.items():
            print(f"{way:12}{seconds:8.2f}{ours / seconds:13.2f}{memory / size:13.2f}")


def write_kernels(path: Path, rows: int) -> None:
    """A table as torch_npu writes it with PipeUtilization: eight types, forty forms of
    inputs, a time for each row.
    """
    draw = random.Random(7)
    forms = [
        f'"""{draw.choice((1, 8, 32))},{64 * n};{64 * n},4096""",BF16;BF16,ND;ND,"""8,4096""",BF16,ND'
        for n in range(1, 41)
    ]
    types = (
        "MatMulV2",
        "Add",
        "Mul",
        "Cast",
        "TransData",
        "SoftmaxV2",
        "LayerNormV4",
        "FlashAttentionScore",
    )
    start = 1_764_000_000_000_000_000
    with path.open("w") as stream:
        stream.write(HEADER + "\n")
        for number in range(rows):
            kind = types[number % len(types)]
            duration = draw.randrange(2_000, 400_000)
            core = "MIX_AIC" if kind == "FlashAttentionScore" else "AI_CORE"
            stream.write(
                f"{number // 5000},4294967295,{number % 65536},2,aclnn{kind}_{number % 50},{kind},{core},"
                f"{start // 1000}.{start % 1000:03}\t,{duration // 1000}.{duration % 1000:03},"
                f"{draw.randrange(9000) / 1000},24,0,NO,{forms[number % 40]},N/A,{duration * 0.0009:.3f},{duration * 2},"
                f"{duration * 0.0004:.3f},{draw.random():.4f},{duration * 0.0001:.3f},{duration},{duration * 0.00005:.3f}\n"
            )
            start += duration + draw.randrange(20, 3_000)


if __name__ == "__main__":
    main()
