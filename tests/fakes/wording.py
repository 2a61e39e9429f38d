"""Reasons of steps and values as a reader of English sees them."""

from __future__ import annotations

import msgspec

from perfgate.document.message import Message
from perfgate.document.run import StepResult, Value
from perfgate.judging.report.text.messages import word
from perfgate.measuring.checklist.step import StepOutcome


def reason_of(measured: StepOutcome | StepResult | Value) -> str:
    return word(measured.reason or "")


def worded(entry: object) -> str:
    """A sentence of a document as it stands in its JSON, worded."""
    return str(word(msgspec.convert(entry, Message | str)))
