"""Times at which requests arrive."""

from __future__ import annotations

import numpy as np

from perfgate.stats.arrays import Floats


def draw(rate: float, *, burstiness: float, count: int, seed: int) -> Floats:
    """Draw arrivals with gamma-distributed gaps of mean 1 / rate and shape
    ``burstiness``; 1 is a Poisson process.

    Arrivals are in seconds after the first and rise. Defined as for vLLM's
    ``bench serve --burstiness`` (vllm/benchmarks/serve.py).
    """
    gaps = np.random.default_rng(seed).gamma(
        burstiness, 1 / (rate * burstiness), size=max(count - 1, 0)
    )
    times: Floats = np.concatenate([[0.0], np.cumsum(gaps)])[:count]
    return times
