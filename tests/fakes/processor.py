"""Hardware counters without hardware: what the kernel says of them, reading by reading."""

from __future__ import annotations

import errno
import os
import struct
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from perfgate.measuring.timing.hardware import HardwareCounters

INSTRUCTIONS, CYCLES, CACHE_MISSES = 1, 0, 3
ALL_OPEN: Mapping[int, int] = {}


class FakeProcessor:
    """Every counter grows by ``steps`` of its number from one reading to the next.

    ``refused`` maps the number of a counter to the error that opening it gives. In the readings numbered in ``shared``, from 0
    on, the counters ran for half of the time.
    """

    def __init__(
        self,
        steps: Mapping[int, int] | None = None,
        *,
        refused: Mapping[int, int] = ALL_OPEN,
        shared: Collection[int] = (),
    ) -> None:
        self.steps = steps or {INSTRUCTIONS: 3000, CYCLES: 2000, CACHE_MISSES: 10}
        self.refused = refused
        self.shared = shared
        self.readings: Counter[int] = Counter()
        self._running: Counter[int] = Counter()

    def counters(self, paranoid: Path = Path(os.devnull)) -> HardwareCounters:
        return HardwareCounters(self.open, self.read, paranoid)

    def open(self, config: int) -> int:
        if config in self.refused:
            raise OSError(self.refused[config], os.strerror(self.refused[config]))
        return config

    def read(self, descriptor: int, size: int) -> bytes:
        number = self.readings[descriptor]
        self.readings[descriptor] += 1
        self._running[descriptor] += 500 if number in self.shared else 1000
        reading = struct.pack("=QQQ", self.steps[descriptor] * number, 1000 * (number + 1), self._running[descriptor])
        assert len(reading) == size
        return reading


def no_processor(error: int = errno.ENOENT) -> FakeProcessor:
    """Return one none of whose counters can be opened."""
    return FakeProcessor(refused={INSTRUCTIONS: error, CYCLES: error, CACHE_MISSES: error})
