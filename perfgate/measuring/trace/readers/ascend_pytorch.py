"""Read the folders of torch_npu.profiler: one rank, several ranks or repeats, or a zip of them."""

from __future__ import annotations

from pathlib import Path

from perfgate.errors import DocumentError
from perfgate.measuring.trace.readers._ascend.folder import analysed_folders, raw_folders, read_rank
from perfgate.measuring.trace.recording import Recording

READS = "folders of torch_npu.profiler (*_ascend_pt, ASCEND_PROFILER_OUTPUT, a folder of several, or a .zip of them)"
PRIORITY = 30


def recognises(path: Path) -> bool:
    """Return whether a path holds analysed or recorded output of torch_npu.profiler."""
    return path.is_dir() and bool(analysed_folders(path) or raw_folders(path))


def read(path: Path) -> Recording:
    """Return what the folders say, by rank. Raises DocumentError, with what is wrong, where and what to do."""
    folders = analysed_folders(path)
    if not folders:
        raise DocumentError(
            f"{path}: was recorded and never analysed; run torch_npu.profiler.profiler.analyse({str(path)!r}) where "
            "torch_npu and CANN are installed, or record it again with msprof on the PATH"
        )
    ranks = [read_rank(folder) for folder in folders]
    return Recording(
        path=path,
        format="ascend-pytorch",
        timelines=tuple(timeline for rank in ranks for timeline in rank.timelines),
        absent={name: reason for rank in ranks for name, reason in rank.absent.items()},
    )
