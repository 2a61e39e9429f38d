"""Warm a worker up before its first block, and find how many calls make a block."""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from perfgate.measuring.devices.device import Call, Device
from perfgate.measuring.timing.blocks import time_calls_of_block
from perfgate.measuring.timing.calls import SteadyState, compiled_graphs, timed_call
from perfgate.measuring.timing.preprocessing import Preprocessing
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload
from perfgate.protocol import FEWEST_CALLS, SLOW_CALL_SECONDS, WarmedUp
from perfgate.system.garbage import collector_off

# Fastest calls of blocks that lie this close together count as equal; after this time
# noise alone may keep them apart. The fastest, because a neighbour slows most calls of
# a block and hardly ever all: on a machine under load, medians never agreed in half a
# second, while fastest calls did in a tenth of it. A quarter of a block is enough: with
# whole blocks warming up took as long as the blocks of a pair.
AGREEMENT = 0.02
SETTLING_SECONDS = 0.05
IN_A_ROW = 3
SETTLING_BLOCKS = 4


class _Limits(NamedTuple):
    """Nanoseconds of one block, and since the first call: before which no shape is
    warm, after which noise may remain, most.
    """

    block: int
    least: int
    settling: int
    cap: int


def warm_up(
    workload: BoundWorkload,
    *,
    block_seconds: float,
    cap_seconds: float,
    least_seconds: float = 0.0,
    preprocessing: Mapping[str, Preprocessing] | None = None,
) -> WarmedUp:
    """Warm up every shape and return the number of calls in a block of about
    ``block_seconds``: at least 3.

    A block of ``preprocessing``, by shape, has at least one: few calls are enough to
    locate 100 ms.

    Code may be compiled or captured for each size of its inputs, and must be before the
    blocks. So every input of a shape is called at least once, and blocks in which torch
    compiled a graph are discarded. A call of SLOW_CALL_SECONDS or more makes a block
    alone, and is warm once it is no faster than the call before it, even if some inputs
    are new.

    A shape is steady when the fastest calls of three blocks in a row lie within 2 %, or
    when a twentieth of a second has passed and they do not keep falling (then noise,
    not warming, holds them apart). All shapes share that time, because the process as a
    whole warms up, ``least_seconds`` before which none is steady, and ``cap_seconds``;
    if that ends the search, ``steady`` is False. Live objects are frozen, so that the
    collections between blocks are short.
    """
    _freeze()
    callers = {shape: workload.caller(shape) for shape in workload.shapes}
    preprocessing = preprocessing or {}
    block_ns = int(block_seconds * 1e9)
    share_ns = 1e9 / (len(callers) + len(preprocessing))
    limits = _Limits(
        block=block_ns // SETTLING_BLOCKS,
        least=int(least_seconds * share_ns),
        settling=int(SETTLING_SECONDS * share_ns),
        cap=int(cap_seconds * share_ns),
    )
    states = []
    call_ns = 0.0
    block_calls, preprocess_calls = {}, {}
    for shape, call in callers.items():
        state = _settle(call, workload.device, limits, inputs=POOL_SIZE)
        states.append(state)
        call_ns += state.call_ns
        block_calls[shape] = 1
        if not _is_slow(state.call_ns):
            block_calls[shape] = max(FEWEST_CALLS, math.ceil(block_ns / state.call_ns))
    for shape, preprocess in preprocessing.items():
        state = _settle(preprocess, workload.device, limits, inputs=0)
        states.append(state)
        preprocess_calls[shape] = math.ceil(block_ns / state.call_ns)
    _freeze()
    return WarmedUp(
        calls=sum(state.calls for state in states),
        steady=all(state.steady for state in states),
        call_seconds=call_ns / 1e9,
        block_calls=block_calls,
        preprocess_calls=preprocess_calls,
    )


def _is_slow(call_ns: float) -> bool:
    return call_ns >= SLOW_CALL_SECONDS * 1e9


def _freeze() -> None:
    gc.collect()
    gc.freeze()


def _settle(call: Call, device: Device, limits: _Limits, *, inputs: int) -> SteadyState:
    """Call until the speed is steady and each of the rotating ``inputs`` was used."""
    # The first call may compile for longer than all the rest may take.
    first_ns = timed_call(call, device)
    started = device.clock_ns()
    calls, block_calls = 1, 1
    fastest = []
    previous_ns = float(first_ns)
    while True:
        graphs = compiled_graphs()
        with collector_off():
            wall = time_calls_of_block(call, device, block_calls, device.clock_ns).wall
        calls += block_calls
        fastest_ns = max(1.0, float(wall.min()))
        fastest.append(fastest_ns)
        call_ns = max(1.0, float(np.median(wall)))
        block_calls = max(1, math.ceil(limits.block / call_ns))
        elapsed = device.clock_ns() - started
        if compiled_graphs() > graphs:
            fastest.clear()
        elif elapsed >= limits.least and (calls > inputs or _is_slow(call_ns)):
            is_steady = _is_settled(
                fastest[-IN_A_ROW:], may_wander=elapsed >= limits.settling
            )
            if _is_slow(call_ns) and fastest_ns >= (1 - AGREEMENT) * previous_ns:
                is_steady = True
            if is_steady:
                return SteadyState(calls, True, first_ns, call_ns)
        if elapsed >= limits.cap:
            return SteadyState(calls, False, first_ns, call_ns)
        previous_ns = fastest_ns


def _is_settled(last: list[float], *, may_wander: bool) -> bool:
    """Whether the fastest calls of the last blocks agree, or, if they ``may_wander``,
    at least do not fall any more.
    """
    if len(last) < IN_A_ROW:
        return False
    if max(last) - min(last) <= AGREEMENT * min(last):
        return True
    falls = all(later < earlier for earlier, later in itertools.pairwise(last))
    return may_wander and not (falls and last[-1] < last[0] * (1 - AGREEMENT))
