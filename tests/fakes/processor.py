"""Hardware counters without hardware: what the kernel says of them, reading by reading."""

from __future__ import annotations

import errno
import os
import struct
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from perfgate.measuring.timing.hardware import HardwareCounters

INSTRUCTIONS, CYCLES, CACHE_MISSES = 1, 0, 3
ALL_OPEN: Mapping[int, int] = {}
NOT_SHARED: Mapping[int, float] = {}


class FakeProcessor:
    """Every counter grows by ``steps`` of its number from one reading to the next.

    ``refused`` maps the number of a counter to the error that opening it gives, ``shared`` the number of a reading, from 0 on,
    to the share of the time before it for which the counters ran.
    """

    def __init__(
        self,
        steps: Mapping[int, int] | None = None,
        *,
        refused: Mapping[int, int] = ALL_OPEN,
        shared: Mapping[int, float] = NOT_SHARED,
    ) -> None:
        self.steps = steps or {INSTRUCTIONS: 3000, CYCLES: 2000, CACHE_MISSES: 10}
        self.refused = refused
        self.shared = shared
        self.readings: Counter[int] = Counter()
        self._running: Counter[int] = Counter()
        self._values: Counter[int] = Counter()

    def counters(self, paranoid: Path = Path(os.devnull)) -> HardwareCounters:
        return HardwareCounters(self.open, self.read, paranoid)

    def open(self, config: int) -> int:
        if config in self.refused:
            raise OSError(self.refused[config], os.strerror(self.refused[config]))
        return config

    def read(self, descriptor: int, size: int) -> bytes:
        number = self.readings[descriptor]
        self.readings[descriptor] += 1
        ran = self.shared.get(number, 1.0)
        self._running[descriptor] += round(1000 * ran)
        self._values[descriptor] += round(self.steps[descriptor] * ran) if number else 0
        reading = struct.pack("=QQQ", self._values[descriptor], 1000 * (number + 1), self._running[descriptor])
        assert len(reading) == size
        return reading


def no_processor(error: int = errno.ENOENT) -> FakeProcessor:
    """Return one none of whose counters can be opened."""
    return FakeProcessor(refused={INSTRUCTIONS: error, CYCLES: error, CACHE_MISSES: error})
