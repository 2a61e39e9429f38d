"""Files and lines as a narrow table shows them."""

from __future__ import annotations

_PARTS = 2


def short_place(place: str) -> str:
    """The last parts of a path with its line: ``…/nn/linear.py:114``."""
    parts = place.split("/")
    return place if len(parts) <= _PARTS + 1 else "/".join(["…", *parts[-_PARTS:]])
