"""Does the checklist of a check show what moved? Gates of planted effects; the row of
each effect's metric must resolve it.

    python benchmarks/gate/effects.py --times 10 --out effects.jsonl
    python benchmarks/gate/effects.py --only knee
    python benchmarks/gate/effects.py --only knee -- --checklist-budget 200
    python benchmarks/gate/effects.py --table effects.jsonl

A gate plants the effects of a group together: each in the metric that it is read by,
and none in the metric of another. A row is resolved where its interval excludes no
change on the side that the change moves it to, and an exact count if it moved. One line
of JSON a row goes to --out. The exit code is 0 if every effect was resolved in nine of
ten gates.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent / "mistakes"))

from gate_mistakes import commit, git

MODEL = """
import time

import torch
from torch import nn
from torch.nn import functional


def work(units):
    for _ in range(units):
        sum(range(100))


class Net(nn.Module):
    def __init__(self, width=256, depth=6):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.calls, self.kept, self.table = 0, [], None

    def forward(self, rows):
        self.calls += 1
        # before the layers
        for layer in self.layers:
            rows = functional.relu(layer(rows))
        # after them
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
BEFORE, AFTER = "        # before the layers\n", "        # after them\n"
RESOLVED_SHARE = 0.9


class Effect(NamedTuple):
    """The metric that shows it, on which side of no change, the step of that, and the
    code that the head has above a line.

    ``base`` is the code of the base in its place.
    """

    name: str
    metric: str
    rises: bool
    step: int
    above: str
    code: str
    base: str = ""


# The effects of a group leave each other's metrics alone: calls after the first say
# nothing of the first, every fifth call nothing of the median, a pause of every
# sixteenth nothing of the median of three, and a call under autocast is no other call.
# The knee is that of a call of 200 units and 50 a row, or 350 a row: 32 or 8 on any
# machine. Its code returns, so it is last.
GROUPS: tuple[tuple[Effect, ...], ...] = (
    (
        Effect(
            "throughput", "throughput.median", False, 1, AFTER, """
        if self.calls > 1:
            rows[:20].mm(self.layers[0].weight)
""",
        ),
        Effect(
            "precision", "precision.speedup", False, 8, BEFORE, """
        if torch.is_autocast_enabled("cpu"):
            for layer in self.layers:
                functional.relu(layer(rows))
""",
        ),
    ),
    (
        Effect(
            "p90", "latency.p90", True, 1, AFTER, """
        for layer in self.layers[: 2 * (self.calls % 5 == 0)]:
            rows = functional.relu(layer(rows))
""",
        ),
        Effect(
            "first-call", "latency.first_call", True, 1, BEFORE, """
        if self.table is None:
            self.table = torch.randn(20_000).sort().values
""",
        ),
    ),
    (
        Effect(
            "utilization", "utilization.host", False, 2, AFTER, """
        if self.calls % 16 == 0:
            time.sleep(3e-3)
""",
        ),
        Effect(
            "cache", "cache.sensitivity", True, 15, BEFORE, """
        if self.table is None:
            self.table = torch.ones(262_144, 16), torch.randperm(262_144)[:98_304]
        self.table[0].index_select(0, self.table[1])
""",
        ),
    ),
    (
        Effect(
            "kept", "memory.kept", True, 4, BEFORE, """
        self.kept.append(torch.zeros(16))
""",
        ),
        Effect(
            "knee", "batch.knee", False, 5, BEFORE, """
        work(200 + 350 * len(rows))
        return rows.clone()
""",
            """
        work(200 + 50 * len(rows))
        return rows.clone()
""",
        ),
    ),
)  # fmt: skip
EFFECTS = {effect.name: effect for group in GROUPS for effect in group}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=1, help="gates of each group")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        choices=EFFECTS,
        help="an effect; default: all",
    )
    parser.add_argument("--out", type=Path, default=Path("perfgate-out/effects.jsonl"))
    parser.add_argument(
        "--table", type=Path, help="only print the table of an earlier --out"
    )
    parser.add_argument(
        "arguments", nargs="*", help="further arguments of perfgate check, after --"
    )
    options = parser.parse_args()
    if options.table:
        rows = [json.loads(line) for line in options.table.read_text().splitlines()]
    else:
        groups = [
            [one for one in group if not options.only or one.name in options.only]
            for group in GROUPS
        ]
        rows = list(gate_all([group for group in groups if group], options))
    return print_table(rows)


