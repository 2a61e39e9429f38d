"""The cells of what ``npu-smi`` prints: words and numbers, None where it says that there is none."""

from __future__ import annotations

import re

# "N/A", "NA" and "-" stand in the recorded outputs of 310P3 (power), A3 (power of the second die) and 310B4 (Bus-Id).
_ABSENT = frozenset({"", "-", "--", "na", "n/a", "null", "none"})
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_PAIR = re.compile(r"([0-9]{1,12})\s*/\s*([0-9]{1,12})")
# npu-smi calls 65536 MB what is 64 GiB.
MIB = 1 << 20
MHZ = 1_000_000


def word(cell: str | None) -> str | None:
    """A cell without the space around it, None where it says that there is nothing."""
    text = (cell or "").strip()
    return None if text.lower() in _ABSENT else text


def number(cell: str | None) -> float | None:
    text = word(cell)
    return float(text) if text is not None and _NUMBER.fullmatch(text) else None


def whole(cell: str | None) -> int | None:
    """A cell as a whole number that is not negative, such as an id or a count."""
    value = number(cell)
    return int(value) if value is not None and value >= 0 and value.is_integer() else None


def share(cell: str | None) -> float | None:
    """Percent as a share; None for what is below 0 or above 100."""
    value = number(cell)
    return value / 100 if value is not None and 0 <= value <= 100 else None


def scaled(cell: str | None, unit: int) -> int | None:
    """A cell in units of ``unit``, such as MB as bytes; None for a negative one."""
    value = number(cell)
    return None if value is None or value < 0 else int(value * unit)


def pair(cell: str | None) -> tuple[int, int] | None:
    """``used / total`` as two numbers; the recorded outputs have it with and without the first space."""
    match = _PAIR.fullmatch((cell or "").strip())
    return (int(match[1]), int(match[2])) if match else None
