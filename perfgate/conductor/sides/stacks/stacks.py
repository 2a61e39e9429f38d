"""Sample the Python stacks of a side's processes while it works, read the results, and
record its operators.

Every Python process of a side catches a signal (``measuring/startup``). Only processes
that catch it are sent it: any other would die of it.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.document.job import CpuTime, ProfileUnit
from perfgate.system.logs import only_a_file
from perfgate.system.profiling import (
    FROM_START,
    OPERATORS,
    OPERATORS_SWITCH,
    PROFILE_SIGNAL,
    PROFILE_VARIABLE,
    RECORDING,
    STACKS,
    STARTED,
    SWITCH,
)

# Total profiling time per side, over several turns.
PROFILE_SECONDS = 2.0
# Processes that wait for a CPU longer than they have one get up to this many, until
# they have used half as much CPU time as they would have alone.
_BUSY_SECONDS = 12.0
MOST_TURNS = 1000
_MOST_RUNS = 20
# A process that is not ready after the first records what is left of the turn.
_START_SECONDS, _END_SECONDS = 5.0, 20.0
# Of recordings of operators.
_WRITE_SECONDS = 60.0
_POLL_SECONDS = 0.02
_MOST_BYTES = 1 << 26
# The folders for traces of vLLM's and SGLang's own profilers.
_TRACE_VARIABLES = ("VLLM_TORCH_PROFILER_DIR", "SGLANG_TORCH_PROFILER_DIR")


class StackFrame(NamedTuple):
    """A line that ran: the file and the qualified name of its function, the lines of
    that, and its own number.
    """

    file: str
    function: str
    first: int
    last: int
    line: int


class StackSample(NamedTuple):
    """``times`` samples of a thread that had the same stack; times are in nanoseconds."""

    thread: str
    stack: int
    begin: int
    end: int
    cpu: int
    waited: bool
    times: int


class ProcessStacks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The samples of one process; ``library`` is the folder of Python's own modules,
    ``rank`` -1 outside a job of ranks.
    """

    pid: int
    rank: int
    began: int
    ended: int
    library: str
    frames: list[StackFrame]
    stacks: list[list[int]]
    samples: list[StackSample]


class SideStacks(NamedTuple):
    """The stacks of all processes of a side while it did ``units`` of work in
    ``seconds``.

    ``traces`` lie in ``folder`` and hold the operators of ``operator_units`` units.
    """

    per: ProfileUnit
    units: int
    seconds: float
    processes: list[ProcessStacks]
    traces: list[Path]
    folder: Path = Path()
    operator_units: int = 0


def profiling_environment(
    environment: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """The environment in which Python processes can be profiled into ``folder``."""
    startup = Path(__file__).resolve().parents[3] / "measuring" / "startup"
    path = os.pathsep.join(
        [str(startup), *filter(None, [environment.get("PYTHONPATH")])]
    )
    own = {name: str(folder) for name in _TRACE_VARIABLES if name not in environment}
    return {**environment, **own, PROFILE_VARIABLE: str(folder), "PYTHONPATH": path}


def sample_stacks(
    folder: Path,
    processes: Callable[[], list[int]],
    work: Callable[[], int],
    per: ProfileUnit,
    cpu: Callable[[], CpuTime],
) -> SideStacks:
    """Sample while ``work`` is done until there is enough; it returns how many units it
    did.

    ``cpu`` is the CPU time that the processes have used since now. The folder is
    emptied before, because older files are not of this profile.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    units = turns = 0
    with _switched_on(folder / SWITCH, processes, STARTED) as signalled:
        began = time.monotonic()
        seconds = 0.0
        while turns < MOST_TURNS and (
            seconds < PROFILE_SECONDS
            or (seconds < _BUSY_SECONDS and _is_starved(cpu()))
        ):
            units += work()
            turns += 1
            seconds = time.monotonic() - began
    started = {pid for pid in signalled if (folder / f"{pid}{STARTED}").exists()}
    wait_for_files(folder, started, STACKS, _END_SECONDS)
    files = [folder / f"{pid}{STACKS}" for pid in sorted(started)]
    return SideStacks(per, units, seconds, _read_all(files), traces=[], folder=folder)


@contextmanager
def _switched_on(
    switch: Path, processes: Callable[[], list[int]], begun: str
) -> Iterator[set[int]]:
    """Let processes that catch the signal record until the context ends; yield those
    once they have begun.
    """
    switch.touch()
    signalled = signal_processes(processes())
    wait_for_files(switch.parent, signalled, begun, _START_SECONDS)
    try:
        yield signalled
    finally:
        switch.unlink(missing_ok=True)
        signal_processes(list(signalled))


def _is_starved(cpu: CpuTime) -> bool:
    """Whether processes have used little CPU time because others had it; a program that
    computes little has enough.
    """
    return cpu.used < PROFILE_SECONDS / 2 and (
        cpu.waited is None or cpu.waited > cpu.used
    )


def sample_run(folder: Path, run: Callable[[], bool]) -> SideStacks | None:
    """Sample all Python processes of some runs from their start to their end; None
    where ``run`` says that one failed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / FROM_START).touch()
    began, runs = time.monotonic(), 0
    try:
        while runs < _MOST_RUNS and time.monotonic() - began < PROFILE_SECONDS:
            if not run():
                return None
            runs += 1
    finally:
        (folder / FROM_START).unlink(missing_ok=True)
    seconds = time.monotonic() - began
    files = sorted(folder.glob(f"*{STACKS}"))
    return SideStacks("run", runs, seconds, _read_all(files), traces=[], folder=folder)


