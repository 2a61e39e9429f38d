"""Bisect scratch repositories of 200 commits with one regression of 4 %: how often is
the answer right, after how many builds?

    python benchmarks/bisect/commits.py --times 20
    python benchmarks/bisect/commits.py --times 5 --cause time
    python benchmarks/bisect/commits.py --table bisect.jsonl

Each search is a whole `perfgate bisect` in a repository of its own: 30 of the 200
commits are broken, noisy or irrelevant. The regression is four more operators in a
hundred, which exact counters show, or with ``--cause time`` 4 % more rounds of a loop
in C that only the clock shows. An answer is right if it is the planted commit, or a row
of broken ones that ends with it. A build is a commit that was gated, counted or could
not be; the goal is 1.5 log2(n). One line of JSON a search goes to --out, with its clock
and CPU time and the load of the machine. The exit code is 0 if every answer was right
within the goal.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from history import History, make_history


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--cause", choices=["operators", "time"], default="operators")
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument(
        "--special",
        type=int,
        default=30,
        help="broken, noisy and irrelevant ones among them",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="of the first repository; each next one has the next number",
    )
    parser.add_argument("--out", type=Path, default=Path("perfgate-out/bisect.jsonl"))
    parser.add_argument(
        "--table",
        type=Path,
        metavar="FILE",
        help="only print the table of an earlier --out",
    )
    options = parser.parse_args()
    if options.table is None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with options.out.open("a", encoding="utf-8") as out:
            for seed in range(options.seed, options.seed + options.times):
                record = _search(seed, options)
                print(json.dumps(record), file=out, flush=True)
                print(_line(record), flush=True)
    return _report(options.table or options.out)


def _search(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="perfgate-bisect-") as scratch:
        folder = Path(scratch)
        history = make_history(
            folder / "repository",
            options.cause,
            count=options.commits,
            special=options.special,
            seed=seed,
        )
        out, began = folder / "out", time.monotonic()
        command = [
            sys.executable,
            "-m",
            "perfgate",
            "bisect",
            "--good",
            history.commits[0],
            "--out",
            str(out),
        ]
        environment = {**os.environ, "PERFGATE_STORE": str(folder / "store.db")}
        load, cpu = os.getloadavg()[1], _cpu_seconds()
        done = subprocess.run(
            command,
            cwd=history.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds, cpu = time.monotonic() - began, _cpu_seconds() - cpu
        load = (load + os.getloadavg()[1]) / 2
        written = out / "bisection.json"
        document = json.loads(written.read_text()) if written.exists() else None
    found = {
        "seed": seed,
        "cause": options.cause,
        "seconds": round(seconds, 1),
        "cpu": round(cpu, 1),
        "load": round(load, 1),
        "code": done.returncode,
    }
    if document is None:
        return {
            **found,
            "right": False,
            "builds": 0,
            "gates": 0,
            "outcome": done.stderr[-300:],
        }
    return {
        **found,
        **_judged(document, history),
        "goal": round(1.5 * math.log2(options.commits), 1),
    }


def _cpu_seconds() -> float:
    """The CPU time of all processes of the searches that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _judged(document: dict[str, Any], history: History) -> dict[str, Any]:
    at = {commit: place for place, commit in enumerate(history.commits)}
    places = [
        [at[document["changes"][change]["commit"]] for change in block]
        for block in document["culprits"]
    ]
    named = places[0] if places else []
    others = {history.kinds[place] for place in named if place != history.culprit}
    # Of a broken commit nobody can tell whether it was slow already.
    right = (
        document["outcome"] == "found"
        and history.culprit in named
        and others <= {"broken"}
    )
    by = {"gate", "count"}
    built = {
        max(trial["changes"])
        for trial in document["tried"]
        if trial["answered_by"] in by or trial["reason"]
    }
    trials = [
        *document["tried"],
        *([document["confirmation"]] if document["confirmation"] else []),
    ]
    return {
        "right": right,
        "outcome": document["outcome"],
        "culprit": history.culprit,
        "named": named,
        "builds": len(built) + 1,
        "gates": sum(
            1 + trial["repeated"] for trial in trials if trial["answered_by"] == "gate"
        ),
        "counts": sum(trial["answered_by"] == "count" for trial in document["tried"]),
        "skipped": sum(trial["answer"] == "impossible" for trial in document["tried"]),
        "irrelevant": document["irrelevant"],
        "error": document["error"],
    }


def _line(record: dict[str, Any]) -> str:
    word = (
        "right"
        if record["right"]
        else "WRONG"
        if record["outcome"] == "found"
        else record["outcome"]
    )
    return (
        f"{record['seed']:4} {record['cause']:10} {word:10} {record['builds']:3} builds {record['gates']:3} gates "
        f"{record.get('counts', 0):3} counts {record.get('skipped', 0):2} skipped {record['seconds']:7.1f} s, "
        f"{record['cpu']:.0f} s of CPU at load {record['load']:g}"
    )


def _report(out: Path) -> int:
    records = [
        json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()
    ]
    good = True
    for cause in sorted({record["cause"] for record in records}):
        mine = [record for record in records if record["cause"] == cause]
        right = sum(record["right"] for record in mine)
        within = sum(record["builds"] <= record.get("goal", 0) for record in mine)
        builds = [record["builds"] for record in mine]
        print(
            f"{cause}: right {right} of {len(mine)}, wrong {sum(one['outcome'] == 'found' for one in mine) - right}; "
            f"builds {min(builds)} to {max(builds)}, median {statistics.median(builds):g}, within the goal {within} of "
            f"{len(mine)}; median {statistics.median(record['seconds'] for record in mine):.0f} s, "
            f"{statistics.median(record['cpu'] for record in mine):.0f} s of CPU"
        )
        good &= right == within == len(mine)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
