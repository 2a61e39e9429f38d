"""Join what the host launched with what ran: one number for a launch and everything it started on the device."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perfgate.trace.analysis import IntColumn
from perfgate.trace.events import NO_CORRELATION, EventTable
from perfgate.trace.readers._ascend.view import View

_Mask = npt.NDArray[np.bool_]


def correlations(view: View, *, on_host: _Mask, on_device: _Mask) -> IntColumn:
    """Return the correlation of every event, given which tracks are the host's and which a device's.

    An arrow starts inside the call that launched, which is the innermost span around it on its thread, and ends exactly
    where a task starts on its track (sample msinsight-910B-alexnet-2501: 210 of 210, only 23 of them at a span's start).
    One call may start several arrows and one arrow several tasks, so it is the call that gives the number: its position
    among the events.
    """
    events = view.events
    found = np.full(len(events), NO_CORRELATION, dtype=np.int64)
    started = dict(zip(view.starts.flow, _launches(view, on_host).tolist()))
    ended = {
        (track, time): started.get(flow, NO_CORRELATION)
        for flow, track, time in zip(view.ends.flow, view.ends.track, view.ends.time)
    }
    tasks = np.flatnonzero(on_device[events.track]) if ended else np.zeros(0, dtype=np.int64)
    for task, track, start in zip(tasks.tolist(), events.track[tasks].tolist(), events.start[tasks].tolist()):
        found[task] = ended.get((track, start), NO_CORRELATION)
    callers = np.unique(found[found >= 0])
    found[callers] = callers
    return found


def _launches(view: View, on_host: _Mask) -> IntColumn:
    """Return for every arrow the span it starts in, -1 where there is none."""
    events = view.events
    track, time = np.frombuffer(view.starts.track, np.int64), np.frombuffer(view.starts.time, np.int64)
    launch = np.full(track.size, -1, dtype=np.int64)
    for number in np.unique(track).tolist():
        spans = np.flatnonzero(events.track == number)
        if not spans.size:
            # Level0 leaves the thread of CANN without spans: there the task queue's, on the same thread, made the call.
            same = [key[1] == view.keys[number][1] for key in view.keys]
            spans = np.flatnonzero((np.array(same, dtype=bool) & on_host)[events.track])
        arrows = np.flatnonzero(track == number)
        launch[arrows] = _innermost(events, spans, time[arrows])
    return launch


def _innermost(events: EventTable, spans: IntColumn, times: IntColumn) -> IntColumn:
    """Return the innermost of some nested spans around each time, -1 where there is none."""
    spans = spans[np.lexsort((-events.duration[spans], events.start[spans]))]
    start, end, numbers = events.start[spans].tolist(), events.end[spans].tolist(), spans.tolist()
    found = np.full(times.size, -1, dtype=np.int64)
    around: list[int] = []
    following = 0
    for query in np.argsort(times, kind="stable").tolist():
        time = times[query]
        while following < len(numbers) and start[following] <= time:
            around.append(following)
            following += 1
        while around and end[around[-1]] < time:
            around.pop()
        if around:
            found[query] = numbers[around[-1]]
    return found
