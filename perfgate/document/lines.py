"""Numbers inside texts of documents, such as the number of a line of the project:
``model.py:88``.
"""

from __future__ import annotations

# No count in a text is larger; to read a number of thousands of digits is an error in
# Python.
_MOST_DIGITS = 9


def number_in(text: str) -> int | None:
    """The number that a text is; None for any other text, which a damaged document may
    hold.
    """
    return (
        int(text)
        if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
        else None
    )


def split_line(line: str | None) -> tuple[str, int]:
    """File and number of a line; 0 for a text that names none."""
    file, _, number = (line or "").rpartition(":")
    return file, number_in(number) or 0


def file_of(line: str | None) -> str:
    """The file of a line; empty for a text that names none."""
    return (line or "").rpartition(":")[0]
