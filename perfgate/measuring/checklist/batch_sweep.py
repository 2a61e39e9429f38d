"""The sweep over batch sizes: the sizes that work, and the measurements of each visit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple

from perfgate.document.message import Message
from perfgate.document.sweep import Sweep
from perfgate.measuring.checklist.experiment import (
    ExperimentError,
    FailedExperiment,
    experiment,
)
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.devices.batches import outline
from perfgate.measuring.timing.calls import (
    CallBudget,
    measure_throughput,
    time_calls,
    timed_call,
)
from perfgate.measuring.workload.bound import BoundWorkload

# Sizes of a sweep: powers of two up to the first bound, and on to the second while a
# doubling still gains throughput.
_LARGEST, LARGEST_OF_ALL = 64, 4096


class SweepEffort(NamedTuple):
    """``call_seconds``: the sweep ends at a size with a longer single call."""

    visits: int
    visit_seconds: float
    call_seconds: float


# Of six visits a signed rank gives a two-sided interval at 95 %; of five none.
QUICK = SweepEffort(visits=6, visit_seconds=0.05, call_seconds=0.07)
BRIEF = SweepEffort(visits=6, visit_seconds=0.02, call_seconds=0.07)
FULL = SweepEffort(visits=6, visit_seconds=0.5, call_seconds=2.0)


def probe(context: StepContext, shape: str, effort: SweepEffort, sweep: Sweep) -> None:
    """Try every size once; memory or time ends the sweep, a refusal leaves one size
    out.

    The sizes are the workload's, or powers of two. Those go on beyond the usual largest
    while twice the size is more than ``batch.knee.gain`` times as fast. A size is also
    left out if the workload's ``inputs`` makes no other batch of it than of another: a
    batch that does not grow would seem ever faster for an item.
    """
    outlines: dict[int, object] = {}
    configured = context.workload.batch
    sizes = context.workload.workload.batch_sizes
    powers = _powers_of_two(sweep.call_seconds, context.limit("batch.knee.gain"))
    # The configured size comes first: it must work, and it must be in the sweep.
    for size in chain([configured], sorted(sizes) if sizes else powers):
        if size in sweep.call_seconds:
            continue
        context.doing("trying batch size {size}", size=size)
        call_once = partial(_seconds_of_a_call, context, shape, size, outlines)
        tried = call_once() if size == configured else experiment(context, call_once)
        if isinstance(tried, FailedExperiment):
            if tried.out_of_memory:
                sweep.out_of_memory = size
                break
            sweep.refused[size] = tried.reason
            continue
        sweep.call_seconds[size] = tried
        sweep.sizes = sorted(sweep.call_seconds)
        if size != configured and tried > effort.call_seconds:
            sweep.too_slow = size
            break
    unusable = list(sweep.refused)
    if sweep.out_of_memory:
        unusable.append(sweep.out_of_memory)
    forget(context, shape, unusable)


def _powers_of_two(seconds: dict[int, float], gain: float) -> Iterator[int]:
    """1, 2, 4 … up to ``_LARGEST``, and beyond it while the last doubling gained;
    ``seconds`` grows by their calls.
    """
    size = 1
    while size <= LARGEST_OF_ALL:
        yield size
        half = size // 2
        if size >= _LARGEST and not (
            size in seconds
            and half in seconds
            and 2 * seconds[half] > gain * seconds[size]
        ):
            return
        size *= 2


def _seconds_of_a_call(
    context: StepContext, shape: str, size: int, outlines: dict[int, object]
) -> float:
    """The time of a call, after one that may allocate.

    ``outlines`` has those of the batches so far, by size, and gets this one's. Raises
    ExperimentError if one of another size is equal.
    """
    made = outline(context.workload.raw_inputs(shape, batch=size, index=0))
    for other, made_before in outlines.items():
        if made == made_before:
            raise ExperimentError(
                Message("times.inputs-ignore-batch", {"size": size, "other": other})
            )
    outlines[size] = made
    call = context.workload.caller(shape, batch=size)
    call()
    context.device.synchronize()
    return timed_call(call, context.device) / 1e9


def forget(context: StepContext, shape: str, sizes: list[int]) -> None:
    """Drop the inputs of these sizes, except the configured size, and give cached
    memory back.
    """
    for size in sizes:
        if size != context.workload.batch:
            context.workload.drop_pool(shape, batch=size)
    context.device.empty_cache()


def visit_all(
    context: StepContext, shape: str, effort: SweepEffort, sweep: Sweep
) -> None:
    """Measure every size ``effort.visits`` times, in a new random order each time."""
    chance = random.Random(context.seed)
    for number in range(effort.visits):
        context.doing(
            "batch sizes {sizes}, visit {number} of {visits}",
            sizes=sweep.sizes,
            number=number + 1,
            visits=effort.visits,
        )
        for size in chance.sample(sweep.sizes, len(sweep.sizes)):
            if size in sweep.sizes:
                # Measure one size once more; several calls in flight may need memory
                # that the single call of the probe did not.
                visit = partial(
                    measure_size,
                    context.workload,
                    shape,
                    size,
                    seconds=effort.visit_seconds,
                )
                measured = experiment(context, visit)
                if not isinstance(measured, FailedExperiment):
                    rate, latencies = measured
                    sweep.rates.setdefault(size, []).append(rate)
                    sweep.latencies.setdefault(size, []).extend(latencies)
                elif measured.out_of_memory:
                    sweep.out_of_memory = size
                    forget(context, shape, sweep.drop_from(size))
                else:
                    sweep.refused[size] = measured.reason
                    sweep.drop(size)
                    forget(context, shape, [size])


def measure_size(
    workload: BoundWorkload, shape: str, size: int, *, seconds: float
) -> tuple[float, list[float]]:
    """The items per second of calls with one batch size over about ``seconds``, after
    an unrecorded call.

    With them come the seconds of a few single calls if the workload promises a P99.
    """
    call, device = workload.caller(shape, batch=size), workload.device
    (rate,), _ = measure_throughput(
        call, device, items=size, window_seconds=seconds, windows=1
    )
    if workload.workload.sla.p99 is None:
        return float(rate), []
    times = time_calls(call, device, CallBudget(calls=3, seconds=seconds))
    return float(rate), (times.wall / 1e9).tolist()
