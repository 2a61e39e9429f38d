"""The tables of `perfgate trace diff` in the terminal."""

from __future__ import annotations

from perfgate.document.trace import DiffDocument, DiffRow, DiffTimeline, DiffTotals
from perfgate.judging.report.render.plain import Table, TerminalOutput, Text
from perfgate.judging.report.render.trace import grid, print_notes, print_rest, print_title, time_of
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.kernels import kernel_name
from perfgate.judging.report.text.numbers import amount, counted, percent, whole
from perfgate.judging.report.text.places import short_place
from perfgate.judging.report.text.words import phrase, say

_WIDE = 110  # columns of a terminal
_SHORT, _LONG = 28, 44  # letters of a name, in a narrow and a wide one
_ONE_EACH = phrase(
    "one recording a side: how far two recordings of one program differ is not known; --base and --head add others"
)


def render_diff(document: DiffDocument, console: TerminalOutput) -> None:
    """Print for every timeline where the time went, and the operators or lines that changed."""
    print_notes(document.notes, console)
    for timeline in document.timelines:
        units = say(" and ").join(counted(count, timeline.unit) for count in timeline.units)
        name = clean(timeline.label) if len(document.timelines) > 1 else ""
        subtitle = say("head against base, in one {unit} ({units} recorded)", unit=say(timeline.unit), units=units)
        print_title(name, subtitle, console)
        console.print(_totals_table(timeline))
        if timeline.rows:
            console.print(_changes_table(timeline, console.width))
        print_rest(timeline.rows_in_all - len(timeline.rows), "more changed row", console)
        rows, tolerance = counted(timeline.same, "row"), percent(document.tolerance)
        same = say("{rows} as before, times to within {tolerance}", rows=rows, tolerance=tolerance)
        console.print(Text(same, "dim"))
    if len(document.base) + len(document.head) == 2:
        console.print(Text(say(_ONE_EACH), "dim"))
    for label in document.unmatched:
        console.print(Text(say("only in some of the recordings: {label}", label=clean(label)), "dim"))


def changed_name(row: DiffRow, limit: int) -> str:
    """The name of a row; for replaced kernels the heaviest before and the heaviest after."""
    if row.change != "replaced":
        return clean(row.name if row.kind == "host" else kernel_name(row.name, limit=limit), limit=limit)
    half = limit // 2
    return " → ".join(
        clean(kernel_name(names[0], limit=half), limit=half) + (f" +{len(names) - 1}" if len(names) > 1 else "")
        for names in (row.before, row.after)
    )


def difference(row: DiffRow) -> str:
    """Head minus base, with the range if there are several recordings."""
    return signed(row.delta) + _ranged(row.delta_range)


def signed(seconds: float) -> str:
    return f"{'+' if seconds > 0 else '−' if seconds < 0 else ''}{amount(abs(seconds), 's')}"


def _ranged(ends: tuple[float, float] | None) -> str:
    if ends is None:
        return ""
    return say(" ({low} to {high})", low=signed(ends[0]), high=signed(ends[1]))


def _totals_table(timeline: DiffTimeline) -> Table:
    table = grid("", "base>", "head>", "difference>")
    for field in DiffTotals.__struct_fields__:
        base, head = getattr(timeline.base, field), getattr(timeline.head, field)
        if base is not None or head is not None:
            change = "" if base is None or head is None else signed(head - base) + _ranged(_range(timeline, field))
            table.add_row(*map(Text, [say(field), time_of(base), time_of(head), change]))
    return table


def _range(timeline: DiffTimeline, field: str) -> tuple[float, float] | None:
    base, head = (
        [value for totals in each if (value := getattr(totals, field)) is not None]
        for each in (timeline.base_each, timeline.head_each)
    )
    return (min(head) - max(base), max(head) - min(base)) if base and head else None


def _changes_table(timeline: DiffTimeline, width: int) -> Table:
    wide = width >= _WIDE
    table = grid("change", "", *(["kind", "base>", "head>"] if wide else []), "difference>", "runs>", "line")
    for row in timeline.rows:
        times = [time_of(cost.time if cost else None) for cost in (row.base, row.head)]
        runs = " → ".join(whole(cost.count) if cost else "0" for cost in (row.base, row.head))
        cost = row.head or row.base
        where = cost and " · ".join(filter(None, (cost.operator, short_place(cost.line or ""))))
        cells = [
            say(row.change),
            changed_name(row, _LONG if wide else _SHORT),
            *([say(row.kind), *times] if wide else []),
            difference(row),
            runs,
            clean(where or ""),
        ]
        table.add_row(*map(Text, cells))
    return table
