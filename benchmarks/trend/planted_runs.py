"""Slowdowns planted in real runs of main, before and after a change of testbed: is each
one open, or repaired, as it should be?

    python benchmarks/trend/planted_runs.py FOLDER [--versions 28] [--evaluate]

Twelve workloads of one project are measured by `perfgate run` and stored by
`perfgate baseline record`, version by version. The first half of the versions runs on
all CPUs, the second on one CPU, which is another testbed; the last version of the first
half is measured on both. Each workload gets slower by 12, 16 or 20 % at one version:
four stay slow, three are repaired on the new testbed, two at the change of testbed, and
three get slow after it. Only Python's own work grows, so no counter tells.

The versions lie a day apart: the dates of each run document are moved before it is
stored. Runs in FOLDER are not measured again, so the program may be interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from textwrap import dedent

import msgspec

from perfgate.document.trend import TrendDocument

MODEL = dedent("""\
    import torch
    from costs import LOOPS


    class Model(torch.nn.Module):
        def __init__(self, name):
            super().__init__()
            self.layer = torch.nn.Linear(64, 64)
            self.loops = LOOPS[name]

        def forward(self, x):
            total = 0
            for number in range(self.loops):
                total += number
            return self.layer(x)
    """)
WORKLOAD = dedent("""\
    import torch
    from model import Model

    from perfgate import Workload


    def workload(name):
        return Workload(
            build=lambda device: Model(name).eval().to(device),
            inputs=lambda batch, seed: torch.randn(batch, 64, generator=torch.Generator().manual_seed(seed)),
            batch=8,
        )


    """)
LOOPS = 12_000
# A change may be found this many versions from where it was planted.
NEAR = 1


@dataclass(frozen=True)
class Planted:
    """A slowdown of a workload from version ``at`` on; ``until`` is the version that
    repairs it.
    """

    workload: str
    at: int
    size: float
    until: int = 1_000

    @property
    def is_open(self) -> bool:
        return self.until == 1_000


def planted_changes(versions: int) -> list[Planted]:
    """The twelve slowdowns; the testbed changes at half of the versions."""
    half = versions // 2
    places = [(6, 1_000), (7, 1_000), (8, 1_000), (9, 1_000)]
    places += [(6, half + 6), (7, half + 7), (8, half + 8)]
    places += [(6, half), (8, half)]
    places += [(half + 6, 1_000), (half + 7, 1_000), (half + 8, 1_000)]
    sizes = (0.12, 0.16, 0.20)
    changes: list[Planted] = []
    for number, (at, until) in enumerate(places):
        changes.append(Planted(f"w{number:02}", at, sizes[number % len(sizes)], until))
    return changes


class Main:
    """The repository of the project with its store, in a folder."""

    def __init__(self, folder: Path, changes: list[Planted]) -> None:
        self.folder, self._changes = folder, changes
        self.project = folder / "project"
        self.store = folder / "store.db"
        self._today = datetime.now(timezone.utc)

    def create(self) -> None:
        names = [change.workload for change in self._changes]
        (self.project / "perf").mkdir(parents=True)
        (self.project / "model.py").write_text(MODEL)
        definitions = [f'{name} = workload("{name}")\n' for name in names]
        (self.project / "perf" / "work.py").write_text(WORKLOAD + "".join(definitions))
        entries = [f'{name} = "perf/work.py:{name}"\n' for name in names]
        (self.project / "perfgate.toml").write_text(
            'project = "live"\n[workloads]\n' + "".join(entries)
        )
        self._git("init", "-q", "-b", "main")

    def commit(self, version: int) -> None:
        loops: dict[str, int] = {}
        for change in self._changes:
            is_slow = change.at <= version < change.until
            loops[change.workload] = round(
                LOOPS * (1 + change.size if is_slow else 1.0)
            )
        (self.project / "costs.py").write_text(
            f"VERSION = {version}\nLOOPS = {json.dumps(loops)}\n"
        )
        self._git("add", ".")
        self._git(
            "-c",
            "user.name=A",
            "-c",
            "user.email=a@example.com",
            "commit",
            "-qm",
            f"Version {version}",
        )

    def measure(self, name: str, days_ago: float, cpus: set[int]) -> None:
        """Measure the present commit on these CPUs, date the run, and store it."""
        run = self.folder / "runs" / name
        command = [
            sys.executable,
            "-m",
            "perfgate",
            "run",
            "--quick",
            "--steps",
            "1",
            "--out",
            str(run),
        ]
        self._perfgate(command, cpus)
        began = self._today - timedelta(days=days_ago)
        _date(run / "run.json", began)
        self._perfgate(
            [
                sys.executable,
                "-m",
                "perfgate",
                "baseline",
                "record",
                "--run",
                str(run / "run.json"),
            ],
            cpus,
        )

    def trend(self) -> TrendDocument:
        out = self.folder / "report"
        self._perfgate(
            [sys.executable, "-m", "perfgate", "trend", "--out", str(out)],
            os.sched_getaffinity(0),
        )
        return msgspec.json.decode(
            (out / "trend.json").read_bytes(), type=TrendDocument
        )

    def version_of(self) -> Mapping[str, int]:
        log = self._git("log", "--format=%H %s")
        versions: dict[str, int] = {}
        for line in log.splitlines():
            commit, _, number = line.split()
            versions[commit] = int(number)
        return versions

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.project,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    def _perfgate(self, command: list[str], cpus: set[int]) -> None:
        environment = {**os.environ, "PERFGATE_STORE": str(self.store)}
        done = subprocess.run(
            command,
            cwd=self.project,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: os.sched_setaffinity(0, cpus),
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def _date(path: Path, began: datetime) -> None:
    """Move the dates of a run document."""
    run = json.loads(path.read_bytes())
    run["session"]["started_at"] = began.isoformat()
    run["session"]["finished_at"] = (began + timedelta(minutes=1)).isoformat()
    path.write_text(json.dumps(run))


def record(main: Main, versions: int) -> None:
    half = versions // 2
    all_cpus = os.sched_getaffinity(0)
    one_cpu = {min(all_cpus)}
    done = main.folder / "done"
    finished = done.read_text().split() if done.exists() else []
    if not main.project.exists():
        main.create()
    for version in range(versions):
        turns = (
            [(f"{version:02}-all", all_cpus)]
            if version < half
            else [(f"{version:02}-one", one_cpu)]
        )
        if version == half - 1:
            turns.append((f"{version:02}-one", one_cpu))
        if f"commit-{version}" not in finished:
            main.commit(version)
            finished.append(f"commit-{version}")
        for place, (name, cpus) in enumerate(turns):
            if name not in finished:
                main.measure(name, versions - version - 0.3 * place, cpus)
                finished.append(name)
                print(name, f"load {os.getloadavg()[0]:.1f}", flush=True)
            done.write_text("\n".join(finished))


def evaluate(main: Main, changes: list[Planted]) -> None:
    trend, version_of = main.trend(), main.version_of()
    opened: set[tuple[str, int]] = set()
    for cause in trend.open_regressions:
        for place in cause.changes:
            entry = trend.series[place.series]
            change = entry.changes[place.change]
            if change.is_unsettled and change.direction == "worse":
                opened.add((entry.workload, version_of[change.first_bad or ""]))
    right = 0
    explained: set[tuple[str, int]] = set()
    for planted in changes:
        own = {
            entry
            for entry in opened
            if entry[0] == planted.workload and abs(entry[1] - planted.at) <= NEAR
        }
        explained |= own
        is_right = bool(own) == planted.is_open
        right += is_right
        repaired = "stays" if planted.is_open else f"repaired at {planted.until}"
        state = "open" if own else "not open"
        print(
            f"{planted.workload} +{planted.size:.0%} at {planted.at:2}, {repaired:14} {state:8} {'' if is_right else 'WRONG'}"
        )
    found = 0
    shifts = 0
    for planted in changes:
        for at in (planted.at, planted.until):
            if at < 1_000:
                shifts += 1
                found += _is_found(trend, version_of, planted.workload, at)
    print(
        f"right {right} of {len(changes)}; other open entries {sorted(opened - explained)}"
    )
    print(f"shifts found within {NEAR} version: {found} of {shifts}")


def _is_found(
    trend: TrendDocument, version_of: Mapping[str, int], workload: str, at: int
) -> bool:
    for entry in trend.series:
        if entry.workload == workload and not entry.informing:
            for change in entry.changes:
                if abs(version_of.get(change.first_bad or "", -9) - at) <= NEAR:
                    return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--versions", type=int, default=28)
    parser.add_argument(
        "--evaluate", action="store_true", help="measure no further versions"
    )
    given = parser.parse_args()
    changes = planted_changes(given.versions)
    given.folder.mkdir(parents=True, exist_ok=True)
    of_folder = Main(given.folder.resolve(), changes)
    if not given.evaluate:
        record(of_folder, given.versions)
    evaluate(of_folder, changes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
