"""The doors through which a device is examined without its framework: environment,
files, packages, vendors' tools.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from perfgate.document.message import Message, UnmeasuredError

# A command in, its output (both streams) out; raises MeasuringError if it cannot run or
# does not end.
Runner = Callable[[Sequence[str]], str]
# npu-smi takes 0.3 to 3 s on a machine with eight cards; a card in reset answers never.
TOOL_SECONDS = 20.0
_MOST_OUTPUT = 1 << 20
# Folders of the drivers' tools, which a worker's PATH may lack.
_TOOL_FOLDERS = (
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/bin",
    "/usr/local/Ascend/driver/tools",
)


def run_tool(command: Sequence[str], *, timeout: float = TOOL_SECONDS) -> str:
    """The output of a vendor's tool; its exit code is ignored, because it means little.

    Raises UnmeasuredError when the tool is not there, cannot be started or does not
    end.
    """
    program = find_program(command[0], os.environ)
    words = " ".join(command)
    if program is None:
        raise UnmeasuredError(
            Message(
                "system.command-not-found",
                {"command": command[0], "folders": ", ".join(_TOOL_FOLDERS)},
            )
        )
    try:
        result = subprocess.run(
            [str(program), *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnmeasuredError(
            Message("system.command-timed-out", {"command": words, "seconds": timeout})
        ) from error
    except OSError as error:
        raise UnmeasuredError(
            Message("system.command-fails", {"command": words, "error": str(error)})
        ) from error
    return result.stdout[:_MOST_OUTPUT].decode(errors="replace")


def find_program(name: str, environ: Mapping[str, str]) -> Path | None:
    folders = os.pathsep.join([environ.get("PATH", os.defpath), *_TOOL_FOLDERS])
    path = shutil.which(name, path=folders)
    if path:
        return Path(path)
    return None


def package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def package_folder(name: str) -> Path | None:
    try:
        return Path(str(importlib.metadata.distribution(name).locate_file("")))
    except importlib.metadata.PackageNotFoundError:
        return None


def may_use(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


def text_of(path: Path) -> str:
    """The stripped text of a kernel file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def available_memory() -> int | None:
    """The bytes available to programs without swapping, None if the kernel does not
    report them.
    """
    available = re.search(
        r"^MemAvailable:\s+(\d+) kB", text_of(Path("/proc/meminfo")), re.MULTILINE
    )
    return int(available[1]) << 10 if available else None


@dataclass(frozen=True)
class Host:
    """All doors together; tests give their own.

    Every path is looked up below ``root``.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    root: Path = Path("/")
    run: Runner = run_tool
    version: Callable[[str], str | None] = package_version
    package_folder: Callable[[str], Path | None] = package_folder
    may_use: Callable[[Path], bool] = may_use
    find_program: Callable[[str, Mapping[str, str]], Path | None] = find_program

    def below(self, path: str) -> Path:
        return self.root / path.lstrip("/")


class RunTimes(NamedTuple):
    """Nanoseconds that all threads of the process have run, and have been ready to run
    while another had the CPU.
    """

    ran: int
    waited: int

    def waited_share(self, later: RunTimes) -> float:
        ran, waited = max(0, later.ran - self.ran), max(0, later.waited - self.waited)
        if waited:
            return waited / (ran + waited)
        return 0.0


def run_times(tasks: Path = Path("/proc/self/task")) -> RunTimes | None:
    """The times of the current threads; None if the kernel does not keep them.

    Source: the first two numbers of /proc/PID/task/TID/schedstat
    (Documentation/scheduler/sched-stats.rst).
    """
    ran = waited = 0
    try:
        for task in tasks.iterdir():
            first, second, *_ = (task / "schedstat").read_text().split()
            ran, waited = ran + int(first), waited + int(second)
    except (OSError, ValueError):  # no schedstat, or a thread that ended meanwhile
        return None
    return RunTimes(ran, waited)
