"""Traces that a run keeps: found again by the step after the one that recorded them, and named in the document."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Optional

from perfgate.document.run import Artifact

# What the devices write: Kineto, and torch_npu's folder as an archive.
_SUFFIXES = (".json.gz", ".zip")


def kept_trace(folder: Path, name: str) -> Optional[Path]:
    """Return the trace of a name that an earlier step of this run left in ``folder``; the flow cleared those of other runs."""
    return next((path for suffix in _SUFFIXES if (path := folder / f"{name}{suffix}").is_file()), None)


def trace_artifact(path: Path, workload: str) -> Artifact:
    """Return the record of a trace that lies in the run's folder."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return Artifact(
        name=path.name,
        kind="trace",
        path=path.name,
        bytes=path.stat().st_size,
        sha256=digest.hexdigest(),
        workload=workload,
    )
