"""How much of the time in which this process could have run others had the CPUs it wanted."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class RunTimes(NamedTuple):
    """Nanoseconds that all threads of the process have run, and have been ready to run while another had the CPU."""

    ran: int
    waited: int

    def waited_share(self, later: RunTimes) -> float:
        ran, waited = max(0, later.ran - self.ran), max(0, later.waited - self.waited)
        return waited / (ran + waited) if waited else 0.0


def run_times(tasks: Path = Path("/proc/self/task")) -> RunTimes | None:
    """The times of the threads that there are now; None where the kernel keeps none.

    Source: the first two numbers of /proc/PID/task/TID/schedstat (Documentation/scheduler/sched-stats.rst).
    """
    ran = waited = 0
    try:
        for task in tasks.iterdir():
            first, second, *_ = (task / "schedstat").read_text().split()
            ran, waited = ran + int(first), waited + int(second)
    except (OSError, ValueError):  # no schedstat, or a thread that ended meanwhile
        return None
    return RunTimes(ran, waited)
