"""A reader of recordings that dies of some of them, as one does whose machine has no memory left.

It is a package of its own, found by its entry point. A file NAME.kills beside a recording says how many of its readers die.
"""

from __future__ import annotations

from pathlib import Path

_MODULE = """
import os
import signal
from pathlib import Path

from perfgate.trace.readers.formats import kineto

READS, PRIORITY = "recordings that kill their readers", 1000


def _kills(path: Path) -> Path:
    return path.with_name(path.name + ".kills")


def recognises(path: Path) -> bool:
    return _kills(path).is_file()


def read(path: Path) -> object:
    if left := int(_kills(path).read_text()):
        _kills(path).write_text(str(left - 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return kineto.read(path)
"""
_METADATA = "Metadata-Version: 2.1\nName: deadly-reader\nVersion: 1.0\n"


def install(folder: Path) -> Path:
    """Write the package into a new folder, for PYTHONPATH."""
    about = folder / "deadly_reader-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "deadly_reader.py").write_text(_MODULE)
    (about / "METADATA").write_text(_METADATA)
    (about / "entry_points.txt").write_text("[perfgate.readers]\ndeadly = deadly_reader\n")
    return folder


def kill_readers(recording: Path, count: int) -> None:
    """Let so many readers of a recording die."""
    recording.with_name(f"{recording.name}.kills").write_text(str(count))
