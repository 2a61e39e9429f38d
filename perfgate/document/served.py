"""What `perfgate serve` answers."""

from __future__ import annotations

from typing import Literal

import msgspec

from perfgate.document.trace import RequestDocument

ServedKind = Literal["run", "recording"]


class ServedRecording(msgspec.Struct, frozen=True, kw_only=True):
    """A recording below the served folder by its path in there, its bytes, and seconds since 1970 of its last change.

    A ``run`` is a folder that ``perfgate run`` or ``check`` wrote, with the traces that it kept.
    """

    name: str
    kind: ServedKind
    size: int
    modified: float


class RecordingList(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /api/recordings` and `GET /api/runs`."""

    recordings: list[ServedRecording]


class RequestProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What a recording says of one request."""

    recording: str
    profile: RequestDocument


class ProfileList(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /api/profile`: every recording in which something served the request. ``unread`` are those that are damaged."""

    request_id: str
    profiles: list[RequestProfile]
    unread: list[str] = []


class ServedError(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    error: str
