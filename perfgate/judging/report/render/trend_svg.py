"""The pictures of a trend: a series with its levels and changes, a small one for a table, steps over time, runs a week."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from markupsafe import Markup

from perfgate.document.trend import RunHealth, TrendChange, TrendPoint, TrendSeries
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.svg import Scale, linear, picture, robust_range, shape, small_line
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.checklist import STATUS_NAMES
from perfgate.judging.report.view.trend_rows import day, short

_WIDTH, _HEIGHT = 760, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 84, 34, 50
_MAX_POINTS = 240
_POINTS_BEFORE = 20
_CELL, _ROW_NAME, _LONGEST_NAME = 18, 250, 40
# Marks for colour-blind readers, in the order of the legend.
_MARKS = {"ok": "", "attention": "!", "not_applicable": "–", "unavailable": "?", "invalid": "✕", "error": "✕"}
# A stretch of one level: first point, the one after its last, its value, and the change into it.
_Level = tuple[int, int, float, TrendChange | None]


def series_plot(
    series: Sequence[TrendSeries], own: str | None, link: Callable[[TrendPoint], Words] | None = None
) -> Markup:
    """Draw one metric over all its testbeds, one after another: values, intervals, levels, changes with their commits.

    The change at the commit ``own`` is the subject of the picture and the others are drawn paler; with None all are alike.
    ``link`` gives the address behind a point, empty for none.
    """
    points, levels, borders = _laid_out(series)
    if not points:
        return Markup("")
    unit, metric = series[-1].unit, series[-1].metric
    low, high = robust_range(np.array([*(point.value for point in points), *(value for _, _, value, _ in levels)]))
    x = linear(-0.5, len(points) - 0.5, _LEFT, _WIDTH - _RIGHT)
    y = linear(low, high, _HEIGHT - _BOTTOM, _TOP)
    name = clean_words(metric_name(metric))
    below = say("versions of main, by date of the run")
    parts = [
        shape("text", "legend", text=name, x=_WIDTH, y=14, text_anchor="end"),
        shape("text", "legend", text=below, x=_WIDTH - _RIGHT, y=_HEIGHT - 6, text_anchor="end"),
    ]
    ticks = _ticks(low, high, unit)
    if all(point.value >= 0 for point in points):
        ticks = [tick for tick in ticks if tick >= 0]
    for tick, words in zip(ticks, formats.quantities(ticks, unit, metric=metric)):
        parts.append(shape("line", "grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y(tick), y2=y(tick)))
        # At the right, beside the newest runs, which a narrow screen shows first.
        parts.append(shape("text", text=words, x=_WIDTH - _RIGHT + 8, y=y(tick) + 4, text_anchor="start"))
    for at in sorted({round(index) for index in np.linspace(0, len(points) - 1, min(5, len(points)))}):
        anchor = "start" if at == 0 else "end" if at == len(points) - 1 else "middle"
        parts.append(shape("text", text=day(points[at].started_at), x=x(at), y=_HEIGHT - 28, text_anchor=anchor))
    for at in borders:
        edge, until = x(at - 0.5), _HEIGHT - _BOTTOM
        parts.append(shape("line", "border", title=say("another testbed"), x1=edge, x2=edge, y1=_TOP, y2=until))
    for at, point in enumerate(points):
        if point.interval is not None and None not in point.interval:
            least, most = (y(float(end or 0.0)) for end in point.interval)
            parts.append(shape("line", "reach", x1=x(at), x2=x(at), y1=least, y2=most))
    parts += _drawn_levels(x, y, levels, None if own is None else short(own))
    radius = 3 if len(points) <= 80 else 2
    words_of = formats.quantities([point.value for point in points], unit, metric=metric)
    for at, (point, value) in enumerate(zip(points, words_of)):
        title = f"{value} · {day(point.started_at)} · {clean(short(point.commit))}"
        kind = "value" if low <= point.value <= high else "value wild"
        dot = shape("circle", kind, title=title, cx=x(at), cy=y(point.value), r=radius)
        if address := link(point) if link else "":
            # The table below the picture has the same links, so that a keyboard need not go through hundreds of points.
            dot = Markup('<a href="{}" tabindex="-1" aria-label="{}">{}</a>').format(address, title, dot)
        parts.append(dot)
    history = say("history of {metric}", metric=name)
    return picture("plot history", _WIDTH, _HEIGHT, history, parts, role="group" if link else "img")


def small_plot(series: TrendSeries, at: int | None = None) -> Markup:
    """Draw the newest values of a series as a line for a table, its changes marked.

    With the position of a change, the line begins before it: of more values than it has room for, it has one of every few.
    """
    count = len(series.points)
    begin = max(0, min(count - _MAX_POINTS, count if at is None else at - _POINTS_BEFORE))
    step = math.ceil((count - begin) / _MAX_POINTS) or 1
    drawn = range(count - 1, begin - 1, -step)[::-1]
    values = [series.points[index].value for index in drawn]
    changes = {
        math.ceil((change.at - drawn[0]) / step): change.direction
        for change in series.changes
        if change.at > drawn[0] and change.standing != "refuted"
    }
    return small_line(values, say("history of {metric}", metric=clean_words(metric_name(series.metric))), changes)


def steps_matrix(health: Sequence[RunHealth], titles: dict[int, str]) -> Markup:
    """Draw the status of every step of the checklist in every run, the newest at the right."""
    width = _ROW_NAME + max(len(health) * _CELL, 80) + 4
    height = len(titles) * _CELL + 20
    parts: list[Markup] = []
    for row, (number, title) in enumerate(titles.items()):
        top = row * _CELL
        name = title if len(title) <= _LONGEST_NAME else f"{title[: _LONGEST_NAME - 1]}…"
        parts.append(
            shape("text", title=title, text=f"{number} {name}", x=_ROW_NAME - 5, y=top + 13, text_anchor="end")
        )
        for column, run in enumerate(health):
            if (status := run.steps.get(str(number))) is None:
                continue
            x = _ROW_NAME + column * _CELL
            label = say(
                "step {number}, {title}, {when}: {status}",
                number=number,
                title=clean_words(title),
                when=day(run.started_at),
                status=say(STATUS_NAMES.get(status, status)),
            )
            parts.append(_cell(status, x, top + 1, label))
            if mark := _MARKS.get(status):
                parts.append(shape("text", "mark", text=mark, x=x + _CELL / 2 - 1, y=top + 13, text_anchor="middle"))
    parts += _ends([day(run.started_at) for run in health], _ROW_NAME, width - 6, height - 6)
    return picture("matrix", width, height, say("steps of the checklist over time"), parts)


def steps_legend() -> list[Mapping[str, object]]:
    """The statuses in the matrix, each with its words."""
    box = f"0 0 {_CELL - 2} {_CELL - 2}"
    return [
        {
            "cell": shape("svg", text=_cell(status, 0, 0), viewBox=box, aria_hidden="true"),
            "words": say(STATUS_NAMES[status]),
        }
        for status in _MARKS
    ]


def weeks_bars(weeks: Mapping[str, int]) -> Markup:
    """Draw how many runs there were each week."""
    newest = list(weeks.items())[-52:]
    most = max((runs for _, runs in newest), default=0) or 1
    left, step = 34, 12
    width, height = left + max(step * len(newest), 160) + 4, 88
    parts: list[Markup] = []
    for runs, y in ((most, 4), (0, 50)):
        parts.append(shape("line", "grid", x1=left, x2=width, y1=y, y2=y))
        parts.append(shape("text", text=f"{runs:,}", x=left - 6, y=y + 4, text_anchor="end"))
    for index, (monday, runs) in enumerate(newest):
        tall = round(runs / most * 46, 1)
        title = f"{monday}: {numbers.counted(runs, 'run')}"
        x = left + index * step + 2
        parts.append(shape("rect", "bar", title=title, x=x, y=50 - tall, width=8, height=max(tall, 1)))
    parts += _ends([monday for monday, _ in newest], left, width, 66)
    below = say("week, by its Monday")
    parts.append(shape("text", "legend", text=below, x=(left + width) / 2, y=84, text_anchor="middle"))
    return picture("weeks", width, height, say("runs a week"), parts)


def clean_words(text: str) -> Words:
    """Outside text as one harmless line; every shape escapes it for HTML."""
    return Words(clean(str(text)))


def _laid_out(series: Sequence[TrendSeries]) -> tuple[list[TrendPoint], list[_Level], list[int]]:
    """The newest points, their levels without those before them, and the places between two testbeds."""
    points: list[TrendPoint] = []
    levels: list[_Level] = []
    borders: list[int] = []
    skipped = max(0, sum(len(entry.points) for entry in series) - _MAX_POINTS)
    for entry in series:
        offset = len(points) - skipped
        if offset > 0:
            borders.append(offset)
        points += entry.points
        edges = [0, *(change.at for change in entry.changes), len(entry.points)]
        for (start, end), change in zip(itertools.pairwise(edges), [None, *entry.changes]):
            if start < end and offset + end > 0:
                level = float(np.median([point.value for point in entry.points[start:end]]))
                is_shown = change is not None and change.standing != "refuted" and offset + start >= 0
                levels.append((max(offset + start, 0), offset + end, level, change if is_shown else None))
    return points[skipped:], levels, borders


def _ticks(low: float, high: float, unit: str) -> list[float]:
    # Bytes are displayed in powers of 1024, so the ticks are round numbers of KiB, MiB and so on.
    factor = 1024.0 ** max(0, math.floor(math.log(max(high, 1), 1024))) if unit == "B" else 1.0
    step = factor * 10 ** math.floor(math.log10((high - low) / factor / 3))
    step = next((step * wider for wider in (1, 2, 5, 10) if (high - low) / (step * wider) <= 4.5), step)
    return [index * step for index in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _drawn_levels(x: Scale, y: Scale, levels: Sequence[_Level], own: str | None) -> Iterator[Markup]:
    for number, (first, after, value, change) in enumerate(levels):
        start = x(first - 0.5)
        yield shape("line", "level", x1=start, x2=x(after - 0.5), y1=y(value), y2=y(value))
        if change is not None:
            label = short(change.first_bad)
            paler = "" if own is None or label == own else " other"
            kind, top = f"change {change.direction}{paler}", _TOP + 2 + 12 * (number % 2)
            yield shape("line", kind, x1=start, x2=start, y1=_TOP - 6, y2=_HEIGHT - _BOTTOM)
            anchor, aside = ("end", -4) if start > _WIDTH - 110 else ("start", 4)
            yield shape("text", f"commit{paler}", text=label, x=start + aside, y=top, text_anchor=anchor)


def _cell(status: str, x: float, y: float, title: str = "") -> Markup:
    return shape("rect", f"step {status}", title=title, x=x, y=y, width=_CELL - 2, height=_CELL - 2, rx=2)


def _ends(words: Sequence[str], left: float, right: float, y: float) -> Iterator[Markup]:
    """The first and, of many, the last date below a picture of runs or weeks."""
    if words:
        yield shape("text", text=words[0], x=left, y=y, text_anchor="start")
    if len(words) > 12:
        yield shape("text", text=words[-1], x=right, y=y, text_anchor="end")
