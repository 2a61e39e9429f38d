"""A sentence of ours in a document: a code of ``catalogue/messages`` and the values in it, worded where somebody reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Union

import msgspec

from perfgate.catalogue.lookup import MESSAGES
from perfgate.errors import DocumentError

# Carries a text of somebody else (an exception, a tool's answer) as ``text``; it is never translated.
QUOTE = "quote"

MessageValue = Union[str, int, float, "Message", Sequence[Union[str, int, float, "Message"]]]


class Message(msgspec.Struct, frozen=True):
    """The code of a sentence and the values of its places, in base units; a value may be a sentence itself."""

    code: str
    values: Mapping[str, MessageValue] = {}


def quote(text: str) -> Message:
    return Message(QUOTE, {"text": text})


def distinct(messages: Iterable[Message]) -> list[Message]:
    """Each message once, in order; their values are mappings, so no set holds them."""
    unique: list[Message] = []
    for message in messages:
        if message not in unique:
            unique.append(message)
    return unique


class ReasonError(DocumentError):
    """A document that cannot be had or judged, for a reason that the report words in the reader's language."""

    def __init__(self, reason: Message) -> None:
        super().__init__(MESSAGES[reason.code].other.format(**reason.values))
        self.reason = reason


def reason_of(error: Exception) -> Message:
    return error.reason if isinstance(error, ReasonError) else quote(str(error))
