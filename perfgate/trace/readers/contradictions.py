"""Find contradictions in a recording: impossible times, and tables that contradict each
other or its timeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from perfgate.document.message import Message, MessageValue
from perfgate.trace.model.arithmetic import (
    NO_NUMBER,
    IntColumn,
    Mask,
    counts_by_name,
    totals_by_name,
)
from perfgate.trace.model.cycles import pauses
from perfgate.trace.model.events import (
    DEVICE_KINDS,
    NO_CORRELATION,
    NO_TEXT,
    EventTable,
)
from perfgate.trace.model.faults import are_short, clock_offset, time_faults
from perfgate.trace.model.kernel_names import UNKNOWN_TASK
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.launches import LAUNCHED_ELSEWHERE, NOT_RECORDED
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.model.recording import Timeline
from perfgate.trace.model.spans import KERNEL_LAUNCH
from perfgate.trace.model.steps import unit_marks
from perfgate.trace.scanner.nesting import enclosing_calls

# The step times of torch_npu went through a float, which costs 0.25 us per kernel.
_TOLERANCE = 0.01
_EXAMPLES = 3
_MICROSECOND_NS = 1000
_FIRST = 1000
# Of op_statistic.csv, which has three decimals of a microsecond, and of a time of a
# row.
_DECIMALS_NS = 1
# Of a wait and the times around it, written with three decimals, and as floats of a
# time since 1970 in microseconds, which are multiples of a quarter of one.
_EXACT_NS, _FLOAT_NS, _FLOAT_STEP_NS = 2, 260, 250
_ODD_FACTOR = np.uint64(0x9E3779B97F4A7C15)
# Launches into a graph that is being captured do not run.
_SINGLE_LAUNCH = lazy_pattern(r"(?:cuda|hip|cu)(?:Module)?LaunchKernel")
# Calls after which the device works, unless it is stopped; a memset may have nothing to
# do.
_STARTS_WORK = lazy_pattern(rf"{KERNEL_LAUNCH.pattern}|(cuda|hip|cu)Memcpy")
_DEVICE_WAIT = lazy_pattern(r"DeviceSynchronize|SynchronizeDevice")
_CAPTURE = lazy_pattern(r"(?:Begin|End)Capture|GraphInstantiate|aclmdlRICapture")


def contradictions(timeline: Timeline) -> list[Message]:
    """Impossible times and signs of loss of one device, and contradictions between its
    tables, or a table and the timeline.
    """
    return [
        *impossible_times(timeline),
        *possible_losses(timeline),
        *_of_types(timeline),
        *_of_waits(timeline.kernel_columns),
        *_of_events(timeline),
        *_of_steps(timeline),
    ]


def possible_losses(timeline: Timeline) -> list[Message]:
    """Signs that events are missing or repeated, or that a time was changed, in a file
    that can be read.
    """
    events = timeline.events
    return [
        *timeline.losses,
        *_of_marks(events),
        *_of_launches(events),
        *_of_operators(events),
        *_of_repeats(events),
    ]


def _of_marks(events: EventTable) -> Iterator[Message]:
    """Steps that last beyond the begin of the next."""
    clipped = unit_marks(events).clipped
    if clipped:
        yield Message("notes.steps-overlap", {"count": clipped})


def _of_launches(events: EventTable) -> Iterator[Message]:
    """Launches without a kernel, and work without a launch, between others that are
    joined.

    At the begin and the end of a recording both are usual. So is work without a launch
    if no work of its name has one: some profilers do not record the calls of some
    libraries.
    """
    work = events.work_rows
    calls = np.flatnonzero(events.is_kind("runtime"))
    launched = work[events.launch[work] != NOT_RECORDED]
    if events.rows_named(calls, _CAPTURE.search).size:
        return
    yield from _of_ends(events, work, calls, launched)
    if not launched.size:
        return
    yield from _of_single_launches(events, launched)
    joined = events.start[events.launch[launched]]
    begin = joined.min()
    launches = events.rows_named(calls, _STARTS_WORK.search)
    launches = launches[events.correlation[launches] != LAUNCHED_ELSEWHERE]
    if (events.name[events.launch[launched]] == events.name[launched]).all():
        # torch's own profiler writes a launch on an NPU as an instant with the name of
        # its kernel (sample torch-native-privateuse1).
        launches = calls[events.duration[calls] == 0]
    # Before a call that waits for the device ends, all that was launched has run.
    waits = events.rows_named(calls, _DEVICE_WAIT.search)
    end = max(int(joined.max()), int(events.start[waits].max(initial=begin)))
    between = (events.start[launches] > begin) & (events.start[launches] < end)
    without_work = launches[
        between & ~np.isin(events.correlation[launches], events.correlation[launched])
    ]
    # At Level2, CANN also records the call of the runtime within the launch, and that
    # call is joined.
    bare = int(
        np.count_nonzero(~_contain_any(events, without_work, events.launch[launched]))
    )
    numbers = events.correlation[calls]
    numbers = numbers[numbers > NO_CORRELATION]
    alone = work[events.launch[work] == NOT_RECORDED]
    number = events.correlation[alone]
    is_inside = (
        (number > numbers.min())
        & (number < numbers.max())
        & (events.start[alone] > begin)
    )
    unlaunched = int(
        (is_inside & np.isin(events.group[alone], events.group[launched])).sum()
    )
    if bare or unlaunched:
        yield Message(
            "notes.launches-unmatched", {"launches": bare, "work": unlaunched}
        )


def _of_ends(
    events: EventTable, work: IntColumn, calls: IntColumn, launched: IntColumn
) -> Iterator[Message]:
    """Numbered launches without work before all others, together with numbered work
    without a launch after all other work.

    A profiler that begins while work is queued leaves the opposite.
    """
    launches = events.rows_named(calls, KERNEL_LAUNCH.search)
    launches = launches[events.correlation[launches] > NO_CORRELATION]
    alone = work[
        (events.launch[work] == NOT_RECORDED)
        & (events.correlation[work] > NO_CORRELATION)
    ]
    if launched.size:
        launches = launches[
            events.start[launches] < events.start[events.launch[launched]].min()
        ]
        alone = alone[events.start[alone] > events.start[launched].max()]
    if launches.size and alone.size:
        yield Message(
            "notes.launches-unjoined", {"launches": launches.size, "work": alone.size}
        )


def _of_single_launches(events: EventTable, launched: IntColumn) -> Iterator[Message]:
    """Launches of one kernel that several pieces of work name."""
    single = events.rows_named(events.launch[launched], _SINGLE_LAUNCH.match)
    repeated = int(np.count_nonzero(np.bincount(single) > 1))
    if repeated:
        yield Message("notes.launches-repeated", {"count": repeated})


def _contain_any(events: EventTable, calls: IntColumn, inner: IntColumn) -> Mask:
    """Which calls contain the start of any of the inner calls of their thread."""
    contain = np.zeros(calls.size, dtype=bool)
    for track in np.flatnonzero(np.bincount(events.track[calls])).tolist():
        own = np.flatnonzero(events.track[calls] == track)
        starts = np.sort(events.start[inner[events.track[inner] == track]])
        first = np.searchsorted(starts, events.start[calls[own]])
        last = np.searchsorted(starts, events.end[calls[own]], side="right")
        contain[own] = last > first
    return contain


def _of_operators(events: EventTable) -> Iterator[Message]:
    """Operators that neither contain one another nor follow one another on their
    thread, and operators without a duration.

    No recorded sample has either, except for operators of less than a microsecond where
    times are whole microseconds, and for short operators of a coarse clock: 100 ns on
    Windows, 42 ns on a Mac. A profiler that lost a buffer leaves zeros.
    """
    operators = np.flatnonzero(events.is_kind("host_op"))
    _, crossing = enclosing_calls(events, events.track, operators.astype(np.int32))
    if crossing:
        yield Message(
            "notes.operators-cross", {"count": crossing, "operators": operators.size}
        )
    duration = events.duration[operators]
    is_lost = (duration == 0) & (events.start[operators] == 0)
    if _has_fractions(duration):
        is_lost |= (duration == 0) & ~are_short(duration, events.group[operators])
    untimed = int(np.count_nonzero(is_lost))
    if untimed:
        yield Message(
            "notes.operators-untimed", {"count": untimed, "operators": operators.size}
        )


def _of_repeats(events: EventTable) -> Iterator[Message]:
    """Operators and work that are in the file twice, with the same thread, name and
    times.

    In whole microseconds an operator has the times of the one of its name that it calls
    (HTA's trace_diff, aten::zeros).
    """
    if _has_fractions(events.duration) or _has_fractions(events.start):
        repeatable = events.is_kind("host_op", *DEVICE_KINDS) & (events.duration > 0)
    else:
        repeatable = events.is_work & (events.duration > _MICROSECOND_NS)
    # A hash of each event: sorting a single column takes a fraction of the time of
    # sorting rows.
    hashes = np.zeros(len(events), dtype=np.uint64)
    for column in (events.start, events.duration, events.track, events.name):
        hashes ^= column.astype(np.uint64)
        hashes *= _ODD_FACTOR
        hashes ^= hashes >> np.uint64(32)
    hashes = np.sort(hashes[np.flatnonzero(repeatable)])
    repeated = int(np.count_nonzero(hashes[1:] == hashes[:-1]))
    if repeated:
        yield Message(
            "notes.events-repeated", {"count": repeated, "events": hashes.size}
        )


def _has_fractions(times: IntColumn) -> bool:
    """Whether any time is no whole microsecond; mostly one of the first is none."""
    few = times[:_FIRST]
    return bool(
        (few % _MICROSECOND_NS).any() or (times[_FIRST:] % _MICROSECOND_NS).any()
    )


def doubts_about(timelines: Sequence[tuple[str, Timeline]]) -> list[Message]:
    """The contradictions of all devices, then the caveats about them."""
    return [*contradictions_of(timelines), *caveats_about(timelines)]


def caveats_about(timelines: Sequence[tuple[str, Timeline]]) -> list[Message]:
    """Differences of clocks, tasks of unknown types and pauses between cycles, with
    which totals stay true.
    """
    return [
        *_about_each(timelines, _of_clocks),
        *_about_each(timelines, _of_unknown_tasks),
        *_about_each(timelines, _of_pauses),
    ]


def contradictions_of(timelines: Sequence[tuple[str, Timeline]]) -> list[Message]:
    """The contradictions of all devices; if there are several, each is about the label
    of its device.
    """
    return _about_each(timelines, contradictions)


def _about_each(
    timelines: Sequence[tuple[str, Timeline]],
    of_timeline: Callable[[Timeline], Iterable[Message]],
) -> list[Message]:
    notes: list[Message] = []
    if len(timelines) == 1:
        return list(of_timeline(timelines[0][1]))
    for label, timeline in timelines:
        for note in of_timeline(timeline):
            notes.append(Message("verdict.about", {"place": label, "what": note}))
    return notes


def _of_clocks(timeline: Timeline) -> Iterator[Message]:
    offset = clock_offset(timeline.events)
    if offset is not None:
        values = {
            "count": offset.early,
            "work": offset.launched,
            "shift": offset.behind_ns / 1e3,
        }
        if offset.before_operator_ns is None:
            yield Message("notes.clock-offset-launch", values)
        else:
            yield Message(
                "notes.clock-offset",
                {**values, "microseconds": offset.before_operator_ns / 1e3},
            )


def _of_pauses(timeline: Timeline) -> Iterator[Message]:
    paused = pauses(timeline.events)
    if paused.start.size:
        yield Message(
            "notes.profiler-paused",
            {"count": paused.start.size, "seconds": paused.length / 1e9},
        )


def _of_unknown_tasks(timeline: Timeline) -> Iterator[Message]:
    events = timeline.events
    unknown = np.flatnonzero(_of_unknown_type(events))
    if unknown.size:
        total = int(events.duration[events.work_rows].sum())
        time = int(events.duration[unknown].sum())
        share = time / total if total else 0.0
        names = _named(events, unknown)
        yield Message(
            "notes.unknown-tasks",
            {"count": unknown.size, "share": share, "named": names},
        )


def _of_unknown_type(events: EventTable) -> Mask:
    is_unknown = np.array(
        [name.startswith(UNKNOWN_TASK) for name in events.names], dtype=bool
    )
    return is_unknown.take(events.group)


def impossible_times(timeline: Timeline) -> Iterator[Message]:
    """The impossible times of the device's work."""
    events = timeline.events
    faults = time_faults(events)
    if faults.untimed.size:
        names = _named(events, faults.untimed)
        yield Message(
            "notes.untimed-work",
            {"count": faults.untimed.size, "work": faults.work, "named": names},
        )
    if faults.overlapping.size:
        tracks = [
            events.tracks[track][1]
            for track in events.track[faults.overlapping].tolist()
        ]
        values: dict[str, MessageValue] = {
            "count": faults.overlapping.size,
            "work": faults.work,
            "streams": _examples(tracks),
            "named": _named(events, faults.overlapping),
        }
        yield Message("notes.overlapping-work", values)
    if faults.apart.size:
        yield Message("notes.clock-jumped", {"count": faults.apart.size})


def _named(events: EventTable, rows: IntColumn) -> str:
    return _examples([events.names[code] for code in events.group[rows].tolist()])


def _examples(names: Iterable[str]) -> str:
    """The first distinct names."""
    distinct = list(dict.fromkeys(names))
    return ", ".join(distinct[:_EXAMPLES])


def _of_types(timeline: Timeline) -> Iterator[Message]:
    """Compare op_statistic.csv, which sums the same kernels, with their table."""
    if not timeline.totals.types or not timeline.kernels:
        return
    table = timeline.kernel_columns
    typed = table.select(~table.is_collective & (table.codes["type"] != NO_TEXT))
    types = typed.codes["type"]
    counted = Counter(
        dict(zip(table.texts, counts_by_name(types, len(table.texts)).tolist()))
    )
    timed = Counter(
        dict(
            zip(
                table.texts,
                totals_by_name(types, typed.duration, len(table.texts)).tolist(),
            )
        )
    )
    counts: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for total in timeline.totals.types:
        counts[total.name] += total.count
        times[total.name] += total.total_ns
    differing = sorted(kind for kind in counts if counts[kind] != counted[kind])
    if differing:
        examples = [
            f"{kind} {counts[kind]} and {counted[kind]}"
            for kind in differing[:_EXAMPLES]
        ]
        names = ", ".join(examples)
        yield Message(
            "notes.kernel-counts-differ",
            {"said": counts.total(), "counted": types.size, "named": names},
        )
        return
    otherwise = sorted(
        kind
        for kind in times
        if abs(times[kind] - timed[kind]) > _DECIMALS_NS * counts[kind]
    )
    if otherwise:
        said = times.total() / 1e6
        seen = timed.total() / 1e6
        names = _examples(otherwise)
        yield Message(
            "notes.kernel-times-differ", {"said": said, "seen": seen, "named": names}
        )


def _of_waits(table: KernelTable) -> Iterator[Message]:
    """Rows that did not wait as long as they say after the row before: a row between
    them is missing, or a time was changed.

    The first row waits for nothing. msprof works the waits out from the rows that it
    writes, in Python with times in nanoseconds, in C++ and in 2023 with floats of
    microseconds since 1970 (ai_core_op_report.py, op_summary_assembler.cpp), and
    torch_npu copies all rows. If more than a third disagree, the table is an excerpt,
    or its profiler means another wait.
    """
    timed = np.flatnonzero(table.start != NO_NUMBER)
    rows = timed[np.argsort(table.start[timed], kind="stable")]
    if rows.size < 2:
        return
    start = table.start[rows]
    duration = table.duration[rows]
    wait = table.numbers["wait_ns"][rows]
    idle = np.append(0, np.maximum(start[1:] - (start + duration)[:-1], 0))
    later = np.flatnonzero(wait[1:] > 0) + 1
    from_start_to_start = duration[later - 1] + wait[later]
    is_rounded = (from_start_to_start + 1) % _FLOAT_STEP_NS <= 2
    error = np.abs(idle - wait)
    is_exact = (error[later] <= _EXACT_NS) & ~is_rounded
    tolerance = _EXACT_NS if 2 * np.count_nonzero(is_exact) > later.size else _FLOAT_NS
    judged = wait != NO_NUMBER
    differing = int(np.count_nonzero(judged & (error > tolerance)))
    if 0 < differing <= max(1, int(judged.sum()) // 3):
        yield Message("notes.waits-differ", {"count": differing, "rows": rows.size})


def _of_events(timeline: Timeline) -> Iterator[Message]:
    """Compare the kernels on the device's timeline with their table."""
    if not timeline.kernels:
        return
    # Tasks of unknown types have no rows in the table.
    is_kernel = timeline.events.is_kind("compute") & ~_of_unknown_type(timeline.events)
    events = int(is_kernel.sum())
    tabled = int((~timeline.kernel_columns.is_collective).sum())
    if events and events != tabled:
        yield Message("notes.timeline-differs", {"seen": events, "tabled": tabled})


def _of_steps(timeline: Timeline) -> Iterator[Message]:
    """Compare the table of steps with the sum of the kernels of each step."""
    if not timeline.step_table:
        return
    steps = {step.number: step for step in timeline.steps or ()}
    for row in timeline.step_table:
        step = steps.get(row.number)
        computing_ns = row.computing_ns
        if step is None or step.computing_ns is None or computing_ns is None:
            continue
        if abs(step.computing_ns - computing_ns) > _TOLERANCE * computing_ns:
            values = {
                "said": computing_ns / 1e6,
                "number": row.number or 0,
                "seen": step.computing_ns / 1e6,
            }
            yield Message("notes.computing-differs", values)
