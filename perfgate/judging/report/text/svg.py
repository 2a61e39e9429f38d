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
_LEFT, _RIGHT, _BOTTOM = 12, 12, 26
# The width of a character of the axis, of 11 pixels height; characters above U+024F,
# such as Chinese, are square.
_NARROW, _WIDE, _LATIN = 6.2, 11.0, "\u024f"
_MAX_DOTS = 400
_BLOCKS = "▁▂▃▄▅▆▇█"
SPARKS = 24
_BINS = 60


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
    return Markup("").join(
        [head.format(name, width, height, title, role), *parts, Markup("</svg>")]
    )


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
    return lambda value: round(
        start + (min(max(value, low), high) - low) / (high - low) * (end - start), 1
    )


def robust_range(values: Floats) -> tuple[float, float]:
    """The range of most values with some room, so that a wild one does not flatten the
    rest.
    """
    low, high = float(values.min()), float(values.max())
    near, far = np.quantile(values, [0.03, 0.97]).tolist()
    reach = 1.5 * (far - near)
    if reach > 0:
        low, high = max(low, near - reach), min(high, far + reach)
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
    parts = [_band(x, tolerance, 3, 20)] if tolerance else []
    parts.append(upright("zero", x(0), 1, 25))
    parts.append(across(f"span {outcome}", low, max(high, low + 1), 13))
    if delta is not None:
        parts.append(shape("circle", f"dot {outcome}", cx=x(delta), cy=13, r=4.5))
    return picture("bar", _BAR_WIDTH, _BAR_HEIGHT, label, parts)


def dot_strip(
    effects: Sequence[float], noise: Sequence[float], tolerance: float | None
) -> Markup:
    """Draw one dot per process pair: head against base above, base against base below."""
    scale = max(*map(abs, [*effects, *noise]), 2 * (tolerance or 0.01), 0.0) * 1.1
    x = linear(-scale, scale, _LEFT, _PLOT_WIDTH - _LEFT)
    bottom = _PLOT_HEIGHT - _BOTTOM
    parts = [_band(x, tolerance, 4, bottom - 4)] if tolerance else []
    parts.append(upright("zero", x(0), 4, bottom))
    parts += _dots(effects, x, top=12, height=(bottom - 20) * 0.6, name="head")
    parts += _dots(
        noise,
        x,
        top=20 + (bottom - 20) * 0.62,
        height=(bottom - 20) * 0.3,
        name="noise",
    )
    step = scale / 2
    for share in (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001):
        if scale / share < 2.4:
            step = share
    count = int(scale / step)
    ticks = {}
    for number in range(-count, count + 1):
        ticks[x(step * number)] = (
            str(formats.directed_percent(step * number, formats.SECONDS))
            if number
            else "0"
        )
    parts += _axis(ticks)
    return picture("plot", _PLOT_WIDTH, _PLOT_HEIGHT, say("effect of each pair"), parts)


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
    edges = np.geomspace(low, high, _BINS + 1)
    bottom = _PLOT_HEIGHT - _BOTTOM
    place = linear(math.log(low), math.log(high), _LEFT, _PLOT_WIDTH - _RIGHT)
    borders = [place(math.log(edge)) for edge in edges.tolist()]
    sides = {}
    densities = {}
    peak = 0.0
    for name, side in (("base", base), ("head", head)):
        if side.size:
            sides[name] = side
            densities[name] = np.histogram(side, bins=edges)[0] / side.size
            peak = max(peak, float(densities[name].max()))
    parts = [
        _area(density / (peak or 1.0), borders, bottom, name)
        for name, density in densities.items()
    ]
    for name, side in sides.items():
        median = float(np.median(side))
        at = place(math.log(median))
        parts.append(
            upright(
                f"median {name}",
                at,
                8,
                bottom,
                title=say(
                    "median of the {side}: {time}",
                    side=Words(name),
                    time=numbers.amount(median, "s"),
                ),
            )
        )
    ticks = {}
    for tick in np.geomspace(low, high, 5).tolist():
        ticks[place(math.log(tick))] = str(numbers.amount(tick, "s"))
    parts += _axis(ticks)
    return picture(
        "plot", _PLOT_WIDTH, _PLOT_HEIGHT, say("call times of base and head"), parts
    )


def share_bar(share: float, name: str) -> Markup:
    """Draw a share of a whole as a short bar."""
    parts = [
        shape("rect", "rest", width=120, height=8, rx=2),
        shape(
            "rect",
            name,
            width=round(max(0.0, min(1.0, share)) * 120, 1),
            height=8,
            rx=2,
        ),
    ]
    return picture("share", 120, 8, str(numbers.percent(share)), parts)


def _band(x: Scale, tolerance: float, top: float, height: float) -> Markup:
    return shape(
        "rect",
        "band",
        x=x(-tolerance),
        y=top,
        width=round(x(tolerance) - x(-tolerance), 1),
        height=height,
    )


def _dots(
    values: Sequence[float], x: Scale, *, top: float, height: float, name: str
) -> list[Markup]:
    """Place dots so that neighbours do not hide each other: each takes the next of a
    few rows.
    """
    rows = 7
    dots = []
    for index, value in enumerate(values[:_MAX_DOTS]):
        dots.append(
            shape(
                "circle",
                name,
                title=say(
                    "pair {number}: {change}",
                    number=index + 1,
                    change=formats.directed_percent(value, formats.SECONDS),
                ),
                cx=x(value),
                cy=round(top + height * (index * 3 % rows) / (rows - 1), 1),
                r=4,
            )
        )
    return dots


def _axis(ticks: Mapping[float, str]) -> list[Markup]:
    """The axis below a plot with words at some places, from left to right; words that
    would overlap are left out.
    """
    bottom = _PLOT_HEIGHT - _BOTTOM
    parts = [across("axis", 0, _PLOT_WIDTH, bottom)]
    free = -1.0  # the end of the words before
    for x, words in ticks.items():
        parts.append(upright("axis", x, bottom, bottom + 4))
        half = sum(_WIDE if character > _LATIN else _NARROW for character in words) / 2
        middle = round(min(max(x, half), _PLOT_WIDTH - half), 1)
        if middle - half >= free:
            parts.append(caption(words, middle, bottom + 18, "middle"))
            free = middle + half
    return parts


def _area(heights: Floats, edges: Sequence[float], bottom: int, name: str) -> Markup:
    points = [f"{edges[0]},{bottom}"]
    for height, start, right in zip(heights.tolist(), edges[:-1], edges[1:]):
        y = round(bottom - height * (bottom - 14), 1)
        points += [f"{start},{y}", f"{right},{y}"]
    points.append(f"{edges[-1]},{bottom}")
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
        low, high = float(newest.min()), float(newest.max())
    if high <= low:
        return Words(_BLOCKS[3] * newest.size)
    places = np.clip((newest - low) / (high - low), 0, 1) * (len(_BLOCKS) - 1)
    return Words("".join(_BLOCKS[round(float(place))] for place in places))
