"""When requests come in: drawn at a rate, or recorded; always the same for the same seed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perfgate.measuring.workload.workload import Traffic

Floats = npt.NDArray[np.float64]


def rate_of(traffic: Traffic) -> float:
    """The requests a second: as given, or as recorded, by the gaps between the first and the last."""
    if traffic.rate is not None:
        return float(traffic.rate)
    return (len(traffic.arrivals) - 1) / (float(traffic.arrivals[-1]) - float(traffic.arrivals[0]))


def arrivals(traffic: Traffic, *, count: int, seed: int) -> Floats:
    """When ``count`` requests come in, in seconds after the first, in rising order.

    A recording that is too short starts over, a mean gap after its end.
    """
    if traffic.rate is not None:
        return draw(traffic.rate, burstiness=traffic.burstiness, count=count, seed=seed)
    recorded = np.asarray(traffic.arrivals, dtype=np.float64) - float(traffic.arrivals[0])
    length = float(recorded[-1]) + 1 / rate_of(traffic)
    rounds = -(-count // recorded.size)
    return (recorded + length * np.arange(rounds)[:, None]).reshape(-1)[:count]


def draw(rate: float, *, burstiness: float, count: int, seed: int) -> Floats:
    """Draw arrivals whose gaps are gamma-distributed with mean 1 / rate and shape ``burstiness``; 1 is a Poisson process.

    The definition is that of vLLM's ``bench serve --burstiness`` (vllm/benchmarks/serve.py).
    """
    gaps = np.random.default_rng(seed).gamma(burstiness, 1 / (rate * burstiness), size=max(count - 1, 0))
    times: Floats = np.concatenate([[0.0], np.cumsum(gaps)])[:count]
    return times


def calls_of(traffic: Traffic, batch: int, *, count: int, seed: int) -> Floats:
    """When ``count`` calls of ``batch`` items come in: each with the request that completes its batch."""
    requests = arrivals(traffic, count=count * batch, seed=seed)
    times: Floats = requests[batch - 1 :: batch] - requests[batch - 1]
    return times
