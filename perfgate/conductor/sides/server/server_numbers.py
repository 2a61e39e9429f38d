"""The results of a turn's requests: numbers, the work that must be equal on both sides,
and samples of each request.

All times are in seconds. Failed requests, and answers without any text, have no time to
first token, and never enter a mean as zero.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.catalogue.names import (
    E2E,
    FIRST_BYTE,
    GOODPUT,
    ITL,
    ITL_P99,
    REQUEST_CPU,
    SERVING_CPU,
    SERVING_THROUGHPUT,
    TPOT,
    TTFT,
    TTFT_P99,
)
from perfgate.conductor.load.record import Exchange, Load
from perfgate.conductor.sides.side import times_of
from perfgate.document.job import JobNumber, TurnResult
from perfgate.job_settings import JobSettings

Floats = npt.NDArray[np.float64]
# The others are seconds.
_RATE_UNITS = {SERVING_THROUGHPUT: "tokens/s", GOODPUT: "1"}


def turn_of_load(load: Load, cpu_seconds: float, settings: JobSettings) -> TurnResult:
    """The results of a load without failures, without numbers that none of its requests
    has.

    ``cpu_seconds`` are the server's. The settings decide whether tokens are known: with
    plain HTTP they are not, and the first part of an answer is its headers.
    """
    answered = [exchange for exchange in load.exchanges if exchange.first is not None]
    latency = _values(exchange.last - exchange.at for exchange in answered)
    first = _values(map(_first_token, answered))
    samples = {E2E: latency}
    values = {E2E: _quantile(latency, 0.5)}
    if settings.streams_tokens:
        per_token = _values(map(_per_token, answered))
        # Between chunks with text, all requests one after the other. Chunks may hold
        # several tokens or arrive together, so it only informs.
        gaps = np.concatenate(
            [[], *(np.diff(exchange.tokens) for exchange in answered)]
        )
        samples |= {TTFT: first, TPOT: per_token, ITL: gaps}
        values |= {TTFT: _quantile(first, 0.5), TTFT_P99: _quantile(first, 0.99)}
        values[TPOT] = float(per_token.mean()) if per_token.size else None
        values[ITL_P99] = _quantile(gaps, 0.99)
        tokens = _output_tokens(answered)
        values[SERVING_THROUGHPUT] = tokens / load.seconds if tokens else None
        values[SERVING_CPU] = cpu_seconds / (tokens or max(1, latency.size))
    else:
        # A result of the project's function arrives at once.
        if not settings.client:
            samples[FIRST_BYTE] = first
            values[FIRST_BYTE] = _quantile(first, 0.5)
        values[REQUEST_CPU] = cpu_seconds / max(1, latency.size)
    sla = settings.sla
    if sla is not None:
        values[GOODPUT] = goodput(
            load.exchanges, first_token=sla.first_token, per_token=sla.per_token
        )
    work = Counter(
        requests=len(load.exchanges),
        input_tokens=0,
        output_tokens=0,
        without_text=len(load.exchanges) - len(answered),
    )
    durations = []
    cached_tokens: int | None = 0
    resent = 0
    for exchange in load.exchanges:
        durations.append(exchange.last - exchange.at)
        work["input_tokens"] += exchange.input_tokens or 0
        work["output_tokens"] += exchange.output_tokens or 0
        resent += exchange.resent
        # The server must report the prompt tokens found in its cache for every request.
        if cached_tokens is None or exchange.cached_tokens is None:
            cached_tokens = None
        else:
            cached_tokens += exchange.cached_tokens
    # How late requests were sent counts against how long they take.
    late = float(np.median(load.lateness)) / max(1e-9, float(np.median(durations)))
    return TurnResult(
        values={
            name: value
            for name, value in values.items()
            if value is not None and 0 < value < math.inf
        },
        work=dict(work),
        samples=[
            times_of(name, column) for name, column in samples.items() if column.size
        ],
        late=round(late, 4),
        counters={} if cached_tokens is None else {"cached_tokens": cached_tokens},
        resent=resent,
    )


def numbers_of(
    names: Collection[str], *, is_closed_loop: bool, is_highest_rate: bool
) -> tuple[JobNumber, ...]:
    """The numbers, of which token numbers gate if there are any, else numbers of whole
    requests.

    Near the highest rate waits grow several times faster than the work, so there the
    share that holds the SLA gates.
    """
    gates = {TTFT, TPOT} if TPOT in names else {E2E}
    if is_highest_rate:
        gates = {GOODPUT}
    gates |= {SERVING_CPU, REQUEST_CPU}
    if is_closed_loop and TPOT in names:
        gates.add(SERVING_THROUGHPUT)
    numbers = []
    for name in names:
        number = JobNumber(metric=name, unit="s", better="lower", gating=name in gates)
        if name in _RATE_UNITS:
            number = msgspec.structs.replace(
                number, unit=_RATE_UNITS[name], better="higher"
            )
        numbers.append(number)
    return tuple(numbers)


def goodput(
    exchanges: Iterable[Exchange], *, first_token: float, per_token: float | None = None
) -> float | None:
    """The share of requests with time to first token <= ``first_token`` and time per
    output token <= ``per_token``.

    A failed request misses. Answers without any text do not count; None if there are no
    others. An answer without a time per output token misses a given ``per_token``,
    unless the server counted a single token. It is Jeffreys' estimate, (good + 1/2) /
    (all + 1): few requests do not show that none misses, nor that all do.
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
    first = _first_token(exchange)
    if exchange.error or first is None or first > first_token:
        return False
    if per_token is None or exchange.output_tokens == 1:
        return True
    seconds = _per_token(exchange)
    return seconds is not None and seconds <= per_token


def _first_token(exchange: Exchange) -> float | None:
    return None if exchange.first is None else exchange.first - exchange.at


def _per_token(exchange: Exchange) -> float | None:
    if (
        exchange.first is None
        or exchange.output_tokens is None
        or exchange.output_tokens < 2
    ):
        return None
    return (exchange.last - exchange.first) / (exchange.output_tokens - 1)


def _output_tokens(answered: Sequence[Exchange]) -> int | None:
    """The tokens of all answers as the server counted them; None where any is
    uncounted.
    """
    total = 0
    for exchange in answered:
        if exchange.output_tokens is None:
            return None
        total += exchange.output_tokens
    return total


def _values(values: Iterable[float | None]) -> Floats:
    return np.array([value for value in values if value is not None], dtype=np.float64)


def _quantile(values: Floats, share: float) -> float | None:
    if not values.size:
        return None
    return float(np.quantile(values, share))
