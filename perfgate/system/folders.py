"""The location of perfgate's own code, and robust removal of folders."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def remove_folder(folder: Path) -> None:
    """Remove a folder and everything in it, even if user code removed the write permission."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for parent, _, _ in os.walk(folder):
            Path(parent).chmod(stat.S_IRWXU)
        shutil.rmtree(folder, ignore_errors=True)
