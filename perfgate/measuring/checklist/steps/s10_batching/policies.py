"""How long a batch takes, and ways of batching simulated with that: which answers soonest, how many requests each can take."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.measuring.checklist.batch_sweep import Effort, Sweep, probe
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.timing.calls import CallBudget, time_calls
from perfgate.stats.batching import Policy, Served, continuous, highest_rate, simulate, static, time_out

# Of a stable queue all but the last few requests are answered when the last comes in.
_KEEPS_UP = 0.95
_ALIKE = 1.05
# A highest rate takes a dozen simulations of each size, and needs no more of a P99 than a percent of the rate.
_PART_FOR_RATES = 4
_QUICK = Effort(visits=2, visit_seconds=0.03, call_seconds=0.1)
_FULL = Effort(visits=5, visit_seconds=0.2, call_seconds=1.0)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ServiceModel:
    """The median seconds of a call of each batch size that was measured, in rising order of sizes.

    A batch between two sizes is padded to the larger one, as servers with compiled or captured shapes do; so nothing is
    guessed between them, and a replay can make exactly these calls.
    """

    seconds: dict[int, float]

    @property
    def sizes(self) -> list[int]:
        return list(self.seconds)

    def padded(self, items: int) -> int:
        """The size that so many items are padded to. Raises IndexError above the largest."""
        return self.sizes[bisect_left(self.sizes, items)]

    def __call__(self, items: int) -> float:
        """The seconds that a batch of so many items takes."""
        return self.seconds[self.padded(items)]

    def capacity(self, batch: int) -> float:
        """The most items a second that batches of at most so many can answer."""
        return max(size / seconds for size, seconds in self.seconds.items() if size <= batch)


def measure_service(context: StepContext, shape: str) -> ServiceModel:
    """Time single calls of every size that works, each waited for, in an order drawn anew for every visit."""
    effort = _QUICK if context.quick else _FULL
    sweep = Sweep()
    probe(context, shape, effort, sweep)
    chance = random.Random(context.seed)
    seconds: dict[int, list[float]] = {size: [] for size in sweep.sizes}
    for number in range(effort.visits):
        context.progress(f"timing calls of {len(sweep.sizes)} batch sizes, visit {number + 1} of {effort.visits}")
        for size in chance.sample(sweep.sizes, len(sweep.sizes)):
            call = context.workload.caller(shape, batch=size)
            times = time_calls(call, context.device, CallBudget(calls=2, seconds=effort.visit_seconds))
            seconds[size] += (times.wall / 1e9).tolist()
    return ServiceModel({size: float(np.median(times)) for size, times in seconds.items()})


class HighestRate(NamedTuple):
    """The most requests a second at which a P99 is kept, and the policy of the kind that does; 0 where none does."""

    policy: Policy
    rate: float


@dataclass(frozen=True)
class Candidate:
    """A policy and what its simulation gave; ``at_most``, the most that its kind can take, is known where there is an SLA."""

    policy: Policy
    served: Served
    at_most: HighestRate | None = None

    @property
    def p99(self) -> float:
        """Seconds."""
        return float(np.quantile(self.served.latencies, 0.99))

    @property
    def keeps_up(self) -> bool:
        """Whether about as much is answered as comes in."""
        came_in = self.served.arrivals[-1] - self.served.arrivals[0]
        return bool(came_in >= _KEEPS_UP * (self.served.ends[-1] - self.served.arrivals[0]))


def candidates(
    service: ServiceModel, arrivals: Floats, *, configured: int, max_wait: float, promised: float | None
) -> list[Candidate]:
    """Static batching of the configured size, then continuous and time-out batching of the size that suits each best.

    Best is the lowest P99, and of sizes within 5 % of it the largest, which takes bursts best. With a promised P99 each also
    gets the highest rate at which it keeps it, with arrivals of the same pattern and the size that suits that rate best.
    """
    kinds = [
        [static(configured)],
        [continuous(size) for size in service.sizes],
        [time_out(size, max_wait) for size in service.sizes],
    ]
    best = [
        _of_lowest_p99(Candidate(policy, simulate(arrivals, policy, service)) for policy in policies)[-1]
        for policies in kinds
    ]
    if promised is None:
        return best
    fewer = arrivals[: arrivals.size // _PART_FOR_RATES]
    return [
        replace(candidate, at_most=_highest_rate(service, fewer, policies, promised))
        for candidate, policies in zip(best, kinds)
    ]


def winner(simulated: Iterable[Candidate]) -> Candidate:
    """The first, and so the simplest, of those with the lowest P99."""
    return _of_lowest_p99(simulated)[0]


def _of_lowest_p99(simulated: Iterable[Candidate]) -> list[Candidate]:
    """The candidates within 5 % of the lowest P99, in order."""
    tails = [(candidate, candidate.p99) for candidate in simulated]
    lowest = min(p99 for _, p99 in tails)
    return [candidate for candidate, p99 in tails if p99 <= _ALIKE * lowest]


def _highest_rate(service: ServiceModel, arrivals: Floats, policies: Iterable[Policy], promised: float) -> HighestRate:
    rates = [HighestRate(policy, _rate_kept(service, arrivals, policy, promised)) for policy in policies]
    return max(rates, key=lambda highest: highest.rate)


def _rate_kept(service: ServiceModel, arrivals: Floats, policy: Policy, promised: float) -> float:
    rate = (arrivals.size - 1) / float(arrivals[-1])

    def keeps(faster: float) -> bool:
        served = simulate(arrivals * (rate / faster), policy, service)
        return bool(np.quantile(served.latencies, 0.99) <= promised)

    return highest_rate(keeps, most=service.capacity(policy.batch), steps=8, halvings=6)
