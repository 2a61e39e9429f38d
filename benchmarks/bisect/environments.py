"""Bisect real releases of a small dependency, one of which makes a model slower: is the
planted one named?

    python benchmarks/bisect/environments.py --times 4

Needs the package index. The model is four operators in a hundred slower with attrs from
a release on, which differs from search to search. With ``--releases`` perfgate asks the
index for the releases between both ends itself. One line of JSON a search goes to
--out; the exit code is 0 if each planted release was named.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from history import OPERATORS, SETTINGS, WORKLOAD, commit_all

VERSIONS = ["23.1.0", "23.2.0", "24.2.0", "25.1.0"]
MODEL = """
import importlib.metadata

import torch

SLOW = importlib.metadata.version("attrs") in {slow}


class Net(torch.nn.Module):
    def forward(self, x):
        for _ in range({slower} if SLOW else {operators}):
            x = x + 1
        return x
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument(
        "--releases",
        action="store_true",
        help="all releases between the ends, as the index has them",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("perfgate-out/bisect-environments.jsonl")
    )
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    right = 0
    with options.out.open("a", encoding="utf-8") as out:
        for number in range(options.times):
            record = _search(
                1 + number % (len(VERSIONS) - 1), releases=options.releases
            )
            print(json.dumps(record), file=out, flush=True)
            print(record, flush=True)
            right += record["right"]
    print(f"right {right} of {options.times}")
    return 0 if right == options.times else 1


def _search(first_slow: int, *, releases: bool) -> dict[str, Any]:
    between = (
        f"attrs=={VERSIONS[0]}..{VERSIONS[-1]}"
        if releases
        else ", ".join(f"attrs=={one}" for one in VERSIONS)
    )
    with tempfile.TemporaryDirectory(prefix="perfgate-bisect-") as scratch:
        root, out = Path(scratch) / "repository", Path(scratch) / "out"
        model = MODEL.format(
            slow=VERSIONS[first_slow:],
            slower=round(1.04 * OPERATORS),
            operators=OPERATORS,
        )
        config = f'project = "scratch"\ndevice = "cpu"\nworkload = "perf/workload.py:net"\n{SETTINGS["operators"]}'
        commit_all(
            root,
            {"model.py": model, "perf/workload.py": WORKLOAD, "perfgate.toml": config},
        )
        began = time.monotonic()
        command = [
            sys.executable,
            "-m",
            "perfgate",
            "bisect",
            "--between",
            between,
            "--out",
            str(out),
        ]
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, check=False
        )
        written = out / "bisection.json"
        document = json.loads(written.read_text()) if written.exists() else None
    record = {
        "between": between,
        "planted": VERSIONS[first_slow],
        "seconds": round(time.monotonic() - began, 1),
    }
    if document is None:
        return {**record, "right": False, "outcome": done.stderr[-300:]}
    named = [
        document["changes"][change]["after"]
        for block in document["culprits"]
        for change in block
    ]
    gates = sum(
        1 + trial["repeated"]
        for trial in document["tried"]
        if trial["answered_by"] == "gate"
    )
    is_right = [name.removeprefix("attrs==") for name in named] == [
        VERSIONS[first_slow]
    ]
    return {
        **record,
        "right": is_right,
        "named": named,
        "gates": gates,
        "outcome": document["outcome"],
    }


if __name__ == "__main__":
    sys.exit(main())
