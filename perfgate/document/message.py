"""A sentence of perfgate in a document: a code of ``catalogue/messages`` and its
values, put into words at display time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Union

from perfgate.document.records import FrozenStruct
from perfgate.errors import DocumentError, MeasuringError, PerfgateError
from perfgate.locale import Language, current_language, filled, translate

# Carries a text from outside (an exception, a tool's answer) as ``text``; it is never
# translated.
QUOTE = "quote"

MessageValue = Union[
    str, int, float, "Message", Sequence[Union[str, int, float, "Message"]]
]


class Message(FrozenStruct):
    """The code of a sentence and the values of its places, in base units; a value may
    be a sentence itself.
    """

    code: str
    values: Mapping[str, MessageValue] = {}


def quote(text: str) -> Message:
    return Message(QUOTE, {"text": text})


def message_from(code: str, evidence: Mapping[str, MessageValue]) -> Message:
    """A message with the part of the evidence that its sentence names.

    Raises KeyError if any of that is missing.
    """
    from string import Formatter

    from perfgate.catalogue.lookup import (
        MESSAGES,
    )  # as long to load as numpy, and most programs need no words

    places = [name for _, name, _, _ in Formatter().parse(MESSAGES[code].other) if name]
    return Message(code, {name: evidence[name] for name in places})


def as_message(text: Message | str) -> Message:
    return quote(text) if isinstance(text, str) else text


def together(reasons: Iterable[Message]) -> Message:
    """Several reasons combined into one, without duplicates."""
    (first, *more) = distinct(reasons)
    return Message("notes.together", {"reasons": [first, *more]}) if more else first


def distinct(messages: Iterable[Message]) -> list[Message]:
    """Each message once, in order; their values are mappings, so no set holds them."""
    unique: list[Message] = []
    for message in messages:
        if message not in unique:
            unique.append(message)
    return unique


def english(message: Message) -> str:
    """A message in plain English, for exceptions and logs; documents are worded by the
    report.
    """
    return _worded(message, "en")


def spoken(message: Message) -> str:
    """A message in the user's language, for an error in the terminal."""
    return _worded(message, current_language())


def _worded(message: Message, language: Language) -> str:
    if message.code == QUOTE:
        return str(message.values["text"])
    from perfgate.catalogue.lookup import MESSAGES

    values = dict(message.values)
    for name, value in message.values.items():
        if isinstance(value, Message):
            values[name] = _worded(value, language)
    sentence = MESSAGES[message.code].for_count(values.get("count"))
    return filled(translate(sentence, language), values)


class ReasonedError(PerfgateError):
    """An error for a reason that the report can word in the reader's language."""

    def __init__(self, reason: Message) -> None:
        super().__init__(english(reason))
        self.shown = spoken(reason)
        self.reason = reason


class ReasonError(ReasonedError, DocumentError):
    """A document that cannot be had or judged."""


class UnmeasuredError(ReasonedError, MeasuringError):
    """Something that could not be measured."""


class WorkloadError(ReasonedError, MeasuringError):
    """The user's workload cannot be found, loaded or called."""


def reason_of(error: Exception) -> Message:
    return error.reason if isinstance(error, ReasonedError) else quote(str(error))
