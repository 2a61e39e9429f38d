"""Cells of a vendor tool's output, as words and numbers; None for one marked as empty."""

from __future__ import annotations

import re

# "N/A", "NA" and "-" stand in the recorded outputs of 310P3 (power), A3 (power of the
# second die) and 310B4 (Bus-Id).
_ABSENT = frozenset({"", "-", "--", "na", "n/a", "null", "none"})
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_QUOTED = 160
MOST_TEXT = 1 << 20
# npu-smi prints 64 GiB as 65536 MB.
MIB = 1 << 20
MHZ = 1_000_000


def word(cell: str | None) -> str | None:
    text = (cell or "").strip()
    if text.lower() in _ABSENT:
        return None
    return text


def number(cell: str | None) -> float | None:
    text = (cell or "").strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    return None


def whole(cell: str | None) -> int | None:
    """A whole number that is not negative, such as an id or a count."""
    value = number(cell)
    if value is not None and value >= 0 and value.is_integer():
        return int(value)
    return None


def share(cell: str | None) -> float | None:
    """Percent as a share; None for values below 0 or above 100."""
    value = number(cell)
    if value is not None and 0 <= value <= 100:
        return value / 100
    return None


def scaled(cell: str | None, unit: int) -> int | None:
    """A number of ``unit``, such as MB as bytes; None for a negative number."""
    value = number(cell)
    if value is None or value < 0:
        return None
    return int(value * unit)


def quoted(text: str, sign: str = "") -> str:
    """The line with the sign, or the first non-empty one, shortened for a message."""
    lines = [line.strip() for line in text[:MOST_TEXT].splitlines() if line.strip()]
    line = next(
        (line for line in lines if sign in line.lower()),
        lines[0] if lines else "nothing",
    )
    if len(line) <= _QUOTED:
        return line
    return f"{line[:_QUOTED]}…"
