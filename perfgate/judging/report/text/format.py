"""The only place where base units become ms, %, MiB, and where numbers are rounded.

Changes are said in words (slower/faster, more/fewer), never by a sign whose meaning depends on the metric.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import JOB_OUTPUT, JOB_WORK, LOW_PRECISION_OPS, SIGNATURE
from perfgate.document.decision import RULE_METHODS, Comparison
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.locale import translate

DASH = Words("–")
_SECONDS = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")]
_SHORTEST = 1e-12  # no clock of ours tells less: what is shorter is left over from rounding
_BYTES = [(2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")]
_RATES = [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")]
_SCALES = {"s": _SECONDS, "B": _BYTES, "B/s": _RATES}
_PLAIN_UNITS = {"items/s": " items/s", "tokens/s": " tokens/s", "1": "", "%": " %", "Cel": " °C", "W": " W", "J": " J"}
# What a larger and a smaller value of a unit are called.
_DIRECTIONS = {
    "s": (phrase("{size} slower"), phrase("{size} faster")),
    "B": (phrase("{size} more"), phrase("{size} less")),
    "1": (phrase("{size} more"), phrase("{size} fewer")),
}
_HIGHER_LOWER = (phrase("{size} higher"), phrase("{size} lower"))
_BOUNDS = {"budget": phrase("the budget"), "limit": phrase("the limit")}
# Checks that compare both sides: a difference is no failure of the head's own.
_CHANGED = {SIGNATURE: phrase("output changed"), JOB_OUTPUT: phrase("output changed"), JOB_WORK: phrase("other work")}
# Below this a share reads as no change.
_NO_CHANGE = 0.0005


def is_share(metric: str) -> bool:
    """Tell whether a metric of unit 1 is a share of a whole rather than a count."""
    return metric in METRICS and METRICS[metric].share


def is_budget(comparison: Comparison) -> bool:
    """Tell whether a comparison holds the head against a bound: that is what its base then is."""
    return comparison.method in ("budget", "limit")


def is_count(comparison: Comparison) -> bool:
    """Tell whether a comparison is between exact counts; that of low-precision operators hangs on a check besides."""
    return comparison.method == "exact" or comparison.metric == LOW_PRECISION_OPS


def sides(comparison: Comparison) -> tuple[Words, Words]:
    """Base and head of a comparison, in one unit; a check's are words, and an SLA has no base."""
    if comparison.method in RULE_METHODS:
        return DASH, quantity(comparison.head, comparison.unit, metric=comparison.metric)
    if comparison.metric in _CHANGED:
        return DASH, say("changed")
    if comparison.method == "check" and not is_count(comparison):
        return _passed(comparison.base), _passed(comparison.head)
    base, head = quantities([comparison.base, comparison.head], comparison.unit, metric=comparison.metric)
    return base, head


def quantity(value: float | None, unit: str, *, metric: str = "") -> Words:
    """One value with its unit, e.g. ``36.1 ms``; a dash where there is none."""
    return quantities([value], unit, metric=metric)[0]


def quantities(values: Sequence[float | None], unit: str, *, metric: str = "") -> list[Words]:
    """Values that are read side by side in one common unit, with the digits it takes to tell them apart."""
    if unit == "s":
        values = [0.0 if value is not None and abs(value) < _SHORTEST else value for value in values]
    finite = [value for value in values if value is not None and math.isfinite(value)]
    factor, name = _scale(finite, unit, share=is_share(metric))
    countable = factor == 1.0 and unit in {"1", "B"} and all(float(value).is_integer() for value in finite)
    digits = 0 if countable else _digits(finite)
    zero = Words(f"0 {unit}" if unit in _SCALES else f"0{name}")
    worded = [DASH if v is None or not math.isfinite(v) else Words(_number(v / factor, digits) + name) for v in values]
    return [zero if value == 0 else words for value, words in zip(values, worded)]


