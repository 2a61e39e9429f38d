"""The sweep over batch sizes: the sizes that work, and the measurements of each visit."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from perfgate.document.message import Message
from perfgate.measuring.checklist.experiment import FailedExperiment, experiment
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.timing.calls import CallBudget, measure_throughput, time_calls, timed_call

_LARGEST = 64


@dataclass(frozen=True)
class SweepEffort:
    """``call_seconds``: the sweep ends at a size with a longer single call."""

    visits: int
    visit_seconds: float
    call_seconds: float


# Of six visits a signed rank gives a two-sided interval at 95 %; of five none.
QUICK = SweepEffort(visits=6, visit_seconds=0.05, call_seconds=0.07)
BRIEF = SweepEffort(visits=6, visit_seconds=0.02, call_seconds=0.07)
FULL = SweepEffort(visits=6, visit_seconds=0.5, call_seconds=2.0)


@dataclass
class Sweep:
    """Sizes that work, in rising order, with the items per second of each visit and the latencies in seconds."""

    sizes: list[int] = field(default_factory=list)
    rates: dict[int, list[float]] = field(default_factory=dict)
    latencies: dict[int, list[float]] = field(default_factory=dict)
    refused: dict[int, Message] = field(default_factory=dict)
    out_of_memory: int | None = None
    too_slow: int | None = None

    def drop_from(self, size: int) -> list[int]:
        """Forget a size and all above it, and return them."""
        dropped = [larger for larger in self.sizes if larger >= size]
        self.sizes = [smaller for smaller in self.sizes if smaller < size]
        self.rates = {smaller: rates for smaller, rates in self.rates.items() if smaller < size}
        return dropped

    def drop(self, size: int) -> None:
        """Forget a size."""
        self.sizes.remove(size)
        self.rates.pop(size, None)

    def throughput(self) -> dict[int, float]:
        """The median items per second of every size, in rising order of sizes."""
        return {size: float(np.median(self.rates[size])) for size in self.sizes if self.rates.get(size)}


def probe(context: StepContext, shape: str, effort: SweepEffort, sweep: Sweep) -> None:
    """Try every size once; memory or time ends the sweep, a refusal leaves one size out."""
    configured = context.workload.batch
    powers = [1 << exponent for exponent in range(_LARGEST.bit_length())]
    sizes = set(context.workload.workload.batch_sizes or powers) - {configured}
    # The configured size comes first: it must work, and it must be in the sweep.
    for size in (configured, *sorted(sizes)):
        context.progress(f"trying batch size {size}")
        call_once = partial(_seconds_of_a_call, context, shape, size)
        seconds = call_once() if size == configured else experiment(context, call_once)
        if not isinstance(seconds, FailedExperiment):
            sweep.sizes = sorted([*sweep.sizes, size])
            if size == configured or seconds <= effort.call_seconds:
                continue
            sweep.too_slow = size
        elif not seconds.out_of_memory:
            sweep.refused[size] = seconds.reason
            continue
        else:
            sweep.out_of_memory = size
        break
    forget(context, shape, [*sweep.refused, *([sweep.out_of_memory] if sweep.out_of_memory else [])])


def _seconds_of_a_call(context: StepContext, shape: str, size: int) -> float:
    """The time of a call, after one that may allocate."""
    call = context.workload.caller(shape, batch=size)
    call()
    context.device.synchronize()
    return timed_call(call, context.device) / 1e9


def forget(context: StepContext, shape: str, sizes: list[int]) -> None:
    """Drop the inputs of these sizes, except those of the configured one, and give cached memory back."""
    for size in sizes:
        if size != context.workload.batch:
            context.workload.drop_pool(shape, batch=size)
    context.device.empty_cache()


def visit_all(context: StepContext, shape: str, effort: SweepEffort, sweep: Sweep) -> None:
    """Measure every size ``effort.visits`` times, in a new random order each time."""
    chance = random.Random(context.seed)
    for number in range(effort.visits):
        context.progress(f"batch sizes {sweep.sizes}, visit {number + 1} of {effort.visits}")
        for size in chance.sample(sweep.sizes, len(sweep.sizes)):
            if size in sweep.sizes:
                _visit(context, shape, size, effort, sweep)


def _visit(context: StepContext, shape: str, size: int, effort: SweepEffort, sweep: Sweep) -> None:
    """Measure one size once more; several calls in flight may need memory that the single call of the probe did not."""
    failed = experiment(context, partial(_measure_once, context, shape, size, effort, sweep))
    if failed is None:
        return
    if failed.out_of_memory:
        sweep.out_of_memory = size
        forget(context, shape, sweep.drop_from(size))
    else:
        sweep.refused[size] = failed.reason
        sweep.drop(size)
        forget(context, shape, [size])


def _measure_once(context: StepContext, shape: str, size: int, effort: SweepEffort, sweep: Sweep) -> None:
    device, window = context.device, effort.visit_seconds
    call = context.workload.caller(shape, batch=size)
    call()
    device.synchronize()
    (rate,), _ = measure_throughput(call, device, items=size, window_seconds=window, windows=1)
    sweep.rates.setdefault(size, []).append(float(rate))
    if context.workload.workload.sla.p99 is not None:
        times = time_calls(call, device, CallBudget(calls=3, seconds=window))
        sweep.latencies.setdefault(size, []).extend((times.wall / 1e9).tolist())
