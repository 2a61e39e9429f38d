"""The driver of a card made of software, for models of tests: kernels of known durations on a queue of real time.

Launching returns at once, and the kernel ends when its time has passed: the card computes when that is, and a host
that synchronizes sleeps until then. So the card's own times are exact, whatever the host does meanwhile. As with a real
driver, a fork of the process that opened it cannot use it, every process that opens it is a little faster or slower than
others, and its memory ends.
"""

from __future__ import annotations

import math
import os
import random
import time
import weakref
from dataclasses import dataclass, field
from typing import NamedTuple

# The sd of the logarithm of all kernel times of a process, and of one kernel.
START_LUCK = 0.002
KERNEL_NOISE = 0.003
MEMORY_BYTES = 1 << 30
CLOCK_GHZ = 1.5
# Sleeping ends up to some hundred microseconds late; the rest of a wait is spent awake.
_AWAKE_NS = 300_000


class CardError(RuntimeError):
    """The card was used in a way that a real one refuses."""


class CardMemoryError(CardError):
    """The card's memory is full."""


class Kernel(NamedTuple):
    """A kernel that was launched: its name, the nanoseconds at which it starts and ends, and the cycles that it takes."""

    name: str
    start_ns: int
    end_ns: int
    cycles: int


class Block:
    """Memory of the card; it is free again once nothing refers to the block."""

    def __init__(self, size: int) -> None:
        self.bytes = size


@dataclass
class Card:
    """The context of one process on the card."""

    luck: float = START_LUCK
    noise: float = KERNEL_NOISE
    free_ns: int = 0
    used_bytes: int = 0
    peak_bytes: int = 0
    allocations: int = 0
    log: list[Kernel] | None = None
    _process: int = field(default_factory=os.getpid)
    _lot: random.Random = field(default_factory=lambda: random.Random(int.from_bytes(os.urandom(8), "big")))

    def __post_init__(self) -> None:
        self._factor = math.exp(self._lot.gauss(0.0, self.luck))

    def launch(self, name: str, seconds: float) -> None:
        """Put a kernel behind those in the queue."""
        self._refuse_fork()
        start_ns = max(time.perf_counter_ns(), self.free_ns)
        took = seconds * self._factor * math.exp(self._lot.gauss(0.0, self.noise))
        self.free_ns = start_ns + round(took * 1e9)
        if self.log is not None:
            self.log.append(Kernel(name, start_ns, self.free_ns, round((self.free_ns - start_ns) * CLOCK_GHZ)))

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self._refuse_fork()
        wait_until(self.free_ns)

    def allocate(self, size: int) -> Block:
        self._refuse_fork()
        if self.used_bytes + size > MEMORY_BYTES:
            raise CardMemoryError(f"card out of memory: {size} bytes wanted, {MEMORY_BYTES - self.used_bytes} free")
        block = Block(size)
        self.used_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        self.allocations += 1
        weakref.finalize(block, self._release, size)
        return block

    def _release(self, size: int) -> None:
        self.used_bytes -= size

    def _refuse_fork(self) -> None:
        if os.getpid() != self._process:
            raise CardError("the card was opened before this process was forked, and cannot be used in it")


def wait_until(time_ns: int) -> None:
    """Wait until the clock of ``time.perf_counter_ns`` shows a time."""
    while (left_ns := time_ns - time.perf_counter_ns()) > 0:
        if left_ns > _AWAKE_NS:
            time.sleep((left_ns - _AWAKE_NS) / 1e9)


_opened: list[Card] = []


def card() -> Card:
    """The card of this process, opened on the first call."""
    if not _opened:
        _opened.append(Card())
    return _opened[0]
