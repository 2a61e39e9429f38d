"""The numbers of a turn, from its exchanges. All times are in seconds.

Failed requests, and answers without any text, have no time to first token: they are counted by name and never enter a mean
as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfgate.conductor.load.record import Exchange, Load

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Measures:
    """The measures of one turn; arrays hold one value a request, in the order of the plan.

    - ``failed``: ids of the requests with an error. ``silent``: ids of those that ended well without any text. No array has
      either.
    - ``uncounted``: ids of the others, without a token count from the server.
    - ``time_to_first_token``: first - at, from the intended start; in a closed loop that is when the request was sent.
    - ``time_per_output_token``: (last - first) / (output_tokens - 1); of requests of two counted tokens or more.
    - ``inter_token``: seconds between chunks with text, all requests one after the other. Several tokens may share a chunk and
      chunks may arrive together, so that it informs only.
    - ``latency``: last - at.
    - ``output_tokens``: those of all requests in the arrays, as the server counted them; None where any is uncounted or none
      is left.
    - ``seconds``: from the beginning of the turn to the end of its last request.
    """

    requests: int
    failed: tuple[str, ...]
    silent: tuple[str, ...]
    uncounted: tuple[str, ...]
    time_to_first_token: Floats
    time_per_output_token: Floats
    inter_token: Floats
    latency: Floats
    output_tokens: int | None
    seconds: float

    @property
    def mean_time_per_output_token(self) -> float | None:
        """The mean over requests of (last - first) / (output_tokens - 1)."""
        return float(self.time_per_output_token.mean()) if self.time_per_output_token.size else None

    @property
    def requests_per_second(self) -> float | None:
        """Requests that went well and gave text / seconds of the turn."""
        return self.latency.size / self.seconds if self.latency.size else None

    @property
    def output_tokens_per_second(self) -> float | None:
        """Output tokens of the turn / seconds of the turn."""
        return self.output_tokens / self.seconds if self.output_tokens else None


def measure_load(load: Load) -> Measures:
    well = [exchange for exchange in load.exchanges if not exchange.error]
    answered = [exchange for exchange in well if exchange.first is not None]
    counts = [exchange.output_tokens for exchange in answered if exchange.output_tokens is not None]
    gaps = [np.diff(exchange.tokens) for exchange in answered]
    return Measures(
        requests=len(load.exchanges),
        failed=_ids(load.exchanges, lambda exchange: bool(exchange.error)),
        silent=_ids(well, lambda exchange: exchange.first is None),
        uncounted=_ids(answered, lambda exchange: exchange.output_tokens is None),
        time_to_first_token=_values(map(_time_to_first_token, answered)),
        time_per_output_token=_values(map(_time_per_output_token, answered)),
        inter_token=np.concatenate(gaps) if gaps else np.array([], dtype=np.float64),
        latency=_values(exchange.last - exchange.at for exchange in answered),
        output_tokens=sum(counts) if counts and len(counts) == len(answered) else None,
        seconds=load.seconds,
    )


def goodput(exchanges: Iterable[Exchange], *, first_token: float, per_token: float | None = None) -> float | None:
    """The share of requests with time to first token <= ``first_token`` and time per output token <= ``per_token``.

    A failed request misses. An answer without any text counts on neither side; None if no other is left. One without a time
    per output token misses a given ``per_token``, unless the server counted a single token. It is Jeffreys' estimate, (good
    + 1/2) / (all + 1): few requests do not show that none misses, nor that all do.
    """
    judged = [exchange for exchange in exchanges if exchange.error or exchange.first is not None]
    if not judged:
        return None
    return (sum(_holds(exchange, first_token, per_token) for exchange in judged) + 0.5) / (len(judged) + 1)


def misses(exchanges: Iterable[Exchange], *, first_token: float, per_token: float | None = None) -> int:
    """How many requests fail, or do not hold the SLA; one without any text does not."""
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
    if exchange.first is None or exchange.output_tokens is None or exchange.output_tokens < 2:
        return None
    return (exchange.last - exchange.first) / (exchange.output_tokens - 1)


def _values(values: Iterable[float | None]) -> Floats:
    return np.array([value for value in values if value is not None], dtype=np.float64)


def _ids(exchanges: list[Exchange], chosen: Callable[[Exchange], bool]) -> tuple[str, ...]:
    return tuple(exchange.id for exchange in exchanges if chosen(exchange))
