"""The numbers of a turn, from its exchanges. All times are in seconds.

Failed requests, and answers without any text, have no time to first token, and never enter a mean as zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfgate.conductor.load.record import Exchange, Load

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Measures:
    """The measures of one turn; arrays hold one value for each answered request, in the order of the plan."""

    # Requests that ended well without any text.
    silent: int
    # first - at, from the intended start; in a closed loop that is when the request was sent.
    time_to_first_token: Floats
    # (last - first) / (output_tokens - 1), of requests with two counted tokens or more.
    time_per_output_token: Floats
    # Between chunks with text, all requests one after the other. Chunks may hold several tokens or arrive together, so it only
    # informs.
    inter_token: Floats
    # last - at.
    latency: Floats
    # Of all answered requests, as the server counted them; None where any is uncounted.
    output_tokens: int | None
    # From the beginning of the turn to the end of its last request.
    seconds: float

    @property
    def mean_time_per_output_token(self) -> float | None:
        """The mean over requests of (last - first) / (output_tokens - 1)."""
        if not self.time_per_output_token.size:
            return None
        return float(self.time_per_output_token.mean())

    @property
    def output_tokens_per_second(self) -> float | None:
        """Output tokens of the turn / seconds of the turn."""
        return self.output_tokens / self.seconds if self.output_tokens else None


def measure_load(load: Load) -> Measures:
    silent = 0
    answered = []
    output_tokens: int | None = 0
    gaps = [np.array([], dtype=np.float64)]
    for exchange in load.exchanges:
        if exchange.error:
            continue
        if exchange.first is None:
            silent += 1
            continue
        answered.append(exchange)
        gaps.append(np.diff(exchange.tokens))
        if output_tokens is None or exchange.output_tokens is None:
            output_tokens = None
        else:
            output_tokens += exchange.output_tokens
    return Measures(
        silent=silent,
        time_to_first_token=_values(map(_time_to_first_token, answered)),
        time_per_output_token=_values(map(_time_per_output_token, answered)),
        inter_token=np.concatenate(gaps),
        latency=_values(exchange.last - exchange.at for exchange in answered),
        output_tokens=output_tokens if answered else None,
        seconds=load.seconds,
    )


def goodput(
    exchanges: Iterable[Exchange], *, first_token: float, per_token: float | None = None
) -> float | None:
    """The share of requests with time to first token <= ``first_token`` and time per output token <= ``per_token``.

    A failed request misses. Answers without any text do not count; None if there are no others. An answer without a time per
    output token misses a given ``per_token``, unless the server counted a single token. It is Jeffreys' estimate, (good
    + 1/2) / (all + 1): few requests do not show that none misses, nor that all do.
    """
    judged = [
        exchange
        for exchange in exchanges
        if exchange.error or exchange.first is not None
    ]
    if not judged:
        return None
    good = len(judged) - misses(judged, first_token=first_token, per_token=per_token)
    return (good + 0.5) / (len(judged) + 1)


def misses(
    exchanges: Iterable[Exchange], *, first_token: float, per_token: float | None = None
) -> int:
    """How many requests fail, do not hold the SLA, or have no text."""
    return sum(not _holds(exchange, first_token, per_token) for exchange in exchanges)


def _holds(exchange: Exchange, first_token: float, per_token: float | None) -> bool:
    first = _time_to_first_token(exchange)
    if exchange.error or first is None or first > first_token:
        return False
    if per_token is None or exchange.output_tokens == 1:
        return True
    seconds = _time_per_output_token(exchange)
    return seconds is not None and seconds <= per_token


def _time_to_first_token(exchange: Exchange) -> float | None:
    return None if exchange.first is None else exchange.first - exchange.at


def _time_per_output_token(exchange: Exchange) -> float | None:
    if (
        exchange.first is None
        or exchange.output_tokens is None
        or exchange.output_tokens < 2
    ):
        return None
    return (exchange.last - exchange.first) / (exchange.output_tokens - 1)


def _values(values: Iterable[float | None]) -> Floats:
    return np.array([value for value in values if value is not None], dtype=np.float64)
