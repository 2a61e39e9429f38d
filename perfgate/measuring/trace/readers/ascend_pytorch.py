"""Read the folders of torch_npu.profiler: one rank, several ranks or repeats, or a zip of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from perfgate.errors import DocumentError
from perfgate.measuring.trace.readers._archive import unpacked
from perfgate.measuring.trace.readers._ascend.folder import OUTPUT, Rank, analysed_folders, raw_folders, read_rank
from perfgate.measuring.trace.recording import Recording

READS = "folders of torch_npu.profiler (*_ascend_pt, ASCEND_PROFILER_OUTPUT, a folder of several, or a .zip of them)"
PRIORITY = 30


def recognises(path: Path) -> bool:
    """Return whether a path holds analysed or recorded output of torch_npu.profiler, or may be a zip of it."""
    if path.is_dir():
        return bool(analysed_folders(path) or raw_folders(path))
    return path.suffix == ".zip"


def read(path: Path) -> Recording:
    """Return what the folders say, by rank. Raises DocumentError, with what is wrong, where and what to do."""
    if path.is_dir():
        return _read_folder(path)
    with unpacked(path) as folder:
        return replace(_read_folder(folder), path=path)


def _read_folder(path: Path) -> Recording:
    folders = analysed_folders(path)
    if not folders and not raw_folders(path):
        raise DocumentError(f"{path}: holds no output of torch_npu.profiler; name or zip its *_ascend_pt folder")
    if not folders:
        raise DocumentError(
            f"{path}: was recorded and never analysed; run torch_npu.profiler.profiler.analyse({str(path)!r}) where "
            "torch_npu and CANN are installed, or record it again with msprof on the PATH"
        )
    ranks = [read_rank(folder) for folder in folders]
    timelines = [timeline for rank in ranks for timeline in rank.timelines]
    return Recording(
        path=path,
        format="ascend-pytorch",
        # Repeats of a rank keep the order of their time stamps.
        timelines=tuple(sorted(timelines, key=lambda timeline: (timeline.rank is None, timeline.rank or 0))),
        software=_merged(rank.software for rank in ranks),
        settings=_merged(rank.settings for rank in ranks),
        environment=_merged(rank.environment for rank in ranks),
        absent=_absent(folders, ranks),
    )


def _merged(several: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return what the ranks agree on or one alone says; where they differ, all their values."""
    found: dict[str, list[str]] = {}
    for values in several:
        for name, value in values.items():
            known = found.setdefault(name, [])
            if value not in known:
                known.append(value)
    return {name: " | ".join(values) for name, values in found.items()}


def _absent(folders: Sequence[Path], ranks: Sequence[Rank]) -> dict[str, str]:
    """Return what is missing; what only some folders lack is named with the folder."""
    found = {}
    for folder, rank in zip(folders, ranks):
        for what, reason in rank.absent.items():
            everywhere = all(what in other.absent for other in ranks)
            found[what if everywhere else f"{what} of {_name(folder)}"] = reason
    return found


def _name(folder: Path) -> str:
    return folder.parent.name if folder.name == OUTPUT else folder.name
