"""How long work says what it is doing, whoever shows it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Where a flow says what goes on: ``status`` replaces the last line, ``note`` stays."""

    def status(self, text: str) -> None:
        """Say what is being waited for; it may be replaced at once."""

    def note(self, text: str) -> None:
        """Say something that stays."""
