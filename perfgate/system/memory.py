"""Memory that the process keeps after it was freed."""

from __future__ import annotations

import ctypes
from contextlib import suppress

# Parameters of glibc's mallopt(3): below these sizes the process keeps freed memory.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _HELD_BYTES = -1, -3, 32 << 20


def keep_freed_memory() -> None:
    """Otherwise the kernel zeroes every page anew for each large column: a third of the time for a recording of 5 MB."""
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        for threshold in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            library.mallopt(threshold, _HELD_BYTES)
