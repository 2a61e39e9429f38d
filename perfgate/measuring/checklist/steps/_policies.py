"""Ways of batching simulated on one stream of requests: which answers soonest, and how many requests each can take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.measuring.checklist.steps._service import ServiceModel
from perfgate.stats.batching import Policy, Served, continuous, highest_rate, simulate, static, time_out

# Of a stable queue all but the last few requests are answered when the last comes in.
_KEEPS_UP = 0.95
_ALIKE = 1.05
# A highest rate takes a dozen simulations of each size, and needs no more of a P99 than a percent of the rate.
_PART_FOR_RATES = 4

Floats = npt.NDArray[np.float64]


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
        """Return the P99 of the latencies, in seconds."""
        return float(np.quantile(self.served.latencies, 0.99))

    @property
    def keeps_up(self) -> bool:
        """Return whether about as much is answered as comes in."""
        came_in = self.served.arrivals[-1] - self.served.arrivals[0]
        return bool(came_in >= _KEEPS_UP * (self.served.ends[-1] - self.served.arrivals[0]))


def candidates(
    service: ServiceModel, arrivals: Floats, *, configured: int, max_wait: float, promised: float | None
) -> list[Candidate]:
    """Return static batching of the configured size, then continuous and time-out batching of the size that suits each best.

    Best is the lowest P99, and of sizes within 5 % of it the largest, which takes bursts best. With a promised P99 each also
    gets the highest rate at which it keeps it, with arrivals of the same pattern and the size that suits that rate best.
    """
    kinds = [
        [static(configured)],
        [continuous(size) for size in service.sizes],
        [time_out(size, max_wait) for size in service.sizes],
    ]
    best = [_candidate(service, arrivals, policies) for policies in kinds]
    if promised is None:
        return best
    fewer = arrivals[: arrivals.size // _PART_FOR_RATES]
    return [
        replace(found, at_most=_highest_rate(service, fewer, policies, promised))
        for found, policies in zip(best, kinds)
    ]


def winner(found: Iterable[Candidate]) -> Candidate:
    """Return the first, and so the simplest, of those with the lowest P99."""
    return _of_lowest_p99(found)[0]


def _candidate(service: ServiceModel, arrivals: Floats, policies: Iterable[Policy]) -> Candidate:
    simulated = [Candidate(policy, simulate(arrivals, policy, service)) for policy in policies]
    return _of_lowest_p99(simulated)[-1]


def _of_lowest_p99(found: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates within 5 % of the lowest P99, in order."""
    tails = [(candidate, candidate.p99) for candidate in found]
    lowest = min(p99 for _, p99 in tails)
    return [candidate for candidate, p99 in tails if p99 <= _ALIKE * lowest]


def _highest_rate(service: ServiceModel, arrivals: Floats, policies: Iterable[Policy], promised: float) -> HighestRate:
    rates = [HighestRate(policy, _rate_kept(service, arrivals, policy, promised)) for policy in policies]
    return max(rates, key=lambda found: found.rate)


def _rate_kept(service: ServiceModel, arrivals: Floats, policy: Policy, promised: float) -> float:
    rate = (arrivals.size - 1) / float(arrivals[-1])

    def keeps(tried: float) -> bool:
        served = simulate(arrivals * (rate / tried), policy, service)
        return bool(np.quantile(served.latencies, 0.99) <= promised)

    return highest_rate(keeps, most=service.capacity(policy.batch), steps=8, halvings=6)
