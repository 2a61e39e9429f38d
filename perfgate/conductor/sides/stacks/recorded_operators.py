"""Record the operators of a side in one turn more: by the program's own profiler, else by torch's in its processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perfgate.conductor.sides.stacks.stacks import (
    SideStacks,
    signal_processes,
    wait_for_files,
)
from perfgate.system.profiling import OPERATORS, OPERATORS_SWITCH, RECORDING

# Which process is not ready then records what is left of the turn.
_START_SECONDS, _END_SECONDS = 5.0, 60.0


def record_operators(
    sampled: SideStacks,
    processes: Callable[[], list[int]],
    work: Callable[[], int],
    *,
    begin: Callable[[Path], bool] = lambda _: False,
    end: Callable[[], None] = lambda: None,
) -> SideStacks:
    """The profile with the traces of one more turn, which does ``work`` and returns how many units it did.

    ``begin`` starts the program's own profiler and returns whether there is one, and ``end`` ends it. SideError of
    ``work`` passes through.
    """
    folder = sampled.folder
    units, traces = 0, []
    if begin(folder):
        try:
            units = work()
        finally:
            end()
        traces = _traces(folder)
    if not traces:  # many servers answer any request with success
        units = _by_torch(folder, processes, work)
        traces = _traces(folder)
    return sampled._replace(operator_units=units if traces else 0, traces=traces)


def _traces(folder: Path) -> list[Path]:
    return sorted(
        file for file in folder.rglob("*.json*") if ".writing" not in file.name
    )


def _by_torch(
    folder: Path, processes: Callable[[], list[int]], work: Callable[[], int]
) -> int:
    switch = folder / OPERATORS_SWITCH
    switch.touch()
    signalled = signal_processes(processes())
    wait_for_files(folder, signalled, RECORDING, _START_SECONDS)
    try:
        units = work()
    finally:
        switch.unlink(missing_ok=True)
        signal_processes(list(signalled))
    with_torch = {pid for pid in signalled if _size(folder / f"{pid}{RECORDING}")}
    wait_for_files(folder, with_torch, OPERATORS, _END_SECONDS)
    return units


def _size(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:
        return 0
