"""How long a batch of so many items takes: the service model that batching is simulated with."""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.checklist.steps._batch_sweep import Effort, Sweep, probe
from perfgate.measuring.timing.calls import CallBudget, time_calls

QUICK = Effort(visits=2, visit_seconds=0.03, call_seconds=0.1)
FULL = Effort(visits=5, visit_seconds=0.2, call_seconds=1.0)


@dataclass(frozen=True)
class ServiceModel:
    """The median seconds of a call of each batch size that was measured, in rising order of sizes.

    A batch between two sizes is padded to the larger one, as servers with compiled or captured shapes do; so nothing is
    guessed between them, and a replay can make exactly these calls.
    """

    seconds: dict[int, float]

    @property
    def sizes(self) -> list[int]:
        """Return the sizes."""
        return list(self.seconds)

    def padded(self, items: int) -> int:
        """Return the size that so many items are padded to. Raises IndexError above the largest."""
        return self.sizes[bisect_left(self.sizes, items)]

    def __call__(self, items: int) -> float:
        """Return the seconds that a batch of so many items takes."""
        return self.seconds[self.padded(items)]

    def capacity(self, batch: int) -> float:
        """Return the most items a second that batches of at most so many can answer."""
        return max(size / seconds for size, seconds in self.seconds.items() if size <= batch)


def measure_service(context: StepContext, shape: str) -> ServiceModel:
    """Time single calls of every size that works, each waited for, in an order drawn anew for every visit."""
    effort = QUICK if context.quick else FULL
    sweep = Sweep()
    probe(context, shape, effort, sweep)
    chance = random.Random(context.seed)
    taken: dict[int, list[float]] = {size: [] for size in sweep.sizes}
    for number in range(effort.visits):
        context.progress(f"timing calls of {len(sweep.sizes)} batch sizes, visit {number + 1} of {effort.visits}")
        for size in chance.sample(sweep.sizes, len(sweep.sizes)):
            call = context.workload.caller(shape, batch=size)
            times = time_calls(call, context.device, CallBudget(calls=2, seconds=effort.visit_seconds))
            taken[size] += (times.wall / 1e9).tolist()
    return ServiceModel({size: float(np.median(seconds)) for size, seconds in taken.items()})
