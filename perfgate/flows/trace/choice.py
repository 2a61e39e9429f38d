"""Which timelines of a recording a question is about."""

from __future__ import annotations

from typing import NamedTuple


class Choice(NamedTuple):
    """The timelines to show, and the number of rows of each; None means all."""

    rank: int | None = None
    device: int | None = None
    limit: int | None = None
