"""Text that perfgate itself wrote: templates show it as it is, while every other string is escaped."""

from __future__ import annotations

from perfgate.locale import sentence


class Words(str):
    """Our own words and numbers, free of Markdown and of outside text."""

    __slots__ = ()


class Linked(str):
    """Outside text with the address that it refers to; templates escape it like any other."""

    url: str

    def __new__(cls, text: str, url: str) -> Linked:
        linked = super().__new__(cls, text)
        linked.url = url
        return linked


def say(english: str, **values: Words | int) -> Words:
    """A sentence of ours in the current language; ``{name}`` in it is a value that is worded already.

    Without values, braces stay. ``make locale`` finds sentences that are literals in the call, and those of the catalogue. A
    constant is marked with ``phrase`` at its definition.
    """
    return Words(sentence(english, **values))


def phrase(english: str) -> str:
    """Marks a sentence for ``make locale``."""
    return english
