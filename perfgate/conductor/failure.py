"""The failure of a side, whichever kind of side it is."""

from __future__ import annotations

from perfgate.document.message import as_message, english, spoken
from perfgate.document.run import ErrorDetail
from perfgate.errors import MeasuringError


class TurnError(MeasuringError):
    """A side cannot be started, or failed in its turn; ``detail`` has the reason."""

    def __init__(self, detail: ErrorDetail) -> None:
        message = as_message(detail.message)
        super().__init__(english(message))
        self.shown = spoken(message)
        self.detail = detail
