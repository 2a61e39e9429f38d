"""The driver of a card made of software, for models of tests: kernels of known durations on a queue of real time.

Launching returns at once, and the kernel ends when its time has passed: the card computes when that is, and a host
that synchronizes sleeps until then. So the card's own times are exact, whatever the host does meanwhile. As with a real
driver, a fork of the process that opened it cannot use it, every process that opens it is a little faster or slower than
others, its memory ends, and a launch takes time of the host that varies. The memory is that of all processes together that name
the same folder in CARD_MEMORY, else of each.

With CARD_POWER_LIMIT in the environment the card is at its power limit once it has worked for some seconds: it heats up with
one time constant, and its clock falls with that.
"""

from __future__ import annotations

import fcntl
import math
import os
import random
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

# The sd of the logarithm of all kernel times of a process, and of one kernel.
START_LUCK = 0.002
KERNEL_NOISE = 0.003
MEMORY_BYTES = 1 << 30
CLOCK_HZ = 1.5e9
# What a launch takes of the host, and the sd of its logarithm.
LAUNCH_NS, LAUNCH_JITTER = 4_000, 0.2
# Above this part of its full heat, the clock falls by this share of the rest. The heat follows the load in about so long that
# the turns of another process hardly show.
LIMIT, STEEPNESS, HEAT_SECONDS = 0.02, 0.2, 8.0
COPY_BANDWIDTH = 1e10
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
class Graph:
    """Kernels that were captured, to be launched together."""

    card: Card
    kernels: list[tuple[str, float]] = field(default_factory=list)

    def replay(self) -> None:
        for name, seconds in self.kernels:
            self.card.launch(name, seconds)


@dataclass
class Card:
    """The context of one process on the card."""

    luck: float = START_LUCK
    noise: float = KERNEL_NOISE
    has_limit: bool = False
    free_ns: int = 0
    heat: float = 0.0
    used_bytes: int = 0
    peak_bytes: int = 0
    allocations: int = 0
    log: list[Kernel] | None = None
    _captured: Graph | None = None
    _process: int = field(default_factory=os.getpid)
    _lot: random.Random = field(default_factory=lambda: random.Random(int.from_bytes(os.urandom(8), "big")))

    def __post_init__(self) -> None:
        self._factor = math.exp(self._lot.gauss(0.0, self.luck))

    @property
    def clock_share(self) -> float:
        """The clock over the rated clock."""
        return 1.0 - STEEPNESS * max(0.0, self.heat - LIMIT) if self.has_limit else 1.0

    @property
    def is_limited(self) -> bool:
        return self.clock_share < 1.0

    def launch(self, name: str, seconds: float) -> None:
        """Put a kernel behind those in the queue."""
        self._refuse_fork()
        if self._captured is not None:
            self._captured.kernels.append((name, seconds))
            return
        wait_until(time.perf_counter_ns() + round(LAUNCH_NS * math.exp(self._lot.gauss(0.0, LAUNCH_JITTER))))
        now, idle_since = time.perf_counter_ns(), self.free_ns
        start_ns = max(now, idle_since)
        share = self.clock_share
        took = seconds * self._factor * math.exp(self._lot.gauss(0.0, self.noise)) / share
        self.free_ns = start_ns + round(took * 1e9)
        self._heat_up(idle_ns=start_ns - idle_since if idle_since else 0, busy_ns=self.free_ns - start_ns)
        if self.log is not None:
            cycles = round((self.free_ns - start_ns) / 1e9 * share * CLOCK_HZ)
            self.log.append(Kernel(name, start_ns, self.free_ns, cycles))

    def _heat_up(self, *, idle_ns: int, busy_ns: int) -> None:
        self.heat *= math.exp(-idle_ns / 1e9 / HEAT_SECONDS)
        self.heat += (1.0 - self.heat) * -math.expm1(-busy_ns / 1e9 / HEAT_SECONDS)

    @contextmanager
    def capture(self) -> Iterator[Graph]:
        """Launch nothing, and note the kernels for later."""
        graph = self._captured = Graph(self)
        try:
            yield graph
        finally:
            self._captured = None

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self._refuse_fork()
        wait_until(self.free_ns)

    def allocate(self, size: int) -> Block:
        self._refuse_fork()
        with self._memory_of_all() as others:
            if others + self.used_bytes + size > MEMORY_BYTES:
                free = MEMORY_BYTES - others - self.used_bytes
                raise CardMemoryError(f"card out of memory: {size} bytes wanted, {free} free")
            self.used_bytes += size
        block = Block(size)
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        self.allocations += 1
        weakref.finalize(block, self._release, size)
        return block

    def _release(self, size: int) -> None:
        with self._memory_of_all():
            self.used_bytes -= size

    def free_bytes(self) -> int:
        with self._memory_of_all() as others:
            return MEMORY_BYTES - others - self.used_bytes

    @contextmanager
    def _memory_of_all(self) -> Iterator[int]:
        """Yield the bytes of other processes while they wait, and then note our own for them."""
        if "CARD_MEMORY" not in os.environ:
            yield 0
            return
        folder = Path(os.environ["CARD_MEMORY"])
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            notes = [note for note in folder.glob("*.bytes") if note.stem != str(os.getpid())]
            yield sum(int(note.read_text()) for note in notes if Path("/proc", note.stem).exists())
            (folder / f"{os.getpid()}.bytes").write_text(str(self.used_bytes))

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
        _opened.append(Card(has_limit="CARD_POWER_LIMIT" in os.environ))
    return _opened[0]
