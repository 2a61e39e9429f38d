"""The results that perfgate wrote last, for commands that are given no folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

# Where perfgate run and check write, and where perfgate local does.
USUAL_FOLDERS = (Path("perfgate-out"), Path(".perfgate/local"))


def newest_result(names: Sequence[str], *beside: Path) -> Path | None:
    """The newest file of these names in the usual folders, which lie in the current folder or in one of ``beside``."""
    folders = [root / folder for root in (Path(), *beside) for folder in USUAL_FOLDERS]
    found = [file for folder in folders for name in names if (file := folder / name).is_file()]
    return max(found, key=lambda file: file.stat().st_mtime, default=None)


def folder_to_name(out: Path) -> str:
    """How a command names a folder of results; "" where it is found without."""
    return "" if out in USUAL_FOLDERS else str(out)
