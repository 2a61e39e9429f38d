"""Outputs that are kept: printed again for the same command line alone, and before anything is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perfgate.cli import printed
from perfgate.cli.printed import AskedQuestion
from perfgate.trace.cache.entries import EntryFolder
from perfgate.trace.cache.folder import LEAST_BYTES
from perfgate.trace.cache.state import states_of

OUTPUT = b"mm  2 us\n"


def asked(*arguments: str, **environ: str) -> AskedQuestion:
    return AskedQuestion(["trace", "--cache", "cache", "top", "a.json", *arguments], {"LANG": "C", **environ})


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording in the current folder, about which a question was answered."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "package"
    for part in printed._PARTS:
        (program / part).mkdir(parents=True)
        (program / part / "module.py").write_text("before")
    monkeypatch.setattr(printed, "_PACKAGE", str(program))
    path = tmp_path / "a.json"
    path.write_text("[]")
    states = [(one.path, (one.size, one.modified_ns, one.changed_ns, one.inode)) for one in states_of([path])]
    question = asked()
    EntryFolder(tmp_path / "cache").keep(question.entry_name, [question.entry(states, OUTPUT)])
    return path


def test_printed__same_command_line__same_output(recording: Path) -> None:
    assert asked().printed() == OUTPUT
    assert asked().printed() == OUTPUT


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (("--json",), {}),
        ((), {"COLUMNS": "40"}),
        ((), {"PERFGATE_NO_TRACE_CACHE": "1"}),
        (("--no-cache",), {}),
    ],
)
def test_printed__another_command_line__nothing(
    recording: Path, arguments: tuple[str, ...], environ: dict[str, str]
) -> None:
    assert asked(*arguments, **environ).printed() is None


def _replace(path: Path) -> None:
    """By a file of the same size and time."""
    stat = path.stat()
    path.unlink()
    path.write_text("{}")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _damage(path: Path) -> None:
    (entry,) = path.parent.glob("cache/*.answer")
    entry.write_bytes(entry.read_bytes()[:-1] + b"!")


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_text("[ ]"),
        lambda path: path.unlink(),
        _replace,
        _damage,
        lambda path: (path.parent / "perfgate.toml").write_text("[trace]\ncommunication = []\n"),
        lambda path: (path.parent / "package" / "judging" / "report" / "module.py").write_text("after it"),
        lambda path: (path.parent / "package" / "trace" / "another.py").write_text("reads another format"),
    ],
    ids=["content", "removed", "replaced", "damaged", "settings", "program", "another reader"],
)
def test_printed__something_changed__nothing(recording: Path, change: Callable[[Path], object]) -> None:
    change(recording)
    assert asked().printed() is None


def test_printed__another_folder__nothing(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = recording.parent / "below"
    below.mkdir()
    (below / "cache").symlink_to(recording.parent / "cache")
    monkeypatch.chdir(below)
    assert asked().printed() is None


# Prints at its end which modules it loaded. By its clock all files were written long ago: a recording has to be, to be kept.
PROGRAM = """
import atexit, sys, time
true = time.time_ns
time.time_ns = lambda: true() + 4_000_000_000
slow = {"click", "msgspec", "numpy", "pathlib", "re", "typing"}
atexit.register(lambda: print(sorted(slow & set(sys.modules)), file=sys.stderr))
from perfgate.cli.start import main
main()
"""


def test_main__asked_again__same_output_before_anything_is_imported(tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "mm", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"device": 0}}
    path = tmp_path / "large.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [kernel]}) + " " * LEAST_BYTES)
    command = [sys.executable, "-c", PROGRAM, "trace", "--cache", str(tmp_path / "cache"), "top", str(path)]
    environ = {**os.environ, "PERFGATE_NO_TRACE_CACHE": ""}
    first, again = (subprocess.run(command, env=environ, capture_output=True, text=True, check=True) for _ in range(2))
    assert "mm" in first.stdout
    assert "'click', 'msgspec', 'numpy'" in first.stderr
    assert (again.stdout, again.stderr) == (first.stdout, "[]\n")
