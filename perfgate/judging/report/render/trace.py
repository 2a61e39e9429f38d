"""The tables of `perfgate trace` in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfgate.document.message import Message
from perfgate.document.trace import (
    DiffDocument,
    DiffTimeline,
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
from perfgate.judging.report.text.escape import MAX_LENGTH, clean
from perfgate.judging.report.text.gap_causes import CAUSE_WORDS
from perfgate.judging.report.text.kernels import kernel_name
from perfgate.judging.report.text.numbers import amount, counted, percent, whole
from perfgate.judging.report.text.ranks import rank_answers, rank_name
from perfgate.judging.report.text.words import phrase
from perfgate.locale import sentence, translate

_WIDE = 110  # columns of a terminal
_NUMBERS = 44  # columns of the numbers beside a name
_SHORT, _LONG = 28, 44  # letters of a name in such a table, of a narrow and a wide one
_OF_SOME_JOBS = ("stage", "bubble", "experts")  # of pipelines, and of experts spread over ranks
# What stands in cells as the documents have it: kinds of rows, causes of gaps, changes, units and parts of a total.
WORDS = (
    *(phrase("compute"), phrase("copy"), phrase("comm"), phrase("host"), phrase("kernel")),
    *(phrase("communication"), phrase("synchronization"), phrase("queue"), phrase("unknown"), phrase("gap")),
    *(phrase("added"), phrase("removed"), phrase("more"), phrase("fewer"), phrase("slower"), phrase("faster")),
    *(phrase("call"), phrase("profiler step"), phrase("whole recording")),
)
_SIDES = {"device": phrase("share of busy"), "host": phrase("share of self time")}


def render_ranks(document: RanksDocument, console: Console, *, shown: int) -> None:
    """Print the answer first, then the ranks, the slowest first."""
    for answer in rank_answers(document, shown=shown):
        console.print(Text(answer.words, "bold" if answer.bad else ""))
    columns = ["rank", "own>", "computing>", "free>", "exposed>", "waits>", "late>"]
    optional = [name for name in _OF_SOME_JOBS if any(getattr(row, name) for row in document.ranks)]
    table = _table(*columns, *(f"{name}>" for name in optional))
    by_own = sorted(document.ranks, key=lambda row: -(row.own or 0.0))
    for row in by_own[:shown]:
        times = (_time(value) for value in (row.own, row.computing, row.free, row.exposed))
        cells = [rank_name(row.rank, row.device), *times, _share(row.wait_share), _time(row.late)]
        cells += [_cell(name, getattr(row, name)) for name in optional]
        table.add_row(*map(Text, cells))
    console.print(table)
    _print_rest(len(document.ranks) - len(by_own[:shown]), "more rank", console)


def _cell(name: str, value: float | None) -> str:
    return ("–" if value is None else str(value)) if name == "stage" else _time(value)


def _share(value: float | None) -> str:
    return "–" if value is None else percent(value)


def _reason(message: Message | None, *, limit: int = MAX_LENGTH) -> str:
    """A message in words; the catalogue takes as long to load as a short trace to read, and most have none."""
    from perfgate.judging.report.text.messages import word

    return clean(word(message), limit=limit) if message else ""


def print_notes(notes: Sequence[Message], console: Console) -> None:
    for note in notes:
        console.print(Text(f"{sentence('note:')} {_reason(note, limit=400)}", "yellow"))


def render_requests(document: RequestDocument, console: Console) -> None:
    """Print the requests of every timeline, and what ran for the one that was asked for."""
    print_notes(document.notes, console)
    for timeline, name in zip(document.timelines, timeline_names(document.timelines)):
        if not timeline.requests:
            _print_title(name, _reason(timeline.reason), console)
            continue
        _print_title(name, counted(timeline.requests_in_all, "request"), console)
        table = _table("request", "at>", "took>", "host>", "device>", "waited>", "kernels>")
        for row in timeline.requests:
            times = (row.start, row.elapsed, row.host, row.device, row.elapsed - row.active)
            table.add_row(*map(Text, [clean(row.request), *map(_time, times), whole(row.kernels)]))
        console.print(table)
        _print_rest(timeline.requests_in_all - len(timeline.requests), "shorter request", console)
        if timeline.rows:
            rows = _table("", "kind", "count>", "own time>", "share>")
            for one in timeline.rows:
                cells = [clean(one.name), translate(one.kind), whole(one.count), _time(one.total), _share(one.share)]
                rows.add_row(*map(Text, cells))
            console.print(rows)


def render_top(document: TopDocument, console: Console) -> None:
    """Print one table a timeline."""
    print_notes(document.notes, console)
    for timeline, name in zip(document.timelines, timeline_names(document.timelines)):
        if not timeline.rows:
            _print_title(name, _reason(timeline.reason), console)
            continue
        base = _time(timeline.base)
        subtitle = (
            sentence("busy {time}", time=base)
            if timeline.side == "device"
            else sentence("operators of the host, self time {time}", time=base)
        )
        _print_title(name, subtitle, console)
        shapes = ["shapes"] if document.by == "shape" else []
        table = _table("", "kind", "count>", "total>", f"{_SIDES[timeline.side]}>", *shapes)
        for row in timeline.rows:
            share = "" if row.share is None else percent(row.share)
            ran = row.name if timeline.side == "host" else kernel_name(row.name, limit=console.width - _NUMBERS)
            cells = [clean(ran), translate(row.kind), f"{row.count:,}", _time(row.total), share]
            cells += [clean(row.shapes or "")] if shapes else []
            table.add_row(*map(Text, cells))
        console.print(table)
        _print_rest(timeline.rows_in_all - len(timeline.rows), "more row", console)


def render_gaps(document: GapDocument, console: Console) -> None:
    """Print the sums by cause and the longest gaps of every timeline."""
    print_notes(document.notes, console)
    for timeline, name in zip(document.timelines, timeline_names(document.timelines)):
        if timeline.window is None or timeline.busy is None:
            _print_title(name, _reason(timeline.reason), console)
            continue
        busy = percent(timeline.busy / timeline.window)
        gaps = counted(timeline.gaps_in_all, "gap")
        _print_title(
            name,
            sentence("busy {share} of {time}, {gaps}", share=busy, time=_time(timeline.window), gaps=gaps),
            console,
        )
        if not timeline.gaps_in_all:
            continue
        causes = _table("cause", "gaps>", "total>", "of the time>", "")
        for total in timeline.causes:
            numbers = [f"{total.count:,}", _time(total.total), percent(total.share)]
            causes.add_row(
                *map(Text, [translate(total.cause), *numbers]), Text(translate(CAUSE_WORDS[total.cause]), "dim")
            )
        console.print(causes)
        filled = _table("host meanwhile", "then", "cause", "gaps>", "total>", "of the time>")
        for group in timeline.groups:
            where = " · ".join(clean(name) for name in (group.operator, group.frame) if name) or "–"
            ended_by = "–" if group.ended_by is None else clean(kernel_name(group.ended_by, limit=_LONG))
            sums = [f"{group.count:,}", _time(group.total), percent(group.share)]
            filled.add_row(*map(Text, [where, ended_by, translate(group.cause), *sums]))
        console.print(filled)
        longest = _table("at>", "gap>", "cause")
        for gap in timeline.gaps:
            longest.add_row(*map(Text, [_time(gap.start), _time(gap.duration), translate(gap.cause)]))
        console.print(longest)
        _print_rest(timeline.gaps_in_all - len(timeline.gaps), "shorter gap", console)


def render_steps(document: StepDocument, console: Console) -> None:
    """Print which rank the others wait for, and the steps of every timeline."""
    print_notes(document.notes, console)
    slowest = document.slowest_rank
    if slowest is not None:
        words = sentence(
            "rank {rank} is the slowest: {time} a step on its own", rank=slowest.rank, time=_time(slowest.own)
        )
        behind = sentence(", {time} more than the fastest", time=_time(slowest.behind))
        console.print(Text(words, "bold") + Text(behind, "dim"))
    for timeline, name in zip(document.timelines, timeline_names(document.timelines)):
        if not timeline.steps:
            _print_title(name, _reason(timeline.reason), console)
            continue
        _print_title(name, counted(timeline.steps_in_all, "step"), console)
        if timeline.phases:
            phases = _table("phase", "steps>", "length>", "computing>", "free>")
            for phase in timeline.phases:
                medians = map(_time, (phase.length, phase.computing, phase.free))
                phases.add_row(*map(Text, [clean(phase.phase), whole(phase.count), *medians]))
            console.print(phases)
        table = _table("step>", "length>", "computing>", "comm.>", "exposed>", "copies>", "prep.>", "free>")
        for step in timeline.steps:
            times = (
                step.length,
                step.computing,
                step.communication,
                step.exposed_communication,
                step.exposed_copies,
                step.preparing,
                step.free,
            )
            number = "–" if step.number is None else str(step.number)
            requests = "" if step.requests is None else f"× {whole(step.requests)}"
            label = " ".join(filter(None, (number, step.phase and clean(step.phase), requests)))
            table.add_row(*map(Text, [label, *map(_time, times)]))
        console.print(table)
        _print_rest(timeline.steps_in_all - len(timeline.steps), "more step", console)


def timeline_names(timelines: Sequence[TopTimeline | GapTimeline | StepTimeline | RequestTimeline]) -> list[str]:
    several = len({timeline.path for timeline in timelines}) > 1
    names = []
    for timeline in timelines:
        parts = [f"rank {timeline.rank}"] if timeline.rank is not None else []
        parts += [f"device {timeline.device}"] if timeline.device is not None else []
        parts += [clean(timeline.path)] if several else []
        names.append(", ".join(parts))
    return names


def _print_title(name: str, subtitle: str, console: Console) -> None:
    console.print(Text(sentence("{name}: ", name=name) if name else "", "bold") + Text(subtitle))


def _print_rest(count: int, noun: str, console: Console) -> None:
    if count > 0:
        console.print(Text(sentence("… {count}; --limit shows more", count=counted(count, noun)), "dim"))


def _time(seconds: float | None) -> str:
    return amount(seconds, "s")


def _table(*titles: str) -> Table:
    """A table; what ends in ``>`` is a column of numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in titles:
        number = title.endswith(">")
        table.add_column(
            translate(title.rstrip(">")), justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    return table


def render_diff(document: DiffDocument, console: Console) -> None:
    """Print for every timeline where the time went, and the operators that changed."""
    print_notes(document.notes, console)
    for timeline in document.timelines:
        units = sentence(" and ").join(counted(count, timeline.unit) for count in timeline.units)
        name = clean(timeline.label) if len(document.timelines) > 1 else ""
        subtitle = sentence(
            "head against base, in one {unit} ({units} recorded)", unit=translate(timeline.unit), units=units
        )
        _print_title(name, subtitle, console)
        console.print(_totals_table(timeline))
        if timeline.rows:
            console.print(_changes_table(timeline, console.width))
        _print_rest(timeline.rows_in_all - len(timeline.rows), "more changed row", console)
        rows, tolerance = counted(timeline.same, "row"), percent(document.tolerance)
        same = sentence("{rows} as before, times to within {tolerance}", rows=rows, tolerance=tolerance)
        console.print(Text(same, "dim"))
    for label in document.unmatched:
        console.print(Text(sentence("only in one of the recordings: {label}", label=clean(label)), "dim"))


def _totals_table(timeline: DiffTimeline) -> Table:
    table = _table("", "base>", "head>", "difference>")
    for field in timeline.base.__struct_fields__:
        base, head = getattr(timeline.base, field), getattr(timeline.head, field)
        if base is not None or head is not None:
            change = "" if base is None or head is None else _signed(head - base)
            table.add_row(*map(Text, [translate(field), _time(base), _time(head), change]))
    return table


def _changes_table(timeline: DiffTimeline, width: int) -> Table:
    wide = width >= _WIDE
    table = _table("change", "", *(["kind", "base>", "head>"] if wide else []), "difference>", "runs>", "line")
    if wide:
        table.add_column(translate("shapes"), no_wrap=True, overflow="ellipsis")
    for row in timeline.rows:
        times = [_time(cost.time if cost else None) for cost in (row.base, row.head)]
        runs = " → ".join(whole(cost.count) if cost else "0" for cost in (row.base, row.head))
        cost = row.head or row.base
        line, shapes = (clean(cost.line or ""), clean(cost.shapes or "", limit=_SHORT)) if cost else ("", "")
        name = clean(row.name, limit=_LONG if wide else _SHORT)
        cells = [
            translate(row.change),
            name,
            *([translate(row.kind), *times] if wide else []),
            _signed(row.delta),
            runs,
            line,
        ]
        table.add_row(*map(Text, [*cells, shapes] if wide else cells))
    return table


def _signed(seconds: float) -> str:
    return f"{'+' if seconds > 0 else '−' if seconds < 0 else ''}{amount(abs(seconds), 's')}"
