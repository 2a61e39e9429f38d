"""The answers of `perfgate serve`."""

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


class ServedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that holds several recordings, as the ranks of one job lie in one: how many, their bytes, their last change."""

    name: str
    recordings: int
    size: int
    modified: float


class RecordingList(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /api/recordings` and `GET /api/runs`; ``jobs`` are the folders that hold several of the recordings."""

    recordings: list[ServedRecording]
    jobs: list[ServedJob] = []


class RequestProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One request in one recording."""

    recording: str
    profile: RequestDocument


class ProfileList(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /api/profile`: every recording in which something served the request. ``unread`` are the damaged ones.

    Without a ``request_id`` each has all its requests, and no rows of a single one.
    """

    request_id: str | None
    profiles: list[RequestProfile]
    unread: list[str] = []


class ServedEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Chrome trace event: a span (X), microseconds since its recording began, or the name of a process or thread (M)."""

    name: str
    ph: Literal["X", "M"]
    pid: int
    tid: int
    ts: float | None = None
    dur: float | None = None
    cat: str | None = None
    args: dict[str, str | int]


class ServedTrace(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`GET /api/profile?format=chrome`: the events of the request, or of any, as an object of Chrome's trace events.

    ``other_data`` names the damaged recordings as ``unread``.
    """

    trace_events: list[ServedEvent]
    display_time_unit: Literal["ms"] = "ms"
    other_data: dict[str, list[str]]


class ServedError(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    error: str
