"""The only module that makes outside text harmless: for Markdown, for the terminal, for
HTML.

Outside text is everything from a document or a change request: names, messages,
tracebacks. In Markdown a code span is the safe form: entities and backslashes are
undone by mention and issue filters that run after parsing (GitHub), or shown as they
are (GitLab).
"""

from __future__ import annotations

import re

MAX_LENGTH = 120
MAX_PROSE = 400
# Of a sentence about a file: its path alone may be as long as prose, and the remedy
# stands at the end.
MAX_ABOUT_FILE = 1000
# Of a command: the end of one has its required options, so it is shown whole or not at
# all.
MAX_COMMAND = 1000
_FENCED_WIDTH = 160
# U+2223 DIVIDES looks like a pipe and splits no table cell; comrak (GitLab) shows the
# backslash of "\|".
_DIVIDES = "\u2223"
# U+02CB looks like a backtick. Parsers match the fence of a code span only up to 80
# (MAXBACKTICKS in cmark and comrak): behind a longer one the text would be Markdown
# again.
_GRAVE, _LONGEST_FENCE = "\u02cb", 80
_REPLACEMENT = "\ufffd"
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
# re compiles these when a text first needs them: `perfgate trace` does not.
_BACKTICKS = "`+"
# A word of plain prose: letters with inner hyphens or apostrophes, "e.g.", a number, or
# a dash. Everything else may mean something to a Markdown dialect (mentions, links,
# emoji codes, references like GH-12, quick actions) and becomes code.
_PLAIN = (
    r"[A-Za-z]+(?:['’-][A-Za-z]+)*|[a-z](?:\.[a-z])+|[+±−]?\d+(?:[.,]\d+)*%?|%|[–—·→]"
)
# A word, or several in one pair of backticks: a command with its options is one piece
# of code.
_WORDS = r"(?:`[^`]*`|\S)+"
_WORD = r"(?P<open>[(\"']*)(?P<core>.*?)(?P<close>[)\"'.,;:!?]*)"


def clean(text: str, *, limit: int = MAX_LENGTH) -> str:
    """One line of visible characters, at most ``limit`` long: control, bidi, surrogate
    replaced.
    """
    visible = text[: 8 * limit].translate(_VISIBLE)
    if len(text) > 8 * limit:
        visible += " …"
    if len(visible) > limit:
        visible = visible[: limit - 1].rstrip() + "…"
    return visible


def code_span(text: str, *, limit: int = MAX_LENGTH) -> str:
    """A Markdown code span that shows the text: its fence is longer than any run of
    backticks inside.
    """
    visible = clean(text, limit=limit).strip().replace("|", _DIVIDES)
    if not visible:
        return "`(empty)`"
    if _longest_run(visible) >= _LONGEST_FENCE:
        visible = visible.replace("`", _GRAVE)
    fence = "`" * (_longest_run(visible) + 1)
    pad = " " if visible.startswith("`") or visible.endswith("`") else ""
    return f"{fence}{pad}{visible}{pad}{fence}"


def prose(text: str, *, begins: bool = True) -> str:
    """A sentence as Markdown: plain words and numbers stay words, all else becomes code
    spans.

    For sentences that perfgate itself wrote into a document around outside names. At
    the beginning of a line a number might start a list, so a leading number becomes
    code too.
    """
    words = re.findall(_WORDS, clean(text, limit=MAX_PROSE))
    return " ".join(
        _prose_word(word, first=begins and index == 0)
        for index, word in enumerate(words)
    )


def fenced(text: str, *, lines: int) -> str:
    """The last lines of a text as a fenced block that no line inside can close."""
    visible = []
    for line in text.rstrip().splitlines()[-lines:] or ["(empty)"]:
        text_line = clean(line, limit=_FENCED_WIDTH).rstrip()
        # GitLab executes note lines that start with "/"; inside a fence it should not,
        # one space makes sure of it.
        if text_line.startswith("/"):
            text_line = f" {text_line}"
        visible.append(text_line)
    fence = "`" * max(3, _longest_run("\n".join(visible)) + 1)
    return "\n".join([fence, *visible, fence])


class _Visible(dict[int, str]):
    """The visible form of each character by code point, filled as characters occur."""

    def __missing__(self, number: int) -> str:
        character = chr(number)
        if " " <= character <= "~":
            self[number] = character
            return character
        import unicodedata

        category = unicodedata.category(character)
        if character in "\n\r\t\v\f" or category == "Zs":
            character = " "
        elif category in _INVISIBLE:
            character = _REPLACEMENT
        self[number] = character
        return character


_VISIBLE = _Visible()


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(_BACKTICKS, text)), default=0)


def _prose_word(word: str, *, first: bool) -> str:
    match = re.fullmatch(_WORD, word)
    core = match["core"] if match else word
    if match is None or not core:
        return code_span(word)
    if re.fullmatch(_PLAIN, core) and not (first and not core[0].isalpha()):
        return word
    close = match["close"]
    while ")" in close and core.count("(") > core.count(")"):
        inner, _, close = close.partition(")")
        core += inner + ")"
    return (
        match["open"]
        + code_span(
            core.strip("`") or core, limit=MAX_PROSE if " " in core else MAX_LENGTH
        )
        + close
    )
