"""The simulator of batching against closed forms of queueing theory; sources: Kleinrock, Queueing Systems, volume 1."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from perfgate.stats.batching import BatchingPolicy, Served, continuous, highest_rate, serve, simulate, static, time_out

ONE_BY_ONE = continuous(1)
LONG = 400_000


def _poisson(rate: float, count: int = LONG, seed: int = 1) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, size=count))


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_simulate__poisson_and_constant_service__mean_wait_of_m_d_1(load: float) -> None:
    """W = rho / (2 mu (1 - rho)), section 5.6."""
    served = simulate(_poisson(load), ONE_BY_ONE, lambda items: 1.0)
    assert served.waits.mean() == pytest.approx(load / (2 * (1 - load)), rel=0.01)


@pytest.mark.parametrize("load", [0.2, 0.4])
def test_simulate__poisson_and_exponential_service__mean_wait_of_m_m_1(load: float) -> None:
    """W = rho / (mu (1 - rho)), section 3.2."""
    draws = iter(np.random.default_rng(2).exponential(1.0, size=LONG).tolist())
    served = simulate(_poisson(load), ONE_BY_ONE, lambda items: next(draws))
    assert served.waits.mean() == pytest.approx(load / (1 - load), rel=0.01)


def test_simulate__poisson_and_exponential_service__p99_of_m_m_1() -> None:
    """The time in the system is exponential with rate mu - lambda, section 5.12."""
    draws = iter(np.random.default_rng(2).exponential(1.0, size=LONG).tolist())
    served = simulate(_poisson(0.3), ONE_BY_ONE, lambda items: next(draws))
    assert np.quantile(served.latencies, 0.99) == pytest.approx(math.log(100) / 0.7, rel=0.01)


def test_simulate__even_arrivals_below_capacity__nobody_waits() -> None:
    served = simulate(np.arange(1000) * 1.25, ONE_BY_ONE, lambda items: 1.0)
    assert served.waits.max() == 0.0


def test_simulate__even_arrivals_above_capacity__each_waits_longer_by_the_difference() -> None:
    served = simulate(np.arange(1000) * 0.75, ONE_BY_ONE, lambda items: 1.0)
    assert served.waits.tolist() == pytest.approx((np.arange(1000) * 0.25).tolist())


@pytest.mark.parametrize("load", [0.5, 2.0, 8.0])
def test_simulate__continuous_without_limit_and_constant_service__mean_latency(load: float) -> None:
    """All who came during a batch, Poisson of mean a = lambda T, are the next one; they waited T / 2 on average.

    Where nobody came, with probability exp(-a), one request finds the server free. So the mean wait is
    (a T / 2) / (a + exp(-a)).
    """
    served = simulate(_poisson(load), continuous(10_000), lambda items: 1.0)
    assert served.waits.mean() == pytest.approx(load / 2 / (load + math.exp(-load)), rel=0.01)
    assert served.sizes.mean() == pytest.approx(load + math.exp(-load), rel=0.01)


@pytest.mark.parametrize("batch", [2, 8])
def test_simulate__static_and_service_of_no_time__mean_wait_is_that_for_the_batch_to_fill(batch: int) -> None:
    """The k-th of B waits for B - k gaps: (B - 1) / (2 lambda) on average."""
    served = simulate(_poisson(5.0), static(batch), lambda items: 0.0)
    assert served.waits.mean() == pytest.approx((batch - 1) / 2 / 5.0, rel=0.01)
    assert set(served.sizes.tolist()) == {batch}


def test_simulate__time_out_and_service_of_no_time__batch_of_those_within_the_wait() -> None:
    """The oldest waits w; 1 + lambda w are in a batch, the others wait w / 2: w (1 + lambda w / 2) / (1 + lambda w)."""
    rate, wait = 5.0, 0.4
    served = simulate(_poisson(rate), time_out(10_000, wait), lambda items: 0.0)
    assert served.sizes.mean() == pytest.approx(1 + rate * wait, rel=0.01)
    assert served.waits.mean() == pytest.approx(wait * (1 + rate * wait / 2) / (1 + rate * wait), rel=0.01)
    assert served.waits.max() == pytest.approx(wait)


def _affine(items: int) -> float:
    return 0.01 + 0.002 * items


@pytest.mark.parametrize("policy", [static(8), time_out(8, 0.02), continuous(8)], ids=lambda policy: policy.name)
def test_simulate__any_policy__laws_of_conservation(policy: BatchingPolicy) -> None:
    arrivals = _poisson(200.0, count=20_003)
    served = simulate(arrivals, policy, _affine)
    assert served.sizes.sum() == arrivals.size  # all are answered, once
    assert (np.diff(served.starts) >= 0).all()  # in the order they came in
    assert (served.waits >= 0).all()
    assert served.sizes.max() <= 8
    begins, ends = _batches(served)
    assert (begins[1:] >= ends[:-1] - 1e-9).all()  # one batch at a time
    assert (ends - begins).tolist() == pytest.approx([_affine(int(size)) for size in served.sizes])
    # Little: the mean number in the system is rate x mean latency.
    horizon = float(served.ends.max() - arrivals[0])
    moments = np.linspace(arrivals[0], served.ends.max(), 200_001)
    inside = np.searchsorted(arrivals, moments) - np.searchsorted(served.ends, moments)
    assert inside.mean() == pytest.approx(arrivals.size / horizon * served.latencies.mean(), rel=0.01)


def _batches(served: Served) -> tuple[np.ndarray, np.ndarray]:
    firsts = np.concatenate([[0], np.cumsum(served.sizes)[:-1]])
    return served.starts[firsts], served.ends[firsts]


def test_serve__continuous__never_idle_while_somebody_waits() -> None:
    served = simulate(_poisson(300.0, count=5000), continuous(8), _affine)
    begins, ends = _batches(served)
    firsts = np.concatenate([[0], np.cumsum(served.sizes)[:-1]])
    assert begins[1:].tolist() == pytest.approx(np.maximum(ends[:-1], served.arrivals[firsts[1:]]).tolist())


def test_serve__time_out_by_hand__who_comes_while_the_server_works_joins_the_next() -> None:
    served = simulate([0.0, 0.3, 0.9, 1.2, 5.0], time_out(2, 1.0), lambda items: 2.0)
    assert served.sizes.tolist() == [2, 2, 1]
    assert served.starts.tolist() == [0.3, 0.3, 2.3, 2.3, 5.0]
    assert served.latencies.tolist() == pytest.approx([2.3, 2.0, 3.4, 3.1, 2.0])


def test_served__goodput__by_hand() -> None:
    served = serve([0.0, 1.0, 2.0], static(2), _FixedServer())
    assert served.sizes.tolist() == [2, 1]
    assert served.goodput(1.0) == pytest.approx(2 / 2.5)  # ends at 1.5 and 2.5; the first took 1.5 s


class _FixedServer:
    def __init__(self) -> None:
        self.now = 0.0

    def begin(self, ready: float) -> float:
        self.now = max(self.now, ready)
        return self.now

    def answer(self, items: int) -> float:
        self.now += 0.5
        return self.now


@pytest.mark.parametrize(
    ("keeps", "found"),
    [
        (lambda rate: rate <= 37.3, 37.3),
        (lambda rate: 20 <= rate <= 61.9, 61.9),  # waits too long for full batches at low rates
        (lambda rate: True, 100.0),
        (lambda rate: False, 0.0),
    ],
)
def test_highest_rate__promise_kept_up_to_a_rate__found(keeps: Callable[[float], bool], found: float) -> None:
    assert highest_rate(keeps, most=100.0, steps=16, halvings=10) == pytest.approx(found, abs=0.01)


@pytest.mark.slow
def test_highest_rate__m_d_1_under_a_mean_wait__that_of_the_closed_form() -> None:
    """W = rho / (2 (1 - rho)) is half a service time at rho = 0.5."""
    gaps = np.random.default_rng(1).exponential(1.0, size=100_000)

    def keeps(rate: float) -> bool:
        return bool(simulate(np.cumsum(gaps) / rate, ONE_BY_ONE, lambda items: 1.0).waits.mean() <= 0.5)

    assert highest_rate(keeps, most=1.0, steps=8, halvings=7) == pytest.approx(0.5, rel=0.01)
