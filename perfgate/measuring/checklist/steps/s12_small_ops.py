"""Step 12: how many launches a call takes, how short they are, and whether the host keeps up with the device."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.document.run import Finding, Value
from perfgate.measuring.checklist.limits import MaybeEvidence, above, finding, limit
from perfgate.measuring.checklist.recorded import profiled
from perfgate.measuring.checklist.step import Limits, RecordingContext, StepContext, StepOutcome, unavailable
from perfgate.measuring.checklist.traces import steady_summary
from perfgate.measuring.checklist.values import missing, several, with_interval
from perfgate.measuring.counting.collect import calls_within
from perfgate.measuring.counting.tally import SYNCS, CallTally
from perfgate.measuring.timing.calls import find_steady_state
from perfgate.stats.summary import quantile
from perfgate.system.garbage import quiet
from perfgate.trace.analysis import NOTHING_AROUND, Intervals, begun_within_others, enclosing, union_length
from perfgate.trace.events import KERNEL_KINDS, EventTable
from perfgate.trace.packed import NO_NUMBER
from perfgate.trace.spans import KERNEL_LAUNCH, OUTSIDE
from perfgate.trace.summary import DeviceSummary

# Six samples are the fewest whose order statistics hold the median with 95 % confidence.
_FEWEST_ENQUEUED = 6
_MOST_ENQUEUED = 100
# What any device does in well under ten microseconds: it moves 128 KiB at 25 GB/s in five, and a million operations take
# one at 1 TFLOP/s. Whatever stays below both costs its launch and little else.
_SMALL_BYTES = 128 << 10
_SMALL_FLOPS = 1_000_000
_MOST_LOOPS = 5
# Of fewer a median says little.
_FEWEST_LAUNCHES = 20
_LAUNCH = re.compile(r"launch", re.IGNORECASE)
_LATEST = int(np.iinfo(np.int64).max)
_BOUND = "small_ops.launch_bound"
_HOST_DEVICE = Message("operators.host-is-device")
_NOTHING = Message("operators.trace-empty")


class SmallOpsStep:
    """A short trace for the launches, one call for the lines they come from, and calls without a profiler for the queue."""

    card = card(12)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; unavailable where a call runs nothing that the profiler knows."""
        outcome = StepOutcome()
        with quiet():
            for shape in context.workload.shapes:
                context.progress(f"launches of a call with inputs of shape {shape}")
                outcome.add(_measure_shape(context, shape))
        return outcome if outcome.values else unavailable(_NOTHING)

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the launches of every rank of a recording."""
        outcome = StepOutcome()
        for summary in context.summaries:
            launches = _launches_of(summary, context.limits)
            if launches is not None:
                labels = profiled(summary)
                outcome.add(_judge_launches(launches, summary, labels, context.limits))
                outcome.add(_judge_contention(summary, labels, context.limits))
                reason = _HOST_DEVICE if summary.on_host else Message("operators.recorded-launching")
                outcome.values += missing(_BOUND, reason, labels)
        return outcome if outcome.values else unavailable(_NOTHING)


STEP = SmallOpsStep()


def _measure_shape(context: StepContext, shape: str) -> StepOutcome:
    call, labels = context.workload.caller(shape), {"shape": shape}
    state = find_steady_state(call, context.device, cap_seconds=0.5 if context.quick else 5.0)
    summary = steady_summary(context, shape)
    tally = _dispatched(context, shape)
    names = {name for name, op in tally.ops.items() if op.count and not op.view}
    launches = _launches_of(summary, context.limits, dispatched=names)
    if launches is None:
        return StepOutcome()
    # Operators on little data; views move none and launch nothing.
    loops = Counter(
        _Site(op.op, op.line)
        for op in tally.order or []
        if 0 < op.moved_bytes <= _SMALL_BYTES and (op.flops or 0) <= _SMALL_FLOPS
    )
    line = next((site.line for site, _ in loops.most_common(1)), None)
    outcome = _judge_launches(launches, summary, labels, context.limits, line=line)
    outcome.findings += _judge_loops(loops, context.limits, shape)
    seconds = 0.5 if context.quick else 3.0
    enqueued = calls_within(state.call_ns, seconds=seconds, fewest=_FEWEST_ENQUEUED, most=_MOST_ENQUEUED)
    bound = _launch_bound(context, call, summary, tally, labels, enqueued=enqueued)
    outcome.values.append(bound)
    if bound.value is not None:
        evidence: MaybeEvidence = {"shape": shape, "launches": round(launches.count)}
        outcome.findings += above(_BOUND, bound.value, context.limits, evidence)
    return outcome


def _dispatched(context: StepContext, shape: str) -> CallTally:
    """What one steady call dispatches, in order."""
    # torch is imported here, so that the step can be listed without it.
    from perfgate.measuring.counting.dispatch import CountingMode

    workload, tally = context.workload, CallTally(order=[])
    inputs = workload.pool(shape)[0]
    CountingMode(tally, root=context.root, waits=context.device.host_waits()).count(lambda: workload.invoke(inputs))
    context.device.synchronize()
    return tally


def _launch_bound(
    context: StepContext,
    call: Callable[[], Any],
    summary: DeviceSummary,
    tally: CallTally,
    labels: dict[str, str],
    *,
    enqueued: int,
) -> Value:
    """The time in which the host puts a call into an empty queue, over the time in which kernels of a call run.

    Launching is timed without the profiler, kernels within it: it slows the one and hardly the other.
    """
    if "queue" not in context.device.capabilities:
        return Value(metric=_BOUND, value=None, labels=labels, reason=_HOST_DEVICE)
    if waits := tally.values()[SYNCS]:
        reason = Message("operators.waits-itself", {"waits": waits})
        return Value(metric=_BOUND, value=None, labels=labels, reason=reason)
    kernels_ns = [union_length(summary.work[0].when(span, *KERNEL_KINDS)) for span in range(summary.spans)]
    busy_ns = float(np.median(kernels_ns))
    if not busy_ns:
        return Value(metric=_BOUND, value=None, labels=labels, reason=Message("operators.no-kernels"))
    times = quantile(np.asarray([_enqueue_ns(context, call) for _ in range(enqueued)]), 0.5)
    low, high = (None if end is None else end / busy_ns for end in times.interval)
    return with_interval(_BOUND, times.value / busy_ns, (low, high), times.size, labels)


def _enqueue_ns(context: StepContext, call: Callable[[], Any]) -> int:
    """The nanoseconds until a call returns that finds the queue empty."""
    context.device.synchronize()
    started = context.device.clock_ns()
    call()
    ended = context.device.clock_ns()
    context.device.synchronize()
    return ended - started


@dataclass(frozen=True)
class _Launches:
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


def _launches_of(summary: DeviceSummary, limits: Limits, *, dispatched: Collection[str] = ()) -> _Launches | None:
    """The launches that a trace shows, None where it holds none.

    Of a device these are its kernels, those of collectives and copies apart. Of a CPU they are the operators that lie in no
    other; where the names of those ``dispatched`` are known, the outermost of them: what the profiler sees inside one, and
    the composite ones around them, is no work of its own.
    """
    if not summary.work:
        return None
    gap_ns = None if summary.on_host else _mean_gap(summary)
    work = summary.work[0].inside()
    if not summary.on_host:
        work = work.of_kind("compute")
    elif dispatched:
        work = work.select(np.isin(work.name, [code for code, name in enumerate(work.names) if name in dispatched]))
    if summary.on_host:
        work = work.select(enclosing(work.start, work.duration, work.track) == NOTHING_AROUND)
    if not len(work):
        return None
    shorter_ns = limit("small_ops.short", limits) * 1e9
    durations = _typical_durations(work, summary.spans)
    total = float(durations.sum())
    short_share = float((durations < shorter_ns).mean())
    short = work.select(work.duration < shorter_ns)
    groups, counts = np.unique(short.group, return_counts=True)
    return _Launches(
        count=len(work) / summary.spans,
        short_count=short_share * len(work) / summary.spans,
        short_share=short_share,
        time_share=float(durations[durations < shorter_ns].sum()) / total if total else 0.0,
        shortest=short.names[int(groups[counts.argmax()])] if len(short) else None,
        gap_ns=gap_ns,
    )


def _typical_durations(work: EventTable, spans: int) -> npt.NDArray[np.float64]:
    """The median of each launch over the spans; all of them where the spans have different numbers.

    One launch that the scheduler interrupted would outweigh all others of its call.
    """
    in_order = work.duration[np.argsort(work.start, kind="stable")].astype(np.float64)
    return np.median(in_order.reshape(spans, -1), axis=0) if in_order.size % spans == 0 else in_order


def _mean_gap(summary: DeviceSummary) -> float | None:
    """The nanoseconds in which nothing ran from the first to the last event of a span, over the pauses there can be."""
    if (summary.kernels().start == NO_NUMBER).any():
        return None
    works = [(part.inside(), part.owners[part.owners != OUTSIDE]) for part in summary.work]
    columns = zip(*((events.start, events.duration, owners) for events, owners in works))
    start, duration, owner = (parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in columns)
    counts = np.bincount(owner, minlength=summary.spans)
    first, last = np.full(summary.spans, _LATEST), np.full(summary.spans, -_LATEST)
    np.minimum.at(first, owner, start)
    np.maximum.at(last, owner, start + duration)
    first[counts == 0] = last[counts == 0] = 0
    # The spans are laid one behind another, so that what all of them cover is told at once.
    moved = start + (np.cumsum(last - first) - last)[owner]
    covered_ns = union_length(Intervals(moved, moved + duration))
    pauses = int(np.maximum(counts - 1, 0).sum())
    return (int((last - first).sum()) - covered_ns) / pauses if pauses else None


def _judge_launches(
    launches: _Launches, summary: DeviceSummary, labels: dict[str, str], limits: Limits, *, line: str | None = None
) -> StepOutcome:
    """Judge how much of the time goes to short ones; ``line`` is where most of those come from."""
    numbers = {
        "small_ops.launches": launches.count,
        "small_ops.short_share": launches.short_share,
        "small_ops.time_share": launches.time_share,
    }
    if launches.gap_ns is not None:
        numbers["small_ops.gap"] = launches.gap_ns / 1e9
    if (seconds := _launch_seconds(summary)) is not None:
        numbers["small_ops.launch_time"] = seconds
    evidence: MaybeEvidence = {
        "shape": labels["shape"],
        "launches": round(launches.count),
        "short": round(launches.short_count),
        "op": launches.shortest,
        "line": line,
    }
    findings = above("small_ops.time_share", launches.time_share, limits, evidence)
    return StepOutcome(several(numbers, labels), findings)


def _launch_seconds(summary: DeviceSummary) -> float | None:
    """The seconds of one span that the host spends in launching, None where the recording has no such calls.

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


