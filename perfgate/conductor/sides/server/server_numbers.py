"""The results of a turn's requests: numbers, the work that must be equal on both sides, and samples of each request."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection

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
from perfgate.conductor.load.measures import goodput, measure_load
from perfgate.conductor.load.record import Load
from perfgate.conductor.sides.side import times_of
from perfgate.document.job import JobNumber, TurnResult
from perfgate.job_settings import JobSettings

Floats = npt.NDArray[np.float64]
# The others are seconds.
_RATE_UNITS = {SERVING_THROUGHPUT: "tokens/s", GOODPUT: "1"}


def turn_of_load(load: Load, cpu_seconds: float, settings: JobSettings) -> TurnResult:
    """The results of a load, without numbers that none of its requests has; ``cpu_seconds`` are the server's.

    The settings decide whether tokens are known: with plain HTTP they are not, and the first part of an answer is its
    headers.
    """
    measures, sla = measure_load(load), settings.sla
    samples = {E2E: measures.latency}
    values: dict[str, float | None] = {E2E: _quantile(measures.latency, 0.5)}
    if settings.streams_tokens:
        samples |= {
            TTFT: measures.time_to_first_token,
            TPOT: measures.time_per_output_token,
            ITL: measures.inter_token,
        }
        values |= {
            TTFT: _quantile(measures.time_to_first_token, 0.5),
            TTFT_P99: _quantile(measures.time_to_first_token, 0.99),
            TPOT: measures.mean_time_per_output_token,
            ITL_P99: _quantile(measures.inter_token, 0.99),
            SERVING_THROUGHPUT: measures.output_tokens_per_second,
            SERVING_CPU: cpu_seconds
            / (measures.output_tokens or max(1, measures.latency.size)),
        }
    else:
        # A result of the project's function arrives at once.
        if not settings.client:
            samples[FIRST_BYTE] = measures.time_to_first_token
            values[FIRST_BYTE] = _quantile(measures.time_to_first_token, 0.5)
        values[REQUEST_CPU] = cpu_seconds / max(1, measures.latency.size)
    if sla is not None:
        values[GOODPUT] = goodput(
            load.exchanges, first_token=sla.first_token, per_token=sla.per_token
        )
    work = Counter(
        requests=len(load.exchanges),
        input_tokens=0,
        output_tokens=0,
        without_text=measures.silent,
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
    """The numbers, of which token numbers gate if there are any, else numbers of whole requests.

    Near the highest rate waits grow several times faster than the work, so there the share that holds the SLA gates.
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


def _quantile(values: Floats, share: float) -> float | None:
    if not values.size:
        return None
    return float(np.quantile(values, share))
