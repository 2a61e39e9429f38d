"""What a call launches: how many pieces of work, how short they are, and what the device does between them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from perfgate.document.run import Evidence, Finding, Value
from perfgate.measuring.checklist.limits import above, limit, noticed
from perfgate.trace.analysis import NOTHING_AROUND, enclosing, gaps, joined, union_length
from perfgate.trace.events import DEVICE_KINDS, EventTable
from perfgate.trace.summary import DeviceSummary
from perfgate.trace.tally import Dispatched

# What any device does in well under ten microseconds: it moves 128 KiB at 25 GB/s in five, and a million operations take
# one at 1 TFLOP/s. Whatever stays below both costs its launch and little else.
_SMALL_BYTES = 128 << 10
_SMALL_FLOPS = 1_000_000
_MOST_LOOPS = 5
_LAUNCH = re.compile(r"launch", re.IGNORECASE)


@dataclass(frozen=True)
class Launches:
    """The launches of a typical call: how many, and the shares of the short ones among them and in their time.

    ``shortest`` is the operator with the most short ones; ``gap_ns`` the mean pause of the device between one launch and
    the next of the same call, None where the trace has no device, a single launch a call, or no starts.
    """

    count: float
    short_count: float
    short_share: float
    time_share: float
    shortest: str | None
    gap_ns: float | None


@dataclass(frozen=True)
class Loop:
    """One operator, so many times dispatched on little data by one line in one call."""

    op: str
    line: str | None
    count: int


def launches_of(summary: DeviceSummary, *, shorter_ns: float, dispatched: Collection[str] = ()) -> Launches | None:
    """Return the launches that a trace shows, None where it holds none.

    Of a device these are its kernels, those of collectives and copies apart. Of a CPU they are the operators that lie in no
    other; where the names of those ``dispatched`` are known, the outermost of them: what the profiler sees inside one, and
    the composite ones around them, is no work of its own.
    """
    if not summary.work:
        return None
    work = _host_work(summary, dispatched) if summary.on_host else _kernels(summary)
    if not len(work):
        return None
    durations = _typical_durations(work, summary.spans)
    total = float(durations.sum())
    count = len(work) / summary.spans
    short = work.duration < shorter_ns
    short_share = float((durations < shorter_ns).mean())
    return Launches(
        count=count,
        short_count=short_share * count,
        short_share=short_share,
        time_share=float(durations[durations < shorter_ns].sum()) / total if total else 0.0,
        shortest=_most_frequent(work.select(short)),
        gap_ns=None if summary.on_host else _mean_gap(summary),
    )


def launch_values(found: Launches, labels: dict[str, str]) -> list[Value]:
    """Return the values of launches; the gap only where there is one."""
    values = {
        "small_ops.launches": found.count,
        "small_ops.short_share": found.short_share,
        "small_ops.time_share": found.time_share,
    }
    if found.gap_ns is not None:
        values["small_ops.gap"] = found.gap_ns / 1e9
    return [Value(metric=name, value=value, labels=labels) for name, value in values.items()]


def judge_launches(found: Launches, limits: Mapping[str, float], *, shape: str, line: str | None) -> list[Finding]:
    """Judge how much of the time goes to short ones; ``line`` is where most of those come from."""
    evidence: dict[str, Evidence] = {
        "shape": shape,
        "launches": round(found.count),
        "short": round(found.short_count),
    }
    if found.shortest is not None:
        evidence["op"] = found.shortest
    if line is not None:
        evidence["line"] = line
    return above("small_ops.time_share", found.time_share, given=limits, evidence=evidence)


def launch_seconds(summary: DeviceSummary) -> float | None:
    """Return the seconds of one span that the host spends in launching, None where the recording has no such calls.

    The table of the host's calls has them as the nodes of one name (``Node@launch``); else they are the calls into the
    runtime that have ``launch`` in their names. Both are of the whole recording.
    """
    nodes = [call for call in summary.timeline.calls or () if call.level == "node" and call.name == "launch"]
    if nodes:
        return sum(call.total_ns for call in nodes) / summary.spans / 1e9
    runtime = summary.timeline.events.of_kind("runtime")
    codes = [code for code, name in enumerate(runtime.names) if _LAUNCH.search(name)]
    calls = runtime.select(np.isin(runtime.name, codes))
    # One launch is seen at several levels of the runtime, one in another.
    return union_length(calls.intervals) / summary.spans / 1e9 if len(calls) else None


def loops_of(order: Sequence[Dispatched]) -> list[Loop]:
    """Return the operators of one call on little data, by line, the most frequent first; views launch nothing."""
    counts = Counter(
        (one.op, one.line) for one in order if 0 < one.moved_bytes <= _SMALL_BYTES and (one.flops or 0) <= _SMALL_FLOPS
    )
    return [Loop(op, line, count) for (op, line), count in counts.most_common(_MOST_LOOPS)]


def judge_loops(loops: Sequence[Loop], limits: Mapping[str, float], *, shape: str) -> list[Finding]:
    """Return a finding for each operator that is dispatched more often from one line than the limit allows."""
    most = limit("small_ops.loop.warning", limits)
    findings = []
    for loop in loops:
        if loop.count > most:
            evidence: dict[str, Evidence] = {"op": loop.op, "count": loop.count, "shape": shape, "limit": most}
            if loop.line is not None:
                evidence["line"] = loop.line
            findings.append(noticed("small_ops.loop", "warning", evidence))
    return findings


def _kernels(summary: DeviceSummary) -> EventTable:
    return summary.work[0].inside().of_kind("compute")


def _host_work(summary: DeviceSummary, dispatched: Collection[str]) -> EventTable:
    ops = summary.work[0].inside()
    if dispatched:
        codes = [code for code, name in enumerate(ops.names) if name in dispatched]
        ops = ops.select(np.isin(ops.name, codes))
    return ops.select(enclosing(ops.start, ops.duration, ops.track) == NOTHING_AROUND)


def _typical_durations(work: EventTable, spans: int) -> npt.NDArray[np.float64]:
    """Return the median of each launch over the spans; all of them where the spans have different numbers.

    One launch that the scheduler interrupted would outweigh all others of its call.
    """
    in_order = work.duration[np.argsort(work.start, kind="stable")].astype(np.float64)
    return np.median(in_order.reshape(spans, -1), axis=0) if in_order.size % spans == 0 else in_order


def _most_frequent(work: EventTable) -> str | None:
    if not len(work):
        return None
    groups, counts = np.unique(work.group, return_counts=True)
    return work.names[int(groups[counts.argmax()])]


def _mean_gap(summary: DeviceSummary) -> float | None:
    """Return the nanoseconds in which nothing ran from the first to the last event of a span, over the pauses there can be."""
    if any(kernel.start_ns is None for kernel in summary.kernels()):
        return None
    idle, pauses = 0, 0
    for span in range(summary.spans):
        intervals = reduce(joined, (part.when(span, *DEVICE_KINDS) for part in summary.work))
        if intervals.start.size > 1:
            window = int(intervals.start.min()), int(intervals.end.max())
            idle += gaps(intervals, window).length
            pauses += intervals.start.size - 1
    return idle / pauses if pauses else None
