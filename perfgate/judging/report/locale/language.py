"""Which language a report is being written in, and a sentence of ours in that language."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from perfgate.catalogue.card import Language
from perfgate.judging.report.locale import zh
from perfgate.judging.report.words import Words
from perfgate.plugins import load_members

# Every function that words a number would have to take the language along; so the outermost one sets it for all it calls.
_SPOKEN: ContextVar[Language] = ContextVar("spoken", default="en")


@contextmanager
def speaking(language: Language) -> Iterator[None]:
    """Write everything that is worded inside in a language."""
    before = _SPOKEN.set(language)
    try:
        yield
    finally:
        _SPOKEN.reset(before)


def spoken() -> Language:
    """Return the language that is being written."""
    return _SPOKEN.get()


def say(english: str, **values: Words | int) -> Words:
    """Return a sentence of ours; ``{name}`` in it is a value that is worded already.

    A sentence that is not written out in the call is marked with ``phrase`` where it stands.
    """
    return Words(translated(english, spoken()).format_map(values))


def phrase(english: str) -> str:
    """Mark a sentence that ``say`` gets by a name, so that the test of the catalogue finds it."""
    return english


def worded(text: str) -> Words:
    """What the catalogue says, in the language that is being written; braces in it stay."""
    return Words(translated(text, spoken()))


def translated(english: str, language: Language) -> str:
    """Return a sentence with its ``{name}`` places; without a translation it stays English."""
    return english if language == "en" else chinese().get(english, english)


@cache
def chinese() -> dict[str, str]:
    """Return the Chinese catalogue."""
    catalogue: dict[str, str] = json.loads(
        (Path(__file__).parent / "zh" / "catalogue.json").read_text(encoding="utf-8")
    )
    return catalogue | {english: words for module in load_members(zh) for english, words in module.WORDS.items()}
