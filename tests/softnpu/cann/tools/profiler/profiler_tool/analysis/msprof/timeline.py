"""msprof_*.json: launches, tasks, the flows between them, and when the device computed, communicated or idled."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from recording import Recording, Task

EAGER_MODEL = 4294967295
OVERLAP = ("Computing", "Free", "Communication", "Communication(Not Overlapped)")
Interval = tuple[int, int]


def write(recording: Recording, path: Path) -> None:
    """Write the timeline, a plain list of events."""
    processes = Processes(recording)
    threads = {task.thread for task in recording.tasks} | {call.thread for call in recording.calls}
    events = [*processes.names(recording.tasks, threads)]
    for task in recording.tasks:
        events += task_events(recording, processes, task)
    if recording.has_operators:
        events += call_events(recording, processes)
    events += overlap_events(recording, processes)
    path.write_text(json.dumps(events))


class Processes:
    """The process numbers of the tracks, made as msprof makes them: (host process << 10) | (sort index << 5) | device."""

    def __init__(self, recording: Recording) -> None:
        def number(sort_index: int, device: int = 0) -> int:
            return recording.process << 10 | sort_index << 5 | device

        self.host = number(7)
        self.device = number(13, recording.device)
        self.communication = number(14, recording.device)
        self.overlap = number(17, recording.device)
        self.label = f"NPU {recording.device}"

    def names(self, tasks: list[Task], threads: Iterable[int]) -> Iterator[dict]:
        """Yield the names of processes and threads."""
        yield from self._process(self.host, "CANN", "CPU", 7)
        # As recorded on a 910B: the thread has the name that torch_npu gives it in the process "Python".
        for thread in sorted(threads):
            yield metadata("thread_name", self.host, thread, {"name": f"Thread {thread}"})
        yield from self._process(self.device, "Ascend Hardware", self.label, 13)
        for stream in sorted({task.stream for task in tasks}):
            yield metadata("thread_name", self.device, stream, {"name": f"Stream {stream}"})
        if any(task.link for task in tasks):
            yield from self._process(self.communication, "Communication", self.label, 14)
            yield metadata("thread_name", self.communication, 0, {"name": "Group 0 Communication"})
        yield from self._process(self.overlap, "Overlap Analysis", self.label, 17)
        for thread, name in enumerate(OVERLAP):
            yield metadata("thread_name", self.overlap, thread, {"name": name})

    def _process(self, number: int, name: str, label: str, sort_index: int) -> Iterator[dict]:
        yield metadata("process_name", number, 0, {"name": name})
        yield metadata("process_labels", number, 0, {"labels": label})
        yield metadata("process_sort_index", number, 0, {"sort_index": sort_index})


def metadata(name: str, process: int, thread: int, arguments: dict) -> dict:
    """Return an event that names something."""
    return {"name": name, "pid": process, "tid": thread, "args": arguments, "ph": "M"}


def task_events(recording: Recording, processes: Processes, task: Task) -> Iterator[dict]:
    """Yield launch and task, and the flow from one to the other."""
    begin, launch = recording.wall_us(task.begin), recording.wall_us(task.launch_begin)
    launch_us = (task.launch_end - task.launch_begin) / 1000
    api = "aclrtMemcpyAsync" if task.is_copy else task.api
    here = {"pid": processes.host, "tid": task.thread}
    there = {"pid": processes.device, "tid": task.stream}
    if task.link is not None:
        there = {"pid": processes.communication, "tid": 0}
    connection = {"connection_id": task.index}
    host = {"Thread Id": task.thread, "Mode": "launch", **connection}
    if recording.has_operators:
        level = "communication" if task.link else "acl"
        prefix = "Communication" if task.link else "AscendCL"
        yield span(f"{prefix}@{api}", here, launch, launch_us, {**host, "level": level})
        if task.is_kernel:
            yield span("Node@launch", here, launch, launch_us, {**host, "level": "node", "item_id": task.name})
    device = {"Model Id": EAGER_MODEL, "Task Type": task.core, "Physic Stream Id": task.stream}
    yield span(
        task.name, there, begin, task.duration_us, {**device, "Task Id": task.index, "Batch Id": 0, **connection}
    )
    flow = {"name": "HostToDevice", "cat": "HostToDevice", "id": str(task.index << 32)}
    yield {**flow, "ph": "s", **here, "ts": launch}
    yield {**flow, "ph": "f", "bp": "e", **there, "ts": begin}


def call_events(recording: Recording, processes: Processes) -> Iterator[dict]:
    """Yield the calls that worked on the host alone: a synchronous copy has no task of its own."""
    for call in recording.calls:
        where = {"pid": processes.host, "tid": call.thread}
        arguments = {"Thread Id": call.thread, "Mode": "launch", "level": "acl"}
        yield span(f"AscendCL@{call.api}", where, recording.wall_us(call.begin), call.duration_us, arguments)


def span(name: str, where: dict, begin: str, duration_us: float, arguments: dict) -> dict:
    """Return an event with a duration."""
    return {"name": name, **where, "ts": begin, "dur": duration_us, "ph": "X", "args": arguments}


def overlap_events(recording: Recording, processes: Processes) -> Iterator[dict]:
    """Yield the four tracks that step_trace_time.csv is summed from."""
    computing = union((task.begin, task.end) for task in recording.tasks if task.is_kernel)
    communicating = union((task.begin, task.end) for task in recording.tasks if task.link)
    busy = union([*computing, *communicating])
    free = [(left[1], right[0]) for left, right in itertools.pairwise(busy)]
    alone = without(communicating, computing)
    for thread, intervals in enumerate((computing, free, communicating, alone)):
        where = {"pid": processes.overlap, "tid": thread}
        for begin, end in intervals:
            yield span(OVERLAP[thread], where, recording.wall_us(begin), (end - begin) / 1000, {})


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge intervals that touch."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def without(intervals: list[Interval], others: list[Interval]) -> list[Interval]:
    """Return what of merged intervals lies outside other merged intervals."""
    rest = []
    for begin, end in intervals:
        at = begin
        for low, high in others:
            if high <= at or low >= end:
                continue
            if low > at:
                rest.append((at, low))
            at = max(at, high)
        if at < end:
            rest.append((at, end))
    return rest
