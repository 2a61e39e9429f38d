"""Read exports of the msprof command: PROF_* folders with mindstudio_profiler_output,
of one device or several.
"""

from __future__ import annotations

from pathlib import Path

from perfgate.errors import DocumentError
from perfgate.trace.model.recording import Recording
from perfgate.trace.readers.ascend.layout import msprof_outputs, old_exports

READS = "PROF_* folders of msprof (mindstudio_profiler_output with op_summary_*.csv and others), or one table of kernels"
PRIORITY = 25
_LONGEST_HEADER = 1 << 16
_TABLES = {
    "op_summary": {"op name", "task duration(us)"},
    "kernel_details": {"name", "duration(us)", "accelerator core"},
}


def recognises(path: Path) -> bool:
    """Whether a path is a PROF folder, its output, a folder that holds one, or a single
    table of kernels.
    """
    if path.is_file():
        return path.suffix == ".csv" and _header(path) is not None
    return path.is_dir() and (
        next(msprof_outputs(path), None) is not None or bool(old_exports(path))
    )


def _header(path: Path) -> str | None:
    """The table of kernels a file is, by its header: op_summary, or torch_npu's
    kernel_details; None if neither.
    """
    try:
        with path.open("rb") as file:
            first = file.readline(_LONGEST_HEADER).decode("utf-8-sig", "replace")
    except OSError:
        return None
    columns = {column.strip().strip('"').lower() for column in first.split(",")}
    return next((stem for stem, needed in _TABLES.items() if needed <= columns), None)


def read(path: Path) -> Recording:
    """The PROF folders by device. Raises DocumentError, which names the fault, its
    place and the next step.
    """
    # Imported here because recognising a trace imports every reader, and most traces
    # are not Ascend's.
    from perfgate.trace.readers.ascend.folder import read_msprof

    if path.is_dir() and next(msprof_outputs(path), None) is None:
        raise DocumentError(
            "{path} is an export of an older msprof, with a file for each iteration; name one of them, such as {file}, or "
            "export it again with CANN 8: msprof --export=on --output={path}",
            path=path,
            file=old_exports(path)[0],
        )
    return read_msprof(path, table=_header(path))
