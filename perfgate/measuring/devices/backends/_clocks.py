"""The clocks of the host that measures, as every real device reads them."""

from __future__ import annotations

# The functions themselves, taken before user code runs: it may put others into the module.
from time import perf_counter_ns, process_time_ns, thread_time_ns


class HostClocks:
    """The part of ``Device`` that tells the time; integer nanoseconds."""

    def clock_ns(self) -> int:
        """Return the host clock."""
        return perf_counter_ns()

    def cpu_clock_ns(self) -> int:
        """Return the CPU time of the calling thread."""
        return thread_time_ns()

    def process_cpu_ns(self) -> int:
        """Return the CPU time of the process, all threads."""
        return process_time_ns()