def gate_all(
    groups: Sequence[Sequence[Effect]], options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a", encoding="utf-8") as lines:
        for effects in [*groups] * options.times:
            with tempfile.TemporaryDirectory(prefix="perfgate-effects-") as scratch:
                rows = gate(effects, Path(scratch), options.arguments)
            for row in rows:
                print(json.dumps(row), file=lines, flush=True)
                print(
                    *(f"{key} {value}" for key, value in row.items()),
                    sep=" · ",
                    flush=True,
                )
                yield row


def gate(
    effects: Sequence[Effect], scratch: Path, arguments: Sequence[str]
) -> list[dict[str, Any]]:
    """Gate a commit that plants these effects; return the row of each."""
    repository, out = scratch / "project", scratch / "out"
    repository.mkdir()
    (repository / "model.py").write_text(
        with_code((effect.above, effect.base) for effect in effects)
    )
    (repository / "perf.py").write_text(PERF)
    (repository / "perfgate.toml").write_text(SETTINGS)
    git(repository, "init", "--quiet", "--initial-branch", "main")
    commit(repository, "base")
    (repository / "model.py").write_text(
        with_code((effect.above, effect.code) for effect in effects)
    )
    commit(repository, "effects")
    steps = ",".join(map(str, sorted({1, 4, *(effect.step for effect in effects)})))
    command = [
        sys.executable,
        "-m",
        "perfgate",
        "check",
        "--base",
        "HEAD~1",
        "--steps",
        steps,
        "--out",
        str(out),
        *arguments,
    ]
    environment = {**os.environ, "PERFGATE_STORE": str(scratch / "store.db")}
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    if not (out / "decision.json").exists():
        raise SystemExit(
            f"{', '.join(effect.name for effect in effects)}: {done.stderr}"
        )
    decision = json.loads((out / "decision.json").read_text())
    return [row_of(effect, decision, seconds) for effect in effects]


def with_code(places: Iterable[tuple[str, str]]) -> str:
    """The model with code above some of its lines."""
    source = MODEL
    for line, code in places:
        source = source.replace(line, code.lstrip("\n") + line)
    return source


def row_of(effect: Effect, decision: dict[str, Any], seconds: float) -> dict[str, Any]:
    listed: list[dict[str, Any]] = [
        *decision["checklist"]["numbers"],
        *decision["comparisons"],
    ]
    row = next((row for row in listed if row["metric"] == effect.metric), {})
    # A comparison has its difference in its own fields, a number of a step in one
    # field.
    difference: dict[str, Any] = row.get("difference") or row
    interval = difference.get("interval")
    if difference.get("kind") in ("exact", "count"):
        resolved = (
            row["head"] > row["base"] if effect.rises else row["head"] < row["base"]
        )
    else:
        resolved = interval is not None and (
            interval[0] > 0 if effect.rises else interval[1] < 0
        )
    return {
        "effect": effect.name,
        "verdict": decision["verdict"],
        "seconds": round(seconds, 1),
        "resolved": resolved,
        **{key: row.get(key) for key in ("metric", "base", "head")},
        **{key: difference.get(key) for key in ("kind", "delta", "interval", "clock")},
    }


def print_table(rows: Iterable[dict[str, Any]]) -> int:
    """Print a row for each effect; return the exit code."""
    by_effect: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_effect[row["effect"]].append(row)
    shares = []
    print(
        f"\n{'effect':12} {'metric':20} {'resolved':>10} {'median change':>14} {'seconds':>8}"
    )
    for name, of_effect in by_effect.items():
        resolved = sum(row["resolved"] for row in of_effect)
        shares.append(resolved / len(of_effect))
        deltas = [row["delta"] for row in of_effect if row["delta"] is not None]
        change = f"{statistics.median(deltas):+.1%}" if deltas else "–"
        seconds = statistics.median(row["seconds"] for row in of_effect)
        print(
            f"{name:12} {EFFECTS[name].metric:20} {resolved:4} of {len(of_effect):<3} {change:>13} {seconds:8.0f}"
        )
    return 0 if shares and min(shares) >= RESOLVED_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
