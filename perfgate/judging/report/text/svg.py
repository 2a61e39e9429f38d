"""Small charts as inline SVG: no script, no style attribute, colours from the page's classes, values as tooltips.

Every text goes through ``Markup.format`` and is therefore escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.words import Words, say

Floats = npt.NDArray[np.float64]

_BAR_WIDTH, _BAR_HEIGHT = 220, 26
_PLOT_WIDTH, _PLOT_HEIGHT = 520, 190
_SPARK_WIDTH, _SPARK_HEIGHT = 110, 22
_LEFT, _RIGHT, _BOTTOM = 12, 12, 26
_MAX_DOTS = 400
_BINS = 60


def scale_of(intervals: Sequence[tuple[float, float]], tolerances: Sequence[float]) -> float:
    """The largest share that any interval bar in a table must show, so that all bars have one axis."""
    ends = [abs(end) for interval in intervals for end in interval if math.isfinite(end)]
    return max([*ends, *(2 * tolerance for tolerance in tolerances), 0.02]) * 1.08


def interval_bar(
    interval: tuple[float, float],
    delta: float | None,
    tolerance: float | None,
    scale: float,
    outcome: str,
    label: Words,
) -> Markup:
    """Draw an interval around 0 with the tolerated band shaded: slower is right. ``label`` is the interval in words."""

    def x(share: float) -> float:
        return round(_BAR_WIDTH / 2 + max(-1.0, min(1.0, share / scale)) * (_BAR_WIDTH / 2 - 4), 1)

    low, high = interval
    parts = [_open(_BAR_WIDTH, _BAR_HEIGHT, "bar", label)]
    if tolerance:
        band = Markup('<rect class="band" x="{}" y="3" width="{}" height="20"/>')
        parts.append(band.format(x(-tolerance), round(x(tolerance) - x(-tolerance), 1)))
    parts.append(Markup('<line class="zero" x1="{0}" x2="{0}" y1="1" y2="25"/>').format(x(0)))
    stroke = Markup('<line class="span {}" x1="{}" x2="{}" y1="13" y2="13"/>')
    parts.append(stroke.format(outcome, x(low), max(x(high), x(low) + 1)))
    if delta is not None:
        parts.append(Markup('<circle class="dot {}" cx="{}" cy="13" r="4.5"/>').format(outcome, x(delta)))
    return Markup("").join([*parts, Markup("</svg>")])


def spark_line(values: Sequence[float], label: Words) -> Markup:
    """Draw values as a line for a table, the last one marked."""
    if not values:
        return Markup("")
    low, high = min(values), max(values)
    rise = (high - low) or 1.0

    def y(value: float) -> float:
        return round(_SPARK_HEIGHT - 3 - (value - low) / rise * (_SPARK_HEIGHT - 6), 1)

    step = (_SPARK_WIDTH - 6) / max(1, len(values) - 1)
    points = " ".join(f"{round(3 + number * step, 1)},{y(value)}" for number, value in enumerate(values))
    return Markup("").join(
        [
            _open(_SPARK_WIDTH, _SPARK_HEIGHT, "spark", label),
            Markup('<polyline class="line" points="{}"/>').format(points),
            Markup('<circle class="last" cx="{}" cy="{}" r="2.2"/>').format(
                round(3 + (len(values) - 1) * step, 1), y(values[-1])
            ),
            Markup("</svg>"),
        ]
    )


def dot_strip(effects: Sequence[float], noise: Sequence[float], tolerance: float | None) -> Markup:
    """Draw one dot per process pair: head against base above, base against base below."""
    scale = max([abs(value) for value in [*effects, *noise]] + [2 * (tolerance or 0.01)]) * 1.1

    def x(share: float) -> float:
        return round(_PLOT_WIDTH / 2 + share / scale * (_PLOT_WIDTH / 2 - _LEFT), 1)

    bottom = _PLOT_HEIGHT - _BOTTOM
    parts = [_open(_PLOT_WIDTH, _PLOT_HEIGHT, "plot", say("effect of each pair"))]
    if tolerance:
        band = Markup('<rect class="band" x="{}" y="4" width="{}" height="{}"/>')
        parts.append(band.format(x(-tolerance), round(x(tolerance) - x(-tolerance), 1), bottom - 4))
    parts.append(Markup('<line class="zero" x1="{0}" x2="{0}" y1="4" y2="{1}"/>').format(x(0), bottom))
    parts += _dots(effects, x, top=12, height=(bottom - 20) * 0.6, name="head")
    parts += _dots(noise, x, top=20 + (bottom - 20) * 0.62, height=(bottom - 20) * 0.3, name="noise")
    parts.append(Markup('<line class="axis" x1="0" x2="{0}" y1="{1}" y2="{1}"/>').format(_PLOT_WIDTH, bottom))
    shares = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    step = next((share for share in shares if scale / share < 2.4), scale / 2)
    for share in (step * number for number in range(-int(scale / step), int(scale / step) + 1)):
        parts.append(_tick(x(share), bottom, str(formats.directed_percent(share, "s")) if share else "0"))
    return Markup("").join([*parts, Markup("</svg>")])


def histogram(base: Floats, head: Floats) -> Markup:
    """Draw the call times of both sides over a logarithmic axis, the outermost half percent cut off."""
    both = np.concatenate([base, head])
    both = both[both > 0]
    if both.size == 0:
        return Markup("")
    low, high = (float(end) for end in np.quantile(both, [0.002, 0.99]))
    high = max(high, low * 1.02)
    edges = np.geomspace(low, high, _BINS + 1)
    bottom = _PLOT_HEIGHT - _BOTTOM

    def x(seconds: float) -> float:
        return round(_LEFT + math.log(seconds / low) / math.log(high / low) * (_PLOT_WIDTH - _LEFT - _RIGHT), 1)

    sides = [(name, side) for name, side in (("base", base), ("head", head)) if side.size]
    densities = [(name, np.histogram(side, bins=edges)[0] / side.size) for name, side in sides]
    peak = max(float(density.max()) for _, density in densities) or 1.0
    parts = [_open(_PLOT_WIDTH, _PLOT_HEIGHT, "plot", say("call times of base and head"))]
    parts += [_area(density / peak, edges, x, bottom, name) for name, density in densities]
    parts += [_median(name, float(np.median(side)), x, bottom, low, high) for name, side in sides]
    parts.append(Markup('<line class="axis" x1="0" x2="{0}" y1="{1}" y2="{1}"/>').format(_PLOT_WIDTH, bottom))
    for seconds in np.geomspace(low, high, 5):
        parts.append(_tick(x(float(seconds)), bottom, str(formats.quantity(float(seconds), "s"))))
    return Markup("").join([*parts, Markup("</svg>")])


def share_bar(share: float, name: str) -> Markup:
    """Draw a share of a whole as a short bar."""
    width = round(max(0.0, min(1.0, share)) * 120, 1)
    rest = Markup('<rect class="rest" width="120" height="8" rx="2"/><rect class="{}" width="{}" height="8" rx="2"/>')
    return Markup("").join(
        [_open(120, 8, "share", str(numbers.percent(share))), rest.format(name, width), Markup("</svg>")]
    )


def _open(width: int, height: int, name: str, title: str) -> Markup:
    head = Markup('<svg class="{}" viewBox="0 0 {} {}" role="img"><title>{}</title>')
    return head.format(name, width, height, title)


def _dots(
    values: Sequence[float], x: Callable[[float], float], *, top: float, height: float, name: str
) -> list[Markup]:
    """Place dots so that neighbours do not hide each other: each takes the next of a few rows."""
    rows = 7
    dot = Markup('<circle class="{}" cx="{}" cy="{}" r="4"><title>{}</title></circle>')
    return [
        dot.format(
            name,
            x(value),
            round(top + height * (index * 3 % rows) / (rows - 1), 1),
            say("pair {number}: {change}", number=index + 1, change=formats.directed_percent(value, "s")),
        )
        for index, value in enumerate(list(values)[:_MAX_DOTS])
    ]


def _tick(x: float, bottom: int, text: str) -> Markup:
    anchor = "start" if x < 40 else "end" if x > _PLOT_WIDTH - 40 else "middle"
    mark = Markup(
        '<line class="axis" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/><text x="{0}" y="{3}" text-anchor="{4}">{5}</text>'
    )
    return mark.format(x, bottom, bottom + 4, bottom + 18, anchor, text)


def _area(heights: Floats, edges: Floats, x: Callable[[float], float], bottom: int, name: str) -> Markup:
    points = [f"{x(float(edges[0]))},{bottom}"]
    for height, start, right in zip(heights, edges[:-1], edges[1:]):
        y = round(bottom - float(height) * (bottom - 14), 1)
        points += [f"{x(float(start))},{y}", f"{x(float(right))},{y}"]
    points.append(f"{x(float(edges[-1]))},{bottom}")
    return Markup('<polygon class="area {}" points="{}"/>').format(name, " ".join(points))


def _median(name: str, median: float, x: Callable[[float], float], bottom: int, low: float, high: float) -> Markup:
    place = x(min(max(median, low), high))
    line = Markup('<line class="median {0}" x1="{1}" x2="{1}" y1="8" y2="{2}"><title>{3}</title></line>')
    title = say("median of the {side}: {time}", side=Words(name), time=formats.quantity(median, "s"))
    return line.format(name, place, bottom, title)
