"""Signs in a Kineto trace that can be read that events are missing or repeated, or that
their times were changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from perfgate.document.message import Message
from perfgate.trace.model.arithmetic import Codes, IntColumn, Mask, Positions
from perfgate.trace.model.events import DEVICE_KINDS, KIND_CODES, EventTable
from perfgate.trace.model.launches import NOT_RECORDED, first_positions
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.readers.kineto.arguments import CORRELATION, EVENT_INDEX
from perfgate.trace.scanner.scanned import (
    ABSENT,
    NO_NUMBER,
    NO_TEXT,
    ScannedEvents,
    SparseColumn,
)

# The category and the name of the span of a whole recording, and the instants at its
# begin and its end (libkineto: output_json.cpp, finalizeTrace and handleTraceSpan).
_RECORDING, _TORCH = "Trace", lazy_pattern("PyTorch Profiler")
_MARKS = lazy_pattern(r"Iteration Start: PyTorch Profiler|Record Window End")
# A copy is launched by a call of its name, or by that of a graph.
_KERNEL_LAUNCH = lazy_pattern(r"LaunchKernel")
# The wait of a stream, on a track of the device, with the number of the call for it.
_SYNC = "cuda_sync"
# Metadata has names of several words: process_name, thread_sort_index, num_cpus.
_METADATA = lazy_pattern(r"[A-Za-z]+_\w")
# A file with less than half of the events that its profiler numbered is an excerpt
# (samples cuda-hta/sampled_rank-0 and cpu_only_rank-34); in other recordings none is
# missing.
_MOST_OF_INDICES = 2
_FEWEST_INDICES = 10
_MOST_UNLIKE = 0.5
_MOST_ARROWS = 0.1
_MOST_ASTRAY = 0.01
_ROUNDING_NS = 2000  # of times in whole microseconds


def marks_of(others: ScannedEvents) -> Mask:
    """The instants that torch writes for the begin and the end of the recording."""
    marks: Mask = others.of.flagged(others.name, _MARKS.match) & others.is_phase("i")
    return marks


class Arrows(NamedTuple):
    """Which spans an arrow follows directly in the file, and the number of arrows that
    follow no span, or that of others.
    """

    follow: Mask
    stray: int


def arrows_behind(
    spans: ScannedEvents,
    others: ScannedEvents,
    correlation: Codes,
    arrows: ScannedEvents | None,
) -> Arrows:
    """All events of a file that are neither spans nor others are arrows, so their
    places are known without reading them.

    If they were read, an arrow must also have the number of the span that it follows,
    and the time of its begin (libkineto: output_json.cpp, handleLink; versions differ
    in the track).
    """
    last = max(int(spans.event.max(initial=0)), int(others.event.max(initial=0)))
    is_arrow = np.ones(last + 2, dtype=bool)
    is_arrow[spans.event] = False
    is_arrow[others.event] = False
    is_arrow[-1] = False
    follow = is_arrow[spans.event + 1]
    stray = int(is_arrow.sum()) - int(follow.sum())
    if arrows is not None:
        number = np.full(last + 2, NO_NUMBER, dtype=np.int64)
        time = np.zeros(last + 2, dtype=np.int64)
        known = arrows.event <= last
        number[arrows.event[known]] = arrows.flow()[known]
        time[arrows.event[known]] = arrows.times(durations=False)[0][known]
        behind = spans.event + 1
        is_of_other = (correlation != NO_NUMBER) & (number[behind] != correlation)
        is_of_other |= time[behind] != spans.times()[0]
        stray += int((follow & is_of_other).sum())
    # Whether any follow the last event is not known.
    follow |= spans.event == last
    return Arrows(follow, stray)


def nameless(
    spans: ScannedEvents, others: ScannedEvents, arrows: ScannedEvents | None
) -> Iterator[Message]:
    """A note on events without a name, which libkineto writes for each, on metadata
    with another kind of name, and on arrows without a category if nearly all have one.
    """
    is_metadata = others.is_phase("M")
    is_known = others.of.flagged(others.name, _METADATA.match)
    is_without = ((others.name == NO_TEXT) & (others.phase > 0)) | (
        is_metadata & ~is_known
    )
    count = int(np.count_nonzero(spans.name == NO_TEXT)) + int(is_without.sum())
    if arrows is not None:
        bare = int(np.count_nonzero(arrows.category == NO_TEXT))
        count += bare if bare <= _MOST_ARROWS * len(arrows) else 0
    if count:
        yield Message("notes.nameless", {"count": count})


def losses_of(
    events: EventTable,
    spans: ScannedEvents,
    indices: IntColumn,
    marks: Mask,
    arrows: Arrows,
    external: Codes,
) -> Iterator[Message]:
    """A note for each sign; ``indices`` are the numbers that torch gave the events of
    the host.

    ``external`` is the number of each event's operator.
    """
    is_recording = spans.of.flagged(spans.category, _RECORDING.__eq__)
    is_recording[is_recording] = spans.of.flagged(
        spans.name[is_recording], _TORCH.match
    )
    yield from _missing_indices(indices)
    yield from _out_of_order(events, spans.arguments[EVENT_INDEX])
    yield from _missing_operators(events, external)
    yield from _missing_arrows(events, spans, arrows)
    yield from _without_thread(spans)
    yield from _unlike_their_kind(events, spans)
    # A mask of a column costs eight times as much as positions.
    host_ops = events.track[np.flatnonzero(events.is_kind("host_op"))]
    operators = np.bincount(host_ops, minlength=len(events.tracks))
    yield from _in_another_process(events, operators)
    yield from _on_threads(events, operators)
    yield from _outside_recording(events, is_recording)
    yield from _missing_marks(marks, is_recording, indices)


def _missing_indices(indices: IntColumn) -> Iterator[Message]:
    """A note on events of the host that are missing or repeated; none for an excerpt.
    torch numbers them from 0.
    """
    if not indices.size:
        return
    first = int(indices.min())
    width = int(indices.max()) - first + 1
    if width > _MOST_OF_INDICES * indices.size:
        return
    counts = np.bincount(indices - first, minlength=width)
    missing, repeated = first + int((counts == 0).sum()), int((counts > 1).sum())
    if missing or repeated:
        yield Message(
            "notes.indices-differ",
            {"missing": missing, "repeated": repeated, "events": first + width},
        )


def _out_of_order(events: EventTable, index: SparseColumn) -> Iterator[Message]:
    """A note on operators that start before one of their thread with a smaller number:
    torch numbers them by their start.
    """
    operators = np.flatnonzero(events.kind[index.rows] == KIND_CODES["host_op"])
    rows = index.rows[operators]
    rows = rows[np.lexsort((index.values[operators], events.track[rows]))]
    start, track = events.start[rows], events.track[rows]
    count = int(np.count_nonzero((start[1:] < start[:-1]) & (track[1:] == track[:-1])))
    if count:
        yield Message("notes.operators-out-of-order", {"count": count})


def _missing_operators(events: EventTable, external: Codes) -> Iterator[Message]:
    """Notes on work that names an operator that is not in the file, and on calls
    outside of the operator that made them.

    Most work and most calls must agree with their operators: some versions of torch
    write another number there (sample cuda-hta/a100_alexnet).
    """
    is_numbered = external > 0
    operators = np.flatnonzero(events.is_kind("host_op", "annotation") & is_numbered)
    if not operators.size:
        return
    work = np.flatnonzero(events.is_work & is_numbered)
    calls = np.flatnonzero(events.is_kind("runtime") & is_numbered)
    numbers = external[operators]
    of_work = first_positions(external[work], numbers)
    missing = int(np.count_nonzero(of_work == NOT_RECORDED))
    if 0 < missing <= _MOST_UNLIKE * work.size:
        yield Message("notes.operators-missing", {"count": missing, "work": work.size})
    place = first_positions(external[calls], numbers)
    caller = operators[place]
    joined = (place != NOT_RECORDED) & (events.track[caller] == events.track[calls])
    caller, calls = caller[joined], calls[joined]
    is_early = events.start[calls] < events.start[caller]
    is_late = events.end[calls] > events.end[caller] + _ROUNDING_NS
    outside = int(np.count_nonzero(is_early | is_late))
    if 0 < outside <= _MOST_UNLIKE * calls.size:
        yield Message("notes.calls-outside", {"count": outside, "calls": calls.size})


def _missing_arrows(
    events: EventTable, spans: ScannedEvents, arrows: Arrows
) -> Iterator[Message]:
    """A note on launches and work without the arrow that libkineto writes directly
    behind each, and on arrows without theirs.

    In 47 recordings from 2021 to 2026 none is missing. Tools that write a file anew put
    all arrows at its end (TraceLens' sglang_decode), and excerpts have none.
    """
    is_linked = events.launch != NOT_RECORDED
    is_linked[events.launch[np.flatnonzero(is_linked)]] = True
    # Arrows also follow the operators that join the forward and the backward pass.
    number = spans.arguments[CORRELATION]
    is_bare = events.is_kind("runtime", *DEVICE_KINDS)
    is_bare[number.rows[number.values != NO_NUMBER]] = False
    count = (
        int((is_linked & ~arrows.follow).sum())
        + int((arrows.follow & is_bare).sum())
        + arrows.stray
    )
    if 0 < count <= _MOST_ARROWS * int(is_linked.sum()):
        yield Message("notes.arrows-missing", {"count": count})


def _without_thread(spans: ScannedEvents) -> Iterator[Message]:
    """A note on events without a process or a thread, which libkineto writes for each."""
    is_without: Mask = np.any(spans.of.places < 0, axis=1)
    count = int(is_without[spans.track].sum())
    if 0 < count <= _MOST_UNLIKE * len(spans):
        yield Message("notes.without-thread", {"count": count, "events": len(spans)})


def _unlike_their_kind(events: EventTable, spans: ScannedEvents) -> Iterator[Message]:
    """A note on events that lack what nearly all of their kind have, or have what only
    another kind has: a duration, the number that joins calls and work, the call that
    launches a kernel, that of a synchronization, and the track of a stream.
    """
    number = spans.arguments[CORRELATION]
    has_number = np.zeros(len(spans), dtype=bool)
    has_number[number.rows] = number.values != NO_NUMBER
    is_joined = events.is_kind("runtime", *DEVICE_KINDS)
    is_operator = events.is_kind("host_op")
    is_sync = spans.of.flagged(spans.category, _SYNC.__eq__)
    calls = np.flatnonzero(events.is_kind("runtime") & ~is_sync)
    has_work = np.bincount(events.track[events.work_rows], minlength=len(events.tracks))
    count = (
        _exceptions(spans.duration == ABSENT, np.ones(len(spans), dtype=bool))
        + _exceptions(is_joined & ~has_number, is_joined)
        + _exceptions(is_operator & has_number, is_operator)
        + int(np.count_nonzero(has_work[events.track[calls]]))
        + _copies_launched_as_kernels(events)
        + _syncs_without_call(events, np.flatnonzero(is_sync), calls)
    )
    if count:
        yield Message("notes.unlike-their-kind", {"count": count})


def _copies_launched_as_kernels(events: EventTable) -> int:
    is_launched = events.is_kind("copy") & (events.launch != NOT_RECORDED)
    launches = events.launch[np.flatnonzero(is_launched)]
    return int(events.is_named(_KERNEL_LAUNCH.search)[launches].sum())


def _syncs_without_call(events: EventTable, syncs: Positions, calls: Positions) -> int:
    """The number of synchronizations whose call is not in the file, between calls that
    are, if most have theirs.
    """
    if not calls.size:
        return 0
    starts = events.start[calls]
    own = events.start[syncs]
    inside = syncs[(own > starts.min()) & (own < starts.max())]
    call = first_positions(events.correlation[inside], events.correlation[calls])
    count = int(np.count_nonzero(call == NOT_RECORDED))
    return count if count <= _MOST_UNLIKE * syncs.size else 0


def _exceptions(are: Mask, among: Mask) -> int:
    """The number of events that are, if few among these are."""
    count = int(np.count_nonzero(are))
    return count if count <= _MOST_ASTRAY * int(np.count_nonzero(among)) else 0


def _in_another_process(events: EventTable, operators: IntColumn) -> Iterator[Message]:
    """A note on operators in another process than nearly all others: a profiler of
    torch records its own.

    ``operators`` are the numbers of operators of each track.
    """
    counts: Counter[str] = Counter()
    for (process, _), count in zip(events.tracks, operators.tolist()):
        counts[process] += count
    astray = counts.total() - max(counts.values(), default=0)
    if 0 < astray <= _MOST_ASTRAY * counts.total():
        yield Message(
            "notes.operators-astray", {"count": astray, "operators": counts.total()}
        )


def _on_threads(events: EventTable, operators: IntColumn) -> Iterator[Message]:
    """A note on work of a device on a thread that runs operators, if most work is on
    other tracks.
    """
    work = events.track[events.work_rows]
    count = int(np.count_nonzero(operators[work]))
    if 0 < count <= _MOST_UNLIKE * work.size:
        yield Message("notes.work-on-threads", {"count": count, "work": work.size})


def _outside_recording(events: EventTable, is_recording: Mask) -> Iterator[Message]:
    """A note on events outside of the span of the whole recording, or longer than it.

    A profiler that was started and stopped by time keeps work that began before or
    ended after it, and calls after it (sample cuda-hta/nccl_data). Engines of MTIA
    begin to record before the span (HTA's mtia_inference_trace), so work before it
    counts only if its launch is recorded. A mark in which the profiler was stopped ends
    after it (HTA's triton_example).
    """
    window = events.select(is_recording)
    if not len(window):
        return
    begin, end = int(window.start.min()), int(window.end.max())
    is_before = events.end < begin
    is_outside = (events.start > end) | (events.duration > end - begin)
    is_outside |= is_before & (~events.is_work | (events.launch != NOT_RECORDED))
    is_outside &= events.is_kind("host_op", "annotation", *DEVICE_KINDS)
    is_outside &= ~_are_open(events, end)
    count = int(np.count_nonzero(is_outside | (is_before & events.is_kind("runtime"))))
    if count:
        yield Message(
            "notes.outside-recording", {"count": count, "seconds": (end - begin) / 1e9}
        )


def _are_open(events: EventTable, end: int) -> Mask:
    """Which marks were open at the end of a recording: no mark of their thread begins
    after them and ends before.
    """
    marks = events.is_kind("annotation")
    closed = marks & (events.end <= end)
    last_closed = np.full(len(events.tracks), np.iinfo(np.int64).min)
    np.maximum.at(last_closed, events.track[closed], events.start[closed])
    return marks & (events.start <= end) & (events.start >= last_closed[events.track])


def _missing_marks(
    marks: Mask, is_recording: Mask, indices: IntColumn
) -> Iterator[Message]:
    """A note if some of the marks are missing that torch writes at the end of a file,
    two instants and a span.

    An excerpt need not have them.
    """
    present = int(marks.sum())
    if (
        indices.size < _FEWEST_INDICES
        or int(np.ptp(indices)) >= _MOST_OF_INDICES * indices.size
    ):
        return
    if present and (present == 1 or not is_recording.any()):
        yield Message("notes.marks-missing")
