"""Other processes that are runnable while something is measured."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

# The first is bound by memory: it goes through 128 MiB again and again. Both end with
# whoever started them.
_PROGRAMS = (
    "import os, numpy as n\na, parent = n.zeros(2**24), os.getppid()\nwhile os.getppid() == parent: a += 1",
    "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(10**6))",
)


@contextlib.contextmanager
def running(count: int) -> Iterator[None]:
    """Keep so many processes runnable until the context ends."""
    processes = [
        subprocess.Popen([sys.executable, "-c", _PROGRAMS[min(number, 1)]])
        for number in range(count)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
