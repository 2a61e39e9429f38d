"""What `perfgate trace` costs beside other ways to answer the same from one file: CPU seconds and memory, in turns.

Ratios within one run are the result; the seconds depend on the machine. No bound is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from generate import write
from ways import RIVALS

HERE = Path(__file__).resolve().parent


class Cost(NamedTuple):
    cpu_seconds: float
    memory_bytes: int
    answer: dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare ways to read a generated trace.")
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for layout, name in (("kineto", "generated.pt.trace.json"), ("trace_view", "trace_view.json")):
            path = Path(folder) / name
            write(path, layout=layout, events=options.events)
            report(layout, path, options.turns)


def report(layout: str, path: Path, turns: int) -> None:
    """Measure every way in turns and print the lowest cost of each, which others on the machine disturb least."""
    size = path.stat().st_size
    costs: dict[str, list[Cost]] = {rival: [] for rival in RIVALS}
    for _ in range(turns):
        for rival in RIVALS:
            costs[rival].append(cost(rival, path))
    ours = min(one.cpu_seconds for one in costs["perfgate"])
    print(f"{layout}: {size / 1e6:.0f} MB")
    print(f"  {'':10}{'CPU s':>8}{'CPU s/GB':>10}{'perfgate/it':>13}{'memory/file':>13}   gaps   busy us")
    for rival, found in costs.items():
        best = min(found, key=lambda one: one.cpu_seconds)
        print(
            f"  {rival:10}{best.cpu_seconds:8.2f}{best.cpu_seconds / size * 1e9:10.1f}{ours / best.cpu_seconds:13.2f}"
            f"{best.memory_bytes / size:13.1f}   {best.answer['gaps']:<6} {best.answer['busy_us']:.3f}"
        )


def cost(rival: str, path: Path) -> Cost:
    """Run one way in a process of its own."""
    with subprocess.Popen(
        [sys.executable, HERE / "ways.py", rival, path], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        answer = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{rival} failed on {path}")
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, json.loads(answer))


if __name__ == "__main__":
    main()
