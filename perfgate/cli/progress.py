"""Progress in the terminal: one line that replaces itself, or plain lines where nobody watches."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfgate.conductor.workers.foresight import Foresight

SECONDS_BETWEEN_LINES = 3.0


class TerminalProgress(AbstractContextManager["TerminalProgress"]):
    """Shows what is going on, on standard error.

    In a terminal a spinner with one line, which begins with the time left where that is known; else (CI logs, NO_COLOR) a plain
    line every few seconds, or with ``brief`` none.
    """

    def __init__(self, *, brief: bool = False, environ: Mapping[str, str] = os.environ) -> None:
        self._brief = brief
        self._live = sys.stderr.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        self._last_time = float("-inf")
        self._foresight: Foresight | None = None
        self._foreseen_at = 0.0
        if self._live:
            from rich.console import Console

            self._console = Console(stderr=True)
            self._spinner = self._console.status("")

    def __enter__(self) -> TerminalProgress:
        if self._live:
            self._spinner.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._spinner.stop()

    def status(self, text: str) -> None:
        """Show what is being waited for."""
        if self._live:
            left = time_left(self._foresight, time.monotonic() - self._foreseen_at) if self._foresight else ""
            from rich.text import Text

            self._spinner.update(Text(f"{left} · {text}" if left else text, no_wrap=True, overflow="ellipsis"))
            return
        if not self._brief and time.monotonic() - self._last_time > SECONDS_BETWEEN_LINES:
            print(text, file=sys.stderr, flush=True)  # noqa: T201
            self._last_time = time.monotonic()

    def note(self, text: str) -> None:
        """Show a line that stays."""
        if self._live:
            self._console.print(_escape(text), highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)  # noqa: T201

    def expect(self, foresight: Foresight) -> None:
        """Show how long it takes, in the next statuses."""
        self._foresight, self._foreseen_at = foresight, time.monotonic()


def time_left(foresight: Foresight, elapsed: float) -> str:
    """What was foreseen ``elapsed`` seconds ago; no time where it took longer than that."""
    words = []
    if foresight.parts is not None and foresight.parts > 1:
        words.append(f"part {foresight.part} of {foresight.parts}")
    if foresight.count is not None and foresight.count > 1:
        words.append(f"{foresight.number} of {foresight.count} steps")
    if foresight.at_least is not None and foresight.at_most is not None and foresight.at_most > elapsed:
        words.append(f"{_interval(foresight.at_least - elapsed, foresight.at_most - elapsed)} left")
    return ", ".join(words)


def _interval(least: float, most: float) -> str:
    """Seconds, rounded away from each other; minutes where there are many."""
    unit, name = (60, "min") if most >= 180 else (1, "s")
    step = 1 if unit == 60 or most < 15 else 5
    low = max(0, math.floor(least / unit / step) * step)
    high = math.ceil(most / unit / step) * step
    return f"{low}–{high} {name}" if low else f"at most {high} {name}"


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
