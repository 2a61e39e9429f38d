"""How long a forge asks us to wait."""

from __future__ import annotations

import email.utils
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Sleep = Callable[[float], None]
Clock = Callable[[], float]

SHORT_WAIT = 1.0
SECONDARY_WAIT = 60.0


@dataclass(frozen=True)
class Refusal:
    """A try that failed in a way that waiting may lift. ``headers`` are those of the answer, names in lower case."""

    reason: str
    headers: Mapping[str, str]
    limited: bool = False


def is_rate_limit(status: int, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether an answer means "later" rather than "no".

    GitHub uses 403 for both (docs.github.com, REST API, "Rate limits": retry-after, x-ratelimit-remaining 0, or a
    message about the secondary limit); GitLab uses 429 only.
    """
    if status == 429:
        return True
    if status != 403:
        return False
    return "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0" or b"secondary rate limit" in body


def wait_after(refusal: Refusal, attempt: int, now: float) -> float:
    """The seconds to wait before the next try; ``attempt`` counts from 0, ``now`` is seconds since the epoch.

    In the order GitHub documents: retry-after, then the reset time, then at least a minute, doubled each time. GitLab
    sends Retry-After and RateLimit-Reset.
    """
    retry_after = _retry_after(refusal.headers.get("retry-after"), now)
    if retry_after is None:
        retry_after = _until(refusal.headers, now)
    if retry_after is not None:
        return retry_after
    return (SECONDARY_WAIT if refusal.limited else SHORT_WAIT) * 2.0**attempt


def _retry_after(text: str | None, now: float) -> float | None:
    """Read Retry-After: seconds, or a date (RFC 9110, section 10.2.3)."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (TypeError, ValueError, OverflowError):
        return None


def _until(headers: Mapping[str, str], now: float) -> float | None:
    for prefix in ("x-ratelimit", "ratelimit"):
        reset = headers.get(f"{prefix}-reset", "")
        if headers.get(f"{prefix}-remaining") == "0" and reset.isdecimal():
            # One second more: the forge's clock is not ours.
            return max(0.0, float(reset) - now) + 1.0
    return None
