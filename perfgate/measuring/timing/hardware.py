"""Hardware counters of a block: instructions, cycles and cache misses of all threads,
in user space.

The kernel counts by perf_event_open(2). The layout of its argument and the numbers
below come from linux/perf_event.h (PERF_ATTR_SIZE_VER0), the numbers of the system call
from asm/unistd_64.h (x86-64) and asm-generic/unistd.h (AArch64).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress

# The function itself, taken before user code runs.
from os import read
from pathlib import Path
from typing import NamedTuple

_SYSCALLS = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTES = struct.Struct(
    "=IIQQQQQIIQ"
)  # type, size, config, sample_period, sample_type, read_format, flags, ...
_TYPE_HARDWARE = 0
_INSTRUCTIONS, _CPU_CYCLES, _CACHE_MISSES = 1, 0, 3
_TOTAL_TIME_ENABLED, _TOTAL_TIME_RUNNING = 1 << 0, 1 << 1
_INHERIT = 1 << 1
_EXCLUDE_KERNEL = 1 << 5
_EXCLUDE_HV = 1 << 6
_FD_CLOEXEC = 1 << 3
_READING = struct.Struct("=QQQ")
_NAMES = {
    _INSTRUCTIONS: "instructions",
    _CPU_CYCLES: "cycles",
    _CACHE_MISSES: "cache misses",
}
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
# Without an own patch of the distribution 2 is the most, and it allows a process to
# count itself in user space.
_MOST_PARANOID = 2
_SHARED = "something else had the hardware counters for all of a block"

# Opens the counter of a PERF_COUNT_HW number and returns its descriptor. Raises OSError
# if the kernel refuses.
Opener = Callable[[int], int]


class CounterReading(NamedTuple):
    """A counter, and the nanoseconds for which the kernel was asked to count and for
    which it did.
    """

    value: int
    enabled: int
    running: int


class HardwareCounts(NamedTuple):
    """The counts of a block; None for an event that was not counted."""

    instructions: int | None
    cycles: int | None
    cache_misses: int | None


NOT_COUNTED = HardwareCounts(None, None, None)


class HardwareCounters:
    """The counters of this process and of every thread and process that it starts from
    now on.

    Counting needs no library and may be refused: ``absent`` then has the missing
    events, the reason and the remedy.
    """

    def __init__(
        self,
        opener: Opener | None = None,
        reader: Callable[[int, int], bytes] = read,
        paranoid: Path = _PARANOID,
    ) -> None:
        self._reader = reader
        self._descriptors: list[int | None] = []
        refused = []
        reason = ""
        for config, name in _NAMES.items():
            try:
                self._descriptors.append((opener or open_counter)(config))
            except OSError as error:
                self._descriptors.append(None)
                refused.append(name)
                reason = reason or _why(error, paranoid)
        self.absent = _not_counted(refused, reason) if refused else None

    def read(self) -> list[CounterReading | None]:
        """Every counter as it stands; None for one that could not be opened, or that
        user code closed.
        """
        return [self._read(descriptor) for descriptor in self._descriptors]

    def close(self) -> None:
        """Stop counting: later readings are None."""
        for descriptor in self._descriptors:
            if descriptor is not None:
                with suppress(OSError):
                    os.close(descriptor)
        self._descriptors = [None] * len(self._descriptors)

    def _read(self, descriptor: int | None) -> CounterReading | None:
        if descriptor is None:
            return None
        try:
            return CounterReading(
                *_READING.unpack(self._reader(descriptor, _READING.size))
            )
        except (OSError, struct.error):
            return None


def counted(
    before: Sequence[CounterReading | None], after: Sequence[CounterReading | None]
) -> HardwareCounts:
    """The counts between two readings.

    If more events are requested than the processor has counters, the kernel multiplexes
    them, and counts are scaled to the whole time, as in perf-stat(1). That is an
    estimate; its spread is in the comparison of base with itself too.
    """
    return HardwareCounts(*map(_difference, before, after))


def shared_counters(counts: Sequence[HardwareCounts]) -> str | None:
    """The counters that this process opened but some block lacks; None if there are
    none.
    """
    lacking = []
    for name, column in zip(_NAMES.values(), zip(*counts)):
        if None in column:
            lacking.append(name)
    if lacking:
        return _not_counted(lacking, _SHARED)
    return None


def open_counter(config: int) -> int:
    """Ask the kernel to count for this process, on any CPU; return the descriptor.

    Raises OSError if it refuses.
    """
    number = _SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    attributes = ctypes.create_string_buffer(attribute_bytes(config), _ATTRIBUTES.size)
    this_process = ctypes.c_long(0)
    any_cpu = ctypes.c_long(-1)
    no_group = ctypes.c_long(-1)
    system_call = ctypes.CDLL(None, use_errno=True).syscall
    system_call.restype = ctypes.c_long
    descriptor = system_call(
        ctypes.c_long(number),
        attributes,
        this_process,
        any_cpu,
        no_group,
        ctypes.c_ulong(_FD_CLOEXEC),
    )
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(descriptor)


def attribute_bytes(config: int) -> bytes:
    times = _TOTAL_TIME_ENABLED | _TOTAL_TIME_RUNNING
    flags = _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HV
    return _ATTRIBUTES.pack(
        _TYPE_HARDWARE, _ATTRIBUTES.size, config, 0, 0, times, flags, 0, 0, 0
    )


def _difference(
    before: CounterReading | None, after: CounterReading | None
) -> int | None:
    if before is None or after is None:
        return None
    running = after.running - before.running
    if running <= 0:
        return None
    return round(
        (after.value - before.value) * (after.enabled - before.enabled) / running
    )


def _not_counted(names: Sequence[str], reason: str) -> str:
    return f"{', '.join(names)} of calls are not counted: {reason}"


def _why(error: OSError, paranoid: Path) -> str:
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        return "this machine has no hardware counters (a virtual machine?)"
    if error.errno == errno.ENOSYS:
        return "there is no perf_event_open here (a container that hides it?)"
    if error.errno in (errno.EACCES, errno.EPERM):
        try:
            level = int(paranoid.read_text())
        except (OSError, ValueError):
            level = _MOST_PARANOID
        if level > _MOST_PARANOID:
            return (
                f"kernel.perf_event_paranoid is {level}: allow 2, or give CAP_PERFMON"
            )
        return "perf_event_open is forbidden (a container?): allow it in its seccomp profile, or give CAP_PERFMON"
    return f"perf_event_open: {error.strerror}"
