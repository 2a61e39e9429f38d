"""The tables of `perfgate trace` in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from perfgate.document.message import Message
from perfgate.document.trace import (
    GapDocument,
    GapTimeline,
    RanksDocument,
    RequestDocument,
    RequestTimeline,
    StepDocument,
    StepTimeline,
    TopDocument,
    TopTimeline,
)
from perfgate.judging.report.render.plain import Table, TerminalOutput, Text
from perfgate.judging.report.text.escape import MAX_LENGTH, clean
from perfgate.judging.report.text.gap_causes import CAUSE_WORDS
from perfgate.judging.report.text.kernels import kernel_name
from perfgate.judging.report.text.numbers import amount, counted, percent, whole
from perfgate.judging.report.text.words import phrase, say

_NUMBERS = 44  # columns of the numbers beside a name
_LEAST_NAME = 12
_LONG = 44  # letters of a name in such a table
_OF_SOME_JOBS = ("stage", "bubble", "experts", "fused")  # of pipelines, of experts spread over ranks, of fused kernels
# Codes of the documents in table cells: kinds of rows, causes of gaps, changes, units and parts of a total.
WORDS = (
    *(phrase("compute"), phrase("copy"), phrase("comm"), phrase("fused"), phrase("host"), phrase("kernel")),
    *(phrase("communication"), phrase("synchronization"), phrase("queue"), phrase("unknown"), phrase("gap")),
    *(
        phrase("added"),
        phrase("removed"),
        phrase("replaced"),
        phrase("more"),
        phrase("fewer"),
        phrase("slower"),
        phrase("faster"),
    ),
    *(phrase("call"), phrase("profiler step"), phrase("whole recording")),
)
# The last column of the heaviest rows, by how they are grouped.
_COLUMN_OF: dict[str, tuple[str, ...]] = {"shape": ("shapes",), "line": ("operator",)}
_SIDES = {"device": phrase("share of busy"), "host": phrase("share of self time")}
# Every question covers its own window; these sentences describe it.
_OF_GAPS = phrase("from the first work of the device to the end of its last, whatever the steps")
_OF_STEPS = phrase(
    "a step begins on the host, or with the end of the one before on the device, and ends with its last work there"
)


def render_ranks(document: RanksDocument, console: TerminalOutput, *, shown: int) -> None:
    """Print the answer first, then the ranks, the slowest first."""
    from perfgate.judging.report.text.ranks import rank_answers, rank_name  # no other question needs their sentences

    for answer in rank_answers(document, shown=shown):
        console.print(Text(answer.words, "bold" if answer.is_bad else ""))
    columns = ["rank", "own>", "computing>", "free>", "exposed>", "waits>", "late>"]
    optional = [name for name in _OF_SOME_JOBS if any(getattr(row, name) for row in document.ranks)]
    table = grid(*columns, *(f"{name}>" for name in optional))
    by_own = sorted(document.ranks, key=lambda row: -(row.own or 0.0))
    for row in by_own[:shown]:
        times = (time_of(value) for value in (row.own, row.computing, row.free, row.exposed))
        cells = [rank_name(row.rank, row.device), *times, percent(row.wait_share), time_of(row.late)]
        for name in optional:
            value = getattr(row, name)
            cells.append(("–" if value is None else str(value)) if name == "stage" else time_of(value))
        table.add_row(*map(Text, cells))
    console.print(table)
    print_rest(len(document.ranks) - len(by_own[:shown]), "more rank", console)


def reason_words(message: Message | None, *, limit: int = MAX_LENGTH) -> str:
    """A message in words; imports the catalogue only for a message, because that takes as long as reading a short trace."""
    from perfgate.judging.report.text.messages import word

    return clean(word(message), limit=limit) if message else ""


def print_notes(notes: Sequence[Message], console: TerminalOutput) -> None:
    for note in notes:
        console.print(Text(f"{say('note:')} {reason_words(note, limit=400)}", "yellow"))


def render_requests(document: RequestDocument, console: TerminalOutput) -> None:
    """Print the requests of every timeline, and the work of the requested one."""
    print_notes(document.notes, console)
    for timeline, name in zip(document.timelines, timeline_names(document.timelines)):
        if not timeline.requests:
            print_title(name, reason_words(timeline.reason), console)
            continue
        print_title(name, counted(timeline.requests_in_all, "request"), console)
        table = grid("request", "at>", "took>", "host>", "device>", "waited>", "kernels>")
        for row in timeline.requests:
            times = (row.start, row.elapsed, row.host, row.device, row.elapsed - row.active)
            table.add_row(*map(Text, [clean(row.request), *map(time_of, times), whole(row.kernels)]))
        console.print(table)
        print_rest(timeline.requests_in_all - len(timeline.requests), "shorter request", console)
        if timeline.rows:
            rows = grid("", "kind", "count>", "own time>", "share>")
            for one in timeline.rows:
                cells = [clean(one.name), say(one.kind), whole(one.count), time_of(one.total), percent(one.share)]
                rows.add_row(*map(Text, cells))
            console.print(rows)


def render_top(document: TopDocument, console: TerminalOutput) -> None:
    """Print one table per timeline."""
    print_notes(document.notes, console)
    for timeline, name in zip(document.timelines, timeline_names(document.timelines)):
        if not timeline.rows:
            print_title(name, reason_words(timeline.reason), console)
            continue
        base = time_of(timeline.base)
        subtitle = say("operators of the host, self time {time}", time=base)
        if timeline.side == "device":
            subtitle = say("busy {time}", time=base)
        print_title(name, subtitle, console)
        shapes = _COLUMN_OF.get(document.by, ())
        table = grid("", "kind", "count>", "total>", f"{_SIDES[timeline.side]}>", *shapes)
        for row in timeline.rows:
            share = "" if row.share is None else percent(row.share)
            is_kernel = timeline.side == "device" and document.by != "line"
            ran = kernel_name(row.name, limit=_name_width(console)) if is_kernel else row.name
            cells = [clean(ran), say(row.kind), f"{row.count:,}", time_of(row.total), share]
            cells += [clean(row.operator or row.shapes or "")] if shapes else []
            table.add_row(*map(Text, cells))
        console.print(table)
        print_rest(timeline.rows_in_all - len(timeline.rows), "more row", console)


def _name_width(console: TerminalOutput) -> int:
    """The letters of a name beside its numbers, or on a line of its own where they do not fit beside each other."""
    beside = console.width - _NUMBERS
    return beside if beside >= _LEAST_NAME else console.width


def render_gaps(document: GapDocument, console: TerminalOutput) -> None:
    """Print the sums by cause and the longest gaps of every timeline."""
    print_notes(document.notes, console)
    for timeline, name in zip(document.timelines, timeline_names(document.timelines)):
        if timeline.window is None or timeline.busy is None:
            print_title(name, reason_words(timeline.reason), console)
            continue
        busy = percent(timeline.busy / timeline.window)
        gaps = counted(timeline.gaps_in_all, "gap")
        print_title(
            name,
            say("busy {share} of {time}, {gaps}", share=busy, time=time_of(timeline.window), gaps=gaps),
            console,
        )
        console.print(Text(say(_OF_GAPS), "dim"))
        if not timeline.gaps_in_all:
            continue
        causes = grid("cause", "gaps>", "total>", "of the time>", "")
        for total in timeline.causes:
            numbers = [f"{total.count:,}", time_of(total.total), percent(total.share)]
            causes.add_row(*map(Text, [say(total.cause), *numbers]), Text(say(CAUSE_WORDS[total.cause]), "dim"))
        console.print(causes)
        filled = grid("host meanwhile", "then", "cause", "gaps>", "total>", "of the time>")
        for group in timeline.groups:
            where = " · ".join(clean(name) for name in (group.operator, group.frame) if name) or "–"
            ended_by = "–" if group.ended_by is None else clean(kernel_name(group.ended_by, limit=_LONG))
            sums = [f"{group.count:,}", time_of(group.total), percent(group.share)]
            filled.add_row(*map(Text, [where, ended_by, say(group.cause), *sums]))
        console.print(filled)
        longest = grid("at>", "gap>", "cause")
        for gap in timeline.gaps:
            longest.add_row(*map(Text, [time_of(gap.start), time_of(gap.duration), say(gap.cause)]))
        console.print(longest)
        print_rest(timeline.gaps_in_all - len(timeline.gaps), "shorter gap", console)


def render_steps(document: StepDocument, console: TerminalOutput) -> None:
    """Print which rank the others wait for, and the steps of every timeline."""
    print_notes(document.notes, console)
    slowest = document.slowest_rank
    if slowest is not None:
        words = say(
            "rank {rank} is the slowest: {time} a step on its own", rank=slowest.rank, time=time_of(slowest.own)
        )
        behind = say(", {time} more than the fastest", time=time_of(slowest.behind))
        console.print(Text(words, "bold") + Text(behind, "dim"))
    for timeline, name in zip(document.timelines, timeline_names(document.timelines)):
        if not timeline.steps:
            print_title(name, reason_words(timeline.reason), console)
            continue
        print_title(name, counted(timeline.steps_in_all, "step"), console)
        console.print(Text(say(_OF_STEPS), "dim"))
        if timeline.phases:
            phases = grid("phase", "steps>", "requests>", "length>", "computing>", "free>")
            for phase in timeline.phases:
                medians = map(time_of, (phase.length, phase.computing, phase.free))
                requests = "–" if phase.requests is None else whole(phase.requests)
                phases.add_row(*map(Text, [clean(phase.phase), whole(phase.count), requests, *medians]))
            console.print(phases)
        fuses = any(step.fused for step in timeline.steps)
        fused = ["fused>"] if fuses else []
        table = grid("step>", "length>", "computing>", *fused, "comm.>", "exposed>", "copies>", "prep.>", "free>")
        for step in timeline.steps:
            times = (
                step.length,
                step.computing,
                *([step.fused] if fuses else []),
                step.communication,
                step.exposed_communication,
                step.exposed_copies,
                step.preparing,
                step.free,
            )
            number = "–" if step.number is None else str(step.number)
            requests = "" if step.requests is None else f"× {whole(step.requests)}"
            label = " ".join(filter(None, (number, step.phase and clean(step.phase), requests)))
            table.add_row(*map(Text, [label, *map(time_of, times)]))
        console.print(table)
        print_rest(timeline.steps_in_all - len(timeline.steps), "more step", console)


def timeline_names(timelines: Sequence[TopTimeline | GapTimeline | StepTimeline | RequestTimeline]) -> list[str]:
    several = len({timeline.path for timeline in timelines}) > 1
    names = []
    for timeline in timelines:
        parts = [f"rank {timeline.rank}"] if timeline.rank is not None else []
        parts += [f"device {timeline.device}"] if timeline.device is not None else []
        parts += [clean(timeline.path)] if several else []
        names.append(", ".join(parts))
    return names


def print_title(name: str, subtitle: str, console: TerminalOutput) -> None:
    console.print(Text(say("{name}: ", name=name) if name else "", "bold") + Text(subtitle))


def print_rest(count: int, noun: str, console: TerminalOutput) -> None:
    if count > 0:
        console.print(Text(say("… {count}; --limit shows more", count=counted(count, noun)), "dim"))


def time_of(seconds: float | None) -> str:
    return amount(seconds, "s")


def grid(*titles: str) -> Table:
    """A table; a title ending in ``>`` marks a column of numbers."""
    return Table(*titles)
