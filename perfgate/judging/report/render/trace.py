"""The tables of `perfgate trace` in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from perfgate.document.message import Message
from perfgate.document.trace import (
    GapDocument,
    GapTimeline,
    PhaseTotal,
    RanksDocument,
    RequestDocument,
    RequestTimeline,
    StepDocument,
    StepRow,
    StepTimeline,
    TopDocument,
    TopTimeline,
)
from perfgate.judging.report.render.tables import Table
from perfgate.judging.report.text.escape import MAX_ABOUT_FILE, clean
from perfgate.judging.report.text.kernels import kernel_name
from perfgate.judging.report.text.numbers import amount, beyond, counted, percent, whole
from perfgate.judging.report.text.words import phrase, phrases, say

_NUMBERS = 44  # columns of the numbers after a name
_LEAST_NAME = 12
_LONG = 44  # letters of a name in such a table
_OF_SOME_JOBS = (
    "stage",
    "bubble",
    "experts",
    "fused",
)  # of pipelines, of experts spread over ranks, of fused kernels
# Codes of the documents in table cells: kinds of rows, causes of gaps, changes, units
# and parts of a total.
WORDS = phrases(
    (
        "compute",
        "copy",
        "comm",
        "fused",
        "host",
        "kernel",
        "communication",
        "synchronization",
        "queue",
        "unknown",
        "gap",
        "added",
        "removed",
        "replaced",
        "more",
        "fewer",
        "slower",
        "faster",
        "call",
        "profiler step",
        "whole recording",
    )
)
# Why a device was idle.
CAUSE_WORDS = phrases(
    {
        "host": "the host launched the next work only after the gap began",
        "synchronization": "launched late because the host was waiting for the device",
        "queue": "launched before the gap but not started: a dependency, an event, or the device's scheduling",
        "copy": "only copies ran",
        "communication": "only collectives ran",
        "unknown": "no launch is recorded for the next work",
    }
)
# The last column of the heaviest rows, by how they are grouped.
_COLUMN_OF: dict[str, tuple[str, ...]] = {"shape": ("shapes",), "line": ("operator",)}
_SHARES = phrases({"device": "share of busy", "host": "share of self time"})
# Every question covers its own window; these sentences describe it.


def render_ranks(document: RanksDocument, console: Console, *, shown: int) -> None:
    """Print the answer first, then the ranks, the slowest first."""
    from perfgate.judging.report.text.ranks import (
        name_of,
        rank_answers,
    )  # no other question needs their sentences

    for answer in rank_answers(document, shown=shown):
        console.print(Text(answer.words, "bold" if answer.is_bad else ""))
    titles = ["rank", "own>", "computing>", "free>", "exposed>", "waits>", "late>"]
    optional = []
    for name in _OF_SOME_JOBS:
        if any(getattr(row, name) for row in document.ranks):
            optional.append(name)
            titles.append(f"{name}>")
    table = Table(*titles)
    by_own = sorted(document.ranks, key=lambda row: -(row.own or 0.0))
    for row in by_own[:shown]:
        cells = [name_of(row), *times_of(row.own, row.computing, row.free, row.exposed)]
        late = None if row.arrival is None else row.arrival.late
        cells += [percent(row.in_collectives.wait), time_of(late)]
        for name in optional:
            value = getattr(row, name)
            if name == "stage":
                cells.append(_label(value))
            else:
                cells.append(time_of(value))
        table.add_row(*cells)
    console.print(table)
    print_rest(beyond(by_own, shown), "more rank", console)


def reason_words(message: Message | None) -> str:
    """A message in words; imports the catalogue only for a message, because that takes
    as long as reading a short trace.
    """
    from perfgate.judging.report.text.messages import word

    if message:
        return clean(word(message), limit=MAX_ABOUT_FILE)
    return ""


def print_notes(notes: Sequence[Message], console: Console) -> None:
    for note in notes:
        console.print(Text(f"{say('note:')} {reason_words(note)}", "yellow"))


def render_requests(document: RequestDocument, console: Console) -> None:
    """Print the requests of every timeline, and the work of the requested one."""
    print_notes(document.notes, console)
    for timeline, name in zip(document.timelines, timeline_names(document.timelines)):
        if not timeline.requests:
            print_title(name, reason_words(timeline.reason), console)
            continue
        print_title(name, counted(timeline.requests_in_all, "request"), console)
        table = Table(
            "request", "at>", "took>", "host>", "device>", "waited>", "kernels>"
        )
        for request in timeline.requests:
            times = times_of(
                request.start, request.elapsed, request.host, request.device
            )
            waited = time_of(request.elapsed - request.active)
            table.add_row(
                clean(request.request), *times, waited, whole(request.kernels)
            )
        console.print(table)
        print_rest(
            timeline.requests_in_all - len(timeline.requests),
            "shorter request",
            console,
        )
        if timeline.rows:
            work = Table("", "kind", "count>", "own time>", "share>")
            for row in timeline.rows:
                work.add_row(
                    clean(row.name),
                    say(row.kind),
                    whole(row.count),
                    time_of(row.total),
                    percent(row.share),
                )
            console.print(work)


def render_top(document: TopDocument, console: Console) -> None:
    """Print one table per timeline."""
    print_notes(document.notes, console)
    for timeline, name in zip(document.timelines, timeline_names(document.timelines)):
        if not timeline.rows:
            print_title(name, reason_words(timeline.reason), console)
            continue
        subtitle = phrase("operators of the host, self time {time}")
        if timeline.side == "device":
            subtitle = phrase("busy {time}")
        print_title(name, say(subtitle, time=time_of(timeline.base)), console)
        column = _COLUMN_OF.get(document.by, ())
        table = Table(
            "", "kind", "count>", "total>", f"{_SHARES[timeline.side]}>", *column
        )
        has_kernels = timeline.side == "device" and document.by != "line"
        for row in timeline.rows:
            ran = (
                kernel_name(row.name, limit=_name_width(console))
                if has_kernels
                else row.name
            )
            share = "" if row.share is None else percent(row.share)
            cells = [
                clean(ran),
                say(row.kind),
                f"{row.count:,}",
                time_of(row.total),
                share,
            ]
            if column:
                cells.append(clean(row.operator or row.shapes or ""))
            table.add_row(*cells)
        console.print(table)
        print_rest(timeline.rows_in_all - len(timeline.rows), "more row", console)


def _name_width(console: Console) -> int:
    """The letters of a name on the line of its numbers, or on a separate line in a
    narrow terminal.
    """
    width = console.width - _NUMBERS
    if width >= _LEAST_NAME:
        return width
    return console.width


def render_gaps(document: GapDocument, console: Console) -> None:
    """Print the sums by cause and the longest gaps of every timeline."""
    print_notes(document.notes, console)
    for timeline, name in zip(document.timelines, timeline_names(document.timelines)):
        if timeline.window is None or timeline.busy is None:
            print_title(name, reason_words(timeline.reason), console)
            continue
        subtitle = say(
            "busy {share} of {time}, {gaps}",
            share=percent(timeline.busy / timeline.window),
            time=time_of(timeline.window),
            gaps=counted(timeline.gaps_in_all, "gap"),
        )
        print_title(name, subtitle, console)
        print_dim(
            say(
                "from the first work of the device to the end of its last, whatever the steps"
            ),
            console,
        )
        if timeline.gaps_in_all:
            _print_gaps(timeline, console)


def _print_gaps(timeline: GapTimeline, console: Console) -> None:
    causes = Table("cause", "gaps>", "total>", "of the time>", "")
    for total in timeline.causes:
        reason = Text(say(CAUSE_WORDS[total.cause]), "dim")
        causes.add_row(
            say(total.cause),
            f"{total.count:,}",
            time_of(total.total),
            percent(total.share),
            reason,
        )
    console.print(causes)
    groups = Table("host meanwhile", "then", "cause", "gaps>", "total>", "of the time>")
    for group in timeline.groups:
        host = (
            " · ".join(clean(name) for name in (group.operator, group.frame) if name)
            or "–"
        )
        kernel = "–"
        if group.ended_by is not None:
            kernel = clean(kernel_name(group.ended_by, limit=_LONG))
        sums = f"{group.count:,}", time_of(group.total), percent(group.share)
        groups.add_row(host, kernel, say(group.cause), *sums)
    console.print(groups)
    longest = Table("at>", "gap>", "cause")
    for gap in timeline.gaps:
        longest.add_row(*times_of(gap.start, gap.duration), say(gap.cause))
    console.print(longest)
    print_rest(timeline.gaps_in_all - len(timeline.gaps), "shorter gap", console)


def render_steps(document: StepDocument, console: Console) -> None:
    """Print which rank the others wait for, and the steps of every timeline."""
    print_notes(document.notes, console)
    slowest = document.slowest_rank
    if slowest is not None:
        sentence = phrase("rank {rank} is the slowest: {time} a step on its own")
        words = say(sentence, rank=slowest.rank, time=time_of(slowest.own))
        behind = say(", {time} more than the fastest", time=time_of(slowest.behind))
        console.print(Text.assemble((words, "bold"), (behind, "dim")))
    for timeline, name in zip(document.timelines, timeline_names(document.timelines)):
        if not timeline.steps:
            print_title(name, reason_words(timeline.reason), console)
            continue
        print_title(name, counted(timeline.steps_in_all, "step"), console)
        print_dim(
            say(
                "a step begins on the host, or when the previous step ends on the device, and ends with its last work there"
            ),
            console,
        )
        if timeline.phases:
            console.print(_phases(timeline.phases))
        console.print(_steps(timeline.steps))
        print_rest(timeline.steps_in_all - len(timeline.steps), "more step", console)


def _phases(phases: Sequence[PhaseTotal]) -> Table:
    table = Table("phase", "steps>", "requests>", "length>", "compute>", "free>")
    for phase in phases:
        medians = times_of(phase.length, phase.computing, phase.free)
        requests = "–"
        if phase.requests is not None:
            requests = whole(phase.requests)
        table.add_row(clean(phase.phase), whole(phase.count), requests, *medians)
    return table


def _steps(steps: Sequence[StepRow]) -> Table:
    fused = []
    if any(step.fused for step in steps):
        fused = ["fused>"]
    table = Table(
        "step>",
        "length>",
        "compute>",
        *fused,
        "comm.>",
        "exposed>",
        "copies>",
        "prep.>",
        "free>",
    )
    for step in steps:
        label = [_label(step.number)]
        if step.phase:
            label.append(clean(step.phase))
        if step.requests is not None:
            label.append(f"× {whole(step.requests)}")
        cells = [" ".join(label), *times_of(step.length, step.computing)]
        if fused:
            cells.append(time_of(step.fused))
        cells += times_of(
            step.communication, step.exposed_communication, step.exposed_copies
        )
        table.add_row(*cells, *times_of(step.preparing, step.free))
    return table


def timeline_names(
    timelines: Sequence[TopTimeline | GapTimeline | StepTimeline | RequestTimeline],
) -> list[str]:
    several = len({timeline.path for timeline in timelines}) > 1
    names = []
    for timeline in timelines:
        parts = []
        if timeline.rank is not None:
            parts.append(f"rank {timeline.rank}")
        if timeline.device is not None:
            parts.append(f"device {timeline.device}")
        if several:
            parts.append(clean(timeline.path, limit=MAX_ABOUT_FILE))
        names.append(", ".join(parts))
    return names


def print_title(name: str, subtitle: str, console: Console) -> None:
    console.print(
        Text.assemble((say("{name}: ", name=name) if name else "", "bold"), subtitle)
    )


def print_dim(words: str, console: Console) -> None:
    console.print(Text(words, "dim"))


def print_rest(count: int, noun: str, console: Console) -> None:
    if count > 0:
        print_dim(
            say("… {count}; --limit shows more", count=counted(count, noun)), console
        )


def time_of(seconds: float | None) -> str:
    return amount(seconds, "s")


def times_of(*seconds: float | None) -> list[str]:
    return list(map(time_of, seconds))


def _label(number: int | None) -> str:
    if number is None:
        return "–"
    return str(number)
