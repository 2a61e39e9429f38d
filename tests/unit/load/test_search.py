"""The search for the highest rate, with servers whose answer is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import count

import numpy as np
import pytest

from perfgate.conductor.load.generator import send_load
from perfgate.conductor.sides.server.highest_rate import RateAnswer, find_highest_rate, judge_rate
from perfgate.stats.arrivals import draw
from tests.fakes.virtual_time import VirtualClock, run_virtually
from tests.unit.load.queues import Floats, Queue, open_plan, waiting_times


def highest(answers: Iterable[RateAnswer]) -> float:
    return max((answer.rate for answer in answers if answer.holds), default=0.0)


def share_of_misses(share: float, seed: int = 1) -> Callable[[float, int], int]:
    generator = np.random.default_rng(seed)
    return lambda rate, requests: int(generator.binomial(requests, share))


@pytest.mark.parametrize(("good", "bad", "requests"), [(0.01, 0.03, 147), (0.05, 0.15, 27)])
def test_judge_rate__no_miss__holds_after_145_or_27_requests_in_whole_rounds(
    good: float, bad: float, requests: int
) -> None:
    answer = judge_rate(lambda rate, requests: 0, 4.0, good=good, bad=bad)
    assert (answer.rate, answer.requests, answer.misses, answer.holds) == (4.0, requests, 0, True)


def test_judge_rate__every_request_misses__fails_after_one_round() -> None:
    answer = judge_rate(lambda rate, requests: requests, 4.0)
    assert answer.holds is False
    assert answer.requests == 49


@pytest.mark.parametrize(("share", "holds"), [(0.01, True), (0.03, False)])
def test_judge_rate__good_or_bad_share__wrong_about_as_often_as_promised(share: float, holds: bool) -> None:
    answers = [judge_rate(share_of_misses(share, seed), 4.0).holds for seed in range(1000)]
    assert answers.count(not holds) <= 70  # 50 and three standard deviations
    assert answers.count(None) <= 20


def test_judge_rate__share_in_between__ends_without_an_answer_at_the_latest_after_ten_clear_passes() -> None:
    seen = misses = 0

    def probe(rate: float, requests: int) -> int:
        nonlocal seen, misses
        seen, before = seen + requests, misses
        misses = seen // 55  # where the evidence for either share grows as fast as that for the other
        return misses - before

    answer = judge_rate(probe, 4.0)
    assert answer.holds is None
    assert answer.requests == 1470


@pytest.mark.parametrize("start", [1.0, 53.0, 4000.0])
def test_find__sharp_limit__within_the_precision_from_any_start(start: float) -> None:
    answers = find_highest_rate(lambda rate, requests: 0 if rate <= 53 else requests, start=start, least=None)
    lowest_failing = min(answer.rate for answer in answers if not answer.holds)
    assert highest(answers) <= 53 < lowest_failing <= highest(answers) * 1.1
    assert len(answers) <= 13


def test_find__server_that_never_holds_or_always__one_side_is_absent() -> None:
    never = find_highest_rate(lambda rate, requests: requests, start=8.0, least=None)
    assert highest(never) == 0.0
    assert min(answer.rate for answer in never) == pytest.approx(8 / 1024)
    always = find_highest_rate(lambda rate, requests: 0, start=8.0, most=100.0, least=None)
    assert highest(always) == 64.0
    assert all(answer.holds for answer in always)


LIMIT, CAPACITY = 0.1, 100.0
SETTLING = 200


def theory(share: float) -> float:
    """M/M/1: P(latency > t) = exp(-(mu - rate) t), so a share p misses at rate = mu + log(p) / t."""
    return CAPACITY + math.log(share) / LIMIT


def misses_in_queue(latencies: Floats) -> int:
    return int((latencies[SETTLING:] > LIMIT).sum())


def drawn(rate: float, requests: int, seed: int) -> tuple[Floats, Floats]:
    services = np.random.default_rng([seed, 1]).exponential(1 / CAPACITY, size=requests)
    return draw(rate, burstiness=1.0, count=requests, seed=seed), services


def test_find__queue_with_one_server__median_near_the_rates_that_theory_gives_for_both_shares() -> None:
    seeds = count(0)

    def probe(rate: float, requests: int) -> int:
        times, services = drawn(rate, requests + SETTLING, next(seeds))
        return misses_in_queue(waiting_times(times, services) + services)

    rates = [highest(find_highest_rate(probe, start=10.0, least=None)) for _ in range(41)]
    # Misses come in bursts, so that a probe has luck more often than the test of independent requests says.
    assert theory(0.01) < np.median(rates) < 1.1 * theory(0.03)


def test_find__probe_sends_loads_on_the_simulated_clock__a_rate_near_the_limit() -> None:
    seeds = count(0)

    def probe(rate: float, requests: int) -> int:
        times, services = drawn(rate, requests + SETTLING, next(seeds))
        clock = VirtualClock()
        exchanges = run_virtually(send_load(open_plan(times), Queue(clock, services).send, clock))
        return misses_in_queue(np.array([exchange.last - exchange.at for exchange in exchanges]))

    rate = highest(find_highest_rate(probe, start=10.0, least=None))
    assert 0.75 * theory(0.01) < rate < 1.3 * theory(0.03)
