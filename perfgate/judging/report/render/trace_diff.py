"""The tables of `perfgate trace diff` in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from perfgate.document.trace import (
    DiffCost,
    DiffDocument,
    DiffRow,
    DiffTimeline,
    DiffTotals,
)
from perfgate.judging.report.render.tables import Table
from perfgate.judging.report.render.trace import (
    print_dim,
    print_notes,
    print_rest,
    print_title,
    times_of,
)
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.kernels import kernel_name
from perfgate.judging.report.text.numbers import (
    amount,
    counted,
    percent,
    sign_of,
    whole,
)
from perfgate.judging.report.text.words import say

_WIDE = 110  # columns of a terminal
_SHORT, _LONG = 28, 44  # letters of a name, in a narrow and a wide one
_PARTS = 2  # of a short path


def render_diff(document: DiffDocument, console: Console) -> None:
    """Print the change of time of every timeline, and the operators or lines that
    changed.
    """
    print_notes(document.notes, console)
    for timeline in document.timelines:
        name = clean(timeline.label) if len(document.timelines) > 1 else ""
        print_title(name, _subtitle(timeline), console)
        console.print(_totals_table(timeline))
        if timeline.rows:
            console.print(_changes_table(timeline, console.width))
        print_rest(
            timeline.rows_in_all - len(timeline.rows), "more changed row", console
        )
        same = say(
            "{rows} as before, times to within {tolerance}",
            rows=counted(timeline.same, "row"),
            tolerance=percent(document.tolerance),
        )
        print_dim(same, console)
    if len(document.base) + len(document.head) == 2:
        print_dim(
            say(
                "one recording a side: how far two recordings of one program differ is not known; --base and "
                "--head add others"
            ),
            console,
        )
    for label in document.unmatched:
        print_dim(
            say("only in some of the recordings: {label}", label=clean(label)), console
        )


def _subtitle(timeline: DiffTimeline) -> str:
    if timeline.unit == "whole recording" and set(timeline.units) == {1}:
        return say("head against base, over the whole recording")
    return say(
        "head against base, in one {unit} ({units} recorded)",
        unit=say(timeline.unit),
        units=say(" and ").join(
            counted(count, timeline.unit) for count in timeline.units
        ),
    )


def changed_name(row: DiffRow, limit: int) -> str:
    """The name of a row; for replaced kernels the heaviest before and the heaviest
    after.
    """
    if row.change == "replaced":
        return (
            f"{_heaviest(row.before, limit // 2)} → {_heaviest(row.after, limit // 2)}"
        )
    name = row.name
    if row.kind != "host":
        name = kernel_name(name, limit=limit)
    return clean(name, limit=limit)


def _heaviest(names: Sequence[str], limit: int) -> str:
    first = clean(kernel_name(names[0], limit=limit), limit=limit)
    if len(names) > 1:
        return f"{first} +{len(names) - 1}"
    return first


def difference(row: DiffRow) -> str:
    """Head minus base, with the range if there are several recordings."""
    return signed(row.delta) + _range_words(row.delta_range)


def signed(seconds: float) -> str:
    return f"{sign_of(seconds)}{amount(abs(seconds), 's')}"


def _range_words(ends: tuple[float, float] | None) -> str:
    if ends is None:
        return ""
    return say(" ({low} to {high})", low=signed(ends[0]), high=signed(ends[1]))


def _totals_table(timeline: DiffTimeline) -> Table:
    table = Table("", "base>", "head>", "difference>")
    for field in DiffTotals.__struct_fields__:
        base = getattr(timeline.base, field)
        head = getattr(timeline.head, field)
        if base is None and head is None:
            continue
        change = ""
        if base is not None and head is not None:
            change = signed(head - base) + _range_words(_range(timeline, field))
        table.add_row(say(field), *times_of(base, head), change)
    return table


def _range(timeline: DiffTimeline, field: str) -> tuple[float, float] | None:
    """The least and the largest difference between two recordings of either side."""
    base = _values(timeline.base_each, field)
    head = _values(timeline.head_each, field)
    if base and head:
        return (min(head) - max(base), max(head) - min(base))
    return None


def _values(totals: Sequence[DiffTotals], field: str) -> list[float]:
    values = []
    for total in totals:
        value = getattr(total, field)
        if value is not None:
            values.append(value)
    return values


def _changes_table(timeline: DiffTimeline, width: int) -> Table:
    is_wide = width >= _WIDE
    wide_columns = ["kind", "base>", "head>"] if is_wide else []
    table = Table("change", "", *wide_columns, "difference>", "runs>", "line")
    for row in timeline.rows:
        cells = [say(row.change), changed_name(row, _LONG if is_wide else _SHORT)]
        if is_wide:
            cells += [say(row.kind), *times_of(_time(row.base), _time(row.head))]
        cost = row.head or row.base
        places = []
        if cost and cost.operator:
            places.append(cost.operator)
        if cost and cost.line:
            places.append(short_place(cost.line))
        table.add_row(
            *cells,
            difference(row),
            f"{_runs(row.base)} → {_runs(row.head)}",
            clean(" · ".join(places)),
        )
    return table


def _time(cost: DiffCost | None) -> float | None:
    if cost:
        return cost.time
    return None


def _runs(cost: DiffCost | None) -> str:
    if cost:
        return whole(cost.count)
    return "0"


def short_place(place: str) -> str:
    """The last parts of a path with its line: ``…/nn/linear.py:114``."""
    parts = place.split("/")
    if len(parts) <= _PARTS + 1:
        return place
    return "/".join(["…", *parts[-_PARTS:]])
