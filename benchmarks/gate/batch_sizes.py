"""Batch sizes inside the pairs: has equal code the same best size on both sides, and is
a mistake resolved at every size?

    python benchmarks/gate/batch_sizes.py --times 2 --out batch.jsonl python
    benchmarks/gate/batch_sizes.py --project vision --project decoder --mistakes 0
    python benchmarks/gate/batch_sizes.py --table batch.jsonl

Every gate is a `perfgate check` of steps 4 and 5 in a git repository of its own.
``equal`` gates a commit that adds an unused function; ``mistake`` gates the demo's,
whose attention runs head by head, so that a larger batch gains less. The exit code is 0
if the best size is the same in 19 of 20 equal gates, an interval in twenty at most
excludes "no change" there, and the mistake is resolved in 9 of 10.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "mistakes"))

from gate_mistakes import PROJECTS, SETTINGS, UNCHANGED, plant

DEMO = Path(__file__).parents[2] / "perfgate" / "demo"
GATE = "\n[gate]\nlooks = [16]\n"
STEPS = ("--steps", "4,5", "--checklist-budget", "1")
SAME_SHARE, EXCLUDING_SHARE, RESOLVED_SHARE = 0.95, 0.05, 0.9
# The mistake counts as resolved if it is at this share of the sizes.
SIZES_SHARE = 0.8


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = sorted(path.name for path in PROJECTS.iterdir())
    parser.add_argument(
        "--project", action="append", choices=names, help="default: all"
    )
    parser.add_argument(
        "--times", type=int, default=2, help="gates of equal code of each project"
    )
    parser.add_argument(
        "--mistakes", type=int, default=10, help="gates of the demo's mistake"
    )
    parser.add_argument(
        "--out", type=Path, help="add a line of JSON for each gate to this file"
    )
    parser.add_argument(
        "--table", type=Path, help="only print the table of an earlier --out"
    )
    options = parser.parse_args()
    if options.table:
        return print_table(
            [json.loads(line) for line in options.table.read_text().splitlines()]
        )
    records: list[dict[str, Any]] = []
    gates = [
        (name, "equal")
        for _ in range(options.times)
        for name in options.project or names
    ]
    gates += [("demo", "mistake")] * options.mistakes
    for name, change in gates:
        with tempfile.TemporaryDirectory(prefix="perfgate-batch-") as scratch:
            record = {"project": name, "change": change, **gate(name, Path(scratch))}
        records.append(record)
        print(
            name,
            change,
            record["best"],
            record["sizes"],
            f"{record['seconds']:.0f} s",
            flush=True,
        )
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            with options.out.open("a") as out:
                print(json.dumps(record), file=out)
    return print_table(records)


def gate(name: str, scratch: Path) -> dict[str, Any]:
    root, out = scratch / "project", scratch / "out"
    if name == "demo":
        _plant_demo(root)
    else:
        (change,) = [change for change in UNCHANGED if change.project == name]
        plant(change, root, SETTINGS + GATE)
    began = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "perfgate",
        "check",
        "--base",
        "HEAD~1",
        "--always",
        "--out",
        str(out),
        *STEPS,
    ]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False
    )
    if not (out / "decision.json").exists():
        raise SystemExit(f"{name}: {done.stdout}{done.stderr}")
    return {
        **sizes_of(json.loads((out / "decision.json").read_text())),
        "seconds": time.monotonic() - began,
    }


def _plant_demo(root: Path) -> None:
    shutil.copytree(DEMO / "main", root)
    (root / "perfgate.toml").write_text((root / "perfgate.toml").read_text() + GATE)
    git = [
        "git",
        "-C",
        str(root),
        "-c",
        "user.name=demo",
        "-c",
        "user.email=demo@example.com",
    ]
    for arguments in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        ["commit", "-qm", "main"],
        ["checkout", "-qb", "change"],
    ):
        subprocess.run([*git, *arguments], check=True)
    shutil.copytree(DEMO / "mistake", root, dirs_exist_ok=True)
    subprocess.run([*git, "commit", "-qam", "mistake"], check=True)


def sizes_of(decision: dict[str, Any]) -> dict[str, Any]:
    """Of step 5: the best size of both sides, and by batch size the interval of the
    difference in throughput.
    """
    rows = [row for row in decision["checklist"]["numbers"] if row["step"] == 5]
    best: dict[str, Any] = next(
        (row for row in rows if row["metric"] == "batch.best"), {}
    )
    sizes: dict[str, Any] = {}
    for row in rows:
        if row["metric"] == "batch.throughput":
            sizes[row["labels"]["batch"]] = (row["difference"] or {}).get("interval")
    is_compared = bool(best.get("difference"))
    return {
        "best": [best.get("base"), best.get("head")],
        "compared": is_compared,
        "sizes": sizes,
    }


def print_table(records: Iterable[dict[str, Any]]) -> int:
    """Print both tables; return the exit code."""
    records = list(records)
    equal = [
        record for record in records if record["change"] == "equal" and record["sizes"]
    ]
    mistakes = [record for record in records if record["change"] == "mistake"]
    one_size = [
        record
        for record in records
        if record["change"] == "equal" and not record["sizes"]
    ]
    same = sum(
        record["compared"] and record["best"][0] == record["best"][1]
        for record in equal
    )
    intervals = [
        interval
        for record in equal
        for interval in record["sizes"].values()
        if interval
    ]
    excluding = sum(not low <= 0 <= high for low, high in intervals)
    resolved = sum(is_resolved(record) for record in mistakes)
    print(
        f"\nequal code: best size compared and the same on both sides in {same} of {len(equal)}"
    )
    print(f"equal code: {excluding} of {len(intervals)} intervals exclude no change")
    print(
        f"equal code: {len(one_size)} gates of models with a fixed batch size or long calls"
    )
    print(f"mistake: resolved in {resolved} of {len(mistakes)}")
    is_right = same >= SAME_SHARE * len(equal) and excluding <= EXCLUDING_SHARE * len(
        intervals
    )
    return (
        0 if records and is_right and resolved >= RESOLVED_SHARE * len(mistakes) else 1
    )


def is_resolved(record: dict[str, Any]) -> bool:
    """Whether throughput fell at most sizes."""
    intervals = [interval for interval in record["sizes"].values() if interval]
    lower = sum(high < 0 for _, high in intervals)
    return bool(intervals) and lower >= SIZES_SHARE * len(intervals)


if __name__ == "__main__":
    sys.exit(main())
