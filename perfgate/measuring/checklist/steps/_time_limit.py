"""A limit on the time of what cannot be asked to stop: a compiler, and the compilers that it starts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_AGAIN_SECONDS = 0.2


class TimeUpError(BaseException):
    """Time is up. No Exception, so that nobody who handles those in between takes it for one of theirs."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeUpError in here after so many seconds, and end the processes that were started in here."""
    before = set(_below(os.getpid()))

    def ring(_signal: int, _frame: FrameType | None) -> None:
        for process in set(_below(os.getpid())) - before:
            _end(process)
        raise TimeUpError

    # Again and again: an exception in a destructor, where the first may fall, goes no further.
    found = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, found)


def _below(process: int) -> Iterator[int]:
    """Yield the processes below one, as Linux lists them (proc(5), ``children``)."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:  # it ended meanwhile
        return
    for child in (int(number) for text in lists for number in text.split()):
        yield child
        yield from _below(child)


def _end(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return
