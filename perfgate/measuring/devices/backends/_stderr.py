"""What this process has written to its standard error since a moment: libraries in C++ say there what they tell nobody else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_MOST_BYTES = 32 << 20


class OwnErrors:
    """The standard error from here on, where it is a regular file, as a worker's always is."""

    def __init__(self) -> None:
        self._start = _size()

    def read(self) -> bytes | None:
        """What was written since, after the file was cut short what is left of it; None where it cannot be read."""
        end = _size()
        if self._start is None or end is None:
            return None
        start = self._start if end >= self._start else 0
        try:
            with Path("/proc/self/fd/2").open("rb") as stream:
                stream.seek(start)
                return stream.read(min(end - start, _MOST_BYTES))
        except OSError:
            return None


def _size() -> int | None:
    try:
        status = os.fstat(2)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
