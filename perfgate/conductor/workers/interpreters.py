"""The interpreters that workers run in, and what they say of themselves, and of a device, in a process without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.conductor.workers.logs import one_line
from perfgate.document.doctor import FitnessCheck
from perfgate.document.message import Message, as_message, english
from perfgate.errors import ConfigError, UsageError
from perfgate.protocol import About

ABOUT_SECONDS = 120.0
# Several questions to a vendor's tool, each of which may take TOOL_SECONDS.
PROBE_SECONDS = 120.0
RUNNING = Path(sys.executable)


def is_running(python: Path | None) -> bool:
    """Whether a path is the interpreter that runs perfgate. A venv's is a link, and the link is what counts."""
    return python is None or python.absolute() == RUNNING.absolute()


def check_interpreter(python: Path, option: str) -> Path:
    """The absolute path of an interpreter named on the command line. Raises UsageError when it is none."""
    # Not resolved: what the link in a venv points to is an interpreter without the venv's packages.
    path = python.expanduser().absolute()
    if not path.is_file() or not os.access(path, os.X_OK):
        raise UsageError(
            f"{option} {python} is no interpreter; name the python of an environment, e.g. venv/bin/python"
        )
    return path


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
    """An environment in which an interpreter finds the perfgate in ``code`` before any other."""
    path = [str(code), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(path)}


class _Output(NamedTuple):
    """The last line of standard output, None where the module failed; ``complaint`` is then why."""

    answer: bytes | None
    complaint: str


def _run_module(
    python: Path, arguments: Sequence[str], environment: Mapping[str, str], *, cwd: Path, timeout: float
) -> _Output:
    """Run ``python -m`` with these arguments. Raises OSError or TimeoutExpired where it cannot be run to its end."""
    process = subprocess.run(
        [str(python), "-m", *arguments],
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        start_new_session=True,
        check=False,
    )
    last = process.stdout.strip().rpartition(b"\n")[2]
    complaint = process.stderr.decode(errors="replace").strip().rpartition("\n")[2] or last.decode(errors="replace")
    answer = last if process.returncode == 0 else None
    return _Output(answer, one_line(complaint) or f"exit code {process.returncode}")


def ask_about(python: Path, environment: Mapping[str, str], *, cwd: Path, remedy: str) -> About:
    """An interpreter's version and packages. Raises ConfigError with the remedy when no worker can run in it."""
    arguments = ["perfgate.measuring.worker.about"]
    try:
        output = _run_module(python, arguments, environment, cwd=cwd, timeout=ABOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{python} cannot be started: {error}; {remedy}") from error
    if output.answer is not None:
        try:
            return msgspec.json.decode(output.answer, type=About)
        except msgspec.DecodeError:
            pass  # it prints something at its end; the complaint says what
    raise ConfigError(f"no worker can run in {python}: {output.complaint}; {remedy}")


# --- what stands in the way of a device


def probe_device(python: Path, device: str, environment: Mapping[str, str], *, cwd: Path) -> list[FitnessCheck]:
    """What an interpreter, in the environment of its workers, says of a device such as ``npu:1``.

    Nothing for a kind that has no examination. A probe that fails is one check, unavailable with the reason.
    """
    arguments = ["perfgate.measuring.devices.probe", device]
    try:
        output = _run_module(python, arguments, environment, cwd=cwd, timeout=PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [_failed_probe(device, str(error))]
    if output.answer is not None:
        try:
            return msgspec.json.decode(output.answer, type=list[FitnessCheck])
        except msgspec.DecodeError:
            pass  # something prints at the interpreter's end; the complaint says what
    return [_failed_probe(device, output.complaint)]


def is_absent(device: str, checks: list[FitnessCheck]) -> bool:
    """Whether the probe saw nothing of such a device at all."""
    name = f"device {device.partition(':')[0]}"
    return any(check.name == name and check.status == "unavailable" for check in checks)


def explain_closed(error: str, device: str, checks: list[FitnessCheck]) -> str:
    """An error with what stands in the way, and what to do, below its first line; unchanged where nothing does."""
    obstacles = checks if is_absent(device, checks) else [check for check in checks if check.status == "unfit"]
    if not obstacles:
        return error
    first, newline, rest = error.partition("\n")
    lines = []
    for check in obstacles:
        texts = [english(as_message(text)) for text in (check.seen, check.remedy) if text]
        lines.append(f"- {check.name}: {'; '.join(texts)}")
    return "\n".join([first, f"what stands in the way of device {device!r}:", *lines]) + newline + rest


def _failed_probe(device: str, reason: str) -> FitnessCheck:
    failed = Message("fitness.probe-failed", {"device": device, "error": one_line(reason)})
    return FitnessCheck(name=f"probe {device}", status="unavailable", seen=failed)
