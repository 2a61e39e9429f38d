"""Where perfgate's own code lies, and how a folder is removed whatever stands in the way."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def remove_folder(folder: Path) -> None:
    """Remove a folder and everything in it, also where user code took the right to write away."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for parent, _, _ in os.walk(folder):
            Path(parent).chmod(stat.S_IRWXU)
        shutil.rmtree(folder, ignore_errors=True)
