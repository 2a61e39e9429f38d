"""Decimal text of a profiler to integer nanoseconds, never by way of a float.

As float64 a time since 1970 in microseconds has steps of 250 ns.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from perfgate.trace.events import MAX_NS

_MAX_NUMBER_TEXT = 64
_DIGITS = 19  # of microseconds since 1970 with three decimals


def nanoseconds(text: bytes) -> int:
    """Return the nanoseconds of a JSON number (or string) of microseconds, exactly; below a nanosecond half to even.

    Raises ValueError for what is no number, and outside of 146 years.
    """
    whole, _, fraction = text.strip(b'"').partition(b".")
    digits = whole + fraction.ljust(3, b"0")
    if whole and len(fraction) <= 3 and len(digits) <= _DIGITS and digits.isdigit():
        plain = int(digits)
        if plain <= MAX_NS // 1000 * 1000:
            return plain
    return _nanoseconds_of_any(text)


def nanoseconds_of_milliseconds(text: bytes) -> int:
    """Return the nanoseconds of a JSON number of milliseconds, half to even. Raises ValueError as ``nanoseconds`` does."""
    return _nanoseconds_of_any(text, unit_ns=1_000_000)


def _nanoseconds_of_any(text: bytes, *, unit_ns: int = 1000) -> int:
    """Take signs, more decimals, exponents and quotes, as older torch_npu writes them."""
    plain = text.strip(b'" ').decode("ascii", errors="replace")
    if len(plain) > _MAX_NUMBER_TEXT:
        raise ValueError(f"time {plain[:20]!r}... is no number")
    try:
        exact = Decimal(plain)
    except InvalidOperation:
        raise ValueError(f"time {plain!r} is no number") from None
    # The bound comes first: an exponent of a billion must not become digits.
    if not exact.is_finite() or not -MAX_NS // unit_ns <= exact <= MAX_NS // unit_ns:
        raise ValueError(f"time {plain!r} lies outside of 146 years")
    return int((exact * unit_ns).to_integral_value())
