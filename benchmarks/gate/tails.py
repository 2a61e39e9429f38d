"""Gate rare slow calls: is a head caught that stalls in every 60th to 500th call, and
does unchanged code pass?

    python benchmarks/gate/tails.py python benchmarks/gate/tails.py --only sleep-200
    --only identical --times 3 --out tails.jsonl python benchmarks/gate/tails.py --brief
    --times 12 --only identical -- --steps 4 python benchmarks/gate/tails.py --stretches
    --times 4 python benchmarks/gate/tails.py --table --out tails.jsonl

A small service of about 1 ms a call lies in a git repository of its own; head adds one
of twelve kinds of rare work to it. Its fast path stays what it was, and the mean call
takes 5 to 22 % longer. Every gate is a whole ``perfgate check``. One line of JSON a
gate goes to --out as it ends. ``--brief`` takes few short pairs whose times decide
nothing, so that the verdict is that of mean and stalls. ``--stretches`` starts no
command: it measures and judges stretches alone, in a fifth of the time. The exit code
is 0 only if at least 11 of 12 kinds failed, and no unchanged code did.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from perfgate.conductor.sides.function.stretches import measure_stretches
from perfgate.conductor.sides.function.workload import PairedMeasurement, WorkloadSides
from perfgate.conductor.workers.bench import open_bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.config import (
    Config,
    GateSettings,
    MeasureSettings,
    StoreSettings,
    WorkloadReference,
)
from perfgate.document.comparison import Paired
from perfgate.document.decision import Policy
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.judge import AlphaShares, judge_numbers
from perfgate.judging.gate.compare.stretches import more_calls_would_help
from perfgate.judging.gate.evidence.blocks import waited_share
from perfgate.judging.gate.evidence.numbers import Number, Rules
from perfgate.judging.gate.evidence.producers import long_stretches
from perfgate.judging.gate.evidence.stretches import LOOKS
from perfgate.judging.report.text.messages import word

CONFIG = """project = "service"
device = "cpu"
workload = "perf/workload.py:service"
"""
BRIEF = """
[gate]
looks = [8]
checklist_budget = 0
aa_pairs = 5
quads = 2
block_seconds = 0.005
[gate.tolerance]
"latency.low" = 1.0
"latency.p50" = 1.0
"latency.p99" = 9.0
"throughput.*" = 1.0
"hardware.*" = 1.0
"counters.*" = 9.0
"""
WORKLOAD = """\
import torch

from perfgate import Workload
from service import Service

service = Workload(build=lambda device: Service(device), inputs=lambda batch, seed: torch.randn(batch, 256), batch=32)
"""
SERVICE = """\
import gc
import json
import os
import tempfile
import threading
import time

import torch


class Service:
    def __init__(self, device):
        generator = torch.Generator().manual_seed(1)
        self.weights = [torch.randn(256, 256, generator=generator, device=device) / 16 for _ in range(LAYERS)]
        self.calls = 0
SETUP
    def __call__(self, batch):
        self.calls += 1
HOOK
        for weight in self.weights:
            batch = torch.relu(batch @ weight)
        return batch
