"""Progress in the terminal: one line that replaces itself, or plain lines where nobody watches."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType

SECONDS_BETWEEN_LINES = 3.0


class TerminalProgress(AbstractContextManager["TerminalProgress"]):
    """Shows what is going on, on standard error.

    In a terminal a spinner with one line; else (CI logs) a line every few seconds, or with ``brief`` none.
    """

    def __init__(self, *, brief: bool = False) -> None:
        self._brief = brief
        self._live = sys.stderr.isatty()
        self._last_time = float("-inf")
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
            self._spinner.update(_escape(text))
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


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
