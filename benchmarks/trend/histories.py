"""Recorded performance histories with the regressions that people labelled, one value a
version.

The SAP HANA series of github.com/SAP/performance-regression-data-set (CC-BY-4.0, Thomas
Bach, Pal Lv, Minh Le), as they lie beside the repository: labels.csv (file, type,
change_point: the last run before a regression, 0 for none) and one CSV a series (index,
version, value: a time).
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "gate-noise" / "history"
# Where a known slowdown is planted: not in series that a regression, or a change of the
# build, moves by itself.
PLANTED_IN = ("Stable", "Spike", "High deviation")


class History(NamedTuple):
    """The median of each version's runs, in order; ``change`` is the first version
    after the regression, 0 without one.
    """

    name: str
    kind: str
    values: Floats
    change: int


def load_histories(folder: Path = BESIDE) -> list[History]:
    """Return every labelled series of a folder."""
    return [_load(folder, row) for row in _rows(folder / "labels.csv")]


def planted(history: History, size: float) -> tuple[Floats, int]:
    """Return the values of a history, slower by ``size`` from its middle on, and where
    that is.
    """
    middle = history.values.size // 2
    return np.r_[history.values[:middle], history.values[middle:] * (1 + size)], middle


def _load(folder: Path, row: dict[str, str]) -> History:
    versions: dict[str, list[tuple[int, float]]] = {}
    for run in _rows(folder / row["file"]):
        versions.setdefault(run["version"], []).append(
            (int(run["index"]), float(run["value"]))
        )
    values = np.array(
        [np.median([value for _, value in runs]) for runs in versions.values()]
    )
    last_runs = [runs[-1][0] for runs in versions.values()]
    labelled = int(row["change_point"])
    change = int(np.searchsorted(last_runs, labelled, side="right")) if labelled else 0
    return History(row["file"], row["type"], values, change)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
