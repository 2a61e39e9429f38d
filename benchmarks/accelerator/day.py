"""The quarter of an hour in which a card is at hand: its clocks, and then whole gates
on it.

    make device-day DEVICE=cuda
    python benchmarks/accelerator/day.py --device cuda --out device-day.json
    python benchmarks/accelerator/day.py --table device-day.json

First six clocks of two resident sides over several starts, of a model bound by the
host, one by the device and one by memory, then with a kernel and a loop planted
(clocks.py); then `perfgate check` of equal code, of a planted kernel, of a planted loop
and of the demo's mistake. The stages share the time that is left, so that a busy host
makes each of them smaller and none too late: clocks take fewer quads, and a gate gets a
smaller budget. A stage that does not end in its time is stopped, with the reason in the
file. The file is written after every stage. A stage that ended is not run again, so a
day that was cut short goes on where it was. The exit code is 0 if every stage has
ended.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from clocks import CLOCKS, Series, measure

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "perfgate" / "demo"
# Seconds of the whole day, and of its end.
DAY_SECONDS, CLOSING_SECONDS = 720.0, 10.0
# Parts of the day, in proportion to which the stages share it; and the seconds without
# which a stage does not begin.
CLOCKS_PART, GATE_PART, LEAST_SECONDS = 2, 5, 30.0
# Shares of a gate's time: the budget of its pairs, which may be used twice if that
# decides, and that of the checklist. The steps are the quick ones that name a cause.
PAIRS_SHARE, CHECKLIST_SHARE, STEPS = 0.3, 0.05, "latency,transfer,top_ops"
# For perfgate to stop its processes and remove its worktrees.
STOP_SECONDS = 8.0
STARTS, QUADS = 4, 24
QUICK_STARTS, QUICK_QUADS = 2, 3
SERIES = (
    ("tiny", ""),
    ("gemm", ""),
    ("stream", ""),
    ("gemm", "device"),
    ("tiny", "host"),
)
WATCHED = (
    "clocks.sm,clocks.max.sm,power.draw,temperature.gpu,clocks_event_reasons.active"
)
WATCH_SECONDS = 0.5

# Of the model of the gates; the small one only shows that everything runs.
SIZE, QUICK_SIZE = 2048, 64
MODEL = """\
import torch

SIZE = {size}


class Stack(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(SIZE, SIZE, bias=False) for _ in range(12)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""
WORKLOAD = """\
import torch
from model import SIZE, Stack

from perfgate import Workload

stack = Workload(
    build=lambda device: Stack().eval().to(device),
    inputs=lambda batch, seed: torch.randn(batch, SIZE, generator=torch.Generator().manual_seed(seed)),
    batch=512,
)
"""
SETTINGS = 'project = "stack"\ndevice = "{0}"\nworkload = "perf.py:stack"\n'
BUDGET = "\n[gate]\nbudget = {pairs:.0f}\nchecklist_budget = {checklist:.0f}\n"
CALL = "        for layer in self.layers:\n"
# A function that is not called; before the loop over the layers 1 % more of the
# device's work, or 2,000 turns of a loop of Python.
PLANTS = {
    "equal code": ("import torch\n", "import torch\n\n\ndef unused():\n    return 1\n"),
    "a planted kernel": (CALL, "        self.layers[0](x[: len(x) // 8])\n" + CALL),
    "a planted loop": (
        CALL,
        "        for _ in range(2000):\n            pass\n" + CALL,
    ),
}


class Stage(NamedTuple):
    """A part of the day, and what runs it within some seconds."""

    name: str
    part: int
    run: Callable[[float], dict[str, Any]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("device-day.json"))
    parser.add_argument(
        "--seconds",
        type=float,
        default=DAY_SECONDS,
        help="of this call; default: %(default)s",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few quads: shows that everything runs, and measures nothing",
    )
    parser.add_argument(
        "--table", type=Path, help="only print the tables of an earlier --out"
    )
    options = parser.parse_args()
    if options.table:
        print_tables(json.loads(options.table.read_text()))
        return 0
    starts, quads, size = (
        (QUICK_STARTS, QUICK_QUADS, QUICK_SIZE)
        if options.quick
        else (STARTS, QUADS, SIZE)
    )
    return run_day(options, stages(options.device, starts, quads, size))


def run_day(options: argparse.Namespace, every: list[Stage]) -> int:
    """Run the stages that have not ended by the file, as far as the time allows."""
    day = (
        json.loads(options.out.read_text())
        if options.out.exists()
        else {"device": options.device, "stages": {}}
    )
    if day["device"] != options.device:
        raise SystemExit(
            f"{options.out} is of {day['device']}; name another file with --out"
        )
    day["machine"] = machine()
    ends = time.monotonic() + options.seconds - CLOSING_SECONDS
    ahead = [stage for stage in every if not has_ended(day, stage)]
    parts = sum(stage.part for stage in ahead)
    for stage in ahead:
        seconds = (ends - time.monotonic()) * stage.part / parts
        parts -= stage.part
        if seconds < LEAST_SECONDS:
            continue
        print(f"{stage.name}, within {seconds:.0f} s …", flush=True)
        day["stages"][stage.name] = run_stage(stage, options.device, seconds)
        write(options.out, day)
    print_tables(day)
    print(f"\nhost: {host_load()}; on a busy host some gates stay undecided")
    missing = [stage.name for stage in every if stage.name not in day["stages"]]
    if missing:
        print(f"no time for: {', '.join(missing)}")
    for name, stage in day["stages"].items():
        if "unfinished" in stage:
            print(f"not ended: {name}: {stage['unfinished']}")
    if all(has_ended(day, stage) for stage in every):
        return 0
    print("run it again with the same --out")
    return 1


def has_ended(day: dict[str, Any], stage: Stage) -> bool:
    return "unfinished" not in day["stages"].get(
        stage.name, {"unfinished": "not begun"}
    )


def run_stage(stage: Stage, device: str, seconds: float) -> dict[str, Any]:
    """The result of a stage with its time and the load of the host, or why there is
    none.
    """
    began = time.monotonic()
    with Watch(device) as watch:
        try:
            result = stage.run(seconds)
        except (RuntimeError, TimeoutError) as error:
            result = {"unfinished": str(error)}
    seconds_taken = round(time.monotonic() - began, 1)
    return {
        **result,
        "seconds": seconds_taken,
        "host_load": host_load(),
        "watch": watch.summary(),
    }


def host_load() -> str:
    return f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} CPUs"


