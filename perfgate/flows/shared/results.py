"""The newest results of perfgate, for commands without a folder argument."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

# The output folders of perfgate run and check, and of perfgate local.
USUAL_FOLDERS = (Path("perfgate-out"), Path(".perfgate/local"))


def newest_result(names: Sequence[str], *beside: Path) -> Path | None:
    """The newest file with one of these names in the usual folders, below the current
    folder or one of ``beside``.
    """
    results: list[Path] = []
    for root, folder, name in product((Path(), *beside), USUAL_FOLDERS, names):
        file = root / folder / name
        if file.is_file():
            results.append(file)
    return max(results, key=lambda file: file.stat().st_mtime, default=None)


def folder_to_name(out: Path) -> str:
    """The folder of results as a command names it; "" for a usual folder, which needs
    no name.
    """
    return "" if out in USUAL_FOLDERS else str(out)
