"""The files of an export of msprof, which adds each export to those of earlier ones, and
may cut a long timeline into slices.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import SEEK_END
from pathlib import Path
from typing import BinaryIO

from perfgate.errors import DocumentError
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.readers.ascend.files import unreadable
from perfgate.trace.readers.ascend.layout import MAX_FOLDERS

# op_summary_20260823165254.csv, and further parts op_summary_slice_1_20260823165301.csv
# (msprof: analysis/common_func/file_slice_helper.py).
_STAMPED = lazy_pattern(r"(.+)_\d{14}(\.\w+)")


def tables_named(output: Path, stem: str) -> list[Path]:
    """The newest table of a name, with all its parts."""
    return newest(output.glob(f"{stem}*.csv"))


@contextmanager
def timeline_in(output: Path) -> Iterator[Path | None]:
    """The newest timeline; its slices as one file, which is removed afterwards. None if
    there is none.

    Raises DocumentError for a slice that was cut off.
    """
    # Marks of msproftx have a file of their own.
    views = [
        view
        for view in newest(output.glob("msprof_*.json"))
        if not view.name.startswith("msprof_tx")
    ]
    whole = [view for view in views if "_slice_" not in view.name]
    slices = [view for view in views if "_slice_" in view.name]
    if whole or len(slices) < 2:
        yield next(iter(whole or slices), None)
        return
    import tempfile  # few timelines are cut into slices

    with tempfile.TemporaryDirectory(prefix="perfgate-slices-") as folder:
        joined = Path(folder, slices[0].name)
        _join(slices, joined)
        yield joined


def newest(files: Iterable[Path]) -> list[Path]:
    """The files without those of earlier exports, which have the same names but for the
    time.
    """
    by_name: dict[str, Path] = {}
    for file in sorted(filter(Path.is_file, files)):
        stamped = _STAMPED.fullmatch(file.name)
        name = stamped[1] + stamped[2] if stamped else file.name
        by_name[name] = file
    return sorted(by_name.values())[:MAX_FOLDERS]


def _join(slices: Sequence[Path], joined: Path) -> None:
    """One list of the events of all slices, each of which is a list that names the
    processes and threads again.
    """
    with joined.open("wb") as out:
        for number, path in enumerate(slices):
            out.write(b"," if number else b"[")
            _copy_events(path, out)
        out.write(b"]")


def _copy_events(path: Path, out: BinaryIO) -> None:
    try:
        with path.open("rb") as stream:
            first = stream.read(1)
            stream.seek(-1, SEEK_END)
            if first + stream.read() != b"[]":
                raise DocumentError(
                    "{path}: the slice is no whole list of events; copy it again, or export the profile again",
                    path=path,
                )
            stream.seek(1)
            shutil.copyfileobj(stream, out)
    except OSError as error:
        raise unreadable(path, error) from error
    out.truncate(out.tell() - 1)
    out.seek(0, SEEK_END)
