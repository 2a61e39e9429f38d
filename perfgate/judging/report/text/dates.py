"""Moments and commits in their short forms."""

from __future__ import annotations

from datetime import timezone
from functools import lru_cache

from perfgate.document.history import moment
from perfgate.judging.report.text.words import Words

_COMMIT_LENGTH = 10


# The charts of a page share their runs.
@lru_cache(4096)
def day(text: str) -> Words:
    return Words(moment(text).date().isoformat())


def minute(text: str) -> Words:
    return Words(moment(text).astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M"))


def short(commit: str | None) -> str:
    """A commit in its short form; it is still outside text."""
    if commit:
        return commit[:_COMMIT_LENGTH]
    return ""
