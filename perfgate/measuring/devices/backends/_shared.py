"""What the backends share: the host's clocks and memory, a sweep of the caches, a recording with torch.profiler."""

from __future__ import annotations

import gzip
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# The functions themselves, taken before user code runs: it may put others into the module.
from time import perf_counter_ns, process_time_ns, sleep, thread_time_ns
from typing import Any

from perfgate.errors import MeasuringError
from perfgate.measuring.devices.device import HostMemory
from perfgate.system.processes import run_delay_ns
from perfgate.trace.events import CALL

# A sleeper wakes up to a few hundred microseconds late; so much of a wait is spent awake.
_WATCHED_NS = 500_000


class HostReadings:
    """The part of ``Device`` that reads the host: its clocks in integer nanoseconds, and the memory of the process."""

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

    def host_memory(self) -> HostMemory:
        """The resident bytes (the second number of /proc/self/statm, in pages) and the minor faults of all threads."""
        resident = int(_STATM.read_text().split()[1]) * _PAGE
        return HostMemory(resident=resident, minor_faults=resource.getrusage(resource.RUSAGE_SELF).ru_minflt)


_STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def record_kineto(
    call: Callable[[], Any], *, calls: int, folder: Path, name: str, profiler: Any, synchronize: Callable[[], None]
) -> Path:
    """Profile ``calls`` calls with one of torch's profilers into ``name.json.gz``; each is waited for within its mark.

    The file appears under its name only when complete. Raises MeasuringError when the trace cannot be written.
    """
    from torch.autograd.profiler import record_function

    with profiler:
        for _ in range(calls):
            with record_function(CALL):
                call()
                synchronize()
    path = folder / f"{name}.json.gz"
    with _written_aside(path) as (plain, packed):
        profiler.export_chrome_trace(str(plain))
        if not plain.is_file() or not plain.stat().st_size:
            raise MeasuringError(f"{path}: the profiler wrote no trace; check that the disk has space and is writable")
        with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        packed.replace(path)
    return path


@contextmanager
def _written_aside(path: Path) -> Iterator[tuple[Path, Path]]:
    """Give two temporary names beside ``path`` and leave neither behind."""
    plain, packed = (path.with_name(f".{path.name}.{os.getpid()}.{word}") for word in ("json", "gz"))
    try:
        yield plain, packed
    except OSError as error:
        raise MeasuringError(f"{path} cannot be written: {error}; choose an --out folder with space") from error
    finally:
        for part in (plain, packed):
            part.unlink(missing_ok=True)


def sweeper(place: Any, size: int, synchronize: Callable[[], None]) -> Callable[[], None]:
    """A function that reads ``size`` bytes of memory of a ``torch.device`` and waits until that is done."""
    import torch

    # Written once: memory that never was is one page of zeros over and over, and reading it evicts nothing.
    buffer = torch.ones(size // torch.float32.itemsize, dtype=torch.float32, device=place)

    def sweep() -> None:
        buffer.sum()
        synchronize()

    return sweep
