"""Does the checklist of a check show what moved? One change an effect, gated as a whole; the row of its metric must resolve it.

    python benchmarks/gate/effects.py --times 10 --out effects.jsonl
    python benchmarks/gate/effects.py --only knee

A row is resolved where its interval excludes no change on the side that the change moves it to. One line of JSON a gate goes to
--out. The exit code is 0 if every effect was resolved in nine of ten gates.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent / "mistakes"))

from gate_mistakes import commit, git

MODEL = """
import time

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self, width=256, depth=6):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.calls, self.kept, self.table = 0, [], None

    def forward(self, rows):
        self.calls += 1
        # begin
        for layer in self.layers:
            rows = functional.relu(layer(rows))
        # end
        return rows
"""
PERF = """
import torch
from model import Net

from perfgate import Workload


def build(device):
    torch.manual_seed(0)
    return Net().eval().to(device)


def inputs(batch, seed):
    return torch.randn(batch, 256, generator=torch.Generator().manual_seed(seed))


net = Workload(build=build, inputs=inputs, batch=64)
"""
SETTINGS = 'project = "effects"\ndevice = "cpu"\nworkload = "perf.py:net"\n[gate]\nlooks = [16]\n'


class Effect(NamedTuple):
    """What one change puts in place of a line of the model, the metric that shows it and whether it rises."""

    name: str
    metric: str
    rises: bool
    step: int
    old: str
    new: str


BEGIN, END = "        # begin\n", "        # end\n"
LOOP = "            rows = functional.relu(layer(rows))\n"
EFFECTS = (
    Effect("utilization", "utilization.host", False, 2, END, "        time.sleep(2e-4)\n"),
    Effect(
        "p90", "latency.p90", True, 1, END, f"        for layer in self.layers[: 2 * (self.calls % 5 == 0)]:\n{LOOP}"
    ),
    Effect("throughput", "throughput.median", False, 1, END, "        rows[:20].mm(self.layers[0].weight)\n"),
    Effect(
        "first-call",
        "latency.first_call",
        True,
        1,
        BEGIN,
        "        if self.table is None:\n            self.table = torch.randn(20_000).sort().values\n",
    ),
    Effect("kept", "memory.growth", True, 17, BEGIN, "        self.kept.append(torch.zeros(16))\n"),
    Effect(
        "cache",
        "cache.sensitivity",
        True,
        15,
        BEGIN,
        "        if self.table is None:\n            self.table = torch.ones(250_000)\n        self.table.sum()\n",
    ),
    Effect(
        "knee",
        "batch.knee",
        False,
        5,
        BEGIN,
        "        for row in rows:\n            row.add_(0)\n            row.mul_(1)\n",
    ),
    Effect(
        "precision", "precision.speedup", False, 8, LOOP, LOOP.replace("layer(rows)", "layer.float()(rows.float())")
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--only", action="append", metavar="NAME", choices=[effect.name for effect in EFFECTS])
    parser.add_argument("--out", type=Path, default=Path("perfgate-out/effects.jsonl"))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    resolved: dict[str, list[bool]] = defaultdict(list)
    with options.out.open("a", encoding="utf-8") as out:
        for _ in range(options.times):
            for effect in EFFECTS:
                if options.only and effect.name not in options.only:
                    continue
                with tempfile.TemporaryDirectory(prefix="perfgate-effect-") as scratch:
                    record = gate(effect, Path(scratch))
                resolved[effect.name].append(bool(record["resolved"]))
                print(json.dumps(record), file=out, flush=True)
                print(*(f"{key} {value}" for key, value in record.items()), sep=" · ", flush=True)
    for name, answers in resolved.items():
        print(f"{name:14} resolved in {sum(answers)} of {len(answers)}")
    return 0 if all(sum(answers) >= 0.9 * len(answers) for answers in resolved.values()) else 1


def gate(effect: Effect, scratch: Path) -> dict[str, object]:
    repository, out = scratch / "project", scratch / "out"
    repository.mkdir()
    (repository / "model.py").write_text(MODEL)
    (repository / "perf.py").write_text(PERF)
    (repository / "perfgate.toml").write_text(SETTINGS)
    git(repository, "init", "--quiet", "--initial-branch", "main")
    commit(repository, "base")
    assert MODEL.count(effect.old) == 1, effect.name
    (repository / "model.py").write_text(MODEL.replace(effect.old, effect.new))
    commit(repository, effect.name)
    command = [sys.executable, "-m", "perfgate", "check", "--base", "HEAD~1", "--out", str(out)]
    steps = ["--steps", f"1,4,{effect.step}", "--checklist-budget", "60"]
    environment = {**os.environ, "PERFGATE_STORE": str(scratch / "store.db")}
    began = time.monotonic()
    done = subprocess.run(
        [*command, *steps], cwd=repository, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - began
    if not (out / "decision.json").exists():
        raise SystemExit(f"{effect.name}: {done.stderr}")
    decision = json.loads((out / "decision.json").read_text())
    rows = [row for row in decision["checklist"] if row["metric"] == effect.metric]
    row = rows[0] if rows else {}
    interval = row.get("interval")
    return {
        "effect": effect.name,
        "verdict": decision["verdict"],
        "seconds": round(seconds, 1),
        "resolved": interval is not None and (interval[0] > 0 if effect.rises else interval[1] < 0),
        **{key: row.get(key) for key in ("metric", "method", "base", "head", "delta", "interval", "pairs", "clock")},
    }


if __name__ == "__main__":
    sys.exit(main())
