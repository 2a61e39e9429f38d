"""Text that perfgate itself wrote: templates show it as it is, while every other string is escaped."""

from __future__ import annotations

from perfgate.locale import filled, translate


class Words(str):
    """Our own words and numbers, free of Markdown and of anything from outside."""

    __slots__ = ()


class Linked(str):
    """Text from outside, and the address of what it names; templates escape it as any other."""

    url: str

    def __new__(cls, text: str, url: str) -> Linked:
        linked = super().__new__(cls, text)
        linked.url = url
        return linked


def say(english: str, **values: Words | int) -> Words:
    """A sentence of ours in the current language; ``{name}`` in it is a value that is worded already.

    ``make locale`` finds the sentences that are written out in the call. One that has a name is marked with ``phrase`` where
    it stands.
    """
    return Words(filled(translate(english), values))


def phrase(english: str) -> str:
    """Marks a sentence for ``make locale``."""
    return english


def translated(english: str) -> Words:
    """A sentence of ours in the current language; braces in it stay."""
    return Words(translate(english))
