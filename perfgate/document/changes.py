"""The change of an operator from base to head."""

from __future__ import annotations

from typing import Literal

Change = Literal["added", "removed", "more", "fewer", "slower", "faster", "same"]
