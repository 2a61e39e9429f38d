"""Step 12: the launches of a call, their lengths, and whether the host keeps up with
the device.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.catalogue.names import SYNCS
from perfgate.document.message import Message
from perfgate.measuring.checklist.recorded import profiled
from perfgate.measuring.checklist.step import (
    RecordingContext,
    StepContext,
    StepOutcome,
    unavailable,
)
from perfgate.measuring.checklist.traces import steady_summary
from perfgate.measuring.counting.collect import calls_within
from perfgate.measuring.counting.counters import CountedCalls
from perfgate.measuring.counting.tally import CallTally
from perfgate.measuring.devices.device import Call
from perfgate.stats.summary import quantile
from perfgate.system.garbage import quiet
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.arithmetic import (
    NO_NUMBER,
    NOTHING_AROUND,
    Intervals,
    begun_within_others,
    enclosing,
    union_length,
)
from perfgate.trace.model.events import KERNEL_KINDS
from perfgate.trace.model.spans import KERNEL_LAUNCH, OUTSIDE

# Work of less than ten microseconds on any device: 128 KiB take five at 25 GB/s, a
# million operations one at 1 TFLOP/s. An operator below both costs little more than its
# launch.
_SMALL_BYTES = 128 << 10
_SMALL_FLOPS = 1_000_000
_MOST_LOOPS = 5
# The fewest launches for a median.
_FEWEST_LAUNCHES = 20
_NODE_LAUNCH = ("node", "launch")
_LAUNCH = re.compile(r"launch", re.IGNORECASE)
_LATEST = int(np.iinfo(np.int64).max)
_BOUND = "small_ops.launch_bound"
_SHORT = "small_ops.short"
_HOST_DEVICE = Message("operators.host-is-device")
_NOTHING = Message("operators.trace-empty")


class SmallOpsStep:
    """A short trace for the launches, one call for the lines they come from, and calls
    without a profiler for the queue.
    """

    card = card(12)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; unavailable if the profiler records no work of a call."""
        outcome = context.outcome()
        with quiet():
            for shape in context.workload.shapes:
                context.doing(
                    "launches of a call with inputs of shape {shape}", shape=shape
                )
                _measure_shape(context, shape, outcome.under(shape=shape))
        return outcome.or_else(unavailable(_NOTHING))

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the launches of every rank of a recording."""
        outcome = context.outcome()
        for summary in context.summaries:
            launches = _launches_of(summary, context.limit(_SHORT))
            if launches is not None:
                rank = outcome.under(**profiled(summary))
                _judge_launches(rank, launches, summary)
                _judge_contention(rank, summary)
                rank.missing(
                    _BOUND,
                    _HOST_DEVICE
                    if summary.on_host
                    else Message("operators.recorded-launching"),
                )
        return outcome.or_else(unavailable(_NOTHING))


STEP = SmallOpsStep()


def _measure_shape(context: StepContext, shape: str, outcome: StepOutcome) -> None:
    call = context.workload.caller(shape)
    state = context.warm_up(shape, quick=0.5, full=5.0)
    summary = steady_summary(context, shape)
    # The operators that one steady call dispatches, in order.
    counted = CountedCalls(context.workload, shape)
    tally = counted.count(counted.pool[0], in_order=True)
    names = {name for name, count in tally.ops.items() if count} - tally.views
    launches = _launches_of(summary, outcome.limit(_SHORT), dispatched=names)
    if launches is None:
        return
    # Operators on little data; views neither move data nor launch kernels.
    loops: Counter[tuple[str, str | None]] = Counter()
    for op in tally.order or []:
        if 0 < op.moved_bytes <= _SMALL_BYTES and (op.flops or 0) <= _SMALL_FLOPS:
            loops[op.op, op.line] += 1
    line = None
    if loops:
        _, line = max(loops, key=loops.__getitem__)
    _judge_launches(outcome, launches, summary, line=line)
    most = outcome.limit("small_ops.loop.warning")
    for (name, place), count in loops.most_common(_MOST_LOOPS):
        if count > most:
            outcome.note(
                "small_ops.loop",
                "warning",
                {"op": name, "line": place, "count": count, "limit": most},
            )
    if (reason := _no_launch_bound(context, tally)) is not None:
        outcome.missing(_BOUND, reason)
        return
    seconds = 0.5 if context.extent.quick else 3.0
    # Six samples are the fewest with order statistics that bound the median with 95 %
    # confidence.
    enqueued = calls_within(state.call_ns, seconds=seconds, fewest=6, most=100)
    _judge_bound(
        outcome,
        summary,
        launches,
        [_enqueue_ns(context, call) for _ in range(enqueued)],
    )


def _no_launch_bound(context: StepContext, tally: CallTally) -> Message | None:
    """Why the time to enqueue a call cannot be measured: there is no queue, or the call
    itself waits for it.
    """
    if "queue" not in context.device.capabilities:
        return _HOST_DEVICE
    waits = tally.values()[SYNCS]
    if waits:
        return Message("operators.waits-itself", {"count": waits})
    return None


def _judge_bound(
    outcome: StepOutcome,
    summary: DeviceSummary,
    launches: _Launches,
    enqueued_ns: list[int],
) -> None:
    """Compare the time to enqueue a call, measured without the profiler, with the
    kernel time in the trace.

    The profiler slows launches and hardly affects kernels.
    """
    kernels_ns = [
        union_length(summary.work[0].when(span, *KERNEL_KINDS))
        for span in range(summary.spans)
    ]
    busy_ns = float(np.median(kernels_ns))
    if not busy_ns:
        outcome.missing(_BOUND, Message("operators.no-kernels"))
        return
    times = quantile(np.asarray(enqueued_ns), 0.5)
    low, high = (None if end is None else end / busy_ns for end in times.interval)
    bound = times.value / busy_ns
    outcome.number(_BOUND, bound, count=times.size, interval=(low, high))
    outcome.above(_BOUND, bound, {"launches": round(launches.count)})


def _enqueue_ns(context: StepContext, call: Call) -> int:
    """Nanoseconds until a call on an empty queue returns."""
    context.device.synchronize()
    started = context.device.timer_ns()
    call()
    ended = context.device.timer_ns()
    context.device.synchronize()
    return ended - started


@dataclass(frozen=True)
class _Launches:
    """The launches of a typical call, and the share of short launches in their number
    and time.

    ``shortest`` is the operator with the most short launches; ``gap_ns`` the mean idle
    time of the device between consecutive launches of a call, None for a trace without
    a device or starts, or with a single launch per call.
    """

    count: float
    short_count: float
    short_share: float
    time_share: float
    shortest: str | None
    gap_ns: float | None


def _launches_of(
    summary: DeviceSummary, shorter: float, *, dispatched: Collection[str] = ()
) -> _Launches | None:
    """The launches in a trace, None if it holds none; those of less than ``shorter``
    seconds are short.

    On a device these are the kernels, without collectives and copies. On a CPU they are
    the outermost operators or, if the names of the ``dispatched`` operators are known,
    the outermost of those: events inside them and composite operators around them are
    not separate work.
    """
    if not summary.work:
        return None
    gap_ns: float | None = None
    work = summary.work[0].inside()
    if summary.on_host:
        if dispatched:
            work = work.select(work.is_named(lambda name: name in dispatched))
        work = work.select(
            enclosing(work.start, work.duration, work.track) == NOTHING_AROUND
        )
    else:
        gap_ns = _mean_gap(summary)
        work = work.of_kind("compute")
    if not len(work):
        return None
    shorter_ns = shorter * 1e9
    durations = work.duration[np.argsort(work.start, kind="stable")].astype(np.float64)
    if durations.size % summary.spans == 0:
        # One launch that the scheduler interrupted would outweigh all others of its
        # call.
        durations = np.median(durations.reshape(summary.spans, -1), axis=0)
    short_share = float((durations < shorter_ns).mean())
    short_ns = float(durations[durations < shorter_ns].sum())
    short = work.select(work.duration < shorter_ns)
    shortest: str | None = None
    if len(short):
        groups, counts = np.unique(short.group, return_counts=True)
        shortest = short.names[int(groups[counts.argmax()])]
    return _Launches(
        count=len(work) / summary.spans,
        short_count=short_share * len(work) / summary.spans,
        short_share=short_share,
        time_share=short_ns / (float(durations.sum()) or 1.0),
        shortest=shortest,
        gap_ns=gap_ns,
    )


def _mean_gap(summary: DeviceSummary) -> float | None:
    """Idle nanoseconds between the first and last event of a span, per gap between
    consecutive events.
    """
    if (summary.kernels().start == NO_NUMBER).any():
        return None
    works = [part.inside() for part in summary.work]
    start = np.concatenate([work.start for work in works])
    duration = np.concatenate([work.duration for work in works])
    owner = np.concatenate(
        [part.owners[part.owners != OUTSIDE] for part in summary.work]
    )
    counts = np.bincount(owner, minlength=summary.spans)
    first, last = np.full(summary.spans, _LATEST), np.full(summary.spans, -_LATEST)
    np.minimum.at(first, owner, start)
    np.maximum.at(last, owner, start + duration)
    first[counts == 0] = last[counts == 0] = 0
    # The spans are laid end to end, so that one union covers all of them.
    moved = start + (np.cumsum(last - first) - last)[owner]
    covered_ns = union_length(Intervals(moved, moved + duration))
    pauses = int(np.maximum(counts - 1, 0).sum())
    if pauses:
        return (int((last - first).sum()) - covered_ns) / pauses
    return None


def _judge_launches(
    outcome: StepOutcome,
    launches: _Launches,
    summary: DeviceSummary,
    *,
    line: str | None = None,
) -> None:
    """Judge the share of time in short launches; most of them come from ``line``."""
    numbers = {
        "small_ops.launches": launches.count,
        "small_ops.short_share": launches.short_share,
        "small_ops.time_share": launches.time_share,
    }
    if launches.gap_ns is not None:
        numbers["small_ops.gap"] = launches.gap_ns / 1e9
    if (seconds := _launch_seconds(summary)) is not None:
        numbers["small_ops.launch_time"] = seconds
    outcome.numbers(numbers)
    evidence = {
        "launches": round(launches.count),
        "short": round(launches.short_count),
        "op": launches.shortest,
    }
    outcome.above(
        "small_ops.time_share", launches.time_share, {**evidence, "line": line}
    )


def _launch_seconds(summary: DeviceSummary) -> float | None:
    """Host seconds per span spent launching, None if the recording has no such calls.

    The launches are the ``Node@launch`` rows in the table of host calls, or else the
    runtime calls with ``launch`` in their names; both cover the whole recording.
    """
    nodes_ns = [
        call.total_ns
        for call in summary.timeline.totals.calls or ()
        if (call.level, call.name) == _NODE_LAUNCH
    ]
    if nodes_ns:
        return sum(nodes_ns) / summary.spans / 1e9
    runtime = summary.timeline.events.of_kind("runtime")
    calls = runtime.select(runtime.is_named(_LAUNCH.search))
    # One launch appears at several nested levels of the runtime.
    if len(calls):
        return union_length(calls.intervals) / summary.spans / 1e9
    return None


def _judge_contention(outcome: StepOutcome, summary: DeviceSummary) -> None:
    """Compare launches that begin while another thread launches, and so wait for a
    runtime lock, with the others.

    A launch is classified by its start only, never by its own length. There is no
    judgement for a single launching thread or for too few launches of either class.
    """
    runtime = summary.timeline.events.of_kind("runtime")
    launches = runtime.select(runtime.is_named(KERNEL_LAUNCH.search))
    threads = np.unique(launches.track)
    if threads.size < 2:
        return
    meets = begun_within_others(launches.intervals, launches.track)
    meeting, alone = launches.duration[meets], launches.duration[~meets]
    if min(meeting.size, alone.size) < _FEWEST_LAUNCHES:
        return
    alone_ns, share = float(np.median(alone)), meeting.size / len(launches)
    times = float(np.median(meeting)) / max(alone_ns, 1.0)
    outcome.number("small_ops.contention", times, count=int(meeting.size))
    if share >= outcome.limit("small_ops.contention.share"):
        outcome.above(
            "small_ops.contention",
            times,
            {
                "threads": int(threads.size),
                "times": times,
                "share": share,
                "alone [s]": alone_ns / 1e9,
            },
        )
