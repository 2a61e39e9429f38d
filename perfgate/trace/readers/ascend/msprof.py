"""Read exports of the msprof command: PROF_* folders with mindstudio_profiler_output, of one device or several."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from perfgate.document.message import Message
from perfgate.trace.model.recording import Recording
from perfgate.trace.readers.ascend.about import read_cores
from perfgate.trace.readers.ascend.folder import rank_of, recording_of
from perfgate.trace.readers.ascend.layout import (
    MAX_FOLDERS,
    folder_around,
    msprof_outputs,
)
from perfgate.trace.readers.ascend.tables import Tables
from perfgate.trace.readers.foreign import refuse_pointers

_TABLES = ("kernels", "types", "calls")


def read_msprof(path: Path, *, table: str | None = None) -> Recording:
    """PROF folders by device, or one ``table`` of kernels. Raises DocumentError, which names the fault, its place and the
    next step.
    """
    if table is not None:
        tables = Tables(lambda stem: {table: [path]}.get(stem, []), kernels=table)
        return _rank(path, tables, {}, [])
    outputs = list(msprof_outputs(path))
    ranks = list(map(_read_output, outputs))
    return recording_of(path, [output.parent.name for output in outputs], ranks)


def _read_output(output: Path) -> Recording:
    def files_of(stem: str) -> list[Path]:
        """The files of a table: op_summary_20260823165254.csv, or the parts op_summary_slice_0_*.csv of a long run."""
        files = [path for path in sorted(output.glob(f"{stem}*.csv")) if path.is_file()]
        return files[:MAX_FOLDERS]

    refuse_pointers(output)
    tables = Tables(files_of, kernels="op_summary")
    cores = read_cores(folder_around(output))
    views = [
        view
        for view in sorted(output.glob("msprof_*.json"))
        if "_slice_" not in view.name
    ]
    if not views:
        views = sorted(output.glob("msprof_slice_*.json"))
    return _rank(output, tables, cores, views[:1])


def _rank(
    output: Path, tables: Tables, settings: dict[str, str], views: list[Path]
) -> Recording:
    rank = rank_of(
        Recording(output, "msprof", (), settings=settings), None, tables, views
    )
    # msprof never writes the other parts that torch_npu has, so their absence needs no reason.
    absent = {
        name: reason for name, reason in rank.absent.items() if name.startswith(_TABLES)
    }
    if not views:
        absent["host"] = Message("notes.no-msprof-timeline")
    return replace(rank, absent=absent)
