"""The results of a turn's requests: numbers, the work that must be equal on both sides, and samples of each request."""

from __future__ import annotations

import math
from collections.abc import Collection

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


def turn_of_load(load: Load, cpu_seconds: float, settings: JobSettings) -> TurnResult:
    """The results of a load, without numbers that none of its requests has; ``cpu_seconds`` are the server's.

    The settings decide whether tokens are known: those of plain HTTP are not, and the first part of an answer is its
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
            SERVING_CPU: cpu_seconds / (measures.output_tokens or max(1, measures.latency.size)),
        }
    else:
        # A result of the project's function arrives at once.
        if not settings.client:
            samples[FIRST_BYTE] = measures.time_to_first_token
            values[FIRST_BYTE] = _quantile(measures.time_to_first_token, 0.5)
        values[REQUEST_CPU] = cpu_seconds / max(1, measures.latency.size)
    if sla is not None:
        values[GOODPUT] = goodput(load.exchanges, first_token=sla.first_token, per_token=sla.per_token)
    # How late requests were sent counts against how long they take.
    durations = [exchange.last - exchange.at for exchange in load.exchanges]
    late = float(np.median(load.lateness)) / max(1e-9, float(np.median(durations)))
    # The server must report the prompt tokens found in its cache for every request.
    cached = [exchange.cached_tokens for exchange in load.exchanges if exchange.cached_tokens is not None]
    return TurnResult(
        values={name: value for name, value in values.items() if value is not None and 0 < value < math.inf},
        work={
            "requests": len(load.exchanges),
            "input_tokens": sum(exchange.input_tokens or 0 for exchange in load.exchanges),
            "output_tokens": sum(exchange.output_tokens or 0 for exchange in load.exchanges),
            "without_text": len(measures.silent),
        },
        samples=[times_of(name, column) for name, column in samples.items() if column.size],
        late=round(late, 4),
        counters={"cached_tokens": sum(cached)} if cached and len(cached) == len(load.exchanges) else {},
        resent=sum(exchange.resent for exchange in load.exchanges),
    )


def numbers_of(names: Collection[str], *, is_closed_loop: bool, is_highest_rate: bool) -> tuple[JobNumber, ...]:
    """The numbers and those of them that gate: token numbers if there are any, else those of whole requests.

    Near the highest rate waits grow several times as much as the work does, so there the share that holds the SLA gates.
    """
    gates = {TTFT, TPOT} if TPOT in names else {E2E}
    if is_highest_rate:
        gates = {GOODPUT}
    gates |= {SERVING_CPU, REQUEST_CPU}
    if is_closed_loop and TPOT in names:
        gates.add(SERVING_THROUGHPUT)
    return tuple(
        JobNumber(
            metric=name,
            unit="tokens/s" if name == SERVING_THROUGHPUT else "1" if name == GOODPUT else "s",
            better="higher" if name in (SERVING_THROUGHPUT, GOODPUT) else "lower",
            gating=name in gates,
        )
        for name in names
    )


def _quantile(values: Floats, share: float) -> float | None:
    return float(np.quantile(values, share)) if values.size else None
