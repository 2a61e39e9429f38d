"""The folder layouts of torch_npu.profiler and msprof: find their output folders below
a path.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from perfgate.errors import DocumentError
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.readers.ascend.files import unreadable
from perfgate.trace.scanner.compressed import named

OUTPUT = "ASCEND_PROFILER_OUTPUT"
MSPROF_OUTPUT = "mindstudio_profiler_output"
MAX_FOLDERS = 4096
# A folder with any of these is an analysed one.
TRACE_VIEWS = named("trace_view.json")
_ANALYSED = ("kernel_details.csv", *TRACE_VIEWS, "step_trace_time.csv", "analysis.db")
_STAMP = lazy_pattern(r"_(\d{14,17})_ascend_(?:pt|ms)$")
_DEPTH = 3


def analysed_folders(path: Path) -> list[Path]:
    """The folders below a path that hold analysed tables, by their time stamp, then
    their name.
    """
    return sorted(
        _analysed(path, _DEPTH), key=lambda folder: (_stamp(folder), str(folder))
    )


def raw_folders(path: Path) -> list[Path]:
    """The folders that were recorded and never analysed."""
    if not path.is_dir():
        return []
    raw = []
    for folder in (path, *_entries(path)):
        if (folder / "FRAMEWORK").is_dir() and not (folder / OUTPUT).is_dir():
            raw.append(folder)
    return raw


def folder_around(output: Path) -> Path:
    """The folder of a profile, by the folder of its tables."""
    if output.name in (OUTPUT, MSPROF_OUTPUT):
        return output.parent
    return output


def holds_profiles(path: Path) -> bool:
    """Whether a folder holds analysed or recorded output; cheap, and never raises."""
    try:
        return next(_analysed(path, _DEPTH), None) is not None or bool(
            raw_folders(path)
        )
    except DocumentError:
        return False


def msprof_outputs(path: Path) -> Iterator[Path]:
    """Yield the folders of exported files: the path itself, a folder in it, or one in
    its PROF folders.
    """
    if (
        path.name == MSPROF_OUTPUT
        or next(path.glob("op_summary*.csv"), None) is not None
    ):
        yield path
    elif (path / MSPROF_OUTPUT).is_dir():
        yield path / MSPROF_OUTPUT
    else:
        for number, child in enumerate(sorted(path.glob("PROF_*"))):
            if (
                number < MAX_FOLDERS
                and (child / MSPROF_OUTPUT).is_dir()
                and not child.is_symlink()
            ):
                yield child / MSPROF_OUTPUT


def old_exports(path: Path) -> list[Path]:
    """The files that msprof of CANN 7 and older exported for a device, in a PROF folder
    or in folders of it; none if newer.
    """
    folders = [path]
    if not path.name.startswith("PROF_"):
        folders = list(islice(sorted(path.glob("PROF_*")), MAX_FOLDERS))
    exports: list[Path] = []
    for folder in folders:
        exports += folder.glob("device_*/timeline/*.json")
        exports += folder.glob("device_*/summary/*.csv")
    # The whole timeline first: others show collectives, tasks or steps alone.
    return sorted(exports, key=lambda file: (not file.name.startswith("msprof"), file))


def _analysed(path: Path, depth: int) -> Iterator[Path]:
    if any((path / name).is_file() for name in _ANALYSED) or any(
        path.glob("ascend_pytorch_profiler*.db")
    ):
        yield path
    elif (path / OUTPUT).is_dir():
        yield path / OUTPUT
    elif depth:
        for child in _entries(path):
            # PROF folders hold msprof's own export, which has its own reader.
            if (
                child.is_dir()
                and not child.is_symlink()
                and not child.name.startswith("PROF_")
            ):
                yield from _analysed(child, depth - 1)


def _entries(path: Path) -> list[Path]:
    try:
        entries = sorted(islice(path.iterdir(), MAX_FOLDERS + 1))
    except OSError as error:
        raise unreadable(path, error) from error
    if len(entries) > MAX_FOLDERS:
        raise DocumentError(
            "{path}: more than {limit} entries; name the profiler's own folder",
            path=path,
            limit=MAX_FOLDERS,
        )
    return entries


def _stamp(folder: Path) -> str:
    match = _STAMP.search(folder.parent.name) or _STAMP.search(folder.name)
    if match is None:
        return ""
    return match[1].ljust(17, "0")
