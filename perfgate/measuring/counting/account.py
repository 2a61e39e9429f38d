"""Where the time of a traced call goes: parts that add up to it, and rows by operator, form of its inputs and source line.

A trace of torch knows the time and the functions; which line called an operator, and on what dtypes and layouts, knows the
call whose operators were dispatched one by one (``counters.count_in_order``). Both are the same calls in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfgate.document.message import Message
from perfgate.document.run import CallAccount, CallPart, CallRow, Roof
from perfgate.document.trace import GapCause
from perfgate.measuring.counting.collect import CallTrace
from perfgate.measuring.counting.counters import code_at
from perfgate.measuring.counting.lines import CallLines, RowKey
from perfgate.measuring.counting.roofline import work_of
from perfgate.measuring.counting.tally import Dispatched
from perfgate.trace.analysis import Intervals, intersection, joined, union
from perfgate.trace.gaps import device_gaps
from perfgate.trace.spans import span_of
from perfgate.trace.stacks import Stacks, attributed_share, stacks_of

# Rows kept per shape. What stands in none is summed up, and the document says how many there were.
MAX_ROWS = 120
# A profiler that recorded no launches (Level0 of torch_npu), or not both ends of the queue that they went through.
_NOT_JOINED = Message("operators.kernels-not-joined")
_GAP_PARTS: dict[GapCause, CallPart] = {
    "host": "gap_host",
    "synchronization": "gap_synchronization",
    "queue": "gap_queue",
    "unknown": "gap_unknown",
}
_DEVICE_PARTS: tuple[CallPart, ...] = ("compute", "communication", "copy", *_GAP_PARTS.values())


@dataclass(frozen=True)
class AccountOf:
    """Whose account it is, and what else it takes to make it: the order of operators, the checkout, the device's best."""

    workload: str
    shape: str
    order: Sequence[Dispatched]
    root: Path
    roof: Roof | None = None


class _Sum:
    """What the events of one row add up to, over all counted calls."""

    def __init__(self) -> None:
        self.time_ns = 0
        self.count = 0
        self.flops: int | None = None
        self.moved_bytes: int | None = None

    def add(self, time_ns: int, runs: int, operator: Dispatched | None) -> None:
        self.time_ns += time_ns
        self.count += runs
        if operator is not None:
            self.moved_bytes = (self.moved_bytes or 0) + operator.moved_bytes
            if operator.flops is not None:
                self.flops = (self.flops or 0) + operator.flops


def account_for(trace: CallTrace, of: AccountOf) -> CallAccount:
    """Of the faster half of the traced calls: what disturbs a call adds time and never takes any."""
    calls = trace.spans()
    stacks = stacks_of(trace.events)
    lines = CallLines(stacks, calls, of.order, of.root)
    chosen = _faster_half(calls)
    on_device = bool(stacks.on_device.any())
    parts = _device_parts(trace, calls, chosen) if on_device else _host_parts(stacks, calls, chosen)
    sums = _sums(stacks, calls, chosen, lines, on_device=on_device)
    rows = [_row(key, total, len(chosen), of.root) for key, total in sums.items()]
    rows.sort(key=lambda row: (-row.self_time, row.op, row.line or "", row.inputs or ""))
    more = rows[MAX_ROWS:]
    return CallAccount(
        workload=of.workload,
        shape=of.shape,
        calls=trace.calls,
        wall=sum(int(calls.end[call] - calls.start[call]) for call in chosen) / len(chosen) / 1e9,
        parts={part: ns / len(chosen) / 1e9 for part, ns in parts.items()},
        rows=rows[:MAX_ROWS],
        more_rows=len(more),
        more_time=sum(row.self_time for row in more),
        no_lines=lines.missing or (_NOT_JOINED if on_device and not attributed_share(stacks) else None),
        roof=of.roof,
        work=work_of(of.order),
    )


def _faster_half(spans: Intervals) -> list[int]:
    order = np.argsort(spans.end - spans.start, kind="stable")
    return sorted(order[: (order.size + 1) // 2].tolist())


def _row(key: RowKey, total: _Sum, calls: int, root: Path) -> CallRow:
    return CallRow(
        op=key.op,
        kind=key.kind,
        self_time=total.time_ns / calls / 1e9,
        count=total.count / calls,
        inputs=key.inputs,
        line=key.line,
        code=code_at(root, key.line),
        flops=None if total.flops is None else total.flops / calls,
        moved_bytes=None if total.moved_bytes is None else total.moved_bytes / calls,
    )


def _sums(
    stacks: Stacks, calls: Intervals, chosen: Sequence[int], lines: CallLines, *, on_device: bool
) -> dict[RowKey, _Sum]:
    """What the events of each row add up to: on a device what ran there, and the project's functions in any case.

    The self times of what lies inside each other on one thread add up to what it covers. So where one thread runs them, the
    rows of operators add up to their part, and those of functions to no more than what is outside.
    """
    owners = span_of(stacks.events, calls, launches=stacks.events.of_kind("runtime"))
    sums: dict[RowKey, _Sum] = {}
    for event in np.flatnonzero(np.isin(owners, chosen)).tolist():
        key = lines.row(event)
        if key is not None and not (on_device and key.kind == "host"):
            sums.setdefault(key, _Sum()).add(int(stacks.own[event]), lines.runs(event), lines.operator(event))
    return sums


def _host_parts(stacks: Stacks, calls: Intervals, chosen: Iterable[int]) -> dict[CallPart, int]:
    """The time in which operators ran, on whatever thread, and that outside them."""
    covered = union(stacks.events.of_kind("host_op").intervals)
    parts: dict[CallPart, int] = {"operators": 0, "outside": 0}
    for call in chosen:
        window = _window(calls, call)
        inside = intersection(covered, window).length
        parts["operators"] += inside
        parts["outside"] += window.length - inside
    return parts


def _device_parts(trace: CallTrace, spans: Intervals, chosen: Iterable[int]) -> dict[CallPart, int]:
    """What the device did of each call and why it did nothing; copies and collectives where nothing else ran."""
    work = trace.device_work()
    computing = union(work.of_kind("compute").intervals)
    sending = union(joined(computing, work.of_kind("comm").intervals))
    busy = union(work.intervals)
    device = device_gaps(trace.events)
    gaps = device.gaps if device is not None else ()
    parts: dict[CallPart, int] = dict.fromkeys(_DEVICE_PARTS, 0)
    for call in chosen:
        window = _window(spans, call)
        computed, sent, worked = (intersection(part, window).length for part in (computing, sending, busy))
        parts["compute"] += computed
        parts["communication"] += sent - computed
        parts["copy"] += worked - sent
        idle = window.length - worked
        start, end = int(window.start[0]), int(window.end[0])
        for gap in gaps:
            if start < gap.start_ns and gap.start_ns + gap.duration_ns < end:
                parts[_GAP_PARTS[gap.cause]] += gap.duration_ns
                idle -= gap.duration_ns
        # Before its first work and after its last the device waits for the host; that the host waited for it between two
        # calls is our own doing.
        parts["gap_host"] += idle
    return parts


def _window(spans: Intervals, call: int) -> Intervals:
    return Intervals(spans.start[call : call + 1], spans.end[call : call + 1])
