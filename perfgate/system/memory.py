"""Memory that the process keeps after it was freed."""

from __future__ import annotations

import ctypes
from contextlib import suppress

# Parameters of glibc's mallopt(3): below these sizes the process keeps freed memory.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# Free memory at the end of the heap, and the largest block that glibc allows in it.
_HELD_BYTES = {_TRIM_THRESHOLD: 256 << 20, _MMAP_THRESHOLD: 32 << 20}


def keep_freed_memory() -> None:
    """Otherwise the kernel zeroes every page anew for each large column: a third of the
    time for a recording of 5 MB.
    """
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        for threshold, size in _HELD_BYTES.items():
            library.mallopt(threshold, size)
