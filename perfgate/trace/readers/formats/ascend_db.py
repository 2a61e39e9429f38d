"""Read the SQLite export of torch_npu.profiler and msprof on its own."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from perfgate.document.message import Message
from perfgate.trace.model.recording import Recording

READS = "ascend_pytorch_profiler*.db and msprof_*.db, the SQLite exports"
PRIORITY = 20
_MAGIC = b"SQLite format 3\0"


def recognises(path: Path) -> bool:
    """Whether a file is a SQLite database; ``read`` checks that it is a profiler's."""
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


def read(path: Path) -> Recording:
    """The timelines of each device. Raises DocumentError, which names the fault, its
    place and the next step.
    """
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
