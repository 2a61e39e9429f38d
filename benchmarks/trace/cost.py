"""What reading a trace costs beside other ways to answer the same from one file: CPU
seconds and memory, in turns.

    python benchmarks/trace/cost.py --events 200000 --tools

``top`` and ``flame`` are the commands of ``perfgate trace``. ``run`` is
``perfgate run --from-profile``, and ``all`` answers everything that ``ways.py`` asks
for: totals, gaps, tree of calls. ``--tools`` adds HolisticTraceAnalysis (kernel and
temporal breakdown of the one trace) and msprof-analyze (``compare`` of the other with
itself, beside ``perfgate trace diff``), each installed into build/trace-tools. Ratios
within one run are the result; the seconds depend on the machine. No bound is asserted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from generate import write
from ways import RIVALS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TRACE = (sys.executable, "-m", "perfgate", "trace")
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_temporal_breakdown(visualize=False)
"""

Command = Sequence[str | Path]


class Cost(NamedTuple):
    """CPU seconds of a process and its children, and the most bytes of memory that are
    no file's, 0 where nobody looked.
    """

    cpu_seconds: float
    memory_bytes: int
    answer: dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Compare ways to read a generated trace."
    )
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--tools",
        action="store_true",
        help="also HolisticTraceAnalysis and msprof-analyze",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for layout in ("kineto", "trace_view"):
            path = folder / (
                "trace_view.json"
                if layout == "trace_view"
                else "generated.pt.trace.json"
            )
            write(path, layout=layout, events=options.events)
            report(layout, path, commands(path, folder), options.turns)
            if options.tools:
                report(f"{layout}, other tools", path, tools(path, folder), 1)
            path.unlink()


def commands(path: Path, folder: Path) -> dict[str, Command]:
    rivals: dict[str, Command] = {"top": [*TRACE, "top", path]}
    rivals["flame"] = [*TRACE, "flame", path, "--out", folder / "flame.html"]
    rivals["run"] = [
        *TRACE[:-1],
        "run",
        "--from-profile",
        path,
        "--out",
        folder / "run",
    ]
    for rival in RIVALS:
        rivals["all" if rival == "perfgate" else rival] = [
            sys.executable,
            HERE / "ways.py",
            rival,
            path,
        ]
    return rivals


def tools(path: Path, folder: Path) -> dict[str, Command]:
    """What other tools take for a trace of theirs, beside the same of perfgate."""
    if path.name != "trace_view.json":
        return {
            "top": [*TRACE, "top", path],
            "HTA": [installed("HolisticTraceAnalysis") / "python", "-c", HTA, path],
        }
    profiles = []
    for side in ("base", "head"):
        output = folder / f"{side}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True)
        (output.parent / "profiler_info_0.json").write_text(json.dumps({"rank_id": 0}))
        (output / path.name).symlink_to(path)
        profiles.append(output.parent)
    base, head = profiles
    compare = installed("msprof-analyze") / "msprof-analyze"
    return {
        "diff": [*TRACE, "diff", base, head],
        "msprof": [
            compare,
            "compare",
            "-d",
            head,
            "-bp",
            base,
            "-o",
            folder / "compared",
            "--force",
        ],
    }


def installed(package: str) -> Path:
    """The folder of programs of an environment of a tool's own."""
    folder = ROOT / "build" / "trace-tools" / package
    if not (folder / "done").exists():
        venv.create(folder, with_pip=True)
        subprocess.run(
            [folder / "bin/python", "-m", "pip", "install", "--quiet", package],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        (folder / "done").touch()
    return folder / "bin"


def report(title: str, path: Path, rivals: Mapping[str, Command], turns: int) -> None:
    """Print the lowest cost of every way, which others on the machine disturb least."""
    size = path.stat().st_size
    costs = cheapest(rivals, turns)
    first = next(iter(costs.values())).cpu_seconds
    msgspec = costs["msgspec"].cpu_seconds if "msgspec" in costs else math.nan
    print(f"{title}: {size / 1e6:.0f} MB")
    columns = f"{'CPU s':>8}{'CPU s/GB':>10}{next(iter(costs)) + '/it':>10}{'of msgspec':>12}{'memory/file':>13}"
    print(f"  {'':10}{columns}   gaps   busy us")
    for rival, best in costs.items():
        answer = (
            f"{best.answer['gaps']:<6} {best.answer['busy_us']:.3f}"
            if best.answer
            else ""
        )
        of_msgspec = best.cpu_seconds / msgspec
        print(
            f"  {rival:10}{best.cpu_seconds:8.2f}{best.cpu_seconds / size * 1e9:10.1f}{first / best.cpu_seconds:10.3f}"
            f"{of_msgspec:12.3f}"
            f"{best.memory_bytes / size:13.2f}   {answer}"
        )


def cheapest(ways: Mapping[str, Command], turns: int) -> dict[str, Cost]:
    """The lowest of the costs of each way, run in turns; and the memory of one more
    run, since looking at it takes time.
    """
    costs: dict[str, list[Cost]] = {way: [] for way in ways}
    for _ in range(turns):
        for way, command in ways.items():
            costs[way].append(cost(command))
    return {
        way: min(each, key=lambda one: one.cpu_seconds)._replace(
            memory_bytes=cost(ways[way], look=True).memory_bytes
        )
        for way, each in costs.items()
    }


def cost(command: Command, *, look: bool = False) -> Cost:
    """Run one way in a process of its own, and ``look`` at its memory all the while."""
    peak = 0
    # A checkout has its modules compiled, as an installation has.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE"
    }
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=printed,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        while True:
            peak = max(peak, anonymous_bytes(process.pid)) if look else 0
            done, status, used = os.wait4(process.pid, os.WNOHANG if look else 0)
            if done:
                process.returncode = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.002)
        if process.returncode:
            raise SystemExit(f"{' '.join(map(str, command))} failed")
        printed.seek(0)
        text = printed.read()
    answer = json.loads(text) if text.startswith(('{"nodes"', '{"names"')) else {}
    return Cost(used.ru_utime + used.ru_stime, peak, answer)


def anonymous_bytes(pid: int) -> int:
    """The memory of a process that no file stands behind; 0 where it has ended
    (proc(5), RssAnon).
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next(
        (
            int(line.split()[1]) * 1024
            for line in status.splitlines()
            if line.startswith("RssAnon:")
        ),
        0,
    )


if __name__ == "__main__":
    main()
