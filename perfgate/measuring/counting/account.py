"""Break down the time of a traced call: parts that add up to it, and rows by operator,
form of its inputs and source line.

A torch trace has times and functions; lines, dtypes and layouts come from a call with
its operators dispatched one by one (``counters.count_in_order``). Both are the same
calls in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfgate.document.run import CallAccount, CallPart, CallRow, LeastWork, Roof
from perfgate.document.trace import GapCause
from perfgate.measuring.counting.collect import CallTrace
from perfgate.measuring.counting.counters import code_at
from perfgate.measuring.counting.lines import CallLines, RowKey
from perfgate.measuring.counting.tally import Dispatched
from perfgate.measuring.devices.device import Call, Device
from perfgate.measuring.devices.torch_backends import TORCH_BACKENDS
from perfgate.measuring.timing.calls import timed_call
from perfgate.trace.analysis.gaps import device_gaps
from perfgate.trace.analysis.stacks import stacks_of
from perfgate.trace.model.arithmetic import Intervals, intersection, joined, union
from perfgate.trace.model.spans import span_of
from perfgate.trace.model.stacks import Stacks

# Rows kept per shape. The rest is summed up, and the document has its number of rows.
MAX_ROWS = 120
_GAP_PARTS: dict[GapCause, CallPart] = {
    "host": "gap_host",
    "synchronization": "gap_synchronization",
    "queue": "gap_queue",
    "unknown": "gap_unknown",
}
_DEVICE_PARTS: tuple[CallPart, ...] = (
    "compute",
    "fused",
    "communication",
    "copy",
    *_GAP_PARTS.values(),
)


def account_for(
    trace: CallTrace,
    workload: str,
    shape: str,
    *,
    order: Sequence[Dispatched],
    root: Path,
    roof: Roof | None,
) -> CallAccount:
    """Of the faster half of the traced calls, with operators dispatched in ``order``;
    ``roof`` is the device's.
    """
    calls = trace.spans()
    chosen, _ = trace.by_length()
    stacks = stacks_of(trace.events)
    lines = CallLines(stacks, calls, order, root)
    if stacks.on_device.any():
        parts = _device_parts(trace, calls, chosen)
    else:
        parts = _host_parts(stacks, calls, chosen)
    rows = _rows(stacks, calls, chosen, lines, root)
    wall_ns = int((calls.end - calls.start)[chosen].sum())
    return CallAccount(
        workload=workload,
        shape=shape,
        calls=trace.calls,
        wall=wall_ns / len(chosen) / 1e9,
        parts={part: ns / len(chosen) / 1e9 for part, ns in parts.items()},
        rows=rows[:MAX_ROWS],
        more_time=sum(row.self_time for row in rows[MAX_ROWS:]),
        roof=roof,
        work=work_of(order),
    )


def _rows(
    stacks: Stacks,
    calls: Intervals,
    chosen: Sequence[int],
    lines: CallLines,
    root: Path,
) -> list[CallRow]:
    """Sum up the events of each row: device events on a device, and the project's
    functions in any case.

    Self times of nested events on one thread add up to the time that they cover. So on
    a single thread the rows of operators add up to their part, and the rows of
    functions to at most the rest.
    """
    on_device = bool(stacks.on_device.any())
    owners = span_of(stacks.events, calls, launches=stacks.events.of_kind("runtime"))
    events: dict[RowKey, list[int]] = {}
    for event in np.flatnonzero(np.isin(owners, chosen)).tolist():
        key = lines.row(event)
        if key is not None and not (on_device and key.kind == "host"):
            events.setdefault(key, []).append(event)
    rows = []
    for key, members in events.items():
        runs = 0
        flops: int | None = None
        moved_bytes: int | None = None
        for event in members:
            runs += lines.runs(event)
            operator = lines.operator(event)
            if operator is not None:
                moved_bytes = (moved_bytes or 0) + operator.moved_bytes
                if operator.flops is not None:
                    flops = (flops or 0) + operator.flops
        row = CallRow(
            op=key.op,
            kind=key.kind,
            self_time=int(stacks.own[members].sum()) / len(chosen) / 1e9,
            count=runs / len(chosen),
            inputs=key.inputs,
            line=key.line,
            code=code_at(root, key.line),
            flops=None if flops is None else flops / len(chosen),
            moved_bytes=None if moved_bytes is None else moved_bytes / len(chosen),
        )
        rows.append(row)
    return sorted(
        rows, key=lambda row: (-row.self_time, row.op, row.line or "", row.inputs or "")
    )


def _host_parts(
    stacks: Stacks, calls: Intervals, chosen: Iterable[int]
) -> dict[CallPart, int]:
    """The time in operators, on any thread, and outside them."""
    covered = union(stacks.events.of_kind("host_op").intervals)
    parts: dict[CallPart, int] = {"operators": 0, "outside": 0}
    for call in chosen:
        window = _window(calls, call)
        inside = intersection(covered, window).length
        parts["operators"] += inside
        parts["outside"] += window.length - inside
    return parts


def _device_parts(
    trace: CallTrace, spans: Intervals, chosen: Iterable[int]
) -> dict[CallPart, int]:
    """What the device did of each call and why it was idle; fused kernels, collectives
    and copies where nothing else ran.
    """
    work = trace.device_work()
    computing = union(work.of_kind("compute").intervals)
    fused = union(joined(computing, work.of_kind("fused").intervals))
    sending = union(joined(fused, work.of_kind("comm").intervals))
    busy = union(work.intervals)
    device = device_gaps(trace.events)
    gaps = () if device is None else device.gaps
    parts: dict[CallPart, int] = dict.fromkeys(_DEVICE_PARTS, 0)
    for call in chosen:
        window = _window(spans, call)
        computed = intersection(computing, window).length
        with_fused = intersection(fused, window).length
        sent = intersection(sending, window).length
        worked = intersection(busy, window).length
        parts["compute"] += computed
        parts["fused"] += with_fused - computed
        parts["communication"] += sent - with_fused
        parts["copy"] += worked - sent
        idle = window.length - worked
        start, end = int(window.start[0]), int(window.end[0])
        for gap in gaps:
            if start < gap.start_ns and gap.start_ns + gap.duration_ns < end:
                parts[_GAP_PARTS[gap.cause]] += gap.duration_ns
                idle -= gap.duration_ns
        # Before its first work and after its last the device waits for the host; that
        # the host waited for it between two calls is our own doing.
        parts["gap_host"] += idle
    return parts


def _window(spans: Intervals, call: int) -> Intervals:
    return Intervals(spans.start[call : call + 1], spans.end[call : call + 1])


# A product of this size is far beyond every balance of a machine: 85 operations a byte.
_MATRIX = 512
# 32 MiB of float32 and as much for its copy: more than the caches of common hosts hold
# for one core.
_COPIED = 1 << 23
# Kinds of work kept per shape.
MAX_WORK = 200
_SECONDS_EACH = 0.1
_MOST_TIMES = 50


def measure_roof(device: Device, *, dtype: Any = None) -> Roof | None:
    """The device's roof, None if it cannot be measured; ``dtype`` selects the type of
    the products, float32 by default.

    Takes 0.3 s.
    """
    if TORCH_BACKENDS.get(device.kind) is None:
        return None
    import torch

    place = device.handle()
    with torch.inference_mode():
        matrix = torch.ones(_MATRIX, _MATRIX, device=place, dtype=dtype)
        product = torch.empty_like(matrix)
        product_seconds = _fastest(
            lambda: torch.mm(matrix, matrix, out=product), device
        )
        source = torch.ones(_COPIED, device=place)
        copy = torch.ones_like(source)
        copy_seconds = _fastest(lambda: copy.copy_(source), device)
    return Roof(
        flops_per_second=2 * _MATRIX**3 / product_seconds,
        bytes_per_second=2 * source.numel() * source.element_size() / copy_seconds,
    )


def work_of(order: Iterable[Dispatched]) -> list[LeastWork]:
    """The work of a call's operators, equal operators together, the heaviest first;
    views do none.
    """
    counts = Counter((operator.flops or 0, operator.moved_bytes) for operator in order)
    del counts[0, 0]
    works = [
        LeastWork(flops=flops, moved_bytes=moved, count=count)
        for (flops, moved), count in counts.items()
    ]
    works.sort(
        key=lambda work: (
            -work.flops * work.count,
            -work.moved_bytes * work.count,
            work.flops,
            work.moved_bytes,
        )
    )
    return works[:MAX_WORK]


def _fastest(work: Call, device: Device) -> float:
    """The seconds of the fastest of several times, after one that pays for the first
    use.
    """
    timed_call(work, device)
    until = device.clock_ns() + _SECONDS_EACH * 1e9
    times: list[int] = []
    while len(times) < _MOST_TIMES and device.clock_ns() <= until:
        times.append(timed_call(work, device))
    return max(min(times), 1.0) / 1e9
