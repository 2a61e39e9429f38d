"""The location of perfgate's own code, robust removal of folders, and folders for
sockets.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
# sun_path of unix(7): 108 bytes with its closing zero.
_LONGEST_ADDRESS = 107


def remove_folder(folder: Path) -> None:
    """Remove a folder and everything in it, even if user code removed the write
    permission.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for parent, _, _ in os.walk(folder):
            Path(parent).chmod(stat.S_IRWXU)
        shutil.rmtree(folder, ignore_errors=True)


def make_socket_folder(prefix: str, socket_name: str, *, inside: str = "") -> Path:
    """A new folder for this user alone: in ``inside`` or the usual place if their paths
    are short enough, else in /tmp.
    """
    for parent in (inside, tempfile.gettempdir(), "/tmp"):  # noqa: S108 - mkdtemp makes a new folder
        if parent:
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            if len(os.fsencode(folder / socket_name)) <= _LONGEST_ADDRESS:
                return folder
            folder.rmdir()
    raise OSError(
        f"no folder for temporary files has a path that leaves room for a socket: {tempfile.gettempdir()}"
    )
