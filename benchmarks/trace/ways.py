"""One way to answer `top` and `gaps` and to merge the host's calls into a tree, in a
process of its own.

``python ways.py NAME TRACE`` prints what it found.

perfgate reads with the package; json and msgspec are what one would write in an
afternoon: decode all, walk the events.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
ASCEND_HARDWARE = 9  # the process of generate.py


class Event(msgspec.Struct):
    ph: str
    name: str = ""
    cat: str = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: float = 0.0


class Document(msgspec.Struct):
    events: list[Event] = msgspec.field(name="traceEvents")


def perfgate(path: Path) -> dict[str, Any]:
    from perfgate import trace
    from perfgate.document.flame import FLAME_KINDS
    from perfgate.trace.analysis.flame import flame_tree
    from perfgate.trace.analysis.gaps import device_gaps
    from perfgate.trace.analysis.rows import top
    from perfgate.trace.analysis.stacks import stacks_of

    (timeline,) = trace.read(path).timelines
    rows, found = (
        top(timeline, by="name", host=False).rows,
        device_gaps(timeline.events),
    )
    tree = flame_tree(stacks_of(timeline.events), "all")
    assert found is not None
    thread, on_host = FLAME_KINDS.index("thread"), list[bool]()
    for parent, kind in zip(tree.parent, tree.kind):
        on_host.append(kind == thread if parent < 0 else on_host[parent])
    return {"nodes": sum(on_host) - tree.kind.count(thread),
            "names": len(rows), "total_us": sum(row.total_ns for row in rows) / 1e3, "gaps": len(found.gaps),
            "busy_us": found.busy_ns / 1e3}  # fmt: skip


def with_json(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text())
    events = document["traceEvents"] if isinstance(document, dict) else document
    device, host = [], []
    for event in events:
        if event["ph"] == "X":
            span = event["name"], float(event["ts"]), float(event["dur"])
            if event.get("cat") in DEVICE_CATEGORIES or event["pid"] == ASCEND_HARDWARE:
                device.append(span)
            else:
                host.append((event["pid"], event["tid"], span[1], -span[2], span[0]))
    return {**_walk(device), "nodes": _nodes(host)}


def with_msgspec(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    if data[:1] == b"[":
        events = msgspec.json.decode(data, type=list[Event])
    else:
        events = msgspec.json.decode(data, type=Document).events
    device, host = [], []
    for event in events:
        if event.ph == "X":
            if event.cat in DEVICE_CATEGORIES or event.pid == ASCEND_HARDWARE:
                device.append((event.name, float(event.ts), event.dur))
            else:
                host.append(
                    (event.pid, event.tid, float(event.ts), -event.dur, event.name)
                )
    return {**_walk(device), "nodes": _nodes(host)}


def _walk(spans: Iterable[tuple[str, float, float]]) -> dict[str, Any]:
    spans = sorted(spans, key=lambda span: span[1])
    totals: dict[str, float] = defaultdict(float)
    busy, gaps, reach = 0.0, 0, None
    for name, start, length in spans:
        totals[name] += length
        end = start + length
        if reach is None or start >= reach:
            gaps += reach is not None and start > reach
            busy += length
        elif end > reach:
            busy += end - reach
        reach = end if reach is None else max(reach, end)
    return {
        "names": len(totals),
        "total_us": sum(totals.values()),
        "gaps": gaps,
        "busy_us": busy,
    }


def _nodes(calls: list[tuple[Any, Any, float, float, str]]) -> int:
    """How many nodes the tree of calls has, one for all that have the same callers;
    with their counts and self times.
    """
    calls.sort(key=lambda call: (str(call[0]), str(call[1]), call[2], call[3]))
    thread, open_calls = None, list[tuple[float, int]]()
    numbers: dict[tuple[int, str], int] = {}
    counts, own = list[int](), list[float]()
    for process, thread_number, start, negative, name in calls:
        if (process, thread_number) != thread:
            thread, open_calls = (process, thread_number), []
        while open_calls and open_calls[-1][0] <= start:
            open_calls.pop()
        above = open_calls[-1][1] if open_calls else -1
        node = numbers.setdefault((above, _numberless(name)), len(numbers))
        if node == len(counts):
            counts.append(0)
            own.append(0.0)
        counts[node] += 1
        own[node] -= negative
        if above >= 0:
            own[above] += negative
        open_calls.append((start - negative, node))
    return len(numbers)


def _numberless(name: str) -> str:
    """The profiler numbers its steps; what happens in them makes one stack."""
    return "ProfilerStep" if name.startswith("ProfilerStep#") else name


RIVALS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "perfgate": perfgate,
    "json": with_json,
    "msgspec": with_msgspec,
}

if __name__ == "__main__":
    print(json.dumps(RIVALS[sys.argv[1]](Path(sys.argv[2]))))