def stages(device: str, starts: int, quads: int, size: int = SIZE) -> list[Stage]:
    found: list[Stage] = []
    for model, plant in SERIES:
        series = Series(model, plant, starts, quads)
        found.append(
            Stage(
                f"clocks: {series.name}",
                CLOCKS_PART,
                partial(clocks_of, device, series),
            )
        )
    for name, (old, new) in PLANTS.items():
        found.append(
            Stage(
                f"gate: {name}", GATE_PART, partial(gate_stack, device, size, old, new)
            )
        )
    found.append(
        Stage("gate: the demo's mistake", GATE_PART, partial(gate_demo, device))
    )
    return found


def clocks_of(device: str, series: Series, seconds: float) -> dict[str, Any]:
    return measure(series, device, seconds)


def gate_stack(
    device: str, size: int, old: str, new: str, seconds: float
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(
        prefix="perfgate-day-", ignore_cleanup_errors=True
    ) as scratch:
        repository = Path(scratch) / "stack"
        repository.mkdir()
        model = MODEL.replace("{size}", str(size), 1)
        (repository / "model.py").write_text(model)
        (repository / "perf.py").write_text(WORKLOAD)
        (repository / "perfgate.toml").write_text(
            SETTINGS.format(device) + budget(seconds)
        )
        git(repository, "init", "--quiet", "--initial-branch", "main")
        commit(repository, "base")
        (repository / "model.py").write_text(model.replace(old, new, 1))
        commit(repository, "head")
        return gate(repository, device, seconds)


def gate_demo(device: str, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(
        prefix="perfgate-day-", ignore_cleanup_errors=True
    ) as scratch:
        repository = Path(scratch) / "demo"
        shutil.copytree(DEMO / "main", repository)
        with (repository / "perfgate.toml").open("a") as settings:
            settings.write(budget(seconds))
        git(repository, "init", "--quiet", "--initial-branch", "main")
        commit(repository, "base")
        shutil.copytree(DEMO / "mistake", repository, dirs_exist_ok=True)
        commit(repository, "head")
        return gate(repository, device, seconds)


def budget(seconds: float) -> str:
    """The settings by which a gate ends within some seconds."""
    return BUDGET.format(
        pairs=max(10.0, PAIRS_SHARE * seconds), checklist=CHECKLIST_SHARE * seconds
    )


def gate(repository: Path, device: str, seconds: float) -> dict[str, Any]:
    """Gate the last commit; the reason if that does not end in time."""
    out, log = repository.parent / "out", repository.parent / "check.log"
    command = [
        sys.executable,
        "-m",
        "perfgate",
        "check",
        "--base",
        "HEAD~1",
        "--always",
        "--device",
        device,
    ]
    command += ["--steps", STEPS, "--out", str(out)]
    environment = {**os.environ, "PERFGATE_STORE": str(repository.parent / "store.db")}
    with log.open("w") as output:
        check = subprocess.Popen(
            command,
            cwd=repository,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        code = check.wait(seconds - STOP_SECONDS)
    except subprocess.TimeoutExpired:
        reason = f"no verdict after {seconds:.0f} s; at last: {last_line(log)}"
        stop(check)
        return {"verdict": "none", "unfinished": reason}
    decision_file, comment_file = out / "decision.json", out / "comment.md"
    if not decision_file.exists() or not comment_file.exists():
        return {"verdict": "none", "exit_code": code, "unfinished": last_line(log)}
    decision = json.loads(decision_file.read_text())
    title = re.search(r"^## (.*)$", comment_file.read_text(), re.MULTILINE)
    return {
        "verdict": decision["verdict"],
        "exit_code": code,
        "pairs": decision["measured"].get("pairs"),
        "title": title[1] if title else "",
    }


def stop(check: subprocess.Popen[bytes]) -> None:
    """Interrupt a check, so that it cleans up, and kill what is left of it."""
    check.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        check.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(check.pid, signal.SIGKILL)
    check.wait()


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next(
        (line.strip()[-300:] for line in reversed(lines) if line.strip()), "no output"
    )


class Watch:
    """Reads the clock, the power and the reasons for a lower clock while a stage runs,
    if nvidia-smi is there.
    """

    def __init__(self, device: str) -> None:
        self._program = (
            shutil.which("nvidia-smi") if device.startswith("cuda") else None
        )
        self._readings: list[list[str]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._read, name="watch of the card", daemon=True
        )

    def __enter__(self) -> Watch:
        if self._program:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._program:
            self._thread.join()

    def _read(self) -> None:
        command = [
            str(self._program),
            f"--query-gpu={WATCHED}",
            "--format=csv,noheader,nounits",
        ]
        while not self._ended.wait(WATCH_SECONDS):
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=10, check=False
            )
            if done.returncode == 0:
                self._readings.append(
                    [cell.strip() for cell in done.stdout.splitlines()[0].split(",")]
                )

    def summary(self) -> dict[str, Any] | None:
        """How often each reason was active, and the ends of clock, power and
        temperature; None without readings.
        """
        if not self._readings:
            return None
        columns = list(zip(*self._readings))
        ends = {
            name: [min(map(float, column)), max(map(float, column))]
            for name, column in zip(
                ("clock_mhz", "most_mhz", "watt", "celsius"), columns
            )
            if all(re.fullmatch(r"[\d.]+", cell) for cell in column)
        }
        return {**ends, "reasons": Counter(columns[-1])}


def machine() -> dict[str, str]:
    import torch

    found = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.cuda.is_available():
        found["card"] = torch.cuda.get_device_name()
        found["cuda"] = str(torch.version.cuda)
    return found


def print_tables(day: dict[str, Any]) -> None:
    """The tables for docs/supported.md."""
    clocks = {name: stage for name, stage in day["stages"].items() if "clocks" in stage}
    if clocks:
        print(
            "\n| clocks of two resident sides | start | call | a quad | "
            + " | ".join(CLOCKS)
            + " |"
        )
        print("|---|--:|--:|--:|" + "---|" * len(CLOCKS))
        for stage in clocks.values():
            cells = [_cell(stage["clocks"].get(clock)) for clock in CLOCKS]
            times = f"{stage['load_seconds']:.1f} s | {1e3 * stage['call_seconds']:.2f} ms | {stage['quad_seconds']:.2f} s"
            print(
                f"| {stage['name']} ({len(stage['quads'])} quads) | {times} | "
                + " | ".join(cells)
                + " |"
            )
        print("\nEffect, spread of a quad within a start, spread of starts.")
    gates = {name: stage for name, stage in day["stages"].items() if "verdict" in stage}
    if gates:
        print(
            "\n| gate | verdict | pairs | seconds | host load | title |\n|---|---|--:|--:|---|---|"
        )
        for name, stage in gates.items():
            title = stage.get("title", stage.get("unfinished", "")).replace("|", "\\|")
            numbers = f"{stage.get('pairs')} | {stage['seconds']:.0f} | {stage.get('host_load', '–')}"
            print(
                f"| {name.removeprefix('gate: ')} | {stage['verdict']} | {numbers} | {title} |"
            )


def _cell(clock: dict[str, float | None] | None) -> str:
    if clock is None:
        return "–"
    effect, quad, start = (clock[name] for name in ("effect", "quad", "start"))
    return f"{effect:+.2%}, {_share(quad)}, {_share(start)}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"


def write(path: Path, day: dict[str, Any]) -> None:
    """Under another name first: the machine may be taken away meanwhile."""
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(day, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def commit(repository: Path, message: str) -> None:
    git(repository, "add", ".")
    identity = ("-c", "user.name=Lab", "-c", "user.email=lab@example.org")
    git(repository, *identity, "commit", "--quiet", "--message", message)


def git(repository: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-C", str(repository), *arguments], check=True, capture_output=True
    )


if __name__ == "__main__":
    sys.exit(main())
