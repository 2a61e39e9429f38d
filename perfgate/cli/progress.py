"""Progress in the terminal: one line that replaces itself, or plain lines outside a terminal."""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from perfgate.locale import sentence, shown

if TYPE_CHECKING:
    from perfgate.conductor.workers.foresight import Foresight

SECONDS_BETWEEN_LINES = 3.0
_BAR = 12
# The spinner, the space after it, and the last column, in which some terminals wrap the line.
_SPINNER_COLUMNS = 3


class TerminalProgress(AbstractContextManager["TerminalProgress"]):
    """Shows progress on standard error.

    In a terminal: one line with a spinner, then a bar, the part, the estimate so far and the time left, as far as they are
    known, then the status. Otherwise (CI logs, NO_COLOR): a plain line every few seconds, or none with ``brief``.
    """

    def __init__(self, *, brief: bool = False) -> None:
        self._brief = brief
        self._live = (
            sys.stderr.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )
        self._last_time = float("-inf")
        self._foresight: Foresight | None = None
        self._foreseen_at = 0.0
        self._status = ""
        if self._live:
            from rich.console import Console

            self._console = Console(stderr=True)
            self._spinner = self._console.status("")

    def __enter__(self) -> TerminalProgress:
        if self._live:
            self._spinner.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._spinner.stop()

    def status(self, text: str) -> None:
        """Show the current activity."""
        if self._live:
            self._status = text
            self._draw()
        elif (
            not self._brief
            and time.monotonic() - self._last_time > SECONDS_BETWEEN_LINES
        ):
            print(text, file=sys.stderr, flush=True)  # noqa: T201
            self._last_time = time.monotonic()

    def note(self, text: str) -> None:
        """Print a permanent line."""
        if self._live:
            from rich.markup import escape

            self._console.print(escape(shown(text)), highlight=False)
        else:
            print(shown(text), file=sys.stderr, flush=True)  # noqa: T201

    def expect(self, foresight: Foresight) -> None:
        """Show the progress and the time left, in front of the status."""
        self._foresight = foresight
        self._foreseen_at = time.monotonic()
        if self._live:
            self._draw()

    def _draw(self) -> None:
        from rich.text import Text

        forecast = ""
        if self._foresight:
            forecast = outlook(self._foresight, time.monotonic() - self._foreseen_at)
        text = Text(" · ".join(filter(None, [forecast, self._status])), no_wrap=True)
        text.truncate(self._console.width - _SPINNER_COLUMNS, overflow="ellipsis")
        self._spinner.update(text)


def outlook(foresight: Foresight, elapsed: float) -> str:
    """A forecast made ``elapsed`` seconds ago, as one stable line: bar, part, estimate, time left."""
    words = [_part(foresight)]
    if foresight.so_far is not None:
        low, high = foresight.so_far
        words.append(f"{_effect((low + high) / 2)} % ± {50 * (high - low):.1f} %")
    if foresight.left is not None:
        remaining = max(0.0, foresight.left - elapsed)
        if foresight.elapsed is not None:
            spent = foresight.elapsed + elapsed
            full = 0
            if spent:
                full = round(_BAR * spent / (spent + remaining))
            words[0] = f"{'█' * full}{'░' * (_BAR - full)} {words[0]}"
        if remaining:
            words.append(_about(remaining))
    return " · ".join(filter(None, words))


def _effect(share: float) -> str:
    """A share in percent with its sign; a zero has none."""
    size = f"{abs(share) * 100:.1f}"
    if size == "0.0":
        return size
    if share < 0:
        return f"−{size}"
    return f"+{size}"


def _part(foresight: Foresight) -> str:
    number, count = foresight.number, foresight.count
    steps = ""
    if number is not None and count is not None and count > 1:
        steps = f"{number}/{count}"
    if foresight.part is None:
        if steps:
            return sentence("{steps} steps", steps=steps)
        return ""
    if foresight.part == "pairs" and number is None:
        return sentence("pairs")
    if foresight.part == "pairs":
        return sentence("pair {number}", number=number)
    name = {
        "checklist": sentence("checklist"),
        "turns": sentence("checklist in turns"),
    }[foresight.part]
    if steps:
        return f"{name} {steps}"
    return name


def _about(seconds: float) -> str:
    """A time, rounded to its accuracy."""
    if seconds >= 150:
        return sentence("about {minutes} min left", minutes=round(seconds / 60))
    rounded = max(1, round(seconds))
    if seconds > 10:
        rounded = math.ceil(seconds / 5) * 5
    return sentence("about {seconds} s left", seconds=rounded)
