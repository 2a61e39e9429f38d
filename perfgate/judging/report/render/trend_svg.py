"""The pictures of a trend as inline SVG: a series with its levels and changes, a small one for a table, steps over time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from perfgate.document.trend import RunHealth, TrendChange, TrendPoint, TrendSeries, Week
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.checklist import STATUS_NAMES
from perfgate.judging.report.view.trend_rows import day, short

_WIDTH, _HEIGHT = 760, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 84, 34, 50
_SMALL_WIDTH, _SMALL_HEIGHT = 150, 26
_MAX_POINTS = 240
_CELL, _ROW_NAME, _TITLE = 18, 250, 20
# Marks for colour-blind readers, in the order of the legend.
_MARKS = {"ok": "", "attention": "!", "not_applicable": "–", "unavailable": "?", "invalid": "✕", "error": "✕"}
_TEXT = Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>')


class LevelLine(NamedTuple):
    """A stretch of one level: first point, the one after its last, its value, direction and label of the change into it."""

    start: int
    end: int
    value: float
    direction: str
    label: str


# Maps places or values to coordinates.
_Scale = Callable[[float], float]


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
    low, high = _robust_range(np.array([*(point.value for point in points), *(level.value for level in levels)]))
    x = _scale(-0.5, len(points) - 0.5, _LEFT, _WIDTH - _RIGHT)
    y = _scale(low, high, _HEIGHT - _BOTTOM, _TOP)
    name = clean_words(metric_name(metric))
    title = say("history of {metric}", metric=name)
    # The contents of an image cannot be reached, so that a picture with links is a group.
    parts = [_open(_WIDTH, _HEIGHT, "plot history", title, "group" if link else "img")]
    parts += [_TEXT.format("legend", _WIDTH, 14, "end", name)]
    parts += [_TEXT.format("legend", _WIDTH - _RIGHT, _HEIGHT - 6, "end", say("versions of main, by date of the run"))]
    ticks = _ticks(low, high, unit)
    if all(point.value >= 0 for point in points):
        ticks = [tick for tick in ticks if tick >= 0]
    parts += _value_axis(y, ticks, unit, metric)
    parts += _date_axis(x, points)
    border = Markup('<line class="border" x1="{0}" x2="{0}" y1="{1}" y2="{2}"><title>{3}</title></line>')
    parts += [border.format(x(at - 0.5), _TOP, _HEIGHT - _BOTTOM, say("another testbed")) for at in borders]
    parts += _intervals(x, y, points, low, high)
    parts += _drawn_levels(x, y, levels, None if own is None else short(own))
    parts += _dots(x, y, points, unit, metric, low, high, link)
    return Markup("").join([*parts, Markup("</svg>")])


def small_plot(series: TrendSeries) -> Markup:
    """Draw a series as a line for a table, its changes marked."""
    values = np.array([point.value for point in series.points[-_MAX_POINTS:]], dtype=np.float64)
    skipped = max(0, len(series.points) - _MAX_POINTS)
    if values.size == 0:
        return Markup("")
    low, high = _robust_range(values)
    x = _scale(-0.5, values.size - 0.5, 3, _SMALL_WIDTH - 3)
    y = _scale(low, high, _SMALL_HEIGHT - 3, 3)
    line = " ".join(f"{x(i)},{y(min(max(float(v), low), high))}" for i, v in enumerate(values))
    mark = Markup('<line class="change {0}" x1="{1}" x2="{1}" y1="1" y2="{2}"/>')
    marks = [
        mark.format(change.direction, x(change.at - skipped - 0.5), _SMALL_HEIGHT - 1)
        for change in series.changes
        if change.at > skipped and change.standing != "refuted"
    ]
    title = say("history of {metric}", metric=clean_words(metric_name(series.metric)))
    head = _open(_SMALL_WIDTH, _SMALL_HEIGHT, "small", title)
    end = Markup('<circle class="last" cx="{}" cy="{}" r="2.2"/>')
    last = end.format(x(values.size - 1), y(min(max(float(values[-1]), low), high)))
    return Markup("").join(
        [head, *marks, Markup('<polyline class="line" points="{}"/>').format(line), last, Markup("</svg>")]
    )


def steps_matrix(health: Sequence[RunHealth], titles: dict[int, str]) -> Markup:
    """Draw the status of every step of the checklist in every run, the newest at the right."""
    width = _ROW_NAME + max(len(health) * _CELL, 80) + 4
    height = len(titles) * _CELL + 20
    parts = [_open(width, height, "matrix", say("steps of the checklist over time"))]
    name = Markup('<text x="{}" y="{}" text-anchor="end"><title>{}</title>{}</text>')
    cell = Markup('<rect class="step {}" x="{}" y="{}" width="{}" height="{}" rx="2"><title>{}</title></rect>')
    mark = Markup('<text class="mark" x="{}" y="{}" text-anchor="middle">{}</text>')
    for row, (number, title) in enumerate(titles.items()):
        top = row * _CELL
        shown = title if len(title) <= _TITLE * 2 else f"{title[: _TITLE * 2 - 1]}…"
        parts.append(name.format(_ROW_NAME - 5, top + 13, title, f"{number} {shown}"))
        for column, run in enumerate(health):
            status = run.steps.get(str(number))
            if status is None:
                continue
            x = _ROW_NAME + column * _CELL
            label = say(
                "step {number}, {title}, {when}: {status}",
                number=number,
                title=clean_words(title),
                when=day(run.started_at),
                status=say(STATUS_NAMES.get(status, status)),
            )
            parts.append(cell.format(status, x, top + 1, _CELL - 2, _CELL - 2, label))
            if _MARKS.get(status):
                parts.append(mark.format(x + (_CELL - 2) / 2, top + 13, _MARKS[status]))
    below = height - 6
    date = Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>')
    if health:
        parts.append(date.format(_ROW_NAME, below, "start", day(health[0].started_at)))
        if len(health) > 12:
            parts.append(date.format(width - 6, below, "end", day(health[-1].started_at)))
    return Markup("").join([*parts, Markup("</svg>")])


def steps_legend() -> list[Mapping[str, Words]]:
    """The statuses in the matrix, each with its words."""
    return [{"key": Words(status), "words": say(STATUS_NAMES[status])} for status in _MARKS]


def weeks_bars(weeks: Sequence[Week]) -> Markup:
    """Draw how many runs there were each week."""
    newest = list(weeks)[-52:]
    most = max((week.runs for week in newest), default=0) or 1
    left, step = 34, 12
    width, height = left + max(step * len(newest), 160) + 4, 88
    parts = [_open(width, height, "weeks", say("runs a week"))]
    line = Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>')
    for runs, y in ((most, 4), (0, 50)):
        parts += [line.format(left, width, y, y), _TEXT.format("", left - 6, y + 4, "end", f"{runs:,}")]
    bar = Markup('<rect class="bar" x="{}" y="{}" width="8" height="{}"><title>{}: {}</title></rect>')
    for index, week in enumerate(newest):
        tall = round(week.runs / most * 46, 1)
        parts.append(
            bar.format(left + index * step + 2, 50 - tall, max(tall, 1), week.monday, numbers.counted(week.runs, "run"))
        )
    text = Markup('<text x="{}" y="66" text-anchor="{}">{}</text>')
    if newest:
        parts.append(text.format(left, "start", newest[0].monday))
        if len(newest) > 12:
            parts.append(text.format(width, "end", newest[-1].monday))
    parts.append(_TEXT.format("legend", (left + width) / 2, 84, "middle", say("week, by its Monday")))
    return Markup("").join([*parts, Markup("</svg>")])


def clean_words(text: str) -> Words:
    """Outside text as one harmless line; ``Markup.format`` escapes it for HTML."""
    return Words(clean(str(text)))


def _laid_out(series: Sequence[TrendSeries]) -> tuple[list[TrendPoint], list[LevelLine], list[int]]:
    points: list[TrendPoint] = []
    levels: list[LevelLine] = []
    borders: list[int] = []
    for entry in series:
        offset = len(points)
        if offset:
            borders.append(offset)
        points += entry.points
        edges = [0, *(change.at for change in entry.changes), len(entry.points)]
        reading = [("", ""), *map(_read, entry.changes)]
        for (start, end), (direction, label) in zip(itertools.pairwise(edges), reading):
            values = [point.value for point in entry.points[start:end]]
            if values:
                levels.append(LevelLine(offset + start, offset + end, float(np.median(values)), direction, label))
    skipped = max(0, len(points) - _MAX_POINTS)
    levels = [
        LevelLine(
            max(level.start - skipped, 0),
            level.end - skipped,
            level.value,
            *((level.direction, level.label) if level.start >= skipped else ("", "")),
        )
        for level in levels
        if level.end > skipped
    ]
    return points[skipped:], levels, [at - skipped for at in borders if at > skipped]


def _read(change: TrendChange) -> tuple[str, str]:
    return ("", "") if change.standing == "refuted" else (change.direction, short(change.first_bad))


def _robust_range(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    near, far = (float(end) for end in np.quantile(values, [0.03, 0.97]))
    reach = 1.5 * (far - near)
    if reach > 0:
        low, high = max(low, near - reach), min(high, far + reach)
    room = 0.12 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


def _scale(low: float, high: float, start: float, end: float) -> _Scale:
    return lambda value: round(start + (value - low) / (high - low) * (end - start), 1)


def _ticks(low: float, high: float, unit: str) -> list[float]:
    # Bytes are displayed in powers of 1024, so the ticks are round numbers of KiB, MiB and so on.
    factor = 1024.0 ** max(0, math.floor(math.log(max(high, 1), 1024))) if unit == "B" else 1.0
    step = factor * 10 ** math.floor(math.log10((high - low) / factor / 3))
    step = next((step * wider for wider in (1, 2, 5, 10) if (high - low) / (step * wider) <= 4.5), step)
    return [index * step for index in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _value_axis(y: _Scale, ticks: Sequence[float], unit: str, metric: str) -> list[Markup]:
    line = Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>')
    # At the right, beside the newest runs, which a narrow screen shows first.
    text = Markup('<text x="{}" y="{}" text-anchor="start">{}</text>')
    marks: list[Markup] = []
    for tick, words in zip(ticks, formats.quantities(ticks, unit, metric=metric)):
        height = y(tick)
        marks += [
            line.format(_LEFT, _WIDTH - _RIGHT, height, height),
            text.format(_WIDTH - _RIGHT + 8, height + 4, words),
        ]
    return marks


def _date_axis(x: _Scale, points: Sequence[TrendPoint]) -> list[Markup]:
    places = sorted({round(index) for index in np.linspace(0, len(points) - 1, min(5, len(points)))})
    text = Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>')
    return [
        text.format(
            x(at),
            _HEIGHT - 28,
            "start" if at == 0 else "end" if at == len(points) - 1 else "middle",
            day(points[at].started_at),
        )
        for at in places
    ]


def _intervals(x: _Scale, y: _Scale, points: Sequence[TrendPoint], low: float, high: float) -> list[Markup]:
    line = Markup('<line class="reach" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>')
    marks = []
    for index, point in enumerate(points):
        if point.interval is not None and None not in point.interval:
            ends = [min(max(float(end or 0.0), low), high) for end in point.interval]
            marks.append(line.format(x(index), y(ends[0]), y(ends[1])))
    return marks


def _drawn_levels(x: _Scale, y: _Scale, levels: Sequence[LevelLine], own: str | None) -> list[Markup]:
    level_line = Markup('<line class="level" x1="{}" x2="{}" y1="{}" y2="{}"/>')
    change_line = Markup('<line class="change {0}" x1="{1}" x2="{1}" y1="{2}" y2="{3}"/>')
    label = Markup('<text class="commit{}" x="{}" y="{}" text-anchor="{}">{}</text>')
    marks = []
    for number, level in enumerate(levels):
        start, height = x(level.start - 0.5), y(level.value)
        marks.append(level_line.format(start, x(level.end - 0.5), height, height))
        if level.direction:
            anchor = "end" if start > _WIDTH - 110 else "start"
            paler = "" if own is None or level.label == own else " other"
            marks.append(change_line.format(level.direction + paler, start, _TOP - 6, _HEIGHT - _BOTTOM))
            marks.append(
                label.format(
                    paler, start + (-4 if anchor == "end" else 4), _TOP + 2 + 12 * (number % 2), anchor, level.label
                )
            )
    return marks


def _dots(
    x: _Scale,
    y: _Scale,
    points: Sequence[TrendPoint],
    unit: str,
    metric: str,
    low: float,
    high: float,
    link: Callable[[TrendPoint], Words] | None,
) -> list[Markup]:
    dot = Markup('<circle class="value{}" cx="{}" cy="{}" r="{}"><title>{}</title></circle>')
    # The table below the picture has the same links, so that a keyboard need not go through hundreds of points.
    linked = Markup('<a href="{}" tabindex="-1" aria-label="{}">{}</a>')
    words = formats.quantities([point.value for point in points], unit, metric=metric)
    radius = 3 if len(points) <= 80 else 2
    marks = []
    for index, (point, value) in enumerate(zip(points, words)):
        inside = min(max(point.value, low), high)
        title = f"{value} · {day(point.started_at)} · {clean(short(point.commit))}"
        drawn = dot.format("" if inside == point.value else " wild", x(index), y(inside), radius, title)
        address = link(point) if link else Words("")
        marks.append(linked.format(address, title, drawn) if address else drawn)
    return marks


def _open(width: float, height: float, name: str, title: str, role: str = "img") -> Markup:
    head = Markup('<svg class="{0}" viewBox="0 0 {1} {2}" width="{1}" height="{2}" role="{4}"><title>{3}</title>')
    return head.format(name, width, height, title, role)