HELPERS
"""
LAYERS = 10


class Kind(NamedTuple):
    """Rare work of a head: in every so many calls the statements ``work``, with
    ``setup`` and ``helpers`` in the class.
    """

    every: int
    work: str
    setup: str = ""
    helpers: str = ""


KINDS = {
    "sleep-200": Kind(200, "time.sleep(0.03)"),
    "backoff-60": Kind(60, "for attempt in range(3):\n    time.sleep(0.002)"),
    "compute-250": Kind(250, "ends = time.thread_time() + 0.04\nwhile time.thread_time() < ends:\n    sum(range(1000))"),
    "operators-100": Kind(
        100, "for _ in range(8):\n    self.table = self.table @ self.table / 512", "self.table = torch.randn(512, 512)"
    ),
    "collect-150": Kind(150, "gc.collect()", "self.heap = [{'key': [number]} for number in range(20_000)]"),
    "cycles-60": Kind(
        60, "self.leave_cycles()", "",
        "def leave_cycles(self):\n    for _ in range(20_000):\n        cycle = []\n        cycle.append(cycle)",
    ),
    "fsync-100": Kind(
        100,
        "self.log.write(b'x' * 4_000_000)\nself.log.flush()\nos.fsync(self.log.fileno())\nself.log.seek(0)",
        "self.log = tempfile.TemporaryFile()",
    ),
    "checkpoint-500": Kind(
        500, "with tempfile.NamedTemporaryFile() as file:\n    torch.save([torch.randn(2_000_000) for _ in range(2)], file)"
    ),
    "lock-200": Kind(
        200,
        "self.lock.acquire()\nthreading.Timer(0.025, self.lock.release).start()\nwith self.lock:\n    pass",
        "self.lock = threading.Lock()",
    ),
    "eviction-500": Kind(
        500, "self.cache.clear()\nfor key in range(3000):\n    self.cache[key] = str(list(range(key % 300)))",
        "self.cache = {}",
    ),
    "snapshot-400": Kind(
        400, "json.loads(json.dumps(self.state))", "self.state = {str(key): list(range(60)) for key in range(4000)}"
    ),
    "flush-120": Kind(120, "select_.select([], [], [], 0.012)", "global select_\nimport select as select_"),
}  # fmt: skip
UNCHANGED = "identical"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=[*KINDS, UNCHANGED])
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("perfgate-out/tails.jsonl"))
    parser.add_argument(
        "--brief",
        action="store_true",
        help="few short pairs, whose times decide nothing",
    )
    parser.add_argument(
        "--stretches", action="store_true", help="measure and judge only the stretches"
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
        with options.out.open("a", encoding="utf-8") as out:
            for _ in range(options.times):
                for name in options.only or [*KINDS, UNCHANGED]:
                    if options.stretches:
                        record = judge_stretches(name)
                    else:
                        record = gate(
                            name,
                            options.arguments,
                            settings=CONFIG + (BRIEF if options.brief else ""),
                        )
                    print(json.dumps(record), file=out, flush=True)
                    print(
                        f"{name:16} {record['verdict']:12} {record['seconds']:6.1f} s  {record['told']}",
                        flush=True,
                    )
    return report(options.out)


def gate(name: str, arguments: list[str], *, settings: str) -> dict[str, Any]:
    """Gate one kind of rare work in a repository of its own."""
    with tempfile.TemporaryDirectory(prefix="perfgate-tails-") as scratch:
        repository, out = Path(scratch) / "repository", Path(scratch) / "out"
        plant(repository, name, settings)
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
            *arguments,
        ]
        environment = {**os.environ, "PERFGATE_STORE": str(Path(scratch) / "store.db")}
        started, load = time.monotonic(), os.getloadavg()[0]
        done = subprocess.run(
            command,
            cwd=repository,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = round(time.monotonic() - started, 1)
        decision = out / "decision.json"
        found: dict[str, Any] = (
            json.loads(decision.read_text())
            if decision.exists()
            else {"verdict": "none"}
        )
    times = {
        one["metric"]: one
        for one in found.get("comparisons", [])
        if one["metric"].startswith("latency.")
    }
    stalls = times.get("latency.stalls", {})
    return {
        "kind": name,
        "verdict": found["verdict"],
        "told": stalls.get("reason") or found.get("reasons") or done.stderr[-400:],
        "seconds": seconds,
        "load": load,
        "waited": found.get("waited"),
        "times": {
            metric: [
                one["outcome"],
                one.get("delta"),
                one.get("interval"),
                one.get("pairs"),
                one.get("p_adjusted"),
            ]
            for metric, one in times.items()
        },
    }


def judge_stretches(name: str) -> dict[str, Any]:
    """Measure the stretches of one kind on real workers until they decide, and judge
    them alone.
    """
    place = ShapePlace("service", "default")
    measured = PairedMeasurement()

    def evidence() -> Any:
        """What the judge takes of the evidence of a gate."""
        pairs = list(zip(measured.base, measured.head))
        return SimpleNamespace(stretches={"service": pairs}, places=[place])

    def numbers() -> list[Number]:
        return list(long_stretches.numbers(evidence(), Rules(Policy())))

    def compared() -> list[Paired]:
        shares = AlphaShares.of_subjects(Policy(), subjects=1)
        return [
            row
            for row in judge_numbers(numbers(), shares, floors=())
            if isinstance(row, Paired)
        ]

    def is_decided() -> bool:
        return not more_calls_would_help(numbers(), compared())

    with tempfile.TemporaryDirectory(prefix="perfgate-tails-") as scratch:
        base, head = (Path(scratch) / side for side in ("base", "head"))
        for root, code in ((base, service(None)), (head, head_service(name))):
            root.mkdir()
            (root / "workload.py").write_text(WORKLOAD)
            (root / "service.py").write_text(code)
        config = Config(
            root=base,
            project="service",
            device="cpu",
            measure=MeasureSettings(),
            gate=GateSettings(),
            store=StoreSettings(),
        )
        load = os.getloadavg()[0]
        with open_bench(
            config, logs=Path(scratch) / "logs", say=lambda _: None
        ) as bench:
            started = time.monotonic()
            reference = WorkloadReference("service", "workload.py", "service")
            sides = WorkloadSides(
                bench, reference, Checkout(base, base), Checkout(head, base), measured
            )
            measure_stretches(sides, looks=LOOKS, is_decided=is_decided, quads=0)
            seconds = round(time.monotonic() - started, 1)
    rows = compared()
    failed = any(one.outcome == "regressed" and one.gating for one in rows)
    lanes = [
        columns
        for replicate in (*measured.base, *measured.head)
        for _, columns in replicate.lanes
    ]
    stalls = next((one for one in rows if one.metric == "latency.stalls"), None)
    told = [failure.error.message for failure in measured.failed]
    if stalls is not None and stalls.reason is not None:
        told.append(word(stalls.reason))
    return {
        "kind": name,
        "verdict": "FAIL" if failed else "PASS" if rows else "none",
        "told": str(told),
        "seconds": seconds,
        "load": load,
        "waited": waited_share(lanes),
        "times": {
            one.metric: [
                one.outcome,
                one.delta,
                one.interval,
                one.pairs,
                one.p_adjusted,
            ]
            for one in rows
        },
    }


def head_service(name: str) -> str:
    if name == UNCHANGED:
        return service(None).replace("batch @ weight", "torch.matmul(batch, weight)")
    return service(KINDS[name])


def plant(repository: Path, name: str, settings: str) -> None:
    """Commit the service on main, and the rare work on a branch."""
    (repository / "perf").mkdir(parents=True)
    (repository / "perfgate.toml").write_text(settings)
    (repository / "perf" / "workload.py").write_text(WORKLOAD)
    git(repository, "init", "--quiet", "--initial-branch", "main")
    (repository / "service.py").write_text(service(None))
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "base")
    git(repository, "checkout", "--quiet", "-b", "change")
    (repository / "service.py").write_text(head_service(name))
    git(repository, "commit", "--quiet", "--all", "--message", name)


def service(kind: Kind | None) -> str:
    """The service's code, with rare work of a kind or without."""
    hook = (
        ""
        if kind is None
        else f"if self.calls % {kind.every} == 0:\n{_indented(kind.work, 4)}"
    )
    places = {
        "LAYERS": str(LAYERS),
        "SETUP": _indented("" if kind is None else kind.setup, 8),
        "HOOK": _indented(hook, 8),
        "HELPERS": _indented("" if kind is None else kind.helpers, 4),
    }
    text = SERVICE
    for place, code in places.items():
        text = text.replace(place, code)
    return text


