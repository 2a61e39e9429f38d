"""Parsed JSON as a record, in any thread."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

Record = TypeVar("Record")

_known: set[Any] = set()
_first_use = threading.Lock()


def convert_record(value: Any, record: type[Record]) -> Record:
    """As ``msgspec.convert``, which raises ValidationError for another value.

    The first use of a record in several threads at once ends in a segmentation fault (msgspec 0.22), so one thread is first.
    """
    _use_first(record)
    return msgspec.convert(value, record)


def decode_record(data: bytes, record: type[Record]) -> Record:
    """As ``msgspec.json.decode``, which raises DecodeError for another text, and safe as ``convert_record`` is."""
    _use_first(record)
    return msgspec.json.decode(data, type=record)


def _use_first(record: type[Any]) -> None:
    if record not in _known:
        with _first_use:
            msgspec.json.Decoder(record)
            _known.add(record)
