"""Gate a served model again and again: how often equal code fails, and how often a
slowdown is found.

    python benchmarks/jobs/serve.py --change rename --times 20
    python benchmarks/jobs/serve.py --change layer --times 20

Beside each gate stands what one would have believed who measures base wholly and then
head, as a nightly job does: the base of the first half of the starts against the head
of the second half, from the very same turns.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TPOT = "serving.tpot"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--change", default="rename", help="a change of examples/serving"
    )
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args()
    verdicts: Counter[str] = Counter()
    believed = []
    print("verdict        seconds  quads  interleaved  base, then head  regressed")
    for _ in range(options.times):
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            command = [
                sys.executable,
                str(ROOT / "examples" / "gate.py"),
                "serving",
                options.change,
                "--always",
            ]
            subprocess.run(command, cwd=folder, capture_output=True, check=False)
            seconds = time.monotonic() - began
            out = Path(folder) / "perfgate-out" / "serving" / options.change
            decision = json.loads((out / "decision.json").read_text())
            base, head = (
                json.loads((out / side / "run.json").read_text())["jobs"]["turns"]
                for side in ("base", "head")
            )
        verdicts[decision["verdict"]] += 1
        found = {one["metric"]: one for one in decision["comparisons"]}
        regressed = [
            name
            for name, one in found.items()
            if one["gating"] and one["outcome"] == "regressed"
        ]
        believed.append(one_after_the_other(base, head))
        delta = found[TPOT]["delta"] if TPOT in found else math.nan
        print(
            f"{decision['verdict']:13} {seconds:8.0f} {1 + base[-1]['quad']:6} {delta:+12.1%} {believed[-1]:+16.1%}  "
            f"{', '.join(regressed)}",
            flush=True,
        )
    spread = statistics.stdev(believed) if len(believed) > 1 else math.nan
    print(f"{dict(verdicts)}; base, then head spreads by {spread:.1%}")


def one_after_the_other(
    base: list[dict[str, Any]], head: list[dict[str, Any]]
) -> float:
    """The change of the time per token that the base of the first starts and the head
    of the last ones show.
    """
    starts = sorted({turn["start"] for turn in base})
    first = set(starts[: max(1, len(starts) // 2)])
    before = [math.log(turn["values"][TPOT]) for turn in base if turn["start"] in first]
    after = [
        math.log(turn["values"][TPOT]) for turn in head if turn["start"] not in first
    ]
    return (
        math.expm1(statistics.fmean(after) - statistics.fmean(before))
        if before and after
        else math.nan
    )


if __name__ == "__main__":
    main()
