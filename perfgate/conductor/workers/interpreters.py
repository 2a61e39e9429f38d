"""The interpreters that workers run in: perfgate's own, one named on the command line, or one made for a side."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.conductor.workers.logs import one_line
from perfgate.errors import ConfigError, UsageError
from perfgate.protocol import About

ABOUT_SECONDS = 120.0
RUNNING = Path(sys.executable)


def is_running(python: Path | None) -> bool:
    """Return whether a path is the interpreter that runs perfgate. A venv's is a link, and the link is what counts."""
    return python is None or python.absolute() == RUNNING.absolute()


def check_given(python: Path, option: str) -> Path:
    """Return the absolute path of an interpreter named on the command line. Raises UsageError when it is none."""
    # Not resolved: what the link in a venv points to is an interpreter without the venv's packages.
    found = python.expanduser().absolute()
    if not found.is_file() or not os.access(found, os.X_OK):
        raise UsageError(
            f"{option} {python} is no interpreter; name the python of an environment, e.g. venv/bin/python"
        )
    return found


def share_code(folder: Path) -> Path:
    """Make ``folder`` the place where every interpreter finds this very perfgate, and nothing else of ours; return it.

    Both sides must be measured by the same code, whatever perfgate an environment holds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "perfgate"
    if not link.is_symlink():
        link.symlink_to(Path(__file__).resolve().parents[2])
    return folder


def with_code(environment: Mapping[str, str], code: Path) -> dict[str, str]:
    """Return an environment in which an interpreter finds the perfgate in ``code`` before any other."""
    path = [str(code), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(path)}


class Told(NamedTuple):
    """What a module said on the last line of standard output, None where it failed; ``complaint`` is then why."""

    answer: bytes | None
    complaint: str


def ask_module(
    python: Path, arguments: Sequence[str], environment: Mapping[str, str], *, cwd: Path, timeout: float
) -> Told:
    """Run ``python -m`` with these arguments. Raises OSError or TimeoutExpired where it cannot be run to its end."""
    done = subprocess.run(
        [str(python), "-m", *arguments],
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        start_new_session=True,
        check=False,
    )
    last = done.stdout.strip().rpartition(b"\n")[2]
    complaint = done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or last.decode(errors="replace")
    return Told(last if done.returncode == 0 else None, one_line(complaint) or f"exit code {done.returncode}")


def ask_about(python: Path, environment: Mapping[str, str], *, cwd: Path, remedy: str) -> About:
    """Return an interpreter's version and packages. Raises ConfigError with the remedy when no worker can run in it."""
    try:
        told = ask_module(python, ["perfgate.measuring.worker.about"], environment, cwd=cwd, timeout=ABOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{python} cannot be started: {error}; {remedy}") from error
    if told.answer is not None:
        try:
            return msgspec.json.decode(told.answer, type=About)
        except msgspec.DecodeError:
            pass  # it prints something at its end; what follows says what
    raise ConfigError(f"no worker can run in {python}: {told.complaint}; {remedy}")