def _indented(code: str, spaces: int) -> str:
    return "\n".join(" " * spaces + line for line in code.splitlines())


def git(repository: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=perfgate", "-c", "user.email=perfgate@localhost")
    subprocess.run(["git", "-C", str(repository), *identity, *arguments], check=True)


def report(path: Path) -> int:
    records = [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()
    ]
    verdicts: dict[str, Counter[str]] = {}
    for record in records:
        verdicts.setdefault(record["kind"], Counter())[record["verdict"]] += 1
    for name, counts in verdicts.items():
        mean = [
            one["times"]["latency.mean"][1]
            for one in records
            if one["kind"] == name and "latency.mean" in one["times"]
        ]
        shown = ", ".join(f"{delta:+.1%}" for delta in mean)
        print(f"{name:16} {dict(counts)}  mean {shown}")
    found = sum(
        counts["FAIL"] == sum(counts.values())
        for name, counts in verdicts.items()
        if name != UNCHANGED
    )
    false = verdicts.get(UNCHANGED, Counter())["FAIL"]
    planted = len(verdicts.keys() - {UNCHANGED})
    print(f"{found} of {planted} kinds found, {false} false alarms")
    return 0 if found >= planted - 1 and not false else 1


if __name__ == "__main__":
    sys.exit(main())
