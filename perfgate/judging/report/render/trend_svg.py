"""The pictures of a trend: a series with its levels and changes, a small one for a
table, steps over time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from perfgate.document.columns import values_of
from perfgate.document.trend import RunHealth, TrendChange, TrendPoint, TrendSeries
from perfgate.judging.report.text import formats
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.names import day, metric_name, short
from perfgate.judging.report.text.svg import (
    across,
    caption,
    linear,
    picture,
    robust_range,
    shape,
    small_line,
    titled_dot,
    upright,
)
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.run_steps import STATUS_NAMES

_WIDTH, _HEIGHT = 760, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 84, 34, 50
MAX_POINTS = 240
_POINTS_BEFORE = 20
_CELL, _ROW_NAME, _LONGEST_NAME = 18, 250, 40
# Marks for colour-blind readers, in the order of the legend.
_MARKS = {
    "ok": "",
    "attention": "!",
    "not_applicable": "–",
    "unavailable": "?",
    "invalid": "✕",
    "error": "✕",
}


# The table below the picture has the same links, so that a keyboard need not go through
# hundreds of points.
_LINKED = Markup('<a href="{}" tabindex="-1" aria-label="{}">{}</a>')


class _Level(NamedTuple):
    """A stretch of one level: the index of its first point, the index after its last,
    and the change into it, if drawn.
    """

    first: int
    after: int
    value: float
    change: TrendChange | None


class StatusKey(NamedTuple):
    """A status in the matrix, with its words."""

    cell: Markup
    words: Words


def series_plot(
    series: Sequence[TrendSeries],
    own: str | None,
    link: Callable[[TrendPoint], Words] | None = None,
) -> Markup:
    """Draw one metric over all its testbeds, one after another: values, intervals,
    levels, changes with their commits.

    The change at the commit ``own`` is the subject of the picture and the others are
    drawn paler; with None all are alike. ``link`` gives the address behind a point,
    empty for none.
    """
    points, levels, borders = _layout(series)
    if not points:
        return Markup("")
    history = _History(points, levels, series[-1])
    parts = [
        *history.frame(),
        *history.borders(borders),
        *history.intervals(),
        *history.levels(own),
        *history.dots(link),
    ]
    title = say("history of {metric}", metric=history.name)
    role = "group" if link else "img"
    name = "plot history"
    if history.is_early(own):
        name += " early"
    return picture(name, _WIDTH, _HEIGHT, title, parts, role=role)


class _History:
    """The parts of the picture of a series."""

    def __init__(
        self,
        points: Sequence[TrendPoint],
        levels: Sequence[_Level],
        newest: TrendSeries,
    ) -> None:
        self._points = points
        self._levels = levels
        self._newest = newest
        self.name = clean_words(metric_name(newest.metric))
        values = [point.value for point in points]
        for level in levels:
            values.append(level.value)
        self._low, self._high = robust_range(np.array(values))
        self._x = linear(-0.5, len(points) - 0.5, _LEFT, _WIDTH - _RIGHT)
        self._y = linear(self._low, self._high, _HEIGHT - _BOTTOM, _TOP)

    def is_early(self, own: str | None) -> bool:
        """Whether the change that the picture is about, or the newest of all, lies in
        its left half; a narrow screen shows only one half at a time.
        """
        about: _Level | None = None
        for level in self._levels:
            if level.change is not None and _is_about(level.change, own):
                about = level
        return about is not None and self._x(about.first - 0.5) < _WIDTH / 2

    def frame(self) -> Iterator[Markup]:
        """The names of the axes, lines at round values, and dates."""
        below = say("versions of main, by date of the run")
        right = _WIDTH - _RIGHT
        yield caption(self.name, _WIDTH, 14, "end", name="legend")
        yield caption(below, right, _HEIGHT - 6, "end", name="legend")
        ticks = _ticks(self._low, self._high, self._newest.unit)
        if all(point.value >= 0 for point in self._points):
            ticks = [tick for tick in ticks if tick >= 0]
        for tick, words in zip(ticks, formats.quantities(ticks, self._newest)):
            y = self._y(tick)
            yield across("grid", _LEFT, right, y)
            # At the right, next to the newest runs, which a narrow screen shows first.
            yield caption(words, right + 8, y + 4, "start")
        yield from self._dates()

    def _dates(self) -> Iterator[Markup]:
        last = len(self._points) - 1
        places = np.linspace(0, last, min(5, last + 1))
        anchors = {last: "end", 0: "start"}
        for at in sorted(set(map(round, places))):
            date = day(self._points[at].started_at)
            anchor = anchors.get(at, "middle")
            yield caption(date, self._x(at), _HEIGHT - 28, anchor)

    def borders(self, places: Iterable[int]) -> Iterator[Markup]:
        """A line between two testbeds."""
        for at in places:
            edge = self._x(at - 0.5)
            title = say("another testbed")
            yield upright("border", edge, _TOP, _HEIGHT - _BOTTOM, title)

    def intervals(self) -> Iterator[Markup]:
        for at, point in enumerate(self._points):
            low, high = point.interval or (None, None)
            if low is not None and high is not None:
                x = self._x(at)
                yield upright("reach", x, self._y(low), self._y(high))

    def levels(self, own: str | None) -> Iterator[Markup]:
        for number, level in enumerate(self._levels):
            start = self._x(level.first - 0.5)
            end = self._x(level.after - 0.5)
            yield across("level", start, end, self._y(level.value))
            if level.change is not None:
                top = _TOP + 2 + 12 * (number % 2)
                yield from self._change(level.change, start, own, top)

    def _change(
        self, change: TrendChange, x: float, own: str | None, top: float
    ) -> Iterator[Markup]:
        paler = ""
        if not _is_about(change, own):
            paler = " other"
        name = f"change {change.direction}{paler}"
        yield upright(name, x, _TOP - 6, _HEIGHT - _BOTTOM)
        anchor = "start"
        text_x = x + 4
        if x > _WIDTH - 110:
            anchor = "end"
            text_x = x - 4
        label = clean(short(change.first_bad))
        yield caption(label, text_x, top, anchor, name=f"commit{paler}")

    def dots(self, link: Callable[[TrendPoint], Words] | None) -> Iterator[Markup]:
        radius = 3
        if len(self._points) > 80:
            radius = 2
        values = [point.value for point in self._points]
        words = formats.quantities(values, self._newest)
        for at, (point, value) in enumerate(zip(self._points, words)):
            title = f"{value} · {day(point.started_at)} · {clean(short(point.commit))}"
            kind = Words("value wild")
            if self._low <= point.value <= self._high:
                kind = Words("value")
            dot = titled_dot(kind, self._x(at), self._y(point.value), radius, title)
            address = link(point) if link else None
            if address:
                yield _LINKED.format(address, title, dot)
            else:
                yield dot


def _is_about(change: TrendChange, own: str | None) -> bool:
    return own is None or short(change.first_bad) == short(own)


def small_plot(series: TrendSeries, at: int | None = None) -> Markup:
    """Draw the newest values of a series as a line for a table, its changes marked.

    With the position of a change, the line begins before it. Values beyond its room are
    thinned out evenly.
    """
    count = len(series.points)
    begin = count - MAX_POINTS
    if at is not None:
        begin = min(begin, at - _POINTS_BEFORE)
    begin = max(0, begin)
    step = math.ceil((count - begin) / MAX_POINTS) or 1
    indices = range(count - 1, begin - 1, -step)[::-1]
    value_of = values_of(series.points)
    values = [value_of[index] for index in indices]
    changes = {}
    for change in series.changes:
        if change.at > indices[0] and change.standing != "refuted":
            changes[math.ceil((change.at - indices[0]) / step)] = change.direction
    title = say("history of {metric}", metric=clean_words(metric_name(series.metric)))
    return small_line(values, title, changes)


def steps_matrix(health: Sequence[RunHealth], titles: dict[int, str]) -> Markup:
    """Draw the status of every step of the checklist in every run, the newest at the
    right; empty without runs.
    """
    if not health:
        return Markup("")
    width = _ROW_NAME + max(len(health) * _CELL, 80) + 4
    height = len(titles) * _CELL + 20
    parts: list[Markup] = []
    for row, (number, title) in enumerate(titles.items()):
        parts += _row_of_step(number, title, row * _CELL, health)
    # The first and, of many, the last date.
    first = day(health[0].started_at)
    parts.append(caption(first, _ROW_NAME, height - 6, "start"))
    if len(health) > 12:
        last = day(health[-1].started_at)
        parts.append(caption(last, width - 6, height - 6, "end"))
    words = say("steps of the checklist over time")
    return picture("matrix", width, height, words, parts)


def _row_of_step(
    number: int, title: str, top: float, health: Sequence[RunHealth]
) -> Iterator[Markup]:
    name = f"{number} {title}"
    if len(title) > _LONGEST_NAME:
        name = f"{number} {title[: _LONGEST_NAME - 1]}…"
    yield caption(name, _ROW_NAME - 5, top + 13, "end", title=title)
    for column, run in enumerate(health):
        status = run.steps.get(str(number))
        if status is None:
            continue
        label = say(
            "step {number}, {title}, {when}: {status}",
            number=number,
            title=clean_words(title),
            when=day(run.started_at),
            status=say(STATUS_NAMES.get(status, status)),
        )
        left = _ROW_NAME + column * _CELL
        yield _cell(status, left, top + 1, label)
        mark = _MARKS.get(status)
        if mark:
            yield caption(mark, left + _CELL / 2 - 1, top + 13, "middle", name="mark")


def steps_legend() -> list[StatusKey]:
    box = f"0 0 {_CELL - 2} {_CELL - 2}"
    keys = []
    for status in _MARKS:
        cell = shape("svg", text=_cell(status, 0, 0), viewBox=box, aria_hidden="true")
        keys.append(StatusKey(cell, say(STATUS_NAMES[status])))
    return keys


def clean_words(text: str) -> Words:
    """Outside text as one harmless line; every shape escapes it for HTML."""
    return Words(clean(str(text)))


def _layout(
    series: Sequence[TrendSeries],
) -> tuple[list[TrendPoint], list[_Level], list[int]]:
    """The newest points, their levels without those before them, and the places between
    two testbeds.
    """
    points: list[TrendPoint] = []
    levels: list[_Level] = []
    borders = []
    skipped = max(0, sum(len(entry.points) for entry in series) - MAX_POINTS)
    for entry in series:
        offset = len(points) - skipped
        if offset > 0:
            borders.append(offset)
        points += entry.points
        levels += _levels_of(entry, offset)
    return points[skipped:], levels, borders


def _levels_of(series: TrendSeries, offset: int) -> Iterator[_Level]:
    """Yield the levels of a series whose first point has the index ``offset``; points
    before the index 0 are not drawn, and neither is a change among them.
    """
    changes: list[TrendChange | None] = [None, *series.changes]
    ends = [0, *(change.at for change in series.changes), len(series.points)]
    for change, (start, end) in zip(changes, pairwise(ends)):
        first = offset + start
        if start >= end or offset + end <= 0:
            continue
        drawn = change
        if first < 0 or (change is not None and change.standing == "refuted"):
            drawn = None
        values = [point.value for point in series.points[start:end]]
        value = float(np.median(values))
        yield _Level(max(first, 0), offset + end, value, drawn)


def _ticks(low: float, high: float, unit: str) -> list[float]:
    # Bytes are displayed in powers of 1024, so the ticks are round numbers of KiB, MiB
    # and so on.
    factor = 1.0
    if unit == "B":
        factor = 1024.0 ** max(0, math.floor(math.log(max(high, 1), 1024)))
    least = factor * 10 ** math.floor(math.log10((high - low) / factor / 3))
    step = least
    for wider in (10, 5, 2, 1):
        if (high - low) / (least * wider) <= 4.5:
            step = least * wider
    indices = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [index * step for index in indices]


def _cell(status: str, x: float, y: float, title: str = "") -> Markup:
    size = _CELL - 2
    name = f"step {status}"
    return shape("rect", name, title=title, x=x, y=y, width=size, height=size, rx=2)
