"""A sweep over batch sizes: the sizes that work, with the measurements of each round."""

from __future__ import annotations

from dataclasses import dataclass, field

from perfgate.document.message import Message


@dataclass
class Sweep:
    """Sizes that work, in rising order, with the items per second of each round and the
    latencies in seconds.

    ``call_seconds`` is the time of the call by which a size was tried. From
    ``out_of_memory`` on no size fits into memory, and none larger than ``too_slow`` was
    tried because its call takes long. ``refused`` are sizes that the model does not
    accept.
    """

    sizes: list[int] = field(default_factory=list)
    call_seconds: dict[int, float] = field(default_factory=dict)
    rates: dict[int, list[float]] = field(default_factory=dict)
    latencies: dict[int, list[float]] = field(default_factory=dict)
    refused: dict[int, Message] = field(default_factory=dict)
    out_of_memory: int | None = None
    too_slow: int | None = None

    def drop_from(self, size: int) -> list[int]:
        """Forget a size and all above it, and return them."""
        dropped = [larger for larger in self.sizes if larger >= size]
        for larger in dropped:
            self.drop(larger)
        return dropped

    def drop(self, size: int) -> None:
        """Forget a size."""
        self.sizes.remove(size)
        self.rates.pop(size, None)
