"""What a comment says first."""

from __future__ import annotations

import re


def title(comment: str) -> str:
    """Return the title."""
    return next(line for line in comment.splitlines() if line.startswith("## "))


def verdict(comment: str) -> str:
    """Return the verdict in the title."""
    found = re.search(r"^## perfgate: (\w+)", comment, re.MULTILINE)
    assert found is not None, comment
    return found[1]


def first_cause(comment: str) -> str:
    """Return the cause of the table's first row, or the title where there is no table."""
    rows = [line for line in comment.splitlines() if line.startswith("| **")]
    return rows[0].rstrip(" |").rpartition(" | ")[2] if rows else title(comment)
