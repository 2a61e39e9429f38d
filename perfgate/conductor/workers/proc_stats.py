"""The kernel's view of a worker from outside, which user code cannot influence: CPU
time, waiting, settings of its threads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from perfgate.system.processes import (
    process_cpu_ns,
    process_family,
    run_delay_ns,
    stat_of,
    threads_of,
)

_SCHEDULERS = {
    0: "other",
    1: "fifo",
    2: "round robin",
    3: "batch",
    5: "idle",
    6: "deadline",
}  # sched(7)
# A worker that has answered is back in its wait for the next request after some 0.03
# ms.
_POLL_SECONDS = 5e-5
# On a busy machine it may first have to wait for a CPU, and that wait is booked when it
# ends: within its next turn otherwise.
_ASLEEP_SECONDS = 0.05


def cpu_ns(pid: int) -> int:
    return sum(process_cpu_ns(process) for process in process_family(pid))


def waited_share(
    delay_before_ns: int | None, delay_after_ns: int | None, elapsed_ns: int
) -> float | None:
    """The share of a time in which a process was ready to run without a CPU; None if
    the kernel does not report it.
    """
    if delay_before_ns is None or delay_after_ns is None:
        return None
    return round(
        min(1.0, max(0, delay_after_ns - delay_before_ns) / max(elapsed_ns, 1)), 4
    )


def wait_asleep(pid: int) -> None:
    """Wait until a process's main thread sleeps, a moment at most: only then are
    ``cpu_ns`` and ``run_delay_ns`` up to date.

    For a running thread, the kernel accounts at each tick, up to 10 ms apart
    (update_curr, kernel/sched/fair.c): the end of a worker's own turn would seem to be
    outside of it.
    """
    deadline = time.monotonic() + _ASLEEP_SECONDS
    while stat_of(pid)[:1] == ["R"] and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def thread_settings(pid: int) -> dict[str, str]:
    """Settings that decide the CPUs of a process's threads, and how soon they get them:
    allowed CPUs, nice value, scheduler.

    If threads differ, all their values are there; a process that is gone has none.
    """
    affinities = set()
    priorities = set()
    schedulers = set()
    for thread in threads_of(pid):
        try:
            affinities.add(",".join(map(str, sorted(os.sched_getaffinity(thread)))))
            priorities.add(str(os.getpriority(os.PRIO_PROCESS, thread)))
            number = os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK
        except OSError:  # it has ended
            continue
        schedulers.add(_SCHEDULERS.get(number, str(number)))
    settings = {
        "allowed CPUs": affinities,
        "nice value": priorities,
        "scheduler": schedulers,
    }
    return {
        name: " and ".join(sorted(values))
        for name, values in settings.items()
        if values
    }


@dataclass(frozen=True)
class Observer:
    """The conductor's sources while workers measure: its own clocks, and the kernel's
    view of a process.
    """

    monotonic: Callable[[], float] = time.monotonic
    clock_ns: Callable[[], int] = time.perf_counter_ns
    cpu_ns: Callable[[int], int] = cpu_ns
    wait_asleep: Callable[[int], None] = wait_asleep
    run_delay_ns: Callable[[int], int | None] = run_delay_ns
    thread_settings: Callable[[int], dict[str, str]] = thread_settings
