"""Frozen records, and parsed JSON as one of them, in any thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    # The arguments of a class that msgspec takes from its base, and mypy from here.
    @dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
    class FrozenStruct(msgspec.Struct, frozen=True):
        """The base of all records."""

else:

    class FrozenStruct(msgspec.Struct, frozen=True):
        """The base of all records."""


Record = TypeVar("Record")

_known: set[Any] = set()
_first_use = threading.Lock()


def convert_record(value: Any, record: type[Record]) -> Record:
    """As ``msgspec.convert``, which raises ValidationError for another value.

    The first use of a record in several threads at once ends in a segmentation fault
    (msgspec 0.22), so one thread is first.
    """
    _use_first(record)
    return msgspec.convert(value, record)


def decode_record(data: bytes, record: type[Record]) -> Record:
    """As ``msgspec.json.decode``, which raises DecodeError for another text, and safe
    as ``convert_record`` is.
    """
    _use_first(record)
    return msgspec.json.decode(data, type=record)


def _use_first(record: type[Any]) -> None:
    if record not in _known:
        with _first_use:
            msgspec.json.Decoder(record)
            _known.add(record)