def signal_processes(pids: list[int]) -> set[int]:
    """Send the signal to those that catch it, and return them."""
    signalled = set()
    for pid in pids:
        with suppress(OSError):  # it has ended
            if _catches(pid):
                os.kill(pid, PROFILE_SIGNAL)
                signalled.add(pid)
    return signalled


def _catches(pid: int) -> bool:
    """Whether a process has a handler for the signal (proc(5): SigCgt has a bit for
    each).
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (PROFILE_SIGNAL - 1) & 1)


def wait_for_files(folder: Path, pids: set[int], suffix: str, seconds: float) -> None:
    """Wait until every process has written its file, has ended, or the time is up."""
    ends = time.monotonic() + seconds
    for pid in pids:
        file, process = folder / f"{pid}{suffix}", Path(f"/proc/{pid}")
        while not file.exists() and process.exists() and time.monotonic() < ends:
            time.sleep(_POLL_SECONDS)


def _read_all(files: Iterable[Path]) -> list[ProcessStacks]:
    return [stacks for stacks in map(_read, files) if stacks is not None]


def _read(file: Path) -> ProcessStacks | None:
    """The samples of a process; None if the file is not such a document: the process
    ran code of the change.
    """
    try:
        with open(file, "rb", opener=only_a_file) as written:
            content = written.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            return None
        stacks = msgspec.json.decode(content, type=ProcessStacks)
    except (OSError, msgspec.MsgspecError):
        return None
    for stack in stacks.stacks:
        if stack and not 0 <= min(stack) <= max(stack) < len(stacks.frames):
            return None
    for sample in stacks.samples:
        has_stack = 0 <= sample.stack < len(stacks.stacks)
        if (
            not has_stack
            or sample.begin > sample.end
            or sample.cpu < 0
            or sample.times <= 0
        ):
            return None
    return stacks


# --- operators: by the program's own profiler, else by torch's in its processes


def record_operators(
    sampled: SideStacks,
    processes: Callable[[], list[int]],
    work: Callable[[], int],
    *,
    begin: Callable[[Path], bool] = lambda _: False,
    end: Callable[[], None] = lambda: None,
) -> SideStacks:
    """The profile with the traces of one more turn, which does ``work`` and returns how
    many units it did.

    ``begin`` starts the program's own profiler and returns whether there is one, and
    ``end`` ends it. SideError of ``work`` passes through.
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
    with _switched_on(folder / OPERATORS_SWITCH, processes, RECORDING) as signalled:
        units = work()
    with_torch = set()
    for pid in signalled:
        with suppress(OSError):
            if (folder / f"{pid}{RECORDING}").lstat().st_size:
                with_torch.add(pid)
    wait_for_files(folder, with_torch, OPERATORS, _WRITE_SECONDS)
    return units
