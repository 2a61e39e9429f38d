"""Gate servers, ranks and commands that nobody tuned perfgate for: verdicts, named
causes, and the share of recorded wall time.

    python benchmarks/jobs/gate_jobs.py                     # everything once: about an hour and a half
    python benchmarks/jobs/gate_jobs.py --minutes 25        # as much of it as that takes, the causes last
    python benchmarks/jobs/gate_jobs.py --only causes
    python benchmarks/jobs/gate_jobs.py --only equal --times 5 --neighbours 2   # beside two other processes: a load of 3

Rows are printed as they end, and the table at last. With ``--out`` a line of JSON for
every gate is added to a file. The servers are a plain asyncio one, the same closing
after each answer, llama.cpp's and ``transformers serve``.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from changes import (
    CAUSES,
    EQUAL,
    EQUAL_COMMAND,
    FIVE_PERCENT,
    FOURTEEN_PERCENT,
    SLOWER_COMMAND,
    Change,
)

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent / "gate" / "lab"))
import neighbours  # noqa: E402

PARTS = ("equal", "slower", "command", "causes")
SERVERS = ("asyncio", "closing", "llama", "transformers")
NAMES = ("-c", "user.name=perfgate", "-c", "user.email=perfgate@example.invalid")
# The budget of the programs, overrun by a third, and what starting and profiling comes
# to.
_GATE_MINUTES = 6
# Of llama.cpp's server, 20 layers are the base; of `transformers serve` the changes of
# examples/serving are the nearest.
LLAMA_LAYERS = {"equal": 20, "+5 %": 21, "+14 %": 23}
SERVING_CHANGES = {"equal": "rename", "+14 %": "layer"}


class Trial(NamedTuple):
    """A gate to be run: in which part of the table, of what, with which change, and the
    verdict that is right.
    """

    part: str
    program: str
    change: str
    wanted: str
    names: tuple[str, ...]
    plant: Callable[[Path], None]


class Row(NamedTuple):
    """What a gate said; ``recorded`` is the share of its wall time that is recorded
    turns.
    """

    part: str
    program: str
    change: str
    verdict: str
    is_right: bool
    seconds: float
    recorded: float
    title: str
    first: str


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        default=",".join(PARTS),
        help=f"parts of the table: {', '.join(PARTS)}",
    )
    parser.add_argument(
        "--servers",
        default=",".join(SERVERS),
        help=f"of the first two parts: {', '.join(SERVERS)}",
    )
    parser.add_argument(
        "--times",
        type=int,
        default=1,
        help="how often each gate of the first three parts is run",
    )
    parser.add_argument(
        "--neighbours",
        type=int,
        default=0,
        help="other processes that keep running beside the gates",
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no gate after so many"
    )
    parser.add_argument("--change", help="only changes whose name holds this text")
    parser.add_argument(
        "--keep", type=Path, help="keep each gate's output in this folder"
    )
    parser.add_argument(
        "--out", type=Path, help="add a line of JSON for each gate to this file"
    )
    options = parser.parse_args()
    rows, began = [], time.monotonic()
    servers = [server for server in options.servers.split(",") if is_installed(server)]
    trials = list(trials_of(options.only.split(","), servers, options.times))
    for number, trial in enumerate(
        trial for trial in trials if (options.change or "") in trial.change
    ):
        # The last gate too is to end in time.
        if time.monotonic() - began > 60 * (options.minutes - _GATE_MINUTES):
            break
        with neighbours.running(options.neighbours):
            row = gate(
                trial,
                options.keep
                and options.keep / f"{number}-{trial.change.replace(' ', '-')}",
            )
        rows.append(row)
        print(
            f"{row.part:8} {row.program:13} {row.change:22} {row.verdict:13} {'right' if row.is_right else 'WRONG':6} "
            f"{row.seconds:5.0f} s  {row.recorded:4.0%}  {row.title}",
            flush=True,
        )
        if options.out:
            with options.out.open("a", encoding="utf-8") as out:
                print(json.dumps(row._asdict()), file=out)
    print_table(rows)
    return 0


def is_installed(server: str) -> bool:
    """Whether a server can be started; prints what it lacks."""
    lacks = (
        server == "transformers" and importlib.util.find_spec("transformers") is None
    )
    if lacks:
        print(
            f"{server} is left out: pip install -r {ROOT / 'examples' / 'serving' / 'requirements.txt'}",
            flush=True,
        )
    return not lacks


def trials_of(parts: list[str], servers: list[str], times: int) -> Iterator[Trial]:
    """Yield the gates, round by round, so that a run that is cut short has something of
    everything but the causes.
    """
    of_servers = (
        (EQUAL, "equal", "PASS"),
        (FOURTEEN_PERCENT, "slower", "FAIL"),
        (FIVE_PERCENT, "slower", "FAIL"),
    )
    for _ in range(times):
        if "command" in parts:
            for change, wanted in ((EQUAL_COMMAND, "PASS"), (SLOWER_COMMAND, "FAIL")):
                yield Trial(
                    "command",
                    "command",
                    change.name,
                    wanted,
                    (),
                    partial(plant_program, change),
                )
        for server in servers:
            for change, part, wanted in of_servers:
                if part in parts and (plant := server_with(server, change)):
                    yield Trial(part, server, change.name, wanted, (), plant)
    if "causes" in parts:
        for change in CAUSES:
            names = (*change.names, *lines_of(change))
            yield Trial(
                "causes",
                change.program,
                change.name,
                "FAIL",
                names,
                partial(plant_program, change),
            )


def lines_of(change: Change) -> list[str]:
    """The lines of the head that differ, as a comment names them."""
    before = (HERE / "programs" / change.program / change.file).read_text()
    after = before.replace(change.old, change.new).splitlines()
    blocks = difflib.SequenceMatcher(
        a=before.splitlines(), b=after, autojunk=False
    ).get_opcodes()
    return [
        f"`{change.file}:{line + 1}`"
        for kind, _, _, first, end in blocks
        if kind != "equal"
        for line in range(first, end)
    ]


def server_with(server: str, change: Change) -> Callable[[Path], None] | None:
    """What plants the change into a server; None if that has no such change."""
    if server == "llama":
        return partial(plant_llama, LLAMA_LAYERS[change.name])
    if server == "transformers":
        return (
            partial(plant_serving, SERVING_CHANGES[change.name])
            if change.name in SERVING_CHANGES
            else None
        )
    return partial(plant_program, change, closes=server == "closing")


# --- repositories


def plant_program(change: Change, project: Path, *, closes: bool = False) -> None:
    shutil.copytree(
        HERE / "programs" / change.program,
        project,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    settings = project / "perfgate.toml"
    text = (
        settings.read_text().replace("python", sys.executable, 1)
        if change.program != "trained"
        else ""
    )
    settings.write_text(
        (text or settings.read_text()).replace(
            "$PORT", "$PORT close" if closes else "$PORT"
        )
    )
    commit(project, "main")
    file = project / change.file
    before = file.read_text()
    assert before.count(change.old) == 1, (change.name, change.old)
    file.write_text(before.replace(change.old, change.new))
    commit(project, "change")


def plant_llama(layers: int, project: Path) -> None:
    sys.path.insert(0, str(ROOT))
    from tests.jobs.test_llama import SETTINGS
    from tests.jobs.tools import installed

    project.mkdir()
    python = installed("xllamacpp==2026.10.11549", "gguf==0.19.0") / "python"
    shutil.copy(ROOT / "tests" / "jobs" / "llama_server.py", project)
    settings = SETTINGS.format(python=python).replace("budget = 90", "budget = 240")
    (project / "perfgate.toml").write_text(settings)
    words = ["the", "dog", "and", "a", "cat", "ran", "by"]
    texts = [
        " ".join(words[(line + word) % len(words)] for word in range(60))
        for line in range(12)
    ]
    log = [
        {"at": 0, "prompt": f"{chr(ord('a') + line)} {text}", "output": 12}
        for line, text in enumerate(texts)
    ]
    (project / "log.jsonl").write_text("\n".join(map(json.dumps, log)))
    (project / "layers.txt").write_text(f"{LLAMA_LAYERS['equal']}\n")
    commit(project, "main")
    (project / "layers.txt").write_text(f"{layers}\n")
    (project / "notes.txt").write_text("notes\n")
    commit(project, "change")


def plant_serving(change: str, project: Path) -> None:
    example = ROOT / "examples" / "serving"
    shutil.copytree(
        example,
        project,
        ignore=shutil.ignore_patterns("changes", "README.md", "__pycache__"),
    )
    settings = project / "perfgate.toml"
    settings.write_text(settings.read_text() + "budget = 240\n")
    commit(project, "main")
    patch = example / "changes" / f"{change}.patch"
    subprocess.run(
        ["git", "apply", "--unidiff-zero", str(patch)], cwd=project, check=True
    )
    commit(project, "change")


def commit(project: Path, branch: str) -> None:
    """Commit everything to a new branch."""
    if not (project / ".git").exists():
        subprocess.run(
            ["git", "init", "--quiet", "--initial-branch", branch],
            cwd=project,
            check=True,
        )
    else:
        subprocess.run(
            ["git", "checkout", "--quiet", "-b", branch], cwd=project, check=True
        )
    subprocess.run(["git", "add", "--all"], cwd=project, check=True)
    subprocess.run(
        ["git", *NAMES, "commit", "--quiet", "--message", branch],
        cwd=project,
        check=True,
    )


# --- gates


def gate(trial: Trial, keep: Path | None) -> Row:
    with tempfile.TemporaryDirectory(prefix="perfgate-job-") as scratch:
        project, out = Path(scratch) / "project", Path(scratch) / "out"
        trial.plant(project)
        began = time.monotonic()
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
        ]
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {
            **os.environ,
            "PERFGATE_STORE": str(Path(scratch) / "store.db"),
            "PATH": path,
        }
        done = subprocess.run(
            command,
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - began
        if keep:
            shutil.copytree(out, keep, dirs_exist_ok=True)
        if not (out / "decision.json").is_file():
            return Row(
                *trial[:3], "none", False, seconds, 0.0, done.stderr.strip()[-300:], ""
            )
        decision = json.loads((out / "decision.json").read_text())
        turns = [
            turn
            for side in ("base", "head")
            for turn in json.loads((out / side / "run.json").read_text())["jobs"][
                "turns"
            ]
        ]
        comment = (out / "comment.md").read_text()
    title = next(line for line in comment.splitlines() if line.startswith("## "))
    first = first_cause(comment)
    # Of a cause elsewhere the title says too which lines the change touches.
    named = title.partition(", a line that did not change")[0] + first
    is_named = not trial.names or any(name in named for name in trial.names)
    recorded = sum(turn["seconds"] for turn in turns) / seconds
    verdict = decision["verdict"]
    return Row(
        *trial[:3],
        verdict,
        verdict == trial.wanted and is_named,
        seconds,
        recorded,
        title,
        first,
    )


def first_cause(comment: str) -> str:
    """The block of the first cause."""
    shown = comment.partition("<details")[0]
    return shown.partition("**1.")[2].partition("**2.")[0].strip()


def print_table(rows: list[Row]) -> None:
    print(
        "\n| part | program | change | right | verdicts | seconds | recorded |\n|---|---|---|--:|---|--:|--:|"
    )
    for key in dict.fromkeys((row.part, row.program, row.change) for row in rows):
        of_key = [row for row in rows if row[:3] == key]
        verdicts: dict[str, Any] = {}
        for row in of_key:
            verdicts[row.verdict] = verdicts.get(row.verdict, 0) + 1
        counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
        seconds = f"{min(row.seconds for row in of_key):.0f}–{max(row.seconds for row in of_key):.0f}"
        recorded = sum(row.recorded for row in of_key) / len(of_key)
        right = sum(row.is_right for row in of_key)
        print(
            f"| {' | '.join(key)} | {right} of {len(of_key)} | {counted} | {seconds} | {recorded:.0%} |"
        )
    for part in dict.fromkeys(row.part for row in rows):
        of_part = [row for row in rows if row.part == part]
        print(f"{part}: {sum(row.is_right for row in of_part)} of {len(of_part)} right")


if __name__ == "__main__":
    sys.exit(main())
