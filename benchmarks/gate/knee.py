"""Do three runs of one commit agree on the batch knee within one size?

    python benchmarks/gate/knee.py --times 20 --out knee.jsonl
    python benchmarks/gate/knee.py --project decoder --project vision -- --quick
    python benchmarks/gate/knee.py --table knee.jsonl

Step 5 of ``perfgate run`` three times a project, in new processes. A run shows one size, or only a range of sizes in which the
knee lies. Runs agree if a size and its double cover a part of what each of them shows. The exit code is 0 if 19 of 20 do.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "mistakes"))

from gate_mistakes import PROJECTS, SETTINGS

RUNS = 3
AGREEING_SHARE = 0.95
# From the earliest size that may be the knee to the one shown to be fast enough; infinite if none was.
Range = tuple[float, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(path.name for path in PROJECTS.iterdir())
    parser.add_argument("--project", action="append", choices=names, help="default: all")
    parser.add_argument("--times", type=int, default=1, help="three runs of each project so many times")
    parser.add_argument("--out", type=Path, help="add a line of JSON for three runs to this file")
    parser.add_argument("--table", type=Path, help="only print the table of an earlier --out")
    parser.add_argument("arguments", nargs="*", help="further arguments of perfgate run, after --")
    options = parser.parse_args()
    if options.table:
        return print_table([json.loads(line) for line in options.table.read_text().splitlines()])
    records = []
    for _ in range(options.times):
        for name in options.project or names:
            knees = [knee_of_run(name, options.arguments) for _ in range(RUNS)]
            records.append({"project": name, "knees": knees})
            print(name, *map(shown, knees), "agree" if agree(knees) else "differ", flush=True)
            if options.out:
                options.out.parent.mkdir(parents=True, exist_ok=True)
                with options.out.open("a") as out:
                    print(json.dumps(records[-1]), file=out)
    return print_table(records)


def knee_of_run(project: str, arguments: Sequence[str]) -> Range | None:
    """The range of the knee; None where the model takes one batch size alone."""
    with tempfile.TemporaryDirectory(prefix="perfgate-knee-") as scratch:
        root, out = Path(scratch, "project"), Path(scratch, "out")
        shutil.copytree(PROJECTS / project, root, ignore=shutil.ignore_patterns("__pycache__"))
        workload = re.search(r"^(\w+) = Workload", (root / "perf.py").read_text(), re.MULTILINE)
        assert workload is not None, project
        (root / "perfgate.toml").write_text(SETTINGS.format(project, workload[1]))
        command = [sys.executable, "-m", "perfgate", "run", "--steps", "5", "--out", str(out), *arguments]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if not (out / "run.json").exists():
            raise SystemExit(f"{project}: {done.stderr}")
        (step,) = json.loads((out / "run.json").read_text())["steps"]
    return range_of(step)


def range_of(step: dict[str, Any]) -> Range | None:
    knee = next((value for value in step["values"] if value["metric"] == "batch.knee"), None)
    if knee is None:
        return None
    if knee.get("value") is not None:
        return knee["value"], knee["value"]
    between = knee["reason"].get("values", {})
    if "shown" in between:
        return float(between["earliest"]), float(between["shown"])
    sizes = [int(value["labels"]["batch"]) for value in step["values"] if value["metric"] == "batch.throughput"]
    return float(max(sizes)), math.inf


def agree(knees: Iterable[Range | None]) -> bool:
    ranges = [knee for knee in knees if knee is not None]
    return max((low for low, _ in ranges), default=0.0) <= 2 * min((high for _, high in ranges), default=math.inf)


def shown(knee: Range | None) -> str:
    if knee is None:
        return "–"
    low, high = knee
    return f"{low:.0f}" if low == high else f"above {low:.0f}" if high == math.inf else f"{low:.0f} to {high:.0f}"


def print_table(records: Iterable[dict[str, Any]]) -> int:
    """Print a row for each project; return the exit code."""
    by_project: dict[str, list[list[Range | None]]] = defaultdict(list)
    for record in records:
        by_project[record["project"]].append(record["knees"])
    agreeing = total = 0
    print(f"\n{'project':10} {'agree':>10} {'one size':>10}  shown")
    for name, runs in by_project.items():
        alike = sum(map(agree, runs))
        knees = [knee for of_three in runs for knee in of_three if knee is not None]
        single = sum(low == high for low, high in knees)
        every = sorted({(low, high) for low, high in knees})
        agreeing, total = agreeing + alike, total + len(runs)
        print(
            f"{name:10} {alike:3} of {len(runs):<3} {single:3} of {len(knees):<3}  {', '.join(map(shown, every)) or '–'}"
        )
    print(f"three runs agree in {agreeing} of {total}")
    return 0 if total and agreeing >= AGREEING_SHARE * total else 1


if __name__ == "__main__":
    sys.exit(main())
