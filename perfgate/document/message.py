"""A sentence of ours in a document: a code of ``catalogue/messages`` and the values in it, worded where somebody reads it."""

from __future__ import annotations

from typing import Union

import msgspec

# Carries a text of somebody else (an exception, a tool's answer) as ``text``; it is never translated.
QUOTE = "quote"

Value = Union[str, int, float, "Message", list[Union[str, int, float, "Message"]]]


class Message(msgspec.Struct, frozen=True):
    """The code of a sentence and the values of its places, in base units; a value may be a sentence itself."""

    code: str
    values: dict[str, Value] = {}


def quote(text: str) -> Message:
    return Message(QUOTE, {"text": text})
