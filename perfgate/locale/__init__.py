"""The languages of reports: English sentences in code and data, their Chinese in ``zh.po``, and which one is being written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from gettext import GNUTranslations
from pathlib import Path
from typing import Literal

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")

# Every function that words a number would have to pass the language on, so the outermost one sets it for all that it calls.
_CURRENT: ContextVar[Language] = ContextVar("language", default="en")


@contextmanager
def speaking(language: Language) -> Iterator[None]:
    """Word everything inside in a language."""
    token = _CURRENT.set(language)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_language() -> Language:
    return _CURRENT.get()


def translate(english: str, language: Language | None = None) -> str:
    """A sentence of ours, its placeholders untouched, in a language or the current one.

    Give it nothing but sentences of ours: text from outside could by chance be one. ``make locale`` finds every sentence, and
    a test holds that each has its Chinese; one that is not in ``zh.po`` stays English.
    """
    if (language or _CURRENT.get()) == "en" or not english:  # the empty text is the header of a gettext catalogue
        return english
    return _chinese().gettext(english)


@cache
def _chinese() -> GNUTranslations:
    with (Path(__file__).parent / "zh.mo").open("rb") as catalogue:
        return GNUTranslations(catalogue)
