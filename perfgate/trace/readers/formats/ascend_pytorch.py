"""Read the folders of torch_npu.profiler: one rank, several ranks or repeats, or an
archive of them.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from perfgate.errors import DocumentError
from perfgate.trace.model.recording import Recording
from perfgate.trace.readers.ascend.layout import (
    analysed_folders,
    folder_around,
    holds_profiles,
    raw_folders,
)

READS = "folders of torch_npu.profiler (*_ascend_pt, ASCEND_PROFILER_OUTPUT, a folder of several, or a .zip or .tar.gz of them)"
PRIORITY = 30
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz")


def recognises(path: Path) -> bool:
    if path.is_dir():
        return holds_profiles(path)
    return path.name.endswith(_ARCHIVES)


def read(path: Path) -> Recording:
    """The folders by rank.

    Raises DocumentError, which names the fault, its place and the next step.
    """
    if path.is_dir():
        return _read_folder(path)
    from perfgate.trace.readers.ascend.archive import unpacked

    with unpacked(path) as folder:
        recording = _read_folder(folder)
        # The unpacked files behind the counters are removed afterwards, so keep their
        # values.
        timelines = []
        for timeline in recording.timelines:
            kernels = timeline.kernels
            if kernels is not None:
                kernels = timeline.kernel_columns.kept()
            timelines.append(replace(timeline, kernels=kernels))
    return replace(recording, path=path, timelines=tuple(timelines))


def _read_folder(path: Path) -> Recording:
    # Imported here because recognising a trace imports every reader, and most traces
    # are not Ascend's.
    from perfgate.trace.readers.ascend.folder import read_rank

    folders = analysed_folders(path)
    if not folders and not raw_folders(path):
        raise DocumentError(
            "{path}: holds no output of torch_npu.profiler; name or pack its *_ascend_pt folder, or unpack it if it holds the "
            "trace of another profiler",
            path=path,
        )
    if not folders:
        raise DocumentError(
            "{path}: recorded but never analysed; run torch_npu.profiler.profiler.analyse({name!r}) where torch_npu and "
            "CANN are installed, or record it again with msprof on the PATH",
            path=path,
            name=str(path),
        )
    ranks = list(map(read_rank, folders))
    names = [folder_around(folder).name for folder in folders]
    return Recording.of_parts(path, names, ranks)
