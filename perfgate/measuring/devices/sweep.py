"""Push everything out of a device's caches by reading more than they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def sweeper(place: Any, size: int, synchronize: Callable[[], None]) -> Callable[[], None]:
    """A function that reads ``size`` bytes of memory of a ``torch.device`` and waits until that is done."""
    import torch

    # Written once: memory that never was is one page of zeros over and over, and reading it evicts nothing.
    buffer = torch.ones(size // torch.float32.itemsize, dtype=torch.float32, device=place)

    def sweep() -> None:
        buffer.sum()
        synchronize()

    return sweep
