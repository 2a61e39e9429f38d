"""The two lines above every text of ours that nobody sees: the marker that finds it again, and what it knows about itself."""

from __future__ import annotations

import hashlib
from typing import TypeVar

import msgspec

State = TypeVar("State", bound=msgspec.Struct)

_END = " -->"


def marker_line(kind: str, key: str) -> str:
    """The first line of a text of a kind. ``key`` tells several gates of one repository apart."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return f"<!-- perfgate:{kind} v1 key={digest}{_END}"


def begins_with(body: str, first_line: str) -> bool:
    """Whether a text begins with a line, whatever a forge has made of the line's end."""
    return body.partition("\n")[0].rstrip("\r") == first_line


def state_line(kind: str, state: msgspec.Struct) -> str:
    """The second line of a text, in which no name can end the HTML comment."""
    written = msgspec.json.encode(state).decode().replace("<", "\\u003c").replace(">", "\\u003e")
    return f"{_start(kind)}{written}{_END}"


def read_state_line(body: str, kind: str, record: type[State]) -> State | None:
    """What the second line of a text says; None where there is none that can be read."""
    lines = body.splitlines()
    if len(lines) < 2 or not (lines[1].startswith(_start(kind)) and lines[1].endswith(_END)):
        return None
    try:
        return msgspec.json.decode(lines[1][len(_start(kind)) : -len(_END)], type=record)
    except (msgspec.DecodeError, RecursionError):
        return None


def _start(kind: str) -> str:
    return f"<!-- perfgate:{kind} "
