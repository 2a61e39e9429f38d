"""Ctrl-C and SIGTERM: held back during actions that must be undone, let through at safe
points.

An exception in the middle of "make a folder, remember to remove it" leaves the folder
behind. So between acquiring and releasing (workers, worktrees, scratch folders, the
machine lock) a signal only leaves a note, which the waiting loops read.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Note:
    depth = 0
    arrived = False


def interrupt(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """Signal handler: raise KeyboardInterrupt at once, or leave a note while signals
    are held back.
    """
    _Note.arrived = True
    if not _Note.depth:
        raise KeyboardInterrupt


def install() -> None:
    """Make every signal that asks a command to end raise KeyboardInterrupt: a cancelled
    CI job gets SIGTERM.
    """
    _Note.arrived = False
    for number in _heard():
        signal.signal(number, interrupt)


def uninstall() -> None:
    """Let these signals end the process at once, without a traceback: the end of a
    forked worker is its command's to report.
    """
    for number in _heard():
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def held_back() -> Iterator[None]:
    """Let no signal interrupt the context but in ``safe_point``; a later ctrl-C cannot
    spoil the cleaning up either.

    A signal that found no safe point raises KeyboardInterrupt at the end. Contexts may
    nest. Only the main thread gets signals; elsewhere this has no effect.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    if not _Note.depth:
        _refuse_swallowed()
        for number in _heard():
            before[number] = signal.signal(number, interrupt)
        _Note.arrived = False
    _Note.depth += 1
    try:
        yield
    finally:
        _Note.depth -= 1
        for number, handler in before.items():
            signal.signal(number, handler)
        if _Note.arrived and not _Note.depth:
            _Note.arrived = False
            raise KeyboardInterrupt


def safe_point() -> None:
    """Raise KeyboardInterrupt when a signal has arrived: no action is half-done here."""
    if _Note.arrived and _Note.depth:
        raise KeyboardInterrupt


def _refuse_swallowed() -> None:
    """Raise a swallowed interruption: an exception that hits an import with a fallback,
    or a destructor, disappears.

    An interruption that is still propagating is not swallowed, and its clean-up is not
    disturbed.
    """
    if _Note.arrived and sys.exc_info()[1] is None:
        _Note.arrived = False
        raise KeyboardInterrupt


def _heard() -> list[signal.Signals]:
    """The signals that are not ignored: ``nohup`` and background jobs of a shell set
    that on purpose.
    """
    return [
        number
        for number in SIGNALS
        if signal.getsignal(number) not in (signal.SIG_IGN, None)
    ]
