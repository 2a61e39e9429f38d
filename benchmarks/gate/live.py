"""Gate the same changes many times on this machine: does unchanged code pass, is every
planted mistake caught?

    python benchmarks/gate/live.py --times 20 python benchmarks/gate/live.py --times 5
    --only demo/identical --only minilm/eager-attention python benchmarks/gate/live.py
    --times 100 --only demo/3-percent -- --steps 4 python benchmarks/gate/live.py
    --times 8 --only 'lab/*-variant' --only 'lab/*-2-percent' --load 3

Every gate is a whole `perfgate check` in a git repository of its own. One line of JSON
a gate goes to --out as it ends, so an interrupted series is not lost; the tables at the
end are made from those lines: case by case, and of the lab's models what share of gates
passed and failed by change and load. The exit code is 0 only when unchanged code got at
most one verdict other than PASS per 20 gates and every planted regression was caught
every time.

The lab's models (benchmarks/gate/lab/workloads.py) come as a variant, which differs in
code and not in speed, another in every round, and with 0.5, 1, 2 and 3 % more work.
``--load`` keeps so many other processes runnable meanwhile, the first bound by memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "minilm"))

sys.path.insert(0, str(Path(__file__).parent / "lab"))

import gate as minilm  # noqa: E402 - the example's own script knows how to plant its changes
import models  # noqa: E402
import neighbours  # noqa: E402
import slower  # noqa: E402
import workloads as lab  # noqa: E402

DEMO = ROOT / "perfgate" / "demo"


@dataclass(frozen=True)
class Case:
    """A change to a project and the verdict it must get."""

    project: str
    change: str
    expected: str

    @property
    def name(self) -> str:
        return f"{self.project}/{self.change}"


CASES = (
    Case("demo", "identical", "PASS"),
    Case("demo", "refactor", "PASS"),
    Case("demo", "mistake", "FAIL"),
    Case("demo", "3-percent", "FAIL"),
    Case("demo", "5-percent", "FAIL"),
    *(Case("minilm", change.name, change.verdict) for change in minilm.CHANGES),
    *(Case("lab", f"{name}-variant", "PASS") for name in models.SOURCES),
    *(
        Case("lab", f"{name}-{percent}-percent", "FAIL")
        for name in models.SOURCES
        for percent in (0.5, 1, 2, 3)
    ),
)
_CONFIG = """project = "lab"
device = "cpu"
workload = "perf/workload.py:workload"
"""
DEFAULT = ("demo/identical", "demo/mistake", "minilm/identical", "minilm/eager-attention",
           "minilm/contiguous-per-layer", "minilm/dtype-round-trip")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument(
        "--only",
        action="append",
        metavar="PROJECT/CHANGE",
        help="names of cases, or patterns of them",
    )
    parser.add_argument("--out", type=Path, default=Path("perfgate-out/live.jsonl"))
    parser.add_argument(
        "--load",
        type=int,
        default=0,
        help="other processes that are runnable meanwhile",
    )
    parser.add_argument(
        "--table", action="store_true", help="only print the table of an earlier --out"
    )
    parser.add_argument(
        "arguments", nargs="*", help="further arguments of perfgate check, after --"
    )
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if not options.table:
        chosen = [
            case
            for case in CASES
            if any(
                fnmatchcase(case.name, pattern) for pattern in options.only or DEFAULT
            )
        ]
        if not chosen:
            parser.error(
                f"no case is called {options.only}; there are {', '.join(case.name for case in CASES)}"
            )
        if any(case.project == "minilm" for case in chosen):
            minilm.install_requirements()
        with (
            options.out.open("a", encoding="utf-8") as out,
            neighbours.running(options.load),
        ):
            # Round after round, so that a busy spell of the machine meets every case.
            for number in range(options.times):
                for record in _round(chosen, number, options):
                    print(json.dumps(record), file=out, flush=True)
    return _report(options.out)


def _round(
    cases: list[Case], number: int, options: argparse.Namespace
) -> Iterator[dict[str, object]]:
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="perfgate-live-") as scratch:
            record = _gate(case, number, Path(scratch), options)
        print(
            f"{number + 1:3} {case.name:32} {record['verdict']:12} {record['seconds']:6.1f} s  {record['reasons']}",
            flush=True,
        )
        yield record


def _gate(
    case: Case, number: int, scratch: Path, options: argparse.Namespace
) -> dict[str, object]:
    repository, out = scratch / "repository", scratch / "out"
    {"demo": _plant_demo, "minilm": _plant_minilm, "lab": _plant_lab}[case.project](
        case, number, repository
    )
    started = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "perfgate",
        "check",
        "--base",
        "main",
        "--always",
        "--out",
        str(out),
        *options.arguments,
    ]
    environment = {**os.environ, "PERFGATE_STORE": str(scratch / "store.db")}
    done = subprocess.run(
        command,
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    decision = out / "decision.json"
    found: dict[str, Any] = (
        json.loads(decision.read_text())
        if decision.exists()
        else {"verdict": "none", "reasons": [done.stderr[-500:]]}
    )
    times = [
        one
        for one in found.get("comparisons", [])
        if one["kind"] == "paired" and one["evidence"] == "pair"
    ]
    return {
        "case": case.name,
        "expected": case.expected,
        "verdict": found["verdict"],
        "reasons": found["reasons"],
        "exit_code": done.returncode,
        "seconds": round(time.monotonic() - started, 1),
        "neighbours": options.load,
        "waited": found.get("waited"),
        "pairs": found.get("pairs"),
        "duration": found.get("duration"),
        "why": {
            one["metric"]: one["reason"]
            for one in times
            if one["outcome"] == "inconclusive"
        },
        "times": {
            f"{one['shape']} {one['metric']}": [
                one["outcome"],
                one["delta"],
                one["interval"],
            ]
            for one in times
        },
    }


def _plant_demo(case: Case, _: int, repository: Path) -> None:
    shutil.copytree(
        DEMO / "main", repository, ignore=shutil.ignore_patterns("__pycache__")
    )
    _git(repository, "init", "--quiet", "--initial-branch=main")
    _commit(repository, "main")
    _git(repository, "checkout", "--quiet", "-b", "change")
    if case.change == "identical":
        (repository / "NOTES.md").write_text("Only words.\n")
    elif case.change.endswith("-percent"):
        place = slower.Place("ranker.py", "Ranker", "ranker", "perf")
        slower.plant(repository, place, percent=float(case.change.partition("-")[0]))
    else:
        shutil.copytree(
            DEMO / case.change,
            repository,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    _commit(repository, case.change)


def _plant_minilm(case: Case, _: int, repository: Path) -> None:
    minilm.make_repository(repository)
    change = next(change for change in minilm.CHANGES if change.name == case.change)
    minilm.make_branch(repository, change)


def _plant_lab(case: Case, number: int, repository: Path) -> None:
    name, change = case.change.split("-", 1)
    lab.write_harness(repository / "perf", name)
    (repository / "perfgate.toml").write_text(_CONFIG)
    _write_modules(repository, name, 0)
    _git(repository, "init", "--quiet", "--initial-branch=main")
    _commit(repository, "main")
    _git(repository, "checkout", "--quiet", "-b", "change")
    if change == "variant":
        _write_modules(repository, name, 1 + number % lab.VARIANTS)
    else:
        place = slower.Place("model.py", models.SOURCES[name].model, "workload", "perf")
        slower.plant(repository, place, percent=float(change.partition("-")[0]))
    _commit(repository, case.change)


def _write_modules(repository: Path, name: str, variant: int) -> None:
    for file, text in lab.modules(name, variant, seed=1).items():
        (repository / file).write_text(text)


def _commit(repository: Path, message: str) -> None:
    _git(repository, "add", "--all")
    _git(
        repository,
        "-c",
        "user.name=live",
        "-c",
        "user.email=live@perfgate.invalid",
        "commit",
        "--quiet",
        "-m",
        message,
    )


def _git(repository: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=repository, check=True)


def _report(out: Path) -> int:
    records = [
        json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()
    ]
    print(
        f"\n{'change':32} {'gates':>5}  {'PASS':>4} {'FAIL':>4} {'other':>5}  {'median s':>8}  as it must"
    )
    good = True
    for case in CASES:
        mine = [record for record in records if record["case"] == case.name]
        if not mine:
            continue
        verdicts = [record["verdict"] for record in mine]
        passed, failed = verdicts.count("PASS"), verdicts.count("FAIL")
        allowed = max(1, len(mine) // 20) if case.expected == "PASS" else 0
        right = verdicts.count(case.expected) >= len(mine) - allowed
        good &= right
        seconds = sorted(record["seconds"] for record in mine)[len(mine) // 2]
        print(f"{case.name:32} {len(mine):5}  {passed:4} {failed:4} {len(mine) - passed - failed:5}  {seconds:8.1f}  "
              f"{'yes' if right else 'NO'} ({case.expected} expected)")  # fmt: skip
    _report_rates([record for record in records if record["case"].startswith("lab/")])
    return 0 if good else 1


def _report_rates(records: list[dict[str, Any]]) -> None:
    """Print what share of the gates of the lab's models passed and failed, all models
    together.
    """
    groups: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        groups[record["neighbours"], record["case"].partition("-")[2]].append(record)
    if groups:
        print(
            f"\n{'other processes, change':32} {'gates':>5}  {'PASS':>5} {'FAIL':>5}  {'median s':>8}"
        )
    for (count, change), mine in sorted(groups.items()):
        passed, failed = (
            sum(record["verdict"] == verdict for record in mine) / len(mine)
            for verdict in ("PASS", "FAIL")
        )
        seconds = sorted(record["seconds"] for record in mine)[len(mine) // 2]
        print(
            f"{f'{count}, {change}':32} {len(mine):5}  {passed:5.0%} {failed:5.0%}  {seconds:8.1f}"
        )


if __name__ == "__main__":
    sys.exit(main())
