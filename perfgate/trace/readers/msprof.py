"""Read what the msprof command exports: PROF_* folders with mindstudio_profiler_output, of one device or several."""

from __future__ import annotations

from pathlib import Path

from perfgate.trace.ascend.layout import msprof_outputs
from perfgate.trace.recording import Recording

READS = "PROF_* folders of msprof (mindstudio_profiler_output with op_summary_*.csv, msprof_*.json and others)"
PRIORITY = 25


def recognises(path: Path) -> bool:
    """Whether a path is a PROF folder, its output, a folder that holds one, or a single op_summary table."""
    if path.is_file():
        return path.name.startswith("op_summary") and path.suffix == ".csv"
    return path.is_dir() and next(msprof_outputs(path), None) is not None


def read(path: Path) -> Recording:
    """What PROF folders say by device. Raises DocumentError, with what is wrong, where and what to do."""
    # Not above: to recognise a trace every reader is imported, and most traces are not of Ascend.
    from perfgate.trace.ascend.msprof import read_msprof

    return read_msprof(path)
