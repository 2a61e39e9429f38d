"""What every real device reads of the host that measures: its clocks, and the memory of the process."""

from __future__ import annotations

import os
import resource
from pathlib import Path

# The functions themselves, taken before user code runs: it may put others into the module.
from time import perf_counter_ns, process_time_ns, sleep, thread_time_ns

from perfgate.measuring.devices.device import HostMemory
from perfgate.system.processes import run_delay_ns

# A sleeper wakes up to a few hundred microseconds late; so much of a wait is spent awake.
_WATCHED_NS = 500_000


class HostClocks:
    """The part of ``Device`` that tells the time; integer nanoseconds."""

    def clock_ns(self) -> int:
        return perf_counter_ns()

    def cpu_clock_ns(self) -> int:
        return thread_time_ns()

    def process_cpu_ns(self) -> int:
        return process_time_ns()

    def run_delay_ns(self) -> int | None:
        """How long the main thread has been ready to run without a CPU; None where the kernel does not say."""
        return run_delay_ns(os.getpid())

    def idle_until(self, time_ns: int) -> None:
        while (left_ns := time_ns - perf_counter_ns()) > 0:
            if left_ns > _WATCHED_NS:
                sleep((left_ns - _WATCHED_NS) / 1e9)


class HostMemoryReader:
    """The part of ``Device`` that tells what the process holds in the host's memory."""

    def host_memory(self) -> HostMemory:
        """The resident bytes (the second number of /proc/self/statm, in pages) and the minor faults of all threads."""
        resident = int(_STATM.read_text().split()[1]) * _PAGE
        return HostMemory(resident=resident, minor_faults=resource.getrusage(resource.RUSAGE_SELF).ru_minflt)


_STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")
