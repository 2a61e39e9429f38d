"""What a comment says first."""

from __future__ import annotations

import re


def title(comment: str) -> str:
    """Return the title."""
    return next(line for line in comment.splitlines() if line.startswith("## "))


def verdict(comment: str) -> str:
    """Return the verdict in the title."""
    found = re.search(r"^## \S+ perfgate: (\w+)", comment, re.MULTILINE)
    assert found is not None, comment
    return found[1]


def first_cause(comment: str) -> str:
    """Return the cause of the table's first row, or the title if there is no table."""
    rows = [line for line in comment.splitlines() if line.startswith("| **")]
    return cause_of(rows[0], comment) if rows else title(comment)


def cause_of(row: str, comment: str) -> str:
    """Return the cause of a row of the table: its last cell, or the title of the numbered cause to which that refers."""
    cell = row.rstrip(" |").rpartition(" | ")[2]
    if not cell.startswith("see "):
        return cell
    number = f"**{cell.removeprefix('see ')}."
    block = next(line for line in comment.splitlines() if line.startswith(number)).removeprefix(number)
    if block.startswith("**"):
        # What the title says the block does not say again.
        named = re.search(r"(?:\)|calls not slower): (.*)", title(comment))
        assert named is not None, comment
        return named[1]
    return block.strip().partition("** in ")[0]
