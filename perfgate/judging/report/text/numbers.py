"""The only place that rounds numbers and converts base units to ms, %, MiB."""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized

from perfgate.judging.report.text.words import Words, say
from perfgate.locale import translate

DASH = Words("–")
_SECONDS = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")]
_SHORTEST = 1e-12  # finer than any clock we use: a smaller value is a rounding residue
_BYTES = [
    (2.0**40, "TiB"),
    (2.0**30, "GiB"),
    (2.0**20, "MiB"),
    (2.0**10, "KiB"),
    (1.0, "B"),
]
_RATES = [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")]
_SCALES = {"s": _SECONDS, "B": _BYTES, "B/s": _RATES}
_PLAIN_UNITS = {
    "items/s": " items/s",
    "tokens/s": " tokens/s",
    "1": "",
    "%": " %",
    "Cel": " °C",
    "W": " W",
    "J": " J",
}
# Below this a share reads as no change.
NO_CHANGE = 0.0005


def amount(value: float | None, unit: str) -> Words:
    """One value with its unit, e.g. ``36.1 ms``; a dash for None."""
    return amounts([value], unit)[0]


def amounts(
    values: Sequence[float | None], unit: str, *, share: bool = False
) -> list[Words]:
    """Values for reading side by side: one common unit, with enough digits to
    distinguish them.

    A value that would read as zero in the common unit has its own. A ``share`` is of
    unit 1 and read in percent.
    """
    finite = [
        _without_residue(value, unit)
        for value in values
        if value is not None and math.isfinite(value)
    ]
    factor, name = _scale(finite, unit, share=share)
    digits = _digits(finite, unit, factor)
    zero = Words(f"0{name}")
    if unit in _SCALES:
        zero = Words(f"0 {unit}")
    texts = []
    for value in values:
        if value is None or not math.isfinite(value / factor):
            texts.append(DASH)
        elif _without_residue(value, unit) == 0:
            texts.append(zero)
        elif len(finite) > 1 and unit in _SCALES and _is_hidden(value / factor, digits):
            texts.append(amount(value, unit))
        else:
            texts.append(Words(_number(value / factor, digits) + name))
    return texts


def _without_residue(value: float, unit: str) -> float:
    if unit == "s" and abs(value) < _SHORTEST:
        return 0.0
    return value


def _digits(values: Sequence[float], unit: str, factor: float) -> int:
    """Significant digits: one more if the values are close to each other, and 0 for
    whole counts.
    """
    if (
        factor == 1.0
        and unit in {"1", "B"}
        and all(float(value).is_integer() for value in values)
    ):
        return 0
    if len(values) > 1 and 0 < max(values) - min(values) < 0.01 * abs(max(values)):
        return 4
    return 3


def percent(share: float | None) -> Words:
    """The size of a share as a percentage, without its sign: ``6.8 %``; a dash for
    None.
    """
    if share is None:
        return DASH
    return Words(f"{percent_number(share)} %")


def sign_of(number: float) -> str:
    if number == 0:
        return ""
    if number > 0:
        return "+"
    return "−"


def signed_percent(share: float) -> Words:
    """A change with its sign: ``−0.9 %``, ``+0.2 %``, ``0.0 %`` if it rounds to zero."""
    size = f"{abs(share) * 100:.1f}"
    if size == "0.0":
        return Words("0.0 %")
    return Words(f"{sign_of(share)}{size} %")


def plus_minus(share: float | None) -> Words:
    """Half a width: ``±0.9 %``, ``under 0.1 %``; a dash for None."""
    if share is None or _is_tiny(share):
        return percent(share)
    return Words(f"±{percent(share)}")


def to_two_digits(value: float, *, up: bool) -> float:
    """Round a bound for a configuration file, away from the measured value; 0 stays 0."""
    if value == 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    if up:
        return math.ceil(value / unit) * unit
    return math.floor(value / unit) * unit


def setting(share: float | None) -> Words:
    """A share from the configuration, in the form a user would write: ``1 %``,
    ``2.5 %``; a dash for None.
    """
    if share is None:
        return DASH
    return Words(f"{share * 100:.4g} %")


def confidence(level: float) -> Words:
    """The level of an interval in whole percent, rounded down so as never to promise
    more.
    """
    return Words(f"{math.floor(level * 100 + 1e-9)} %")


def span(base: Words, head: Words) -> Words:
    """Two values side by side, with the unit once if both share it: ``36.1 → 38.6 ms``."""
    return Words(f"{_without_common_unit(base, head)} → {head}")


def reach(low: Words, high: Words) -> Words:
    """The ends of an interval, with the unit once if both share it:
    ``36.1 to 38.6 ms``.
    """
    if low == high:
        return low
    return say("{low} to {high}", low=_without_common_unit(low, high), high=high)


def _without_common_unit(value: Words, neighbour: Words) -> Words:
    number, _, unit = value.partition(" ")
    if unit and neighbour.endswith(f" {unit}"):
        return Words(number)
    return value


def duration(seconds: float | None) -> Words:
    """A span of wall time: ``7 m 40 s``; a dash for None."""
    if seconds is None:
        return DASH
    minutes, rest = divmod(max(0, round(seconds)), 60)
    if minutes >= 60:
        return say("{hours} h {minutes} m", hours=minutes // 60, minutes=minutes % 60)
    if minutes:
        return say("{minutes} m {seconds} s", minutes=minutes, seconds=rest)
    return Words(f"{rest} s")


def counted(count: int, singular: str, plural: str = "") -> Words:
    """A number with its noun: ``1 regression``, ``2 regressions``; Chinese has no
    plural.
    """
    english = f"{{count}} {singular}"
    words = translate(english)
    if words == english and count != 1:
        words = f"{{count}} {plural or singular + 's'}"
    return Words(words.format(count=f"{count:,}"))


def beyond(listed: Sized, most: int) -> int:
    """How many entries a list has beyond the first ``most``."""
    return max(0, len(listed) - most)


def whole(value: float) -> Words:
    """A count; a fraction keeps one decimal."""
    if float(value).is_integer():
        return Words(f"{value:,.0f}")
    return Words(f"{value:,.1f}")


def percent_number(share: float) -> str:
    if _is_tiny(share):
        return say("under {size}", size=Words("0.1"))
    size = abs(share) * 100
    if size >= 100:
        return f"{size:,.0f}"
    return f"{size:,.1f}"


def _is_tiny(share: float) -> bool:
    """Whether a share is not zero but rounds to zero."""
    return 0 < abs(share) < NO_CHANGE


def _scale(values: Sequence[float], unit: str, *, share: bool) -> tuple[float, str]:
    if share:
        return 0.01, " %"
    scales = _SCALES.get(unit)
    if scales is None:
        return 1.0, _PLAIN_UNITS.get(unit, "")
    largest = max(map(abs, values), default=0.0)
    if not largest:
        return 1.0, f" {unit}"
    chosen = len(scales) - 1
    for position, (factor, _) in enumerate(scales):
        if largest >= factor:
            chosen = position
            break
    factor, name = scales[chosen]
    if chosen > 0:
        larger, larger_name = scales[chosen - 1]
        in_unit = largest / factor
        # Rounded first: 999.9 µs are 1.00 ms, not 1,000 µs.
        shown = round(in_unit, _decimals(in_unit, _digits(values, unit, factor)))
        if shown >= round(larger / factor):
            return larger, f" {larger_name}"
    return factor, f" {name}"


def _is_hidden(value: float, digits: int) -> bool:
    """Whether a value that is not zero would be written as zero."""
    return round(value, _decimals(value, digits)) == 0


def _number(value: float, digits: int) -> str:
    return f"{value:,.{_decimals(value, digits)}f}"


def _decimals(value: float, digits: int) -> int:
    """The decimals that show ``digits`` significant digits; none if ``digits`` is 0."""
    if digits == 0 or value == 0:
        return 0
    # Rounded first: 9.9999 is 10.00, not 10.000.
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    decimals = max(0, digits - 1 - exponent)
    return min(decimals, digits)
