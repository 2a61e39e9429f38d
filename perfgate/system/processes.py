"""Linux features that keep a family of processes together and its secrets apart: prctl,
process groups, /proc.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_CPUCLOCK_SCHED = 2
_KILL_ROUNDS = 100
_ROUND_SECONDS = 0.005
# Three numbers of at most 20 digits.
_SCHEDSTAT_BYTES = 64


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent does, and end at once if
    ``parent`` is already gone.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Take ``die_with_parent`` back."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Become the parent of every orphan below us, also of those in other sessions."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def be_closed() -> None:
    """Let no other process of our user read our environment, memory and descriptors,
    nor trace us; root still can.

    The kernel gives /proc/PID/environ, fd and mem of such a process to root, and asks
    for CAP_SYS_PTRACE (proc(5), prctl(2) PR_SET_DUMPABLE). A forked process inherits
    it, a started program does not.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def be_open() -> None:
    """Take ``be_closed`` back."""
    _prctl(_PR_SET_DUMPABLE, 1)


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped a process (state T of proc(5)); False if it is gone."""
    return stat_of(pid)[:1] == ["T"]


def run_delay_ns(pid: int) -> int | None:
    """The time that a thread, or a process's main thread, was ready to run without a
    CPU; None if the kernel does not report it.

    Source: the second number of /proc/PID/schedstat
    (Documentation/scheduler/sched-stats.rst).
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None


class RunDelay:
    """How long this process's main thread has been ready to run without a CPU, read
    often: the file stays open, 1 us a time.

    Raises OSError or ValueError where the kernel does not say.
    """

    def __init__(self) -> None:
        self._file = os.open("/proc/self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.ns()
        except BaseException:
            self.close()
            raise

    def ns(self) -> int:
        _running, waited, *_ = os.pread(self._file, _SCHEDSTAT_BYTES, 0).split()
        return int(waited)

    def close(self) -> None:
        os.close(self._file)


def run_delay_ns_below(pid: int) -> int | None:
    """The time that all threads below a process were ready to run without a CPU; None
    if the kernel does not report it.
    """
    total: int | None = None
    for process in _below(pid):
        for thread in threads_of(process):
            delay = run_delay_ns(thread)
            if delay is not None:
                total = (total or 0) + delay
    return total


def children() -> list[int]:
    pids: list[int] = []
    try:
        for folder in Path("/proc/self/task").iterdir():
            pids += map(int, (folder / "children").read_text().split())
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        ours = os.getpid()
        return [
            int(folder.name)
            for folder in Path("/proc").glob("[0-9]*")
            if parent_of(int(folder.name)) == ours
        ]
    return pids


def signal_name(number: int) -> str:
    """E.g. ``SIGKILL``; real-time signals have no names."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def name_of(pid: int) -> str:
    """The name of a process, at most 15 characters (proc(5), comm); empty if it is
    gone.
    """
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return ""


def process_cpu_ns(pid: int) -> int:
    """The CPU time of a process, 0 for one that has ended.

    Its clock has the number that clock_getcpuclockid(3) would return: ~pid << 3 |
    CPUCLOCK_SCHED (linux/posix-timers.h, make_process_cpuclock).
    """
    try:
        return time.clock_gettime_ns(~pid << 3 | _CPUCLOCK_SCHED)
    except OSError:
        return 0


def cpu_ns_below(pid: int) -> int:
    """The CPU time of everything below a process, including reaped children; its own is
    left out.
    """
    total = waited_for_ns(pid)
    for process in _below(pid):
        total += process_cpu_ns(process) + waited_for_ns(process)
    return total


def waited_for_ns(pid: int) -> int:
    """The CPU time of the processes that a process has waited for: cutime and cstime of
    proc(5), stat, in ticks.
    """
    fields = stat_of(pid)
    if len(fields) <= 14:
        return 0
    return (int(fields[13]) + int(fields[14])) * 10**9 // os.sysconf("SC_CLK_TCK")


def process_family(pid: int) -> Iterator[int]:
    """Yield a process and all below it."""
    pending = [pid]
    while pending:
        process = pending.pop()
        yield process
        pending.extend(_children_of(process))


def _below(pid: int) -> Iterator[int]:
    family = process_family(pid)
    next(family)  # the process itself
    return family


def _children_of(pid: int) -> Iterable[int]:
    for thread in threads_of(pid):
        try:
            yield from map(
                int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
            )
        except OSError:  # it has ended, or a kernel without CONFIG_PROC_CHILDREN
            continue


def threads_of(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 - names alone, in the time between blocks
    except OSError:
        return []


def running_below(pid: int) -> list[int]:
    """The processes below a process that have not ended."""
    return [process for process in _below(pid) if _runs(process)]


def wants_cpu(pid: int) -> bool:
    """Whether a thread of a process runs or is ready to, or waits for a disk."""
    return any(
        stat_of(f"{pid}/task/{thread}")[:1] in (["R"], ["D"])
        for thread in threads_of(pid)
    )


def kill_group(pid: int) -> None:
    """Kill a process group, if there is one."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def kill_children(*, spare: Collection[int]) -> list[str]:
    """Kill all our children but ``spare``, and theirs, which come to us as theirs die;
    return the names of those that ran.

    Bounded: a process that hangs in the kernel cannot be waited for.
    """
    return _kill_all(children, spare)


def kill_descendants(*, spare: Collection[int]) -> None:
    """Kill all processes below this one but ``spare``, also those that start meanwhile;
    bounded like ``kill_children``.

    After ``adopt_orphans`` this process becomes the parent of all orphans.
    """
    _kill_all(lambda: running_below(os.getpid()), spare)


def _kill_all(find: Callable[[], list[int]], spare: Collection[int]) -> list[str]:
    """Kill all processes that are found, again and again until there are none; return
    the names of those that ran.
    """
    killed: dict[int, str] = {}
    for _ in range(_KILL_ROUNDS):
        pids = set(find()) - set(spare)
        if not pids:
            break
        for pid in pids:
            if _runs(pid):
                killed.setdefault(pid, name_of(pid))
            with suppress(ProcessLookupError, ChildProcessError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_ROUND_SECONDS)
    return sorted(killed.values())


def _runs(pid: int) -> bool:
    """Whether a process has not ended; a zombie has."""
    return stat_of(pid)[:1] not in ([], ["Z"])


def parent_of(pid: int) -> int:
    """The parent of a process, 0 of one that is gone."""
    return int((stat_of(pid)[1:2] or ["0"])[0])


def session_of(pid: int) -> int:
    """The number of the process that leads a process's session (setsid(2)), 0 of one
    that is gone.
    """
    return int((stat_of(pid)[3:4] or ["0"])[0])


def folders_of(pid: int) -> list[Path]:
    """The folder in which a process is, and the home with which its program was
    started, as far as we may read them.
    """
    folders = []
    with suppress(OSError):
        folders.append(Path(f"/proc/{pid}/cwd").readlink())
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(b"HOME="):
                folders.append(Path(os.fsdecode(entry[5:])))
    return folders


def stat_of(process: int | str) -> list[str]:
    """The fields of proc(5) for a process from the third on: state, parent, …; empty if
    it is gone.

    A thread is ``PID/task/THREAD``.
    """
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return []
    # The name in parentheses before may hold anything.
    return text.rpartition(")")[2].split()


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
