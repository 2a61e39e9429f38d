"""The only place that rounds numbers and converts base units to ms, %, MiB."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfgate.judging.report.text.words import Words, say
from perfgate.locale import translate

DASH = Words("–")
_SECONDS = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")]
_SHORTEST = 1e-12  # finer than any clock we use: a smaller value is a rounding residue
_BYTES = [(2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")]
_RATES = [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")]
_SCALES = {"s": _SECONDS, "B": _BYTES, "B/s": _RATES}
_PLAIN_UNITS = {"items/s": " items/s", "tokens/s": " tokens/s", "1": "", "%": " %", "Cel": " °C", "W": " W", "J": " J"}
# Below this a share reads as no change.
NO_CHANGE = 0.0005


def amount(value: float | None, unit: str) -> Words:
    """One value with its unit, e.g. ``36.1 ms``; a dash for None."""
    return amounts([value], unit)[0]


def amounts(values: Sequence[float | None], unit: str, *, share: bool = False) -> list[Words]:
    """Values for reading side by side: one common unit, with enough digits to distinguish them.

    A ``share`` is of unit 1 and read in percent.
    """
    if unit == "s":
        values = [0.0 if value is not None and abs(value) < _SHORTEST else value for value in values]
    finite = [value for value in values if value is not None and math.isfinite(value)]
    factor, name = _scale(finite, unit, share=share)
    countable = factor == 1.0 and unit in {"1", "B"} and all(float(value).is_integer() for value in finite)
    are_close = len(finite) > 1 and 0 < max(finite) - min(finite) < 0.01 * abs(max(finite))
    digits = 0 if countable else 4 if are_close else 3
    zero = Words(f"0 {unit}" if unit in _SCALES else f"0{name}")
    worded = [DASH if v is None or not math.isfinite(v) else Words(_number(v / factor, digits) + name) for v in values]
    return [zero if value == 0 else words for value, words in zip(values, worded)]


def percent(share: float) -> Words:
    """The size of a share as a percentage, without its sign: ``6.8 %``."""
    return Words(f"{percent_number(share)} %")


def signed_percent(share: float) -> Words:
    """A change with its sign: ``−0.9 %``, ``+0.2 %``, ``0.0 %`` if it rounds to nothing."""
    size = f"{abs(share) * 100:.1f}"
    return Words(f"{'' if size == '0.0' else '+' if share > 0 else '−'}{size} %")


def plus_minus(share: float) -> Words:
    """Half a width: ``±0.9 %``, ``under 0.1 %``."""
    return percent(share) if _is_tiny(share) else Words(f"±{percent(share)}")


def to_two_digits(value: float, *, up: bool) -> float:
    """Round a bound for a configuration file, away from the measured value; 0 stays 0."""
    if value == 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return (math.ceil if up else math.floor)(value / unit) * unit


def setting(share: float) -> Words:
    """A share from the configuration, in the form a user would write: ``1 %``, ``2.5 %``."""
    return Words(f"{share * 100:.4g} %")


def confidence(level: float) -> Words:
    """The level of an interval in whole percent, rounded down so as never to promise more."""
    return Words(f"{math.floor(level * 100 + 1e-9)} %")


def span(base: Words, head: Words) -> Words:
    """Two values side by side, with the unit once if both share it: ``36.1 → 38.6 ms``."""
    number, _, unit = base.partition(" ")
    return Words(f"{number if unit and head.endswith(f' {unit}') else base} → {head}")


def reach(low: Words, high: Words) -> Words:
    """The ends of an interval, with the unit once if both share it: ``36.1 to 38.6 ms``."""
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return say("{low} to {high}", low=Words(number) if unit and high.endswith(f" {unit}") else low, high=high)


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
    """A number with its noun: ``1 regression``, ``2 regressions``; Chinese has no plural."""
    english = f"{{count}} {singular if count == 1 else plural or singular + 's'}"
    words = translate(f"{{count}} {singular}")
    return Words((english if words == f"{{count}} {singular}" else words).format(count=f"{count:,}"))


def whole(value: float) -> Words:
    """A count; a fractional one keeps one decimal."""
    return Words(f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}")


def percent_number(share: float) -> str:
    if _is_tiny(share):
        return say("under {size}", size=Words("0.1"))
    size = abs(share) * 100
    return f"{size:,.0f}" if size >= 100 else f"{size:.1f}"


def _is_tiny(share: float) -> bool:
    """Whether a share is not zero but rounds to nothing."""
    return 0 < abs(share) < NO_CHANGE


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


def _number(value: float, digits: int) -> str:
    """Write ``digits`` significant digits, or a whole number if ``digits`` is 0."""
    if digits == 0 or value == 0:
        return f"{value:,.0f}"
    # Rounded first: 9.9999 is 10.00, not 10.000.
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    decimals = max(0, digits - 1 - exponent)
    return f"{value:,.{min(decimals, digits)}f}"
