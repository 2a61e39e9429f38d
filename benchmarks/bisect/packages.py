"""Bisect an upgrade of sixteen packages, one of which makes a model slower: is it
named, and after how many gates?

    PYTHONPATH=. python benchmarks/bisect/packages.py --times 10
    PYTHONPATH=. python benchmarks/bisect/packages.py --times 2 --cause time

The packages are wheels made here, which the model imports; pip installs from their
folder alone. The slow one differs from search to search. One line of JSON a search goes
to --out. The exit code is 0 if every planted package was named alone after six trials
at most.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from history import (
    DERIVE,
    OPERATORS,
    ROUNDS,
    SETTINGS,
    SLOWER,
    WORKLOAD,
    Cause,
    commit_all,
)

from tests.fakes.wheels import write_wheel

PACKAGES = [f"part{number:02}" for number in range(16)]
MOST_TRIALS = 6
# Each package does a sixteenth of the model's work, and the slow release so much more
# that the whole call takes 4 % more.
PART = """
import hashlib


def part(x):
    for _ in range({operators}):
        x = x + 1
    {rounds}
    return x
"""
MODEL = """
import torch
{imports}


class Net(torch.nn.Module):
    def forward(self, x):
{calls}
        return x
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--cause", choices=["operators", "time"], default="operators")
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="of the first search; each next one has the next number",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("perfgate-out/bisect-packages.jsonl")
    )
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    right = 0
    with options.out.open("a", encoding="utf-8") as out:
        for seed in range(options.seed, options.seed + options.times):
            record = _search(seed, options.cause)
            print(json.dumps(record), file=out, flush=True)
            print(record, flush=True)
            right += record["right"] and record["trials"] <= MOST_TRIALS
    print(f"right {right} of {options.times}")
    return 0 if right == options.times else 1


def _search(seed: int, cause: Cause) -> dict[str, Any]:
    slow = random.Random(seed).choice(PACKAGES)
    with tempfile.TemporaryDirectory(prefix="perfgate-bisect-") as scratch:
        folder = Path(scratch)
        wheels, root, out = folder / "wheels", folder / "repository", folder / "out"
        _write_wheels(wheels, slow, cause)
        _write_project(root, cause)
        environment = {
            **os.environ,
            "PERFGATE_CACHE": str(folder / "cache"),
            "PERFGATE_STORE": str(folder / "store.db"),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
        }
        began, load = time.monotonic(), os.getloadavg()[1]
        listed = ",".join(f"{package}==2.0" for package in PACKAGES)
        command = [
            sys.executable,
            "-m",
            "perfgate",
            "upgrade",
            "--bisect",
            listed,
            "--out",
            str(out),
        ]
        done = subprocess.run(
            command,
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        written = out / "bisection.json"
        document = json.loads(written.read_text()) if written.exists() else None
    record = {
        "seed": seed,
        "cause": cause,
        "seconds": round(time.monotonic() - began, 1),
        "load": round(load, 1),
    }
    if document is None:
        return {**record, "right": False, "trials": 0, "outcome": done.stderr[-300:]}
    named = [
        document["changes"][change]["package"]
        for block in document["culprits"]
        for change in block
    ]
    answered = [trial["answered_by"] for trial in document["tried"]]
    return {
        **record,
        "right": named == [slow],
        "planted": slow,
        "named": named,
        "outcome": document["outcome"],
        "trials": len(answered),
        "gates": sum(
            1 + trial["repeated"]
            for trial in document["tried"]
            if trial["answered_by"] == "gate"
        ),
        "counts": answered.count("count"),
        "error": document["error"],
    }


def _write_wheels(wheels: Path, slow: str, cause: Cause) -> None:
    operators, rounds = (
        (OPERATORS // len(PACKAGES), 0)
        if cause == "operators"
        else (1, ROUNDS // len(PACKAGES))
    )
    for package in PACKAGES:
        for version in ("1.0", "2.0"):
            # 4 % of all packages' work.
            more = (
                round((SLOWER - 1) * len(PACKAGES) * max(operators, rounds))
                if (package, version) == (slow, "2.0")
                else 0
            )
            of_operators, of_time = (more, 0) if cause == "operators" else (0, more)
            derive = DERIVE.format(rounds=rounds + of_time) if rounds else "pass"
            write_wheel(
                wheels,
                package,
                version,
                PART.format(operators=operators + of_operators, rounds=derive),
            )


def _write_project(root: Path, cause: Cause) -> None:
    imports = "\n".join(f"import {package}" for package in PACKAGES)
    calls = "\n".join(f"        x = {package}.part(x)" for package in PACKAGES)
    old = " ".join(f"{package}==1.0" for package in PACKAGES)
    setup = f'\n[measure]\nsetup = "python -m pip install {old}"\n'
    config = f'project = "scratch"\ndevice = "cpu"\nworkload = "perf/workload.py:net"\n{SETTINGS[cause]}{setup}'
    model = MODEL.format(imports=imports, calls=calls)
    commit_all(
        root, {"model.py": model, "perf/workload.py": WORKLOAD, "perfgate.toml": config}
    )


if __name__ == "__main__":
    sys.exit(main())
