"""The drawing code of all pages: charts as inline SVG, without script or style
attribute, with the values as tooltips.

Colours come from the page's classes. Every text and attribute is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from perfgate.judging.report.text import formats, numbers
from perfgate.judging.report.text.words import EMPTY, Words, say
from perfgate.stats.summary import median

Floats = npt.NDArray[np.float64]
# Maps values to coordinates.
Scale = Callable[[float], float]

_BAR_WIDTH, _BAR_HEIGHT = 220, 26
_PLOT_WIDTH, _PLOT_HEIGHT = 520, 190
_SMALL_WIDTH, _SMALL_HEIGHT = 150, 26
_MARGIN = 12
# The height of the axis of a plot.
_FLOOR = _PLOT_HEIGHT - 26
# The width of a character of the axis, of 11 pixels height; characters above U+024F,
# such as Chinese, are square.
_NARROW, _WIDE, _LATIN = 6.2, 11.0, "\u024f"
_MAX_DOTS = 400
_BLOCKS = "▁▂▃▄▅▆▇█"
SPARKS = 24
_BINS = 60
_DOT_ROWS = 7
# The shares between two ticks of an axis, the largest first.
_STEPS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)


def picture(
    name: str,
    width: float,
    height: float,
    title: str,
    parts: Iterable[Markup],
    role: str = "img",
) -> Markup:
    """Shapes as one picture with its title; a reader can reach the contents of a group,
    but not of an image.
    """
    head = Markup(
        '<svg class="{0}" viewBox="0 0 {1} {2}" width="{1}" height="{2}" role="{4}"><title>{3}</title>'
    )
    begin = head.format(name, width, height, title, role)
    return Markup("").join([begin, *parts, Markup("</svg>")])


def shape(
    tag: str,
    name: str = "",
    *,
    title: str = "",
    text: str = "",
    **attributes: float | str,
) -> Markup:
    """A shape of a class with its tooltip or its text; ``_`` in the name of an
    attribute stands for ``-``.
    """
    head = f' class="{escape(name)}"' if name else ""
    for key, value in attributes.items():
        # A page has ten thousands of numbers; they need no escape.
        head += f' {key.replace("_", "-")}="{escape(value) if isinstance(value, str) else value}"'
    if not title and not text:
        return Markup(f"<{tag}{head}/>")  # noqa: S704 - the values are escaped
    tooltip = f"<title>{escape(title)}</title>" if title else ""
    return Markup(f"<{tag}{head}>{tooltip}{escape(text)}</{tag}>")  # noqa: S704 - all of it is escaped


def upright(name: str, x: float, top: float, bottom: float, title: str = "") -> Markup:
    return shape("line", name, title=title, x1=x, x2=x, y1=top, y2=bottom)


def across(name: str, left: float, right: float, y: float) -> Markup:
    return shape("line", name, x1=left, x2=right, y1=y, y2=y)


def caption(
    words: str, x: float, y: float, anchor: str, *, name: str = "", title: str = ""
) -> Markup:
    return shape("text", name, title=title, text=words, x=x, y=y, text_anchor=anchor)


def titled_dot(name: Words, x: float, y: float, radius: float, title: str) -> Markup:
    """A circle with its tooltip, as `shape` draws it: a page has ten thousands of them."""
    return Markup(  # noqa: S704 - the title is escaped
        f'<circle class="{name}" cx="{x}" cy="{y}" r="{radius}">'
        f"<title>{escape(title)}</title></circle>"
    )


def linear(low: float, high: float, start: float, end: float) -> Scale:
    """Values from ``low`` to ``high`` as coordinates from ``start`` to ``end``; values
    outside lie at the ends.
    """

    def scale(value: float) -> float:
        inside = min(max(value, low), high)
        return round(start + (inside - low) / (high - low) * (end - start), 1)

    return scale


def robust_range(values: Floats) -> tuple[float, float]:
    """The range of most values with some room, so that a wild one does not flatten the
    rest.
    """
    low = float(values.min())
    high = float(values.max())
    near, far = np.quantile(values, [0.03, 0.97]).tolist()
    reach = 1.5 * (far - near)
    if reach > 0:
        low = max(low, near - reach)
        high = min(high, far + reach)
    room = 0.12 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


def small_line(
    values: Sequence[float], title: str, changes: Mapping[int, str]
) -> Markup:
    """Draw values as a line for a table, the last one marked; and the direction of each
    change at the position of a value.
    """
    if not values:
        return Markup("")
    array = np.array(values, dtype=np.float64)
    low, high = robust_range(array)
    x = _small_scale(len(values))
    parts = []
    for at, direction in changes.items():
        edge = x(at - 0.5)
        parts.append(upright(f"change {direction}", edge, 1, _SMALL_HEIGHT - 1))
    # All at once: a page has hundreds of such lines.
    heights = np.interp(array, [low, high], [_SMALL_HEIGHT - 3, 3]).round(1).tolist()
    places = _small_places(len(values))
    points = " ".join(f"{place},{height}" for place, height in zip(places, heights))
    parts.append(shape("polyline", "line", points=points))
    parts.append(shape("circle", "last", cx=places[-1], cy=heights[-1], r=2.2))
    return picture("small", _SMALL_WIDTH, _SMALL_HEIGHT, title, parts)


def _small_scale(count: int) -> Scale:
    return linear(-0.5, count - 0.5, 3, _SMALL_WIDTH - 3)


@lru_cache(maxsize=64)
def _small_places(count: int) -> list[float]:
    """The coordinates of so many values, which are the same in most lines of a page."""
    return list(map(_small_scale(count), range(count)))


def scale_of(
    intervals: Sequence[tuple[float, float]], tolerances: Sequence[float]
) -> float:
    """The largest share that any interval bar in a table must show, so that all bars
    have one axis.
    """
    largest = max(0.02, 2 * max(tolerances, default=0.0))
    for low, high in intervals:
        for end in (low, high):
            if math.isfinite(end):
                largest = max(largest, abs(end))
    return largest * 1.08


def interval_bar(
    interval: tuple[float, float],
    delta: float | None,
    tolerance: float | None,
    scale: float,
    outcome: str,
    label: Words,
) -> Markup:
    """Draw an interval around 0 with the tolerated band shaded: slower is right.

    ``label`` is the interval in words.
    """
    x = linear(-scale, scale, 4, _BAR_WIDTH - 4)
    low, high = map(x, interval)
    parts = _band(x, tolerance, 3, 20)
    parts.append(upright("zero", x(0), 1, 25))
    parts.append(across(f"span {outcome}", low, max(high, low + 1), 13))
    if delta is not None:
        parts.append(shape("circle", f"dot {outcome}", cx=x(delta), cy=13, r=4.5))
    return picture("bar", _BAR_WIDTH, _BAR_HEIGHT, label, parts)


def dot_strip(
    effects: Sequence[float], noise: Sequence[float], tolerance: float | None
) -> Markup:
    """Draw one dot per process pair: head against base above, base against base below."""
    ends = [abs(value) for value in (*effects, *noise)]
    scale = 1.1 * max([*ends, 2 * (tolerance or 0.01)])
    x = linear(-scale, scale, _MARGIN, _PLOT_WIDTH - _MARGIN)
    height = _FLOOR - 20
    parts = _band(x, tolerance, 4, _FLOOR - 4)
    parts.append(upright("zero", x(0), 4, _FLOOR))
    parts += _dots("head", effects, x, top=12, height=height * 0.6)
    parts += _dots("noise", noise, x, top=20 + height * 0.62, height=height * 0.3)
    step = min((share for share in _STEPS if scale / share < 2.4), default=scale / 2)
    count = int(scale / step)
    ticks = {}
    for number in range(-count, count + 1):
        words = "0"
        if number:
            words = formats.directed_percent(step * number, formats.SECONDS)
        ticks[x(step * number)] = words
    return _plot(say("effect of each pair"), parts, ticks)


def histogram(base: Floats, head: Floats) -> Markup:
    """Draw the call times of both sides over a logarithmic axis, the outermost half
    percent cut off.
    """
    both = np.concatenate([base, head])
    both = both[both > 0]
    if both.size == 0:
        return Markup("")
    low, high = np.quantile(both, [0.002, 0.99]).tolist()
    high = max(high, low * 1.02)
    x = linear(math.log(low), math.log(high), _MARGIN, _PLOT_WIDTH - _MARGIN)
    edges = np.geomspace(low, high, _BINS + 1)
    borders = [x(math.log(edge)) for edge in edges.tolist()]
    sides = {}
    densities = {}
    for name, times in (("base", base), ("head", head)):
        if times.size:
            sides[name] = times
            densities[name] = np.histogram(times, bins=edges)[0] / times.size
    peak = max(float(density.max()) for density in densities.values())
    parts = []
    for name, density in densities.items():
        parts.append(_area(name, density / (peak or 1.0), borders))
    for name, times in sides.items():
        typical = float(np.median(times))
        title = say(
            "median of the {side}: {time}",
            side=Words(name),
            time=numbers.amount(typical, "s"),
        )
        at = x(math.log(typical))
        parts.append(upright(f"median {name}", at, 8, _FLOOR, title))
    ticks = {}
    for tick in np.geomspace(low, high, 5).tolist():
        ticks[x(math.log(tick))] = numbers.amount(tick, "s")
    return _plot(say("call times of base and head"), parts, ticks)


def share_bar(share: float, name: str) -> Markup:
    """Draw a share of a whole as a short bar."""
    width = round(max(0.0, min(1.0, share)) * 120, 1)
    parts = [
        shape("rect", "rest", width=120, height=8, rx=2),
        shape("rect", name, width=width, height=8, rx=2),
    ]
    return picture("share", 120, 8, numbers.percent(share), parts)


def _band(x: Scale, tolerance: float | None, top: float, height: float) -> list[Markup]:
    """The tolerated band, if there is one."""
    if not tolerance:
        return []
    left = x(-tolerance)
    width = round(x(tolerance) - left, 1)
    return [shape("rect", "band", x=left, y=top, width=width, height=height)]


def _dots(
    name: str, values: Sequence[float], x: Scale, *, top: float, height: float
) -> list[Markup]:
    """Place dots so that neighbours do not hide each other: each takes the next of a
    few rows.
    """
    dots = []
    for index, value in enumerate(values[:_MAX_DOTS]):
        change = formats.directed_percent(value, formats.SECONDS)
        title = say("pair {number}: {change}", number=index + 1, change=change)
        y = top + height * (index * 3 % _DOT_ROWS) / (_DOT_ROWS - 1)
        dots.append(
            shape("circle", name, title=title, cx=x(value), cy=round(y, 1), r=4)
        )
    return dots


def _plot(title: str, parts: Sequence[Markup], ticks: Mapping[float, str]) -> Markup:
    """A plot above an axis with words at some places, from left to right; words that
    would overlap are left out.
    """
    axis = [across("axis", 0, _PLOT_WIDTH, _FLOOR)]
    free = -1.0  # the end of the words before
    for x, words in ticks.items():
        axis.append(upright("axis", x, _FLOOR, _FLOOR + 4))
        half = sum(map(_width, words)) / 2
        middle = round(min(max(x, half), _PLOT_WIDTH - half), 1)
        if middle - half >= free:
            axis.append(caption(words, middle, _FLOOR + 18, "middle"))
            free = middle + half
    return picture("plot", _PLOT_WIDTH, _PLOT_HEIGHT, title, [*parts, *axis])


def _width(character: str) -> float:
    return _WIDE if character > _LATIN else _NARROW


def _area(name: str, heights: Floats, edges: Sequence[float]) -> Markup:
    points = [f"{edges[0]},{_FLOOR}"]
    for height, left, right in zip(heights.tolist(), edges[:-1], edges[1:]):
        y = round(_FLOOR - height * (_FLOOR - 14), 1)
        points += [f"{left},{y}", f"{right},{y}"]
    points.append(f"{edges[-1]},{_FLOOR}")
    return shape("polygon", f"area {name}", points=" ".join(points))


def sparkline(values: Sequence[float], width: int = SPARKS) -> Words:
    """The newest values as blocks, the last at the right; equal values all in the
    middle.

    Values outside the range of most others are drawn at the edge, so that one outlier
    does not flatten the rest.
    """
    if not values:
        return EMPTY
    newest = np.asarray(values[-4 * width :], dtype=np.float64)
    if newest.size > width:
        newest = np.array([median(part) for part in np.array_split(newest, width)])
    low, high = np.quantile(newest, [0.05, 0.95], method="nearest").tolist()
    if high <= low:
        low = float(newest.min())
        high = float(newest.max())
    if high <= low:
        return Words(_BLOCKS[3] * newest.size)
    places = np.clip((newest - low) / (high - low), 0, 1) * (len(_BLOCKS) - 1)
    return Words("".join(_BLOCKS[round(float(place))] for place in places))
