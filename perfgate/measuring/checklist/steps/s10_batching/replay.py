"""Ways of batching replayed on the workload itself, in turns and on the same requests."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.checklist.steps.s10_batching.policies import ServiceModel
from perfgate.stats.batching import Policy, Served, serve, simulate
from perfgate.stats.signed_rank import estimate, lower_bound, upper_bound
from perfgate.stats.summary import CONFIDENCE

# Blocks of consecutive requests, of which a signed rank gives an interval at 95 %; and requests in one of them.
_BLOCKS = 8
_REQUESTS_OF_BLOCK = 4

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Effort:
    """``segments`` stretches of requests are replayed by every policy, each for about ``seconds``."""

    segments: int
    seconds: float


_QUICK = _Effort(segments=2, seconds=0.7)
_FULL = _Effort(segments=4, seconds=2.5)


@dataclass(frozen=True)
class Speedup:
    """How many times as fast requests are answered, with its interval at ``CONFIDENCE``, over so many blocks of requests."""

    value: float
    low: float
    high: float
    blocks: int


@dataclass(frozen=True)
class Replay:
    """The stretches of requests as one policy served them."""

    policy: Policy
    stretches: list[Served]

    @property
    def latencies(self) -> Floats:
        return np.concatenate([served.latencies for served in self.stretches])

    @property
    def fill(self) -> float:
        """How full batches were on average."""
        return float(np.concatenate([served.sizes for served in self.stretches]).mean() / self.policy.batch)

    def goodput(self, promised: float) -> float:
        """The requests a second that were answered in time."""
        in_time = float((self.latencies <= promised).sum())
        return in_time / sum(float(served.ends[-1] - served.arrivals[0]) for served in self.stretches)

    def over_simulation(self, service: ServiceModel) -> float:
        """By how much the mean latency is longer than in a simulation of the same requests."""
        simulated = [simulate(served.arrivals, self.policy, service).latencies for served in self.stretches]
        return float(self.latencies.mean() / np.concatenate(simulated).mean() - 1)

    def speedup_over(self, other: Replay) -> Speedup:
        """Compare the mean latencies of blocks of the same consecutive requests; neighbours share a queue, blocks hardly."""
        per_segment = math.ceil(_BLOCKS / len(self.stretches))
        differences = [
            math.log(before.mean() / after.mean())
            for first, second in zip(other.stretches, self.stretches)
            for before, after in zip(
                np.array_split(first.latencies, per_segment), np.array_split(second.latencies, per_segment)
            )
        ]
        values, alpha = np.asarray(differences), (1 - CONFIDENCE) / 2
        low, high = lower_bound(values, alpha), upper_bound(values, alpha)
        return Speedup(math.exp(estimate(values)), math.exp(low), math.exp(high), len(differences))


class _WorkloadServer:
    """Answers batches by calls of the workload; its clock is the host's, its inputs wait on the device."""

    def __init__(self, context: StepContext, shape: str, service: ServiceModel) -> None:
        self._device = context.device
        self._padded = service.padded
        self._calls = {size: context.workload.caller(shape, batch=size) for size in service.sizes}
        self._origin_ns = context.device.clock_ns()

    def begin(self, ready: float) -> float:
        """Sleep until then. Rounding to nanoseconds must not begin before the request that was waited for is there."""
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
    context: StepContext, shape: str, service: ServiceModel, arrivals: Floats, policies: Sequence[Policy]
) -> list[Replay]:
    """Let all policies answer the same stretches of requests, in an order drawn by lot; no replay where too few come in.

    A stretch holds as many requests as the slowest policy is to answer in its time, by simulation.
    """
    effort = _QUICK if context.quick else _FULL
    lot = random.Random(context.seed)
    replays = [Replay(policy, []) for policy in policies]
    begin = 0
    for number in range(effort.segments):
        stretch = _stretch(arrivals[begin:], service, policies, effort.seconds)
        if stretch.size * effort.segments < _BLOCKS * _REQUESTS_OF_BLOCK:
            return []
        begin += stretch.size
        context.progress(f"replaying {stretch.size} requests, stretch {number + 1} of {effort.segments}")
        for replayed in lot.sample(replays, len(replays)):
            replayed.stretches.append(serve(stretch, replayed.policy, _WorkloadServer(context, shape, service)))
    return replays


def _stretch(arrivals: Floats, service: ServiceModel, policies: Sequence[Policy], seconds: float) -> Floats:
    """The first requests, counted from the first of them, that every policy is to have answered in this time."""
    times: Floats = arrivals - arrivals[0]
    times = times[times <= seconds]
    answered = [int((simulate(times, policy, service).ends <= seconds).sum()) for policy in policies]
    return times[: min(answered)]
