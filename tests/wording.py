"""Messages of documents in English, as the report words them."""

from __future__ import annotations

from collections.abc import Iterable

from perfgate.document.message import Message
from perfgate.document.run import Finding
from perfgate.judging.report.text.messages import word, word_finding


def worded(messages: Iterable[Message | str]) -> list[str]:
    return [word(message) for message in messages]


def text_of(message: Message | str | None) -> str:
    return "" if message is None else word(message)


def finding_text(finding: Finding) -> str:
    return word_finding(finding)
