"""Messages are codes and values, and come back from JSON as they went."""

from __future__ import annotations

import msgspec

from perfgate.document.message import Message, quote


def test_message__values_of_every_kind__come_back_from_json() -> None:
    message = Message(
        "notes.both-sides",
        {
            "note": Message("gate.throttled"),
            "count": 3,
            "share": 0.25,
            "names": ["a", "b"],
            "reasons": [quote("boom"), Message("gate.no-time")],
        },
    )
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_quote__text_of_somebody_else__is_carried_as_it_is() -> None:
    assert quote("got 3 rows and expected 4 more") == Message("quote", {"text": "got 3 rows and expected 4 more"})