def change(comparison: Comparison) -> Words:
    """How far the head is from the base, in words and with its interval: ``6.8 % slower (5.9 to 7.7 %)``."""
    if is_budget(comparison):
        return _distance(comparison)
    if comparison.method == "expect":
        return _expectation(comparison)
    if comparison.method == "check" and not is_count(comparison):
        return _check_result(comparison)
    if comparison.outcome == "not_comparable" or (comparison.delta is None and not is_count(comparison)):
        return DASH
    if is_count(comparison):
        return _exact_change(comparison)
    assert comparison.delta is not None
    words = directed_percent(comparison.delta, comparison.unit, metric=comparison.metric)
    span = interval(comparison)
    return Words(f"{words} ({span})") if span and span != say("no change") else words


def interval(comparison: Comparison) -> Words:
    """The confidence interval of a change in words; empty where there is none."""
    if comparison.interval is None:
        return Words("")
    return bounds(comparison.interval, comparison.unit, metric=comparison.metric)


def bounds(interval: tuple[float, float], unit: str, *, metric: str = "") -> Words:
    """The ends of an interval of a relative change: ``5.9 to 7.7 %`` where both lie on one side of no change."""
    low, high = sorted(interval, key=abs) if _same_side(interval) else interval
    if not (math.isfinite(low) and math.isfinite(high)):
        return say("no bound")
    if _same_side(interval):
        near, far = Words(_percent_number(low)), percent(high)
        return far if percent(low) == far else say("{low} to {high}", low=near, high=far)
    ends = [directed_percent(end, unit, metric=metric) for end in (low, high)]
    return ends[0] if ends[0] == ends[1] else say("{low} to {high}", low=ends[0], high=ends[1])


def directed_percent(share: float, unit: str, *, metric: str = "") -> Words:
    """A relative change in words: ``6.8 % slower``, ``12 % fewer``, ``no change``."""
    if not math.isfinite(share):
        return say("no bound")
    if abs(share) < _NO_CHANGE:
        return say("no change")
    more, less = _HIGHER_LOWER if is_share(metric) else _DIRECTIONS.get(unit, _HIGHER_LOWER)
    return say(more if share > 0 else less, size=percent(share))


def difference(base: float, head: float, unit: str, *, metric: str = "") -> Words:
    """An absolute change in words: ``24 more``, ``1.90 ms slower``, ``the same``."""
    if base == head:
        return say("the same")
    more, less = _DIRECTIONS.get(unit, _HIGHER_LOWER)
    return say(more if head > base else less, size=quantity(abs(head - base), unit, metric=metric))


def percent(share: float) -> Words:
    """The size of a share as a percentage, without its sign: ``6.8 %``."""
    return Words(f"{_percent_number(share)} %")


def signed_percent(share: float) -> Words:
    """A change with its sign: ``−0.9 %``, ``+0.2 %``, ``0.0 %`` where it rounds to nothing."""
    size = f"{abs(share) * 100:.1f}"
    return Words(f"{'' if size == '0.0' else '+' if share > 0 else '−'}{size} %")


def plus_minus(share: float) -> Words:
    """Half a width: ``±0.9 %``, ``under 0.1 %``."""
    return percent(share) if _is_tiny(share) else Words(f"±{percent(share)}")


def limit(comparison: Comparison) -> Words:
    """The allowed worsening of a metric, or the bound itself; a dash where none applies."""
    if comparison.method in RULE_METHODS:
        return quantity(comparison.base, comparison.unit, metric=comparison.metric)
    if comparison.tolerance is None or comparison.method == "check" or comparison.outcome == "improved":
        return DASH
    return Words("0") if comparison.tolerance == 0 else setting(comparison.tolerance)


def to_two_digits(value: float, *, up: bool) -> float:
    """Round a bound that somebody is to write down, away from what was measured; 0 stays 0."""
    if value == 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return (math.ceil if up else math.floor)(value / unit) * unit


def setting(share: float) -> Words:
    """A share that someone chose, as they would write it: ``1 %``, ``2.5 %``."""
    return Words(f"{share * 100:.4g} %")


def confidence(level: float) -> Words:
    """The level of an interval in whole percent, rounded down: no more is promised than is kept."""
    return Words(f"{math.floor(level * 100 + 1e-9)} %")


def span(base: Words, head: Words) -> Words:
    """Two values side by side, their unit said once where it is the same: ``36.1 → 38.6 ms``."""
    number, _, unit = base.partition(" ")
    return Words(f"{number if unit and head.endswith(f' {unit}') else base} → {head}")


