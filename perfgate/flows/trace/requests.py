"""``perfgate trace requests``: the time of each request to a server, and the work done
for one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfgate.document.message import Message
from perfgate.document.trace import RequestDocument, RequestTimeline
from perfgate.errors import UsageError
from perfgate.flows.trace.trace import (
    Choice,
    ChosenTimeline,
    choose,
    format_of,
    notes_of,
    top_row,
)
from perfgate.trace.analysis.requests import Requests

_NONE = Message("trace.no-requests")


def trace_requests(
    path: Path, choice: Choice, *, request: str | None
) -> RequestDocument:
    """The requests of every chosen timeline, or one of them.

    Raises UsageError if that one was not recorded.
    """
    return requests_of(choose(path, choice), choice, request)


def requests_of(
    chosen: Sequence[ChosenTimeline], choice: Choice, request: str | None
) -> RequestDocument:
    """The same for timelines that were already read."""
    timelines = [_timeline(pick, choice, request) for pick in chosen]
    if request is not None and not any(timeline.requests for timeline in timelines):
        raise UsageError(
            "no event serves request {request!r}; `perfgate trace requests` lists those that were recorded",
            request=request,
        )
    return RequestDocument(
        format=format_of(chosen), timelines=timelines, notes=notes_of(chosen)
    )


def _timeline(
    pick: ChosenTimeline, choice: Choice, request: str | None
) -> RequestTimeline:
    timeline = pick.timeline
    recorded = Requests(timeline.events)
    requests = [row for row in recorded.all() if request in (None, row.request)]
    rows = []
    if request is not None:
        rows = recorded.rows(request) or []
    total_ns = sum(row.total_ns for row in rows)
    return RequestTimeline(
        path=str(pick.recording.path),
        rank=timeline.rank,
        device=timeline.device,
        origin_ns=recorded.origin_ns,
        requests_in_all=len(requests),
        requests=requests[: choice.limit],
        rows=[top_row(row, total_ns) for row in rows[: choice.limit]],
        reason=None if requests else _NONE,
    )
