"""The languages of reports: English sentences in code and data, their Chinese in
``zh.po``, and the language being written.

There are two ways to word a sentence outside templates. Documents hold a ``Message``: a
code of the catalogue with its values. A command says an English sentence with its
values: `sentence` words it at once; an `Activity` or an error, which another sentence
may quote, keeps the English and words it when it is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")

# Every function that words a number would have to pass the language on, so the
# outermost one sets it for all that it calls.
Shown = TypeVar("Shown")
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


def environment_language(environ: Mapping[str, str]) -> Language:
    """The language of the user's locale, by the rules of GNU gettext; English for a
    locale that is neither.

    The locale is the first of LC_ALL, LC_MESSAGES and LANG that is set. LANGUAGE, a
    list in order of preference, comes before it, unless the locale is C (gettext
    manual, "The LANGUAGE variable").
    """
    locale = next(
        (
            value
            for name in ("LC_ALL", "LC_MESSAGES", "LANG")
            if (value := environ.get(name))
        ),
        "C",
    )
    if locale in ("C", "POSIX"):
        return "en"
    for entry in [*environ.get("LANGUAGE", "").split(":"), locale]:
        for language in LANGUAGES:
            if (
                entry.lower().startswith(language)
                and not entry[len(language) : len(language) + 1].isalpha()
            ):
                return language
    return "en"


def translate(english: str, language: Language | None = None) -> str:
    """A sentence of ours, its placeholders untouched, in a language or the current one.

    Give it only sentences of ours: text from outside could by chance match one.
    ``make locale`` finds every sentence, and a test holds that each has its Chinese;
    one that is not in ``zh.po`` stays English.
    """
    if (
        language or _CURRENT.get()
    ) == "en" or not english:  # the empty text is the header of the catalogue
        return english
    return _chinese().get(english, english)


def sentence(english: str, **values: object) -> str:
    """A sentence for the terminal in the current language, with its values filled in;
    never for a document.

    ``make locale`` finds the sentences that are written out in the call.
    """
    return Activity(english, **values).shown


class Activity(str):
    """The current wait, or a part of an error: English, as documents quote it, and
    ``shown`` in the user's language.
    """

    __slots__ = ("_english", "_values")
    _english: str
    _values: Mapping[str, object]

    def __new__(cls, english: str, **values: object) -> Activity:
        activity = super().__new__(
            cls, english.format_map(values) if values else english
        )
        activity._english = english
        activity._values = values
        return activity

    @property
    def template(self) -> str:
        """The English sentence with the places of its values."""
        return self._english

    @property
    def values(self) -> Mapping[str, object]:
        return self._values

    @property
    def shown(self) -> str:
        """In the language that is spoken now, so that a constant of a module may be
        one.
        """
        words = translate(self._english)
        if not self._values:
            return words
        return filled(
            words, {name: shown(value) for name, value in self._values.items()}
        )


def shown(activity: Shown) -> Shown | str:
    """An activity in the user's language; anything else as it is."""
    if isinstance(activity, Activity):
        return activity.shown
    return activity


def filled(words: str, values: Mapping[str, object]) -> str:
    """A sentence with values in its ``{places}``; in Chinese, words of Latin letters
    stand apart from the characters.
    """
    if words.isascii() or not any(map(_is_chinese, words)):
        return words.format_map(values)
    from string import Formatter  # compiles expressions, which English does without

    text = ""
    formatter = Formatter()
    for literal, name, spec, conversion in formatter.parse(words):
        text += gap_between(text, literal) + literal
        if name is not None:
            value = format(
                formatter.convert_field(values[name], conversion), spec or ""
            )
            text += gap_between(text, value) + value
    return text


def gap_between(before: str, after: str) -> str:
    """The space between Chinese characters and Latin letters, digits or code, in texts
    that are joined.
    """
    last, first = before[-1:], after[:1]
    is_border = (_is_chinese(last) and _is_latin(first)) or (
        _is_latin(last) and _is_chinese(first)
    )
    if is_border:
        return " "
    return ""


def _is_chinese(letter: str) -> bool:
    return "\u4e00" <= letter <= "\u9fff"


def _is_latin(letter: str) -> bool:
    """Whether it is a Latin letter, a digit, or at the edge of code in Markdown and
    HTML.
    """
    return letter.isascii() and letter != "" and (letter.isalnum() or letter in "%`<>")


@cache
def _chinese() -> dict[str, str]:
    """The Chinese of every sentence. Reading the catalogue as text takes milliseconds,
    so there is no compiled catalogue.
    """
    entries = (
        (Path(__file__).parent / "zh.po").read_text(encoding="utf-8").split("\n\n")
    )
    sentences = {}
    for entry in entries:
        english, _, chinese = entry.partition("\nmsgstr ")
        sentences[_unquoted(english.rpartition("msgid ")[2])] = _unquoted(chinese)
    return sentences


def _unquoted(literal: str) -> str:
    """A string of a .po file, which may go on over several lines; ``make locale``
    writes the escapes that JSON has too.
    """
    literal = literal.strip().replace('"\n"', "")
    if "\\" not in literal:
        return literal[1:-1]
    import json

    return str(json.loads(literal, strict=False))
