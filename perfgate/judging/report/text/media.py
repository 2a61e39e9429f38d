"""How each medium shows a value of a template: our words as they are, outside text
harmless.

A value is escaped as outside text unless it is ``Words`` (ours) or went through one of
a medium's filters; forgetting a filter therefore makes text ugly, never dangerous.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from markupsafe import Markup, escape

from perfgate.document.message import Message
from perfgate.judging.report.text.escape import (
    MAX_COMMAND,
    MAX_PROSE,
    clean,
    code_span,
    fenced,
    prose,
)
from perfgate.judging.report.text.kernels import with_short_kernel
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.words import (
    Linked,
    Prose,
    SentencePieces,
    Words,
    pieces_of,
)

_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
# An address is linked only when it is plain http(s) without anything that ends a
# Markdown link or an attribute.
_URL_CHARACTERS = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&*+,;=%"
)
_WIDEST_LINE = 240
_STRONG = re.compile(r"\*\*(.+?)\*\*")
BOLD, END = "\x02", "\x03"
COMMAND, COMMAND_END = "\x04", "\x05"


class Ready(str):
    """Text that a filter has made safe for its medium."""

    __slots__ = ()


class ReadyHtml(Markup, Words):
    """HTML that a template of ours rendered."""

    __slots__ = ()


class Markdown:
    """The comment: outside text becomes code, sentences around it stay words."""

    autoescapes: ClassVar[bool] = False
    ready = Ready

    @classmethod
    def show(cls, value: object) -> str:
        if isinstance(value, SentencePieces):
            return "".join(map(cls.show, value.pieces))
        if isinstance(value, Prose):
            return prose(value, begins=value.begins)
        if isinstance(value, Linked):
            return cls.link(value.url, code_span(value))
        text = our_text(value)
        if text is None:
            return code_span(with_short_kernel(str(value)))
        return text

    @staticmethod
    def marked_up(text: str) -> Ready:
        """A sentence of ours, in which values have been escaped."""
        return Ready(text)

    @staticmethod
    def prose(text: Message | str) -> Ready:
        return Ready(_by_piece(prose, partial(prose, begins=False), text))

    @staticmethod
    def command(text: str) -> Ready:
        return Ready(code_span(text, limit=MAX_COMMAND))

    @staticmethod
    def literal(text: str) -> Ready:
        return Ready(code_span(text))

    @staticmethod
    def block(text: str, lines: int = 12) -> Ready:
        return Ready(fenced(text, lines=lines))

    @staticmethod
    def link(url: str, text: str) -> Ready:
        if is_linkable(url):
            return Ready(f"[{text}]({url})")
        return Ready(text)

    @staticmethod
    def strong(text: str) -> Ready:
        return Ready(f"**{Words(text)}**")


class Plain:
    """The terminal, commit statuses and reports for other tools: one line of visible
    characters.
    """

    autoescapes: ClassVar[bool] = False
    ready = Ready

    @staticmethod
    def show(value: object) -> str:
        if isinstance(value, SentencePieces):
            return "".join(map(Plain.show, value.pieces))
        if isinstance(value, Prose):
            return _clean_prose(value)
        text = our_text(value)
        if text is None:
            return clean(with_short_kernel(str(value)))
        return text

    @staticmethod
    def marked_up(text: str) -> Ready:
        return Ready(text)

    @staticmethod
    def prose(text: Message | str) -> Ready:
        return Ready(_by_piece(_clean_prose, _clean_prose, text))

    @staticmethod
    def command(text: str) -> Ready:
        return Ready(clean(text, limit=MAX_COMMAND))

    @staticmethod
    def literal(text: str) -> Ready:
        return Ready(clean(text))

    @staticmethod
    def block(text: str, lines: int = 12) -> Ready:
        return Ready("\n".join(map(clean, text.rstrip().splitlines()[-lines:])))

    @staticmethod
    def link(url: str, text: str) -> Ready:
        if is_linkable(url):
            return Ready(f"{text} ({url})")
        return Ready(text)

    @staticmethod
    def strong(text: str) -> Ready:
        return Ready(text)


class Terminal(Plain):
    """A decision in the terminal: emphasis of ours stands between ``BOLD`` and ``END``,
    a command between ``COMMAND`` and ``COMMAND_END``. Outside text cannot contain them.
    """

    @staticmethod
    def marked_up(text: str) -> Ready:
        return Ready(_STRONG.sub(rf"{BOLD}\1{END}", text))

    @staticmethod
    def strong(text: str) -> Ready:
        return Ready(f"{BOLD}{text}{END}")

    @staticmethod
    def command(text: str) -> Ready:
        return Ready(f"{COMMAND}{Plain.command(text)}{COMMAND_END}")


class Html:
    """The pages: outside text is escaped and set as code."""

    autoescapes: ClassVar[bool] = True
    ready = Markup

    @staticmethod
    def show(value: object) -> Markup:
        if isinstance(value, Markup):
            return value
        if isinstance(value, SentencePieces):
            return Markup("").join(map(Html._piece, value.pieces))
        if isinstance(value, Prose):
            return Html.marked_up(str(escape(_clean_prose(value))))
        text = our_text(value)
        if text is None:
            return Html.literal(with_short_kernel(str(value)))
        return escape(text)

    @staticmethod
    def _piece(piece: str) -> Markup:
        if not isinstance(piece, Words):
            return Html.show(piece)
        # Apostrophes of our sentences stay: no attribute is quoted by them.
        return Html.marked_up(str(escape(piece)).replace("&#39;", "'"))

    @staticmethod
    def marked_up(text: str) -> Markup:
        """A sentence of ours with its `code` marked up."""
        return Markup(_CODE.sub(r"<code>\1</code>", text))

    @staticmethod
    def prose(text: Message | str) -> Markup:
        """A sentence; backticks of outside text may end its code early, but everything
        is escaped before.
        """
        return Html.marked_up(str(escape(_by_piece(_clean_prose, _clean_prose, text))))

    @staticmethod
    def command(text: str) -> Markup:
        return Markup("<code>{}</code>").format(clean(text, limit=MAX_COMMAND))

    @staticmethod
    def literal(text: str) -> Markup:
        return Markup("<code>{}</code>").format(clean(text))

    @staticmethod
    def plain(text: str) -> Markup:
        return escape(clean(text))

    @staticmethod
    def block(text: str, lines: int = 40) -> Markup:
        visible = [
            clean(line, limit=_WIDEST_LINE)
            for line in text.rstrip().splitlines()[-lines:]
        ]
        return Markup("<pre>{}</pre>").format("\n".join(visible))

    @staticmethod
    def link(url: str, text: str) -> Markup:
        if is_linkable(url):
            return Markup('<a href="{}">{}</a>').format(url, text)
        return escape(text)

    @staticmethod
    def strong(text: str) -> Markup:
        return Markup("<strong>{}</strong>").format(text)

    @staticmethod
    def raw(text: str) -> Markup:
        """Only for files of this package itself: the style sheet."""
        if isinstance(text, Words):
            return Markup(text)
        return escape(text)


FILTERS = (
    "prose",
    "command",
    "literal",
    "block",
    "link",
    "ready",
    "strong",
    "plain",
    "raw",
)


def plain_line(words: str) -> str:
    """A sentence for the terminal, on one line."""
    return " ".join(Plain.show(words).split())


def is_linkable(url: str | None) -> bool:
    """Whether an address may become a link."""
    return (
        bool(url)
        and str(url).startswith(("https://", "http://"))
        and _URL_CHARACTERS.issuperset(str(url))
    )


def our_text(value: object) -> str | None:
    """Text that needs no escaping: our words, filtered text and whole numbers; None for
    outside text.
    """
    if isinstance(value, (Words, Ready)) or value == "":
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, str):
        return None
    raise TypeError(
        f"a template shows {value!r}; numbers are worded in report/text/formats.py, absent values by the template"
    )


def _by_piece(
    escaped: Callable[[str], str], within: Callable[[str], str], text: Message | str
) -> str:
    """A translated sentence of a document; ``escaped`` escapes outside text at its
    start, ``within`` elsewhere.
    """
    if not isinstance(text, SentencePieces):
        text = word(text)
    first, *rest = pieces_of(text)
    sentence = _piece(escaped, first)
    for piece in rest:
        sentence += _piece(within, piece)
    return sentence


def _piece(escaped: Callable[[str], str], piece: str) -> str:
    if isinstance(piece, Words):
        return piece
    return escaped(piece)


def _clean_prose(text: str) -> str:
    return clean(text, limit=MAX_PROSE)
