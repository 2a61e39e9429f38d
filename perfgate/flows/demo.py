"""``perfgate demo``: a complete tour on this machine, in a scratch repository, with the
commands a user would type.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from perfgate.document.files import read_decision
from perfgate.errors import (
    EXIT_FAIL,
    EXIT_MEASURING,
    EXIT_PASS,
    MeasuringError,
    UsageError,
)
from perfgate.flows.shared.scratch import ScratchRepository
from perfgate.judging.report.render.terminal import preview_comment
from perfgate.locale import sentence
from perfgate.system.folders import PACKAGE

PROJECT = PACKAGE / "demo"


@dataclass(frozen=True)
class DemoChange:
    """A change of the demo and the exit code that the gate must give."""

    name: str
    title: str
    exit_code: int


CHANGES = (
    DemoChange(
        "mistake",
        "Keep the attention weights of each head for the explanation page",
        EXIT_FAIL,
    ),
    DemoChange(
        "refactor", "Give attention a file of its own and clearer names", EXIT_PASS
    ),
)

# The files worth opening first, with their labels.
PAGES = {
    "report.html": "the report",
    "head/flame.html": "flame graph",
    "comment.md": "the comment",
}
LINE = "=" * 78
# Latency, utilization, transfer, and top operators with the counters: all that a
# verdict rests on. The other steps inform, and would triple the time.
STEPS = "1-4"

Echo = Callable[[str], None]


class Phase(NamedTuple):
    """A part of the demo, with its seconds by the clock and of CPU time."""

    name: str
    seconds: float
    cpu_seconds: float


@dataclass
class Shell:
    """Types commands of perfgate in a folder, as a user would, and notes how long the
    parts of the demo take.
    """

    folder: Path
    environment: dict[str, str]
    echo: Echo
    phases: list[Phase] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def perfgate(self, *arguments: str, quiet: bool = False) -> int:
        """Run perfgate. Messages go to the terminal; so does standard output, unless
        ``quiet``.
        """
        self.echo(f"$ perfgate {' '.join(arguments)}")
        command = [sys.executable, "-m", "perfgate", *arguments]
        stdout = None
        if quiet:
            stdout = subprocess.DEVNULL
        began = time.monotonic()
        code = subprocess.run(
            command, cwd=self.folder, env=self.environment, stdout=stdout, check=False
        ).returncode
        self.echo(
            sentence(
                "(exit code {code}, after {seconds:.0f} s)",
                code=code,
                seconds=time.monotonic() - began,
            )
        )
        return code

    def end_phase(self, name: str) -> None:
        before = self.total()
        own = resource.getrusage(resource.RUSAGE_SELF)
        below = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime
        seconds = time.monotonic() - self.began - before.seconds
        self.phases.append(Phase(name, seconds, cpu - before.cpu_seconds))

    def total(self) -> Phase:
        """All phases so far."""
        seconds = cpu_seconds = 0.0
        for phase in self.phases:
            seconds += phase.seconds
            cpu_seconds += phase.cpu_seconds
        return Phase(sentence("in all"), seconds, cpu_seconds)


def run_demo(folder: Path | None, echo: Echo) -> int:
    """Play the demo in ``folder`` (default: a new temporary one) and return the exit
    code: 0 when both verdicts are right.
    """
    if folder is None:
        place = Path(tempfile.mkdtemp(prefix="perfgate-demo-"))
    elif folder.exists() and any(folder.iterdir()):
        raise UsageError(
            "{folder} is not empty; give the demo an empty folder", folder=folder
        )
    else:
        folder.mkdir(parents=True, exist_ok=True)
        place = folder.resolve()
    project, results = place / "project", place / "results"
    environment = {
        **os.environ,
        "PERFGATE_STORE": str(place / "store.db"),
        "COLUMNS": "110",
    }
    shell = Shell(project, environment, echo)
    echo(sentence("The demo plays in {place}", place=place) + "\n")
    repository = _commit_main(project, echo)
    mistake, refactoring = CHANGES
    codes = [_judge(repository, mistake, 2, results, shell)]
    shell.end_phase(sentence("verdict on the mistake"))
    repository.git("checkout", "--quiet", "main")
    third = sentence(
        "3. A run of main goes into the store; later comments show it next to their own times"
    )
    echo(f"\n{LINE}\n{third}\n")
    out = str(place / "main")
    run = shell.perfgate("run", "--quick", "--steps", STEPS, "--out", out, quiet=True)
    code = run or shell.perfgate("baseline", "record", "--run", f"{out}/run.json")
    if code != EXIT_PASS:
        raise MeasuringError(
            "main could not be recorded (exit code {code}); see the message above",
            code=code,
        )
    shell.end_phase(sentence("run of main"))
    codes.append(_judge(repository, refactoring, 4, results, shell))
    shell.end_phase(sentence("verdict on the refactoring"))
    return _conclude(codes, results, shell)


def _commit_main(project: Path, echo: Echo) -> ScratchRepository:
    shutil.copytree(
        PROJECT / "main", project, ignore=shutil.ignore_patterns("__pycache__")
    )
    repository = ScratchRepository(project, "demo")
    (project / ".gitignore").write_text("__pycache__/\n.perfgate/\nperfgate-out/\n")
    repository.start("A ranker for shopping sessions")
    echo(
        sentence(
            "1. A small model project, committed as main. Its workload is this file:"
        )
        + "\n"
    )
    echo((project / "perf" / "workload.py").read_text())
    return repository


def _judge(
    repository: ScratchRepository,
    change: DemoChange,
    number: int,
    results: Path,
    shell: Shell,
) -> tuple[DemoChange, int]:
    project = repository.root
    out = results / change.name
    echo = shell.echo
    repository.branch(change.name)
    shutil.copytree(
        PROJECT / change.name,
        project,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    repository.commit(change.title)
    echo(
        "\n".join(
            [
                LINE,
                sentence(
                    "{number}. A change request: {title}",
                    number=number,
                    title=change.title,
                ),
                "",
            ]
        )
    )
    echo(repository.git("diff", "--stat", "main"))
    # Quiet, because the check ends by printing the comment in its terminal form; it
    # follows below.
    short = ("--steps", STEPS, "--checklist-budget", "0")
    code = shell.perfgate(
        "check", "--base", "main", *short, "--out", str(out), quiet=True
    )
    if code == EXIT_MEASURING or not (out / "comment.md").exists():
        raise MeasuringError(
            "the demo could not be measured (perfgate check ended with {code}); see {out}",
            code=code,
            out=out,
        )
    echo("\n" + sentence("The comment the change request would get:") + "\n")
    preview_comment((out / "comment.md").read_text(encoding="utf-8"), Console())
    return change, code


def _conclude(codes: list[tuple[DemoChange, int]], results: Path, shell: Shell) -> int:
    echo = shell.echo
    echo("\n".join(["", LINE, sentence("What was judged, and where to look:"), ""]))
    for change, code in codes:
        out = results / change.name
        verdict = read_decision(out / "decision.json").verdict
        mark = sentence("as it must")
        if code != change.exit_code:
            mark = sentence("EXPECTED exit code {code}", code=change.exit_code)
        values = {"name": change.name, "verdict": verdict, "code": code, "mark": mark}
        echo("  " + sentence("{name}: {verdict}, exit code {code} ({mark})", **values))
        for file, description in PAGES.items():
            if (out / file).exists():
                echo(f"    {description:13}{out / file}")
    measured = sentence(
        "The demo measures steps {steps} of the checklist, once on each side; a check measures all that apply, in turns.",
        steps=STEPS,
    )
    echo(f"\n{measured}")
    for phase in (*shell.phases, shell.total()):
        seconds = sentence(
            "{wall:5.0f} s, {cpu:5.0f} s of CPU time",
            wall=phase.seconds,
            cpu=phase.cpu_seconds,
        )
        echo(f"  {phase.name:28}{seconds}")
    echo("\n" + sentence("Next: `perfgate init` in a repository of yours."))
    if all(code == change.exit_code for change, code in codes):
        return EXIT_PASS
    rest = sentence(
        "Not every verdict is as it must be. On a busy machine a time comparison may stay undecided; try again."
    )
    echo(f"\n{rest}")
    return EXIT_MEASURING
