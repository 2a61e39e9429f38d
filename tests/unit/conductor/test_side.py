"""What sides of every kind hand over."""

from __future__ import annotations

import numpy as np
import pytest

from perfgate.conductor.sides.side import times_of
from perfgate.document.samples import unpack


def test_times__few__kept_as_they_are_in_nanoseconds() -> None:
    samples = times_of("serving.e2e", [0.25, 1e-9, 0.5])
    assert (samples.metric, unpack(samples.samples).tolist()) == ("serving.e2e", [250_000_000, 1, 500_000_000])


def test_times__a_hundred_thousand__as_many_quantiles_as_say_the_same() -> None:
    seconds = np.random.default_rng(1).lognormal(-6, 0.5, 100_000)
    kept = unpack(times_of("serving.itl", seconds).samples) / 1e9
    assert kept.size == 1024
    for share in (0.5, 0.9, 0.99):
        assert np.quantile(kept, share) == pytest.approx(np.quantile(seconds, share), rel=0.01)
