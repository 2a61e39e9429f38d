"""The turns of the threads of one process that write to one SQLite file, which takes
one writer at a time.

Without them SQLite would let each of them sleep and try again, and every small write
would wait for the disk by itself.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy as sa

# The most work in one transaction, so that other processes have their turn too.
_AT_ONCE = 50


class WaitingWork:
    """The work of a thread that waits for its turn; another thread may do it, which
    then sets ``is_done``, and the error.
    """

    def __init__(self, do: Callable[[sa.Connection], None]) -> None:
        self.do = do
        self.is_done = False
        self.error: BaseException | None = None


class WriterTurns:
    """A queue of work, and the lock of the thread that writes.

    A forked process begins with its own.
    """

    def __init__(self) -> None:
        self._begin()

    def wait_with(self, do: Callable[[sa.Connection], None]) -> WaitingWork:
        """Queue work; it is done once the lock is held and it was taken."""
        self._leave_parent()
        work = WaitingWork(do)
        self._waiting.append(work)
        return work

    @contextmanager
    def mine(self) -> Iterator[None]:
        self._leave_parent()
        with self._lock:
            yield

    def take(self) -> list[WaitingWork]:
        """The work that waits longest; only the holder of the lock takes any."""
        work: list[WaitingWork] = []
        while self._waiting and len(work) < _AT_ONCE:
            work.append(self._waiting.popleft())
        return work

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._waiting: deque[WaitingWork] = deque()

    def _leave_parent(self) -> None:
        if (
            self._process != os.getpid()
        ):  # its threads are not here, and one of them may have held the lock
            self._begin()