def duration(seconds: float) -> Words:
    """A span of wall time: ``7 m 40 s``."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, seconds_left = divmod(rest, 60)
    if hours:
        return say("{hours} h {minutes} m", hours=hours, minutes=minutes)
    return (
        say("{minutes} m {seconds} s", minutes=minutes, seconds=seconds_left) if minutes else Words(f"{seconds_left} s")
    )


def counted(count: int, singular: str, plural: str = "") -> Words:
    """A number with its noun: ``1 regression``, ``2 regressions``; Chinese knows no plural."""
    english = f"{{count}} {singular if count == 1 else plural or singular + 's'}"
    words = translate(f"{{count}} {singular}")
    return Words((english if words == f"{{count}} {singular}" else words).format(count=f"{count:,}"))


def whole(value: float) -> Words:
    """A count; what is no whole number keeps one decimal."""
    return Words(f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}")


def _distance(comparison: Comparison) -> Words:
    """How far a value is from its bound; a bound of 0 has no share of itself to be away."""
    bound = say("the SLA") if comparison.metric.startswith("sla.") else say(_BOUNDS[comparison.method])
    if comparison.head is None:
        return say("not shown to be kept")
    if comparison.head == comparison.base:
        return say("at {bound}", bound=bound)
    is_above = comparison.head > (comparison.base or 0.0)
    if not comparison.base:
        return say("above {bound}" if is_above else "below {bound}", bound=bound)
    size = percent(comparison.head / comparison.base - 1)
    return say("{size} above {bound}" if is_above else "{size} below {bound}", size=size, bound=bound)


def _expectation(comparison: Comparison) -> Words:
    if comparison.base is None or comparison.head is None:
        return say("not shown to be kept")
    missing = int(comparison.base - comparison.head)
    return counted(missing, "missing", "missing") if missing else say("all ran")


def _check_result(comparison: Comparison) -> Words:
    if comparison.metric in _CHANGED:
        return say(_CHANGED[comparison.metric])
    return say("check failed") if comparison.outcome == "regressed" else say("check passed")


def _passed(value: float | None) -> Words:
    return DASH if value is None else say("passed") if value else say("failed")


def _exact_change(comparison: Comparison) -> Words:
    if comparison.base is None or comparison.head is None:
        return DASH
    words = difference(comparison.base, comparison.head, comparison.unit, metric=comparison.metric)
    return say("{change} (exact)", change=words)


def _same_side(ends: tuple[float, float]) -> bool:
    return ends[0] >= 0 or ends[1] <= 0


def _percent_number(share: float) -> str:
    if _is_tiny(share):
        return say("under {size}", size=Words("0.1"))
    size = abs(share) * 100
    return f"{size:,.0f}" if size >= 100 else f"{size:.1f}"


def _is_tiny(share: float) -> bool:
    """Tell whether a share is there and rounds to nothing."""
    return 0 < abs(share) < _NO_CHANGE


def _scale(values: Sequence[float], unit: str, *, share: bool) -> tuple[float, str]:
    if share:
        return 0.01, " %"
    scales = _SCALES.get(unit)
    if scales is None:
        return 1.0, _PLAIN_UNITS.get(unit, "")
    largest = max((abs(value) for value in values), default=0.0)
    for factor, name in scales:
        if largest >= factor:
            return factor, f" {name}"
    smallest = scales[-1] if largest > 0 else next(scale for scale in scales if scale[0] == 1.0)
    return smallest[0], f" {smallest[1]}"


def _digits(values: Sequence[float]) -> int:
    close = len(values) > 1 and 0 < max(values) - min(values) < 0.01 * abs(max(values))
    return 4 if close else 3


def _number(value: float, digits: int) -> str:
    """Write ``digits`` significant digits, or a whole number where ``digits`` is 0."""
    if digits == 0 or value == 0:
        return f"{value:,.0f}"
    # Rounded first: 9.9999 is 10.00, not 10.000.
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    decimals = max(0, digits - 1 - exponent)
    return f"{value:,.{min(decimals, digits)}f}"
