"""Make a model slower by a known share, in Python work that no counter counts: only the
clock can tell.

The share is that of an undisturbed call on this machine, of the fastest shape: both are
timed here, the fastest of many counts.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

_FORWARD = "    def forward(self, "
_REPEATS = 200
_CALL = """
import sys, time
sys.path[:0] = [{folder!r}, "."]
import torch
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from workload import {workload}
torch.set_num_threads(1)
bound = BoundWorkload("timed", {workload}, open_device("cpu"), seed=1)
best = 1e9
for call in map(bound.caller, bound.shapes):
    for _ in range({repeats}):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
print(best)
"""


class Place(NamedTuple):
    """Where a project's call is: the file of its model, the class whose forward is the
    call, its workload and its folder.
    """

    file: str
    model: str
    workload: str
    folder: str


def plant(repository: Path, place: Place, *, percent: float) -> None:
    """Add ``percent`` of a call's time to the forward of the model in ``repository``."""
    count = _numbers_in(percent / 100 * _fastest_call(repository, place))
    path = repository / place.file
    source = path.read_text(encoding="utf-8")
    start = source.index(_FORWARD, source.index(f"class {place.model}("))
    body = source.index("\n", start) + 1
    path.write_text(
        f"{source[:body]}        sum(range({count}))\n{source[body:]}", encoding="utf-8"
    )


def _fastest_call(repository: Path, place: Place) -> float:
    code = _CALL.format(folder=place.folder, workload=place.workload, repeats=_REPEATS)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def _numbers_in(seconds: float) -> int:
    """Return how many numbers ``sum(range(count))`` adds in so many seconds."""
    count = 1000
    best = min(_timed(count) for _ in range(_REPEATS))
    return max(1, round(count * seconds / best))


def _timed(count: int) -> float:
    started = time.perf_counter()
    sum(range(count))
    return time.perf_counter() - started
