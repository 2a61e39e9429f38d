"""Compare an operator with its reference and with the device's roof, case by case: for
step 4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from perfgate.document.message import Message
from perfgate.document.run import Roof
from perfgate.measuring.checklist.step import StepContext, StepOutcome
from perfgate.measuring.counting.account import measure_roof
from perfgate.measuring.devices.batches import bytes_of, tensors
from perfgate.measuring.devices.device import Call
from perfgate.measuring.timing.calls import (
    FEWEST_QUADS,
    Versus,
    compare,
    summarize_turns,
    time_in_rounds,
    timed_call,
)
from perfgate.measuring.workload.operators import as_model
from perfgate.system.garbage import quiet

_HOT_SECONDS, _QUICK_SECONDS = 2.0, 0.5
_SPEEDUP, _COLD, _ROOFLINE = (
    "operator.speedup",
    "operator.cold_speedup",
    "operator.roofline",
)


def measure_cases(context: StepContext, outcome: StepOutcome) -> None:
    """Measure the candidate against the reference on every case; skipped without a
    reference, or if calls train.
    """
    reference = context.workload.workload.reference
    if reference is None or context.workload.workload.train_step is not None:
        return
    native_workload = context.workload.around(as_model(reference))
    sweep = context.device.cache_sweeper()
    roofs: dict[Any, Roof | None] = {}
    slower: list[tuple[float, StepOutcome]] = []
    for shape in context.workload.shapes:
        context.doing("comparing case {shape} with its reference", shape=shape)
        case, inputs = outcome.under(shape=shape), context.workload.pool(shape)[0]
        if _strides(inputs) != _strides(context.workload.host_inputs(shape)):
            case.missing(
                (_SPEEDUP, _COLD, _ROOFLINE), Message("operators.strides-lost")
            )
            continue
        native = partial(native_workload.invoke, inputs)
        candidate = partial(context.workload.invoke, inputs)
        seconds = _QUICK_SECONDS if context.extent.quick else _HOT_SECONDS
        with quiet():
            hot = compare(
                native, candidate, context.device, seconds=seconds, seed=context.seed
            )
            case.speedup(_SPEEDUP, hot)
            if sweep is None:
                case.missing((_COLD, _ROOFLINE), Message("system.cache-unknown"))
            else:
                cold = _cold(native, candidate, context, sweep)
                case.speedup(_COLD, cold)
                _add_roofline(
                    case,
                    native,
                    inputs,
                    cold.second_ns / 1e9,
                    _roof_of(inputs, context, roofs),
                )
        # Only cases that are certainly slower.
        if hot.high < context.limit("operator.speedup.warning"):
            slower.append((hot.speedup, case))
    # The worst first, in tables as among findings.
    speedups = {}
    for value in outcome.values:
        if value.metric == _SPEEDUP:
            speedups[value.labels["shape"]] = value.value or 0.0
    order = (_SPEEDUP, _COLD, _ROOFLINE)
    outcome.values.sort(
        key=lambda value: (order.index(value.metric), speedups[value.labels["shape"]])
    )
    for speedup, case in sorted(slower, key=lambda entry: entry[0]):
        case.below(_SPEEDUP, speedup)


def _roof_of(
    inputs: Any, context: StepContext, roofs: dict[Any, Roof | None]
) -> Roof | None:
    """The roof of the inputs' data type, measured once."""
    kind = next(
        (tensor.dtype for tensor in tensors(inputs) if tensor.is_floating_point()), None
    )
    if kind not in roofs:
        roofs[kind] = measure_roof(context.device, dtype=kind)
    return roofs[kind]


def _strides(inputs: Any) -> list[Any]:
    return [tensor.stride() for tensor in tensors(inputs)]


def _cold(
    native: Call, candidate: Call, context: StepContext, sweep: Callable[[], None]
) -> Versus:
    """Time both in turns, in random order, each after a sweep of the cache."""

    def cold_ns(call: Call) -> float:
        sweep()
        return float(timed_call(call, context.device))

    times = time_in_rounds(
        {"native": partial(cold_ns, native), "candidate": partial(cold_ns, candidate)},
        context.device,
        seconds=0,
        seed=context.seed,
        fewest=2 * FEWEST_QUADS,
    )
    return summarize_turns(np.column_stack(list(times.values())))


def _add_roofline(
    outcome: StepOutcome, native: Call, inputs: Any, seconds: float, roof: Roof | None
) -> None:
    """The share of the roof that the candidate reaches with a cold cache, so that every
    byte comes from memory.

    The work is the reference's: FLOPs as torch counts them, every input read once and
    every output written once. A custom kernel does the same work, but torch may not
    know its operators.
    """
    from torch.utils.flop_counter import FlopCounterMode

    if roof is None:
        outcome.missing(_ROOFLINE, Message("operators.no-roof"))
        return
    with FlopCounterMode(display=False) as counted:
        output = native()
    moved = bytes_of(inputs) + bytes_of(output)
    least = max(
        counted.get_total_flops() / roof.flops_per_second, moved / roof.bytes_per_second
    )
    outcome.number(_ROOFLINE, least / seconds)
