from __future__ import annotations

import numpy as np
import pytest

from perfgate.stats.changes import steadiness


def noisy(count: int = 3000, *, seed: int = 0, sigma: float = 0.02) -> np.ndarray:
    return 5e-3 * np.exp(np.random.default_rng(seed).normal(0, sigma, count))


def test_steadiness__noise_alone__drift_around_zero_in_95_of_100_and_one_level() -> None:
    found = [steadiness(noisy(seed=seed)) for seed in range(200)]
    assert sum(held is not None and held.low <= 0 <= held.high for held in found) >= 184
    assert sum(held is not None and held.levels == 1 for held in found) >= 198


def test_steadiness__five_percent_slower_in_the_end__interval_holds_it() -> None:
    times = noisy() * np.linspace(1.0, 1.05, 3000)
    held = steadiness(times)
    assert held is not None
    assert held.low < 0.05 < held.high
    assert held.low > 0.03


def test_steadiness__slow_begin__stretch_after_it() -> None:
    times = noisy()
    times[:900] *= 1.2
    held = steadiness(times)
    assert held is not None
    assert held.levels == 2
    assert (held.start, held.end) == (pytest.approx(900, abs=60), 3000)


def test_steadiness__a_slow_call_now_and_then__neither_drift_nor_level() -> None:
    times = noisy()
    times[::37] *= 20
    held = steadiness(times)
    assert held is not None
    assert held.levels == 1
    assert abs(held.drift) < 0.01


def test_steadiness__neighbours_alike__interval_wider() -> None:
    random = np.random.default_rng(3)
    wander = np.zeros(60)
    for index in range(1, 60):
        wander[index] = 0.8 * wander[index - 1] + random.normal(0, 0.01)
    plain, alike = steadiness(noisy()), steadiness(noisy() * np.exp(np.repeat(wander, 50)))
    assert plain is not None
    assert alike is not None
    assert alike.high - alike.low > 5 * (plain.high - plain.low)


def test_steadiness__few_calls__none() -> None:
    assert steadiness(noisy(7)) is None
    assert steadiness(noisy(8)) is not None
