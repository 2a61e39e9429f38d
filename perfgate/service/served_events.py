"""The events that served requests, as Chrome trace events for Perfetto,
chrome://tracing and similar viewers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from perfgate.document.served import ServedEvent
from perfgate.errors import UsageError
from perfgate.flows.trace.trace import ChosenTimeline
from perfgate.trace.analysis.requests import Requests
from perfgate.trace.model.events import (
    DEVICE_KINDS,
    KINDS,
    NO_CORRELATION,
    NO_TEXT,
    EventKind,
)

MOST_EVENTS = 1_000_000
# Kineto's categories, by which other tools distinguish operators and kernels.
_CATEGORIES: dict[EventKind, str] = {
    "host_op": "cpu_op",
    "compute": "kernel",
    "copy": "gpu_memcpy",
    "comm": "kernel",
    "fused": "kernel",
    "annotation": "user_annotation",
    "device_annotation": "gpu_user_annotation",
    "runtime": "runtime",
    "python": "python_function",
    "memory": "cpu_instant_event",
    "other": "other",
}
_NS_PER_US = 1000


class TooManyEventsError(UsageError):
    """The answer would hold more events than a page can draw."""


@dataclass
class EventSheet:
    """Collects the events of several recordings; each begins at its first event, and
    has separate processes.
    """

    request: str | None
    events: list[ServedEvent] = field(default_factory=list)
    names: list[ServedEvent] = field(default_factory=list)
    _processes: dict[tuple[object, ...], int] = field(default_factory=dict)
    _threads: dict[tuple[int, str], int] = field(default_factory=dict)

    def add(self, recording: str, chosen: Sequence[ChosenTimeline]) -> None:
        """Raises UsageError if there are more events than one answer may hold."""
        starts = [
            int(pick.timeline.events.start.min())
            for pick in chosen
            if len(pick.timeline.events)
        ]
        origin = min(starts, default=0)
        # Timelines of several devices repeat the events of the same host: write each
        # once.
        keys: set[tuple[object, ...]] = set()
        for pick in chosen:
            for event in self._of_timeline(recording, pick, origin):
                key = (event.pid, event.tid, event.ts, event.dur, event.name)
                if len(chosen) == 1 or key not in keys:
                    keys.add(key)
                    self.events.append(event)
                if len(self.events) > MOST_EVENTS:
                    raise TooManyEventsError(
                        "more than {most} events serve these requests; name one by request_id",
                        most=MOST_EVENTS,
                    )

    def _of_timeline(
        self, recording: str, pick: ChosenTimeline, origin: int
    ) -> Iterator[ServedEvent]:
        timeline = pick.timeline
        served = Requests(timeline.events).events(self.request)
        columns = (
            served.start,
            served.duration,
            served.track,
            served.name,
            served.kind,
            served.correlation,
        )
        requests, shapes = served.request.tolist(), served.shape.tolist()
        places = [
            self._place(recording, timeline.rank, *track) for track in served.tracks
        ]
        rows = zip(*[column.tolist() for column in columns])
        for row, (start, duration, track, name, kind, correlation) in enumerate(rows):
            args: dict[str, str | int] = {"request_id": served.names[requests[row]]}
            if correlation > NO_CORRELATION:
                args["correlation"] = correlation
            if timeline.device is not None and KINDS[kind] in DEVICE_KINDS:
                args["device"] = timeline.device
            if shapes[row] != NO_TEXT:
                args["shapes"] = served.names[shapes[row]]
            pid, tid = places[track]
            yield ServedEvent(
                name=served.names[name],
                ph="X",
                pid=pid,
                tid=tid,
                ts=(start - origin) / _NS_PER_US,
                dur=duration / _NS_PER_US,
                cat=_CATEGORIES[KINDS[kind]],
                args=args,
            )

    def _place(
        self, recording: str, rank: int | None, process: str, thread: str
    ) -> tuple[int, int]:
        """The ids of a track; the first use also writes its name events."""
        key = (recording, rank, process)
        if key not in self._processes:
            self._processes[key] = len(self._processes) + 1
            label = recording
            if rank is not None:
                label += f", rank {rank}"
            self._name("process_name", self._processes[key], 0, f"{label}: {process}")
        pid = self._processes[key]
        if (pid, thread) not in self._threads:
            self._threads[pid, thread] = len(self._threads) + 1
            self._name("thread_name", pid, self._threads[pid, thread], thread)
        return pid, self._threads[pid, thread]

    def _name(self, kind: str, pid: int, tid: int, name: str) -> None:
        self.names.append(
            ServedEvent(name=kind, ph="M", pid=pid, tid=tid, args={"name": name})
        )
