"""How long the part of a comment is that everybody reads."""

from __future__ import annotations

import re

MOST_TITLE_WORDS = 18
# Two lines of a heading of the second level, as wide as GitHub shows a comment.
MOST_TITLE_CHARACTERS = 125
MOST_WORDS = 150
_ADDRESS = re.compile(r"\]\([^)\s]*\)")


def title(comment: str) -> str:
    """Return the title as it is shown."""
    line = next(line for line in comment.splitlines() if line.lstrip("> ").startswith("#"))
    return _ADDRESS.sub("]", line.lstrip("> #")).replace("`", "")


def words(text: str) -> int:
    """Return how many words there are; a dash, an arrow or a percent sign is none."""
    return sum(any(map(str.isalnum, token)) for token in _ADDRESS.sub("]", text).split())


def before_folds(comment: str) -> str:
    """Return what is seen of a comment before anything is opened, without its last line and what is said of a busy machine."""
    seen = comment.partition("<details>")[0].partition("▸")[0].partition("-->")
    lines = (seen[2] or seen[0]).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("<sub>", "> **Busy machine:**")))
