"""Read any profiler's output: the readers are found in the folder ``readers``, and each says what it recognises."""

from __future__ import annotations

from pathlib import Path

from perfgate.errors import DocumentError
from perfgate.plugins import load_members
from perfgate.trace import readers
from perfgate.trace.recording import Recording


def read_recording(path: Path) -> Recording:
    """Return what a file or folder of a profiler says.

    A member of ``readers`` has PRIORITY (the highest that recognises a path reads it), ``recognises(path)``, a cheap look,
    and ``read(path)``. Raises DocumentError, with what is wrong, where and what to do, where nobody can read it.
    """
    if not path.exists():
        raise DocumentError(f"{path} does not exist; name a profiler's output folder or trace file")
    members = sorted(load_members(readers), key=lambda member: -int(member.PRIORITY))
    for member in members:
        if member.recognises(path):
            recording: Recording = member.read(path)
            return recording
    known = "; ".join(str(member.READS) for member in members)
    raise DocumentError(f"{path} is no profiler output that perfgate can read; it reads: {known}")
