"""The first screen of a recording: sentences, the largest loss first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfgate.document.trace import (
    AnswerDocument,
    AnswerTimeline,
    DiffTimeline,
    DiffTotals,
    GapGroupRow,
    PhaseTotal,
    StepSpread,
    TopTimeline,
    WindowPart,
    WindowPartName,
)
from perfgate.judging.report.render.trace import (
    CAUSE_WORDS,
    print_dim,
    print_notes,
    reason_words,
    timeline_names,
)
from perfgate.judging.report.render.trace_diff import (
    changed_name,
    difference,
    short_place,
    signed,
)
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.kernels import kernel_name
from perfgate.judging.report.text.numbers import amount, beyond, counted, percent, whole
from perfgate.judging.report.text.words import phrase, phrases, say

_Share = TypeVar("_Share", WindowPart, GapGroupRow)
_NAME = 56  # letters of a name in a sentence
# parts and groups of gaps below this share of the time are omitted, except the largest
_LEAST = 0.01
_BOUND: dict[WindowPartName, str] = phrases(
    {
        "computing": "bound by computing: the device is busy {share} of {time}",
        "fused": "bound by fused kernels: the device is busy {share} of {time}",
        "communication": "bound by communication: the device is busy {share} of {time}",
        "copies": "bound by copies: the device is busy {share} of {time}",
        "host": "host bound: the device is busy {share} of {time}",
        "synchronization": "bound by synchronization: the device is busy {share} of {time}",
        "queue": "bound by dependencies between streams: the device is busy {share} of {time}",
        "unknown": "the device is busy {share} of {time}, and the recording does not show why it idles",
    }
)
_PARTS: dict[WindowPartName, str] = phrases(
    {
        "computing": "{share} computing",
        "fused": "{share} fused kernels",
        "communication": "{share} communication alone",
        "copies": "{share} copies alone",
        "host": "{share} idle until the host launched",
        "synchronization": "{share} idle after the host had waited for the device",
        "queue": "{share} idle with work in the queue",
        "unknown": "{share} idle, cause not recorded",
    }
)
_HOST_ALONE = phrase("the host alone was recorded: nothing overlaps with a device")
_OVERLAP_UNKNOWN = phrase("overlaps are unknown without a timeline of the device")
_MOST_TIMELINES = 4
_HEAVY = phrase("{name}: {time}, {share} of the busy time, {count} ×")
_HOST = phrase("{name}: {time}, {share} of the host's self time, {count} ×")
_COMMUNICATION = phrase("communication {time}, {share} of it hidden by computing")
_COPIES = phrase("copies {time}, {share} of it hidden by kernels")
_STEPS = phrase(
    "{steps} of {median}, {shortest} to {longest}; the longest is step {slowest}"
)
_ALIKE = phrase("{steps} of {median}, {shortest} to {longest}")
_TWO_STEPS = phrase("{steps} of {shortest} and {longest}; the longer is step {slowest}")
_TWO_ALIKE = phrase("{steps} of {shortest} and {longest}")


def render_answer(document: AnswerDocument, console: Console) -> None:
    """Print the notes, which say how far the recording can be believed, then the
    summary of every timeline.
    """
    print_notes(document.notes, console)
    names = timeline_names([timeline.gaps for timeline in document.timelines])
    for timeline, name in zip(document.timelines[:_MOST_TIMELINES], names):
        title, *sentences = _sentences(timeline)
        if name:
            title = f"{say('{name}: ', name=name)}{title}"
        _print_answer(title, sentences, console)
    more = beyond(document.timelines, _MOST_TIMELINES)
    if more:
        print_dim(
            say(
                "… {timelines}; --rank N shows one",
                timelines=counted(more, "more timeline"),
            ),
            console,
        )
    if len({timeline.gaps.rank for timeline in document.timelines}) > 1:
        print_dim(
            say(
                "several ranks: perfgate trace ranks names the rank that delays the others; --rank N shows one"
            ),
            console,
        )
    if document.changes is None:
        print_dim(
            say("changes: add --base OTHER, an earlier recording of the same program"),
            console,
        )
    else:
        for compared in document.changes.timelines:
            title, *sentences = _changes(
                compared, short_place(clean(document.changes.base[0]))
            )
            _print_answer(title, sentences, console)


def _print_answer(title: str, sentences: Iterable[str], console: Console) -> None:
    """Print a title and sentences with bullets, which separate wrapped sentences."""
    console.print(Text(title, "bold"))
    table = Table.grid(padding=(0, 1))
    for text in sentences:
        table.add_row(Text("-", "dim"), Text(text, overflow="fold"))
    console.print(table)


def _sentences(timeline: AnswerTimeline) -> Iterator[str]:
    gaps = timeline.gaps
    if timeline.bound is not None and timeline.window and timeline.busy is not None:
        yield say(
            _BOUND[timeline.bound],
            share=percent(timeline.busy / timeline.window),
            time=amount(timeline.window, "s"),
        )
        parts = [
            say(_PARTS[part.part], share=percent(part.share))
            for part in _notable(timeline.parts)
        ]
        yield say(", ").join(parts)
        yield from map(_idle, _notable(gaps.groups))
    elif timeline.top.side == "device":
        yield say(
            "no timeline of the device was recorded: when it was busy is not known"
        )
    else:
        yield reason_words(gaps.reason)
    if timeline.top.reason is not None:
        yield reason_words(timeline.top.reason)
    yield from _heaviest(timeline.top)
    if not timeline.has_lines:
        yield say(
            "no lines: the recording has no Python functions; record with with_stack=True"
        )
    yield from _overlap(timeline)
    for phase in timeline.phases:
        yield say(", ").join(_phase(phase))
    if not timeline.phases and timeline.steps is not None and timeline.steps.count > 1:
        yield _spread(timeline.steps)


def _notable(parts: Sequence[_Share]) -> list[_Share]:
    """The largest part, and others that are not small."""
    return [
        part for number, part in enumerate(parts) if number == 0 or part.share >= _LEAST
    ]


def _idle(group: GapGroupRow) -> str:
    where = _joined_places([group.operator, group.frame]) or say(
        "the recording does not show the host then"
    )
    if group.ended_by:
        where = say(
            "{where}, before {kernel}",
            where=where,
            kernel=clean(kernel_name(group.ended_by, limit=_NAME)),
        )
    return say(
        "idle {time} ({share}) in {gaps}: {where}; {why}",
        time=amount(group.total, "s"),
        share=percent(group.share),
        gaps=counted(group.count, "gap"),
        where=where,
        why=say(CAUSE_WORDS[group.cause]),
    )


def _heaviest(top: TopTimeline) -> Iterator[str]:
    for row in top.rows:
        name = row.name
        sentence = _HOST
        if top.side == "device":
            name = kernel_name(row.name, limit=_NAME)
            sentence = _HEAVY
        words = say(
            sentence,
            name=clean(name),
            time=amount(row.total, "s"),
            share=percent(row.share),
            count=f"{row.count:,}",
        )
        yield _from(words, [row.operator, row.line and short_place(row.line)])


def _from(words: str, places: Iterable[str | None]) -> str:
    """The words with the operator and line behind them, as far as they are known."""
    where = _joined_places(places)
    if where:
        return say("{what}, from {where}", what=words, where=where)
    return words


def _joined_places(places: Iterable[str | None]) -> str:
    return " · ".join(clean(place, limit=2 * _NAME) for place in places if place)


def _overlap(timeline: AnswerTimeline) -> Iterator[str]:
    if timeline.communication is None or timeline.exposed is None:
        yield say(_OVERLAP_UNKNOWN if timeline.top.side == "device" else _HOST_ALONE)
        return
    if timeline.communication:
        yield _hidden(_COMMUNICATION, timeline.communication, timeline.exposed)
    else:
        yield say("no communication")
    if timeline.copies and timeline.exposed_copies is not None:
        yield _hidden(_COPIES, timeline.copies, timeline.exposed_copies)
    if timeline.concurrent:
        yield say(
            "several kernels computed at once for {time}",
            time=amount(timeline.concurrent, "s"),
        )
    elif timeline.concurrent is not None:
        yield say("no two kernels computed at once")


def _hidden(sentence: str, total: float, exposed: float) -> str:
    return say(sentence, time=amount(total, "s"), share=percent(1 - exposed / total))


def _phase(phase: PhaseTotal) -> Iterator[str]:
    """All steps of a phase, by the medians of one."""
    yield say(
        "{phase}: {steps} of {median}",
        phase=clean(phase.phase),
        steps=counted(phase.count, "step"),
        median=amount(phase.length, "s"),
    )
    if phase.length and phase.computing is not None:
        yield say(
            "{share} of it computing", share=percent(phase.computing / phase.length)
        )
    if phase.requests is not None:
        yield say("{requests} requests at once", requests=whole(phase.requests))


def _spread(steps: StepSpread) -> str:
    with_slowest, alike = (
        (_TWO_STEPS, _TWO_ALIKE) if steps.count == 2 else (_STEPS, _ALIKE)
    )
    return say(
        alike if steps.slowest is None else with_slowest,
        steps=counted(steps.count, "step"),
        median=amount(steps.median, "s"),
        shortest=amount(steps.shortest, "s"),
        longest=amount(steps.longest, "s"),
        slowest=steps.slowest or 0,
    )


def _changes(timeline: DiffTimeline, base: str) -> Iterator[str]:
    if not timeline.rows:
        yield say(
            "nothing changed since {base}: {rows} as before",
            base=base,
            rows=counted(timeline.same, "row"),
        )
        return
    yield say(
        "changed since {base}, in one {unit}:", base=base, unit=say(timeline.unit)
    )
    totals = []
    for name in DiffTotals.__struct_fields__:
        before = getattr(timeline.base, name)
        after = getattr(timeline.head, name)
        if before is not None and after is not None:
            totals.append(f"{say(name)} {signed(after - before)}")
    yield say(", ").join(totals)
    alike: Counter[object] = Counter()
    for row in timeline.rows:
        cost = row.head or row.base
        alike[row.name, cost and cost.line] += 1
    for row in timeline.rows:
        cost = row.head or row.base
        title = say(
            "{name}: ", name=f"{say(row.change)} {changed_name(row, 2 * _NAME)}"
        )
        places = []
        if cost:
            # Calls of one operator on one line differ in their shapes alone.
            shapes = cost.shapes if alike[row.name, cost.line] > 1 else None
            places = [cost.operator, shapes and shapes[: 2 * _NAME], cost.line]
        yield _from(f"{title}{difference(row)}", places)
