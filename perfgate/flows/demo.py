"""``perfgate demo``: a complete tour on this machine, in a scratch repository, with the commands a user would type."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from perfgate.document.files import read_decision
from perfgate.errors import EXIT_FAIL, EXIT_MEASURING, EXIT_PASS, MeasuringError, UsageError
from perfgate.flows.shared.scratch import ScratchRepository
from perfgate.judging.report.render.terminal import preview_comment
from perfgate.system.folders import PACKAGE

PROJECT = PACKAGE / "demo"


@dataclass(frozen=True)
class DemoChange:
    """A change of the demo and the exit code that the gate must give."""

    name: str
    title: str
    exit_code: int


CHANGES = (
    DemoChange("mistake", "Keep the attention weights of each head for the explanation page", EXIT_FAIL),
    DemoChange("refactor", "Give attention a file of its own and clearer names", EXIT_PASS),
)

# The files worth opening first, with their labels.
PAGES = {"report.html": "the report", "head/flame.html": "flame graph", "comment.md": "the comment"}
LINE = "=" * 78

Echo = Callable[[str], None]


def run_demo(folder: Path | None, echo: Echo) -> int:
    """Play the demo in ``folder`` (default: a new temporary one) and return the exit code: 0 when both verdicts are right."""
    place = _place(folder)
    project, results = place / "project", place / "results"
    echo(f"The demo plays in {place}\n")
    repository = _commit_main(project, echo)
    environment = {**os.environ, "PERFGATE_STORE": str(place / "store.db"), "COLUMNS": "110"}
    mistake, refactoring = CHANGES
    codes = [_judge(repository, mistake, 2, results, environment, echo)]
    repository.git("checkout", "--quiet", "main")
    echo(f"\n{LINE}\n3. A run of main goes into the store, which later comments show beside their own times\n")
    record = ["baseline", "record", "--quick", "--out", str(place / "main")]
    if (code := _perfgate(record, project, environment, echo)) != EXIT_PASS:
        raise MeasuringError("main could not be recorded (exit code {code}); see the message above", code=code)
    codes.append(_judge(repository, refactoring, 4, results, environment, echo))
    return _conclude(codes, results, echo)


def _place(folder: Path | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="perfgate-demo-"))
    if folder.exists() and any(folder.iterdir()):
        raise UsageError("{folder} is not empty; give the demo a folder of its own", folder=folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def _commit_main(project: Path, echo: Echo) -> ScratchRepository:
    shutil.copytree(PROJECT / "main", project, ignore=shutil.ignore_patterns("__pycache__"))
    repository = ScratchRepository(project, "demo")
    (project / ".gitignore").write_text("__pycache__/\n.perfgate/\nperfgate-out/\n")
    repository.start("A ranker for shopping sessions")
    echo("1. A small model project, committed as main. Its workload is this file:\n")
    echo((project / "perf" / "workload.py").read_text())
    return repository


def _judge(
    repository: ScratchRepository,
    change: DemoChange,
    number: int,
    results: Path,
    environment: dict[str, str],
    echo: Echo,
) -> tuple[DemoChange, int]:
    project, out = repository.root, results / change.name
    repository.branch(change.name)
    shutil.copytree(PROJECT / change.name, project, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    repository.commit(change.title)
    echo(f"{LINE}\n{number}. A change request: {change.title}\n")
    echo(repository.git("diff", "--stat", "main"))
    # Quiet, because the check ends by printing the comment in its terminal form; it follows below.
    code = _perfgate(["check", "--base", "main", "--out", str(out)], project, environment, echo, quiet=True)
    if code == EXIT_MEASURING or not (out / "comment.md").exists():
        raise MeasuringError(
            "the demo could not be measured (perfgate check ended with {code}); see {out}", code=code, out=out
        )
    echo("\nThe comment the change request would get:\n")
    preview_comment((out / "comment.md").read_text(encoding="utf-8"), Console())
    return change, code


def _perfgate(
    arguments: list[str], project: Path, environment: dict[str, str], echo: Echo, *, quiet: bool = False
) -> int:
    """Run perfgate as a user would. Messages go to the terminal; so does standard output, unless ``quiet``."""
    echo(f"$ perfgate {' '.join(arguments)}")
    command = [sys.executable, "-m", "perfgate", *arguments]
    stdout = subprocess.DEVNULL if quiet else None
    began = time.monotonic()
    code = subprocess.run(command, cwd=project, env=environment, stdout=stdout, check=False).returncode
    echo(f"(exit code {code}, after {time.monotonic() - began:.0f} s)")
    return code


def _conclude(codes: list[tuple[DemoChange, int]], results: Path, echo: Echo) -> int:
    echo(f"\n{LINE}\nWhat was judged, and where to look:\n")
    for change, code in codes:
        out = results / change.name
        verdict = read_decision(out / "decision.json").verdict
        mark = "as it must" if code == change.exit_code else f"EXPECTED exit code {change.exit_code}"
        echo(f"  {change.name}: {verdict}, exit code {code} ({mark})")
        for file, what in PAGES.items():
            if (out / file).exists():
                echo(f"    {what:13}{out / file}")
    echo("\nNext: `perfgate init` in a repository of yours.")
    if all(code == change.exit_code for change, code in codes):
        return EXIT_PASS
    echo("\nNot every verdict is as it must be. On a busy machine a time comparison may stay undecided; try again.")
    return EXIT_MEASURING
