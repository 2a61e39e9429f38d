"""Text that perfgate itself wrote: templates show it as it is, while every other string
is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar, overload

from perfgate.locale import current_language, filled, gap_between, translate

_PLACE = re.compile(r"\{(\w+)\}")
Table = TypeVar("Table")


class Words(str):
    """Our own words and numbers, free of Markdown and of outside text."""

    __slots__ = ()


EMPTY = Words("")


class Linked(str):
    """Outside text with the address that it refers to; templates escape it like any
    other.
    """

    url: str

    def __new__(cls, text: str, url: str) -> Linked:
        linked = super().__new__(cls, text)
        linked.url = url
        return linked


class Prose(str):
    """A sentence of a document around outside names: its plain words stay words in
    every medium.

    ``begins`` is whether it may begin a line, so that a number might start a list.
    """

    begins: bool

    def __new__(cls, text: str, *, begins: bool = True) -> Prose:
        prose = super().__new__(cls, text)
        prose.begins = begins
        return prose


class SentencePieces(str):
    """A sentence in pieces: ``Words`` are ours, every other piece is outside text that
    still needs escaping.
    """

    __slots__ = ("pieces",)
    pieces: tuple[str, ...]

    def __new__(cls, pieces: Iterable[str]) -> SentencePieces:
        listed = tuple(pieces)
        sentence = super().__new__(cls, "".join(listed))
        sentence.pieces = listed
        return sentence


@overload
def say(english: str, **values: Words | int) -> Words: ...
@overload
def say(english: str, **values: str | int) -> str: ...
def say(english: str, **values: str | int) -> str:
    """A sentence of ours in the current language, with values in its ``{places}``;
    without values, braces stay.

    It counts as ours if its values do. Around outside text it comes in pieces, which
    templates escape one by one. ``make locale`` finds sentences that are literals in
    the call, and the catalogue's. A constant is marked with ``phrase`` at its
    definition.
    """
    words = translate(english)
    if not values:
        return Words(words)
    if all(isinstance(value, (Words, int)) for value in values.values()):
        return Words(filled(words, values))
    pieces: list[str] = []
    for number, piece in enumerate(_PLACE.split(words)):
        if number % 2 == 0:
            pieces.append(Words(piece))
        elif isinstance(value := values[piece], int):
            pieces.append(Words(value))
        else:
            pieces += pieces_of(value)
    return joined(*pieces)


def phrase(english: str) -> str:
    """Marks a sentence for ``make locale``."""
    return english


def phrases(table: Table) -> Table:
    """Marks the sentences that are the values of a table."""
    return table


def joined(*texts: str) -> SentencePieces:
    """Texts one after another, each still ours or still to be escaped; in Chinese with
    the gaps around Latin letters.
    """
    spaced: list[str] = []
    for text in texts:
        for piece in filter(None, pieces_of(text)):
            if spaced and current_language() != "en":
                gap = gap_between(spaced[-1], piece)
                if gap:
                    spaced.append(Words(gap))
            spaced.append(piece)
    return SentencePieces(spaced)


def composed(pattern: str, *texts: str) -> SentencePieces:
    """Texts in a pattern of punctuation, the same in every language:
    ``composed("{} ({})", metric, place)``.
    """
    start, *ends = pattern.split("{}")
    pieces: list[str] = [Words(start)]
    for text, end in zip(texts, ends):
        pieces += [text, Words(end)]
    return joined(*pieces)


def pieces_of(text: str) -> tuple[str, ...]:
    if isinstance(text, SentencePieces):
        return text.pieces
    return (text,)
