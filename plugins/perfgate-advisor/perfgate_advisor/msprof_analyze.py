"""Run msprof-analyze's advisor on recordings of Ascend's profiler."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from perfgate.document.message import Message, quote, reason_of
from perfgate.judging.advice.advisor import Advised
from perfgate.locale import sentence
from perfgate_advisor.workbook import Sheets, advisories

TOOL = "msprof-analyze"
# The advisor takes 500 s of CPU per GB (benchmarks of version 26.2): larger recordings
# would hit the time limit.
TIME_LIMIT = 180.0
MOST_BYTES = 300_000_000
_TABLES = "ASCEND_PROFILER_OUTPUT"
# Printed at the end if there are no suggestions. No workbook is written then, nor after
# an error; both exit with 0.
_NOTHING_FOUND = "no optimization suggestions"
# A proxy address without a listener, in case the kernel does not allow us to cut off
# the network.
_NOWHERE = "http://127.0.0.1:9"

Say = Callable[[str], None]


def advise(recording: Path, workload: str, say: Say) -> Advised:
    """Run the advisor on a folder of Ascend's profiler; any other folder or file gives
    no findings.
    """
    folders = (
        sorted({path.parent for path in recording.rglob(_TABLES) if path.is_dir()})
        if recording.is_dir()
        else []
    )
    if recording.is_dir() and recording.name == _TABLES:
        folders = [recording.parent]
    return (
        _advise(recording if len(folders) > 1 else folders[0], workload, say)
        if folders
        else Advised([], [])
    )


def _advise(folder: Path, workload: str, say: Say) -> Advised:
    command = shutil.which(TOOL, path=str(Path(sys.executable).parent)) or shutil.which(
        TOOL
    )
    if command is None:
        say(
            sentence(
                "{tool} is not installed, so its advisor was not run (pip install {tool})",
                tool=TOOL,
            )
        )
        return Advised([], [])
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if size > MOST_BYTES:
        return Advised(
            [],
            [
                Message(
                    "notes.advisor-too-large", {"tool": TOOL, "size": size // 1000000}
                )
            ],
        )
    say(sentence("running {tool} advisor", tool=TOOL))
    with tempfile.TemporaryDirectory(prefix="perfgate-advisor-") as scratch:
        # Without --force the advisor skips files of other owners, and most recordings
        # come from elsewhere.
        arguments = [
            "advisor",
            "all",
            "-d",
            str(folder.resolve()),
            "-o",
            scratch,
            "-l",
            "en",
            "--force",
        ]
        printed = _run([*_without_network(), command, *arguments], Path(scratch))
        try:
            sheets = _workbook(Path(scratch))
            if sheets is not None:
                return Advised(
                    advisories(sheets, workload=workload, source=_source()), []
                )
        except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
            return Advised(
                [],
                [
                    Message(
                        "notes.advisor-unreadable",
                        {"tool": TOOL, "error": reason_of(error)},
                    )
                ],
            )
    if _NOTHING_FOUND in printed:
        return Advised([], [])
    printed_line = next(
        (line for line in reversed(printed.splitlines()) if line.strip()), None
    )
    last = (
        Message("notes.printed-nothing")
        if printed_line is None
        else quote(printed_line[:200])
    )
    return Advised([], [Message("notes.advisor-empty", {"tool": TOOL, "last": last})])


def _source() -> str:
    try:
        return f"{TOOL} advisor {importlib.metadata.version(TOOL)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{TOOL} advisor"


def _run(command: list[str], scratch: Path) -> str:
    """Run the tool with a time limit and return its output; its child processes end
    with it.
    """
    log = scratch / "printed.txt"
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(scratch),
        "LANG": "C.UTF-8",
        **dict.fromkeys(
            ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), _NOWHERE
        ),
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=scratch,
            env=environ,
            start_new_session=True,
        )
        with _ended(process):
            try:
                process.wait(timeout=TIME_LIMIT)
            except subprocess.TimeoutExpired:
                return f"it was not done after {TIME_LIMIT:g} s"
    return log.read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the process and all its children, however the block is left."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _without_network() -> list[str]:
    unshare = shutil.which("unshare")
    if unshare is None:
        return []
    prefix = [unshare, "--user", "--net", "--"]
    try:
        allowed = (
            subprocess.run(
                [*prefix, "true"], capture_output=True, timeout=5.0, check=False
            ).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return prefix if allowed else []


def _workbook(scratch: Path) -> Sheets | None:
    """The rows of every sheet of the advisor's workbook; None without one. Raises
    ValueError if it cannot be read.
    """
    path = next(iter(sorted((scratch / "log").glob("mstt_advisor_*.xlsx"))), None)
    if path is None:
        return None
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise ValueError("openpyxl is not installed (pip install openpyxl)") from error
    book = load_workbook(path, read_only=True, data_only=True)
    try:
        return {
            sheet.title: list(sheet.iter_rows(values_only=True))
            for sheet in book.worksheets
        }
    finally:
        book.close()
