"""The answers of `perfgate serve`."""

from __future__ import annotations

from typing import Literal

from perfgate.document.records import FrozenStruct
from perfgate.document.trace import RequestDocument

ServedKind = Literal["run", "recording"]


class ServedEntry(FrozenStruct, kw_only=True):
    """A file or folder by its path below the served folder, its bytes, and seconds
    since 1970 of its last change.
    """

    name: str
    size: int
    modified: float


class ServedRecording(ServedEntry, kw_only=True):
    """A recording.

    A ``run`` is a folder that ``perfgate run`` or ``check`` wrote, with the traces that
    it kept.
    """

    kind: ServedKind


class ServedJob(ServedEntry, kw_only=True):
    """A folder that holds several recordings, as the ranks of one job lie in one, and
    how many.
    """

    recordings: int


class RecordingList(FrozenStruct, kw_only=True):
    """`GET /api/recordings` and `GET /api/runs`; ``jobs`` are the folders that hold
    several of the recordings.
    """

    recordings: list[ServedRecording]
    jobs: list[ServedJob] = []


class ProfileList(FrozenStruct, kw_only=True):
    """`GET /api/profile`: the request in every recording in which something served it,
    by the recording's name.

    ``unread`` are the damaged recordings. Without a ``request_id`` each has all its
    requests, and no rows of a single one.
    """

    request_id: str | None
    profiles: dict[str, RequestDocument]
    unread: list[str] = []


class ServedEvent(FrozenStruct, kw_only=True, omit_defaults=True):
    """A Chrome trace event: a span (X), microseconds since its recording began, or the
    name of a process or thread (M).
    """

    name: str
    ph: Literal["X", "M"]
    pid: int
    tid: int
    ts: float | None = None
    dur: float | None = None
    cat: str | None = None
    args: dict[str, str | int]


class ServedTrace(FrozenStruct, kw_only=True, rename="camel"):
    """`GET /api/profile?format=chrome`: the events of the request, or of any, as an
    object of Chrome's trace events.

    ``other_data`` names the damaged recordings as ``unread``.
    """

    trace_events: list[ServedEvent]
    display_time_unit: Literal["ms"] = "ms"
    other_data: dict[str, list[str]]


class ServedError(FrozenStruct, kw_only=True):
    """Why there is no answer."""

    error: str


class DeadLetter(FrozenStruct, kw_only=True):
    """A message of a webhook that was not delivered: when it was given up (ISO 8601),
    and its run.
    """

    at: str
    project: str
    run_id: str
    reason: str


class ServedWebhook(FrozenStruct, kw_only=True):
    """The messages of one webhook since the service started; ``dead_letters`` are the
    newest that are not delivered.
    """

    receiver: str
    waiting: int
    delivered: int
    undelivered: int
    dead_letters: list[DeadLetter]