def _judge_contention(summary: DeviceSummary, labels: dict[str, str], limits: Limits) -> StepOutcome:
    """How much longer launches take that begin while another thread launches: they wait at a lock of the runtime.

    How long a launch takes itself does not decide which kind it is. Nothing where one thread launches, or of either kind there
    are few.
    """
    runtime = summary.timeline.events.of_kind("runtime")
    codes = [code for code, name in enumerate(runtime.names) if KERNEL_LAUNCH.search(name)]
    launches = runtime.select(np.isin(runtime.name, codes))
    threads = np.unique(launches.track)
    if threads.size < 2:
        return StepOutcome()
    meets = begun_within_others(launches.intervals, launches.track)
    meeting, alone = launches.duration[meets], launches.duration[~meets]
    if min(meeting.size, alone.size) < _FEWEST_LAUNCHES:
        return StepOutcome()
    times = float(np.median(meeting)) / max(float(np.median(alone)), 1.0)
    outcome = StepOutcome(several({"small_ops.contention": times}, labels, count=int(meeting.size)))
    share = meeting.size / len(launches)
    if share >= limit("small_ops.contention.share", limits):
        evidence: MaybeEvidence = {
            "shape": labels["shape"],
            "threads": int(threads.size),
            "times": times,
            "share": share,
            "alone [s]": float(np.median(alone)) / 1e9,
        }
        outcome.findings = above("small_ops.contention", times, limits, evidence)
    return outcome


class _Site(NamedTuple):
    """One operator on little data, dispatched by one line."""

    op: str
    line: str | None


def _judge_loops(loops: Counter[_Site], limits: Limits, shape: str) -> list[Finding]:
    """A finding for each operator that is dispatched more often from one line than the limit allows."""
    most, findings = limit("small_ops.loop.warning", limits), list[Finding]()
    for site, count in loops.most_common(_MOST_LOOPS):
        if count > most:
            evidence = {**site._asdict(), "count": count, "shape": shape, "limit": most}
            findings.append(finding("small_ops.loop", "warning", evidence))
    return findings
