"""The quarter of an hour in which a card is at hand: its clocks, and then whole gates on it.

    make device-day DEVICE=cuda
    python benchmarks/accelerator/day.py --device cuda --out device-day.json
    python benchmarks/accelerator/day.py --table device-day.json

First six clocks of two resident sides over several starts, of a model bound by the host, one by the device and one by memory,
then with a kernel and a loop planted (clocks.py); then `perfgate check` of equal code, of a planted kernel, of a planted loop
and of the demo's mistake. A stage begins only if there is time for it. The file is written after every stage, and a stage that
is in it is not run again, so a day that was cut short goes on where it ended. The exit code is 0 if every stage is there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from clocks import CLOCKS, Series, measure

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "perfgate" / "demo"
# Seconds of the whole day, and those that a stage needs to be begun.
DAY_SECONDS, CLOCKS_SECONDS, GATE_SECONDS = 720.0, 60.0, 90.0
STARTS, QUADS = 4, 24
QUICK_STARTS, QUICK_QUADS = 2, 3
SERIES = (("tiny", ""), ("gemm", ""), ("stream", ""), ("gemm", "device"), ("tiny", "host"))
WATCHED = "clocks.sm,clocks.max.sm,power.draw,temperature.gpu,clocks_event_reasons.active"
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
CALL = "        for layer in self.layers:\n"
# Nothing that runs; before the loop over the layers 1 % more of the device's work; or 2,000 turns of a loop of Python there.
PLANTS = {
    "equal code": ("import torch\n", "import torch\n\n\ndef unused():\n    return 1\n"),
    "a planted kernel": (CALL, "        self.layers[0](x[: len(x) // 8])\n" + CALL),
    "a planted loop": (CALL, "        for _ in range(2000):\n            pass\n" + CALL),
}


class Stage(NamedTuple):
    """A part of the day: the seconds without which it does not begin, and what runs it, which is told the seconds left."""

    name: str
    needed: float
    run: Callable[[float], dict[str, Any]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("device-day.json"))
    parser.add_argument("--seconds", type=float, default=DAY_SECONDS, help="of this call; default: %(default)s")
    parser.add_argument(
        "--quick", action="store_true", help="few quads: shows that everything runs, and measures nothing"
    )
    parser.add_argument("--table", type=Path, help="only print the tables of an earlier --out")
    options = parser.parse_args()
    if options.table:
        print_tables(json.loads(options.table.read_text()))
        return 0
    return run_day(options)


def run_day(options: argparse.Namespace) -> int:
    """Run the stages that are missing in the file, as far as the time allows."""
    day = json.loads(options.out.read_text()) if options.out.exists() else {"device": options.device, "stages": {}}
    if day["device"] != options.device:
        raise SystemExit(f"{options.out} is of {day['device']}; name another file with --out")
    day["machine"] = machine()
    ends = time.monotonic() + options.seconds
    starts, quads, size = (QUICK_STARTS, QUICK_QUADS, QUICK_SIZE) if options.quick else (STARTS, QUADS, SIZE)
    missing: list[str] = []
    for stage in stages(options.device, starts, quads, size):
        if stage.name in day["stages"]:
            continue
        if time.monotonic() + stage.needed > ends:
            missing.append(stage.name)
            continue
        print(f"{stage.name} …", flush=True)
        began = time.monotonic()
        with Watch(options.device) as watch:
            found = stage.run(ends - time.monotonic())
        day["stages"][stage.name] = {**found, "seconds": round(time.monotonic() - began, 1), "watch": watch.summary()}
        write(options.out, day)
    print_tables(day)
    if missing:
        print(f"no time for: {', '.join(missing)}; run it again with the same --out")
    return 1 if missing else 0


def stages(device: str, starts: int, quads: int, size: int = SIZE) -> list[Stage]:
    found: list[Stage] = []
    for model, plant in SERIES:
        series = Series(model, plant, starts, quads)
        found.append(Stage(f"clocks: {series.name}", CLOCKS_SECONDS, partial(clocks_of, device, series)))
    for name, (old, new) in PLANTS.items():
        found.append(Stage(f"gate: {name}", GATE_SECONDS, partial(gate_stack, device, size, old, new)))
    found.append(Stage("gate: the demo's mistake", GATE_SECONDS, partial(gate_demo, device)))
    return found


def clocks_of(device: str, series: Series, _: float) -> dict[str, Any]:
    return measure(series, device)


def gate_stack(device: str, size: int, old: str, new: str, left: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="perfgate-day-") as scratch:
        repository = Path(scratch) / "stack"
        repository.mkdir()
        model = MODEL.replace("{size}", str(size), 1)
        (repository / "model.py").write_text(model)
        (repository / "perf.py").write_text(WORKLOAD)
        (repository / "perfgate.toml").write_text(SETTINGS.format(device))
        git(repository, "init", "--quiet", "--initial-branch", "main")
        commit(repository, "base")
        (repository / "model.py").write_text(model.replace(old, new, 1))
        commit(repository, "head")
        return gate(repository, device, left)


def gate_demo(device: str, left: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="perfgate-day-") as scratch:
        repository = Path(scratch) / "demo"
        shutil.copytree(DEMO / "main", repository)
        git(repository, "init", "--quiet", "--initial-branch", "main")
        commit(repository, "base")
        shutil.copytree(DEMO / "mistake", repository, dirs_exist_ok=True)
        commit(repository, "head")
        return gate(repository, device, left)


def gate(repository: Path, device: str, left: float) -> dict[str, Any]:
    """Gate the last commit; a gate that does not end in time is a result too."""
    out = repository.parent / "out"
    command = [sys.executable, "-m", "perfgate", "check", "--base", "HEAD~1", "--always", "--device", device]
    environment = {**os.environ, "PERFGATE_STORE": str(repository.parent / "store.db")}
    try:
        done = subprocess.run(
            [*command, "--out", str(out)], cwd=repository, env=environment, capture_output=True, text=True, timeout=left,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"verdict": "none", "title": f"not ended after {left:.0f} s"}
    decision = json.loads((out / "decision.json").read_text()) if (out / "decision.json").exists() else {}
    comment = (out / "comment.md").read_text() if (out / "comment.md").exists() else done.stderr
    title = re.search(r"^## .*$", comment, re.MULTILINE)
    return {
        "verdict": decision.get("verdict", "none"),
        "exit_code": done.returncode,
        "pairs": decision.get("pairs"),
        "title": title[0].removeprefix("## ") if title else comment.strip()[-300:],
    }


class Watch:
    """Reads the clock, the power and the reasons for a lower clock while a stage runs, if nvidia-smi is there."""

    def __init__(self, device: str) -> None:
        self._program = shutil.which("nvidia-smi") if device.startswith("cuda") else None
        self._readings: list[list[str]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="watch of the card", daemon=True)

    def __enter__(self) -> Watch:
        if self._program:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._program:
            self._thread.join()

    def _read(self) -> None:
        command = [str(self._program), f"--query-gpu={WATCHED}", "--format=csv,noheader,nounits"]
        while not self._ended.wait(WATCH_SECONDS):
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
            if done.returncode == 0:
                self._readings.append([cell.strip() for cell in done.stdout.splitlines()[0].split(",")])

    def summary(self) -> dict[str, Any] | None:
        """How often each reason was active, and the ends of clock, power and temperature; None without readings."""
        if not self._readings:
            return None
        columns = list(zip(*self._readings))
        ends = {
            name: [min(map(float, column)), max(map(float, column))]
            for name, column in zip(("clock_mhz", "most_mhz", "watt", "celsius"), columns)
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
        print("\n| clocks of two resident sides | start | call | a quad | " + " | ".join(CLOCKS) + " |")
        print("|---|--:|--:|--:|" + "---|" * len(CLOCKS))
        for stage in clocks.values():
            cells = [_cell(stage["clocks"].get(clock)) for clock in CLOCKS]
            times = (
                f"{stage['load_seconds']:.1f} s | {1e3 * stage['call_seconds']:.2f} ms | {stage['quad_seconds']:.2f} s"
            )
            print(f"| {stage['name']} | {times} | " + " | ".join(cells) + " |")
        print("\nEffect, spread of a quad within a start, spread of starts.")
    gates = {name: stage for name, stage in day["stages"].items() if "verdict" in stage}
    if gates:
        print("\n| gate | verdict | pairs | seconds | title |\n|---|---|--:|--:|---|")
        for name, stage in gates.items():
            title = stage["title"].replace("|", "\\|")
            numbers = f"{stage.get('pairs')} | {stage['seconds']:.0f}"
            print(f"| {name.removeprefix('gate: ')} | {stage['verdict']} | {numbers} | {title} |")


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
    subprocess.run(["git", "-C", str(repository), *arguments], check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
