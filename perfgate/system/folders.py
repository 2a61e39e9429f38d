"""Remove folders whatever stands in the way."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path


def remove_folder(folder: Path) -> None:
    """Remove a folder and everything in it, also where user code took the right to write away."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for parent, _, _ in os.walk(folder):
            Path(parent).chmod(stat.S_IRWXU)
        shutil.rmtree(folder, ignore_errors=True)
