"""How long a batch takes, and the ways of batching: simulated with that, and replayed
on the workload itself in turns.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perfgate.document.sweep import Sweep
from perfgate.measuring.checklist.batch_sweep import SweepEffort, probe
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.timing.calls import CallBudget, time_calls
from perfgate.stats.arrays import Floats
from perfgate.stats.batching import (
    BatchingPolicy,
    Served,
    continuous,
    highest_rate,
    serve,
    simulate,
    static,
    time_out,
)
from perfgate.stats.signed_rank import estimate, lower_bound, upper_bound
from perfgate.stats.summary import CONFIDENCE, SampleEstimate

# Of a stable queue all but the last few requests are answered when the last comes in.
_KEEPS_UP = 0.95
_ALIKE = 1.05
# A highest rate takes a dozen simulations of each size, and needs no more of a P99 than
# a percent of the rate.
_PART_FOR_RATES = 4
_QUICK = SweepEffort(visits=2, visit_seconds=0.03, call_seconds=0.1)
_FULL = SweepEffort(visits=5, visit_seconds=0.2, call_seconds=1.0)

# Blocks of consecutive requests, of which a signed rank gives an interval at 95 %; and
# requests in one of them.
_BLOCKS = 8
_REQUESTS_OF_BLOCK = 4


@dataclass(frozen=True)
class ServiceModel:
    """The median seconds of a call of each batch size that was measured, in rising
    order of sizes.

    A batch between two sizes is padded to the larger one, as servers with compiled or
    captured shapes do; so no time is guessed between them, and a replay can make
    exactly these calls.
    """

    seconds: dict[int, float]

    @property
    def sizes(self) -> list[int]:
        return list(self.seconds)

    def padded(self, items: int) -> int:
        """The size that a batch of ``items`` is padded to.

        Raises IndexError above the largest.
        """
        return self.sizes[bisect_left(self.sizes, items)]

    def __call__(self, items: int) -> float:
        """The seconds that a batch of ``items`` takes."""
        return self.seconds[self.padded(items)]

    def capacity(self, batch: int) -> float:
        """The most items a second that batches of at most ``batch`` can answer."""
        return max(
            size / seconds for size, seconds in self.seconds.items() if size <= batch
        )


def measure_service(context: StepContext, shape: str) -> ServiceModel:
    """Time single calls of every size that works, each waited for, in an order drawn
    anew for every visit.
    """
    effort = _QUICK if context.extent.quick else _FULL
    sweep = Sweep()
    probe(context, shape, effort, sweep)
    chance = random.Random(context.seed)
    seconds: dict[int, list[float]] = {size: [] for size in sweep.sizes}
    for number in range(effort.visits):
        context.doing(
            "timing calls of {sizes} batch sizes, visit {number} of {visits}",
            sizes=len(sweep.sizes),
            number=number + 1,
            visits=effort.visits,
        )
        for size in chance.sample(sweep.sizes, len(sweep.sizes)):
            call = context.workload.caller(shape, batch=size)
            times = time_calls(
                call, context.device, CallBudget(calls=2, seconds=effort.visit_seconds)
            )
            seconds[size] += (times.wall / 1e9).tolist()
    return ServiceModel(
        {size: float(np.median(times)) for size, times in seconds.items()}
    )


class Candidate(NamedTuple):
    """A policy and the result of its simulation.

    ``at_most`` is the highest rate in requests per second at which its kind keeps the
    P99 of the SLA, 0 if there is none, and the policy that reaches it; None without an
    SLA.
    """

    policy: BatchingPolicy
    served: Served
    at_most: tuple[BatchingPolicy, float] | None = None

    @property
    def p99(self) -> float:
        """Seconds."""
        return float(np.quantile(self.served.latencies, 0.99))

    @property
    def keeps_up(self) -> bool:
        """Whether about as much is answered as comes in."""
        came_in = self.served.arrivals[-1] - self.served.arrivals[0]
        return bool(
            came_in >= _KEEPS_UP * (self.served.ends[-1] - self.served.arrivals[0])
        )


def candidates(
    service: ServiceModel,
    arrivals: Floats,
    *,
    configured: int,
    max_wait: float,
    promised: float | None,
) -> list[Candidate]:
    """Static batching of the configured size, then continuous and time-out batching of
    the size that suits each best.

    Best is the lowest P99, and of sizes within 5 % of it the largest, which takes
    bursts best. With a promised P99 each also gets the highest rate at which it keeps
    it, with arrivals of the same pattern and the size that suits that rate best.
    """
    kinds = [
        [static(configured)],
        [continuous(size) for size in service.sizes],
        [time_out(size, max_wait) for size in service.sizes],
    ]
    best = []
    for policies in kinds:
        simulated = [
            Candidate(policy, simulate(arrivals, policy, service))
            for policy in policies
        ]
        best.append(_of_lowest_p99(simulated)[-1])
    if promised is None:
        return best
    fewer = arrivals[: arrivals.size // _PART_FOR_RATES]
    rated = []
    for candidate, policies in zip(best, kinds):
        rates = [
            (policy, _rate_kept(service, fewer, policy, promised))
            for policy in policies
        ]
        rated.append(
            candidate._replace(at_most=max(rates, key=lambda highest: highest[1]))
        )
    return rated


def winner(simulated: Sequence[Candidate]) -> Candidate:
    """The first, which is the simplest, of the candidates with the lowest P99."""
    return _of_lowest_p99(simulated)[0]


def _of_lowest_p99(simulated: Sequence[Candidate]) -> list[Candidate]:
    """The candidates within 5 % of the lowest P99, in order."""
    tails = [candidate.p99 for candidate in simulated]
    return [
        candidate
        for candidate, p99 in zip(simulated, tails)
        if p99 <= _ALIKE * min(tails)
    ]


def _rate_kept(
    service: ServiceModel, arrivals: Floats, policy: BatchingPolicy, promised: float
) -> float:
    rate = (arrivals.size - 1) / float(arrivals[-1])

    def keeps(faster: float) -> bool:
        served = simulate(arrivals * (rate / faster), policy, service)
        return bool(np.quantile(served.latencies, 0.99) <= promised)

    return highest_rate(keeps, most=service.capacity(policy.batch), steps=8, halvings=6)


class PolicyReplay(NamedTuple):
    """The stretches of requests as one policy served them."""

    policy: BatchingPolicy
    stretches: list[Served]

    @property
    def latencies(self) -> Floats:
        return np.concatenate([served.latencies for served in self.stretches])

    def goodput(self, promised: float) -> float:
        """The requests a second that were answered in time."""
        seconds = sum(
            float(served.ends[-1] - served.arrivals[0]) for served in self.stretches
        )
        return float((self.latencies <= promised).sum()) / seconds

    def over_simulation(self, service: ServiceModel) -> float:
        """By how much the mean latency is longer than in a simulation of the same
        requests.
        """
        simulated = [
            simulate(served.arrivals, self.policy, service).latencies
            for served in self.stretches
        ]
        return float(self.latencies.mean() / np.concatenate(simulated).mean() - 1)

    def speedup_over(self, other: PolicyReplay) -> SampleEstimate:
        """How many times as fast requests are answered: the mean latencies of blocks of
        the same consecutive requests.

        Neighbours share a queue, blocks hardly. The interval is one at ``CONFIDENCE``.
        """
        per_segment = math.ceil(_BLOCKS / len(self.stretches))
        differences = []
        for first, second in zip(other.stretches, self.stretches):
            blocks_before = np.array_split(first.latencies, per_segment)
            blocks_after = np.array_split(second.latencies, per_segment)
            for before, after in zip(blocks_before, blocks_after):
                differences.append(math.log(before.mean() / after.mean()))
        values, alpha = np.asarray(differences), (1 - CONFIDENCE) / 2
        low, high = lower_bound(values, alpha), upper_bound(values, alpha)
        return SampleEstimate(
            math.exp(estimate(values)), math.exp(low), math.exp(high), len(differences)
        )


class _WorkloadServer:
    """Answers batches by calls of the workload; its clock is the host's, its inputs
    wait on the device.
    """

    def __init__(self, context: StepContext, shape: str, service: ServiceModel) -> None:
        self._device = context.device
        self._padded = service.padded
        self._calls = {
            size: context.workload.caller(shape, batch=size) for size in service.sizes
        }
        self._origin_ns = context.device.clock_ns()

    def begin(self, ready: float) -> float:
        """Sleep until then.

        Rounding to nanoseconds must not begin before the request that was waited for is
        there.
        """
        self._device.idle_until(self._origin_ns + round(ready * 1e9))
        return max(ready, self._now())

    def answer(self, items: int) -> float:
        """Make the call and wait for it."""
        self._calls[self._padded(items)]()
        self._device.synchronize()
        return self._now()

    def _now(self) -> float:
        return (self._device.clock_ns() - self._origin_ns) / 1e9


def replay(
    context: StepContext,
    shape: str,
    service: ServiceModel,
    arrivals: Floats,
    policies: Sequence[BatchingPolicy],
) -> list[PolicyReplay]:
    """Let all policies answer the same stretches of requests in random order; no replay
    if the rate is too low.

    A stretch holds as many requests as the slowest policy is to answer in its time, by
    simulation.
    """
    # Stretches of requests that every policy replays, and about how many seconds each
    # takes.
    segments, seconds = (2, 0.7) if context.extent.quick else (4, 2.5)
    lot = random.Random(context.seed)
    replays = [PolicyReplay(policy, []) for policy in policies]
    begin, most = 0, arrivals.size // segments
    for number in range(segments):
        # The next requests, counted from the first of them, that every policy is to
        # have answered in this time.
        stretch = arrivals[begin : begin + most]
        stretch = stretch - stretch[0]
        stretch = stretch[stretch <= seconds]
        answered = [
            int((simulate(stretch, policy, service).ends <= seconds).sum())
            for policy in policies
        ]
        stretch = stretch[: min(answered)]
        if stretch.size * segments < _BLOCKS * _REQUESTS_OF_BLOCK:
            return []
        begin += stretch.size
        context.doing(
            "replaying {size} requests, stretch {number} of {segments}",
            size=stretch.size,
            number=number + 1,
            segments=segments,
        )
        for replayed in lot.sample(replays, len(replays)):
            replayed.stretches.append(
                serve(
                    stretch, replayed.policy, _WorkloadServer(context, shape, service)
                )
            )
    return replays
