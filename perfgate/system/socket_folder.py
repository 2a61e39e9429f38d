"""A folder for a Unix socket: its path must be short (sun_path of unix(7): 108 bytes with its closing zero)."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_LONGEST_ADDRESS = 107


def make_socket_folder(prefix: str, socket_name: str, *, inside: str = "") -> Path:
    """A new folder for this user alone: in ``inside`` or the usual place if their paths are short enough, else in /tmp."""
    for parent in (inside, tempfile.gettempdir(), "/tmp"):  # noqa: S108 - mkdtemp makes a new folder
        if parent:
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            if len(os.fsencode(folder / socket_name)) <= _LONGEST_ADDRESS:
                return folder
            folder.rmdir()
    raise OSError(
        f"no folder for temporary files has a path that leaves room for a socket: {tempfile.gettempdir()}"
    )
