"""Read the SQLite export of torch_npu.profiler or msprof on its own, or in its PROF
folder.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path

from perfgate.document.message import Message
from perfgate.trace.model.recording import Recording

READS = "ascend_pytorch_profiler*.db and msprof_*.db, the SQLite exports, or a PROF_* folder with one"
PRIORITY = 20
_MAGIC = b"SQLite format 3\0"


def recognises(path: Path) -> bool:
    """Whether a file is a SQLite database, or a folder has an export of msprof as one;
    ``read`` checks that it is a profiler's.
    """
    if path.is_dir():
        return bool(_exports(path))
    if not path.is_file():
        return False
    begin = b""
    with suppress(OSError), path.open("rb") as stream:
        begin = stream.read(len(_MAGIC))
    has_name = (
        path.name.startswith(("ascend_pytorch_profiler", "msprof_"))
        and path.suffix == ".db"
    )
    return has_name or begin == _MAGIC


def _exports(folder: Path) -> list[Path]:
    """The newest export of a PROF folder, and of each in a folder of them."""
    # Imported here because recognising a trace imports every reader.
    from perfgate.trace.readers.ascend.layout import MAX_FOLDERS
    from perfgate.trace.readers.ascend.msprof_files import newest

    exports = []
    for place in (folder, *islice(sorted(folder.glob("PROF_*")), MAX_FOLDERS)):
        exports += newest(place.glob("msprof_*.db"))
    return exports


def read(path: Path) -> Recording:
    """The timelines of each device. Raises DocumentError, which names the fault, its
    place and the next step.
    """
    if not path.is_dir():
        return _read_file(path)
    exports = _exports(path)
    names = [export.parent.name for export in exports]
    return Recording.of_parts(path, names, list(map(_read_file, exports)))


def _read_file(path: Path) -> Recording:
    from perfgate.trace.readers.ascend.export import read_export

    export = read_export(path)
    return Recording(
        path=path,
        format="ascend-db",
        timelines=tuple(export.timelines),
        settings=export.settings,
        environment=export.environment,
        absent={"collectives": Message("notes.look-in-database")},
    )
