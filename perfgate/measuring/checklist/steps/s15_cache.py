"""Step 15: how much slower a call is on a cold cache; a benchmark loop always measures a warm one."""

from __future__ import annotations

import copy
import random
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import cycle, product
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.locale import Activity
from perfgate.measuring.checklist.experiment import FailedExperiment, experiment, own_call
from perfgate.measuring.checklist.limits import limit
from perfgate.measuring.checklist.recorded import or_unavailable, profiled
from perfgate.measuring.checklist.recorded_counters import add_rate, busy_window
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, unavailable
from perfgate.measuring.devices.device import Device
from perfgate.measuring.timing.calls import find_steady_state, timed_call
from perfgate.measuring.timing.versus import FEWEST_QUADS, summarize_turns
from perfgate.system.garbage import quiet
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.arithmetic import FloatColumn, IntColumn
from perfgate.trace.model.counters import CounterColumns
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.readings import MEMORY_READ, MEMORY_WRITE

_HOT, _COLD, _ROTATING = "hot", "cold", "rotating"
_SENSITIVITY = "cache.sensitivity"
_TIMED_CALLS = 3
_MOST_ROUNDS = 30
# More copies than this take longer to make than to measure.
_MOST_COPIES = 4096
_TOP_RATES = 10
_HEAVY = 0.1
_NO_COUNTERS = Message("system.no-l2-counters")
# Columns of AiCMetrics.L2Cache: aic_r0_read_cache_hit, aiv_write_cache_miss_allocate (910B, sample msprof-910B-20cores-2608),
# aic_read_local_l2_hit and _miss (Ascend 950, msprof's documentation). Evictions (victim) are neither.
_COLUMN = re.compile(r"_(?P<access>read|write)_(?:cache|local_l2)_(?P<result>hit|miss)(?:_allocate)?$")
# The column that the reader fills from l2_cache.csv (910A, 310P), one rate per kernel.
_RATE = "l2_hit_rate"


class CacheStep:
    """The same call with hot, cold and rotating buffers, in turns; sweeping the cache is not timed."""

    card = card(15)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure the first shape; unavailable if the size of the cache is unknown."""
        shape = context.workload.shapes[0]
        with quiet():
            own_call(context, shape)
            # The sweep and the copies of the inputs take memory that the workload did not ask for.
            outcome = experiment(context, partial(_measure, context, shape), failing="system.cache-fails")
        return unavailable(outcome.reason) if isinstance(outcome, FailedExperiment) else outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """The hit rates of the heaviest operators of every rank, and its memory traffic."""
        outcome = context.outcome()
        for summary in context.summaries:
            rank = outcome.under(**profiled(summary))
            rates = _hit_rates(summary.kernels())[:_TOP_RATES]
            for op, access, rate, time_share in rates:
                rank.under(op=op, access=access).number("cache.hit_rate", rate)
                if time_share >= _HEAVY and access != "write":
                    rank.below("cache.hit_rate", rate, {"op": op})
            if not rates:
                rank.missing("cache.hit_rate", _NO_COUNTERS)
            _judge_traffic(rank, summary)
        return or_unavailable(outcome, _NO_COUNTERS)


STEP = CacheStep()


def _measure(context: StepContext, shape: str) -> StepOutcome:
    size, sweep = context.device.cache_bytes(), context.device.cache_sweeper()
    if size is None or sweep is None:
        return unavailable(Message("system.cache-unknown"))
    context.progress(Activity("hot and cold caches with inputs of shape {shape}", shape=shape))
    buffers = _Buffers(context, shape, cache_bytes=size)
    rounds = _rounds(context, buffers, sweep)
    outcome = context.outcome()
    for way in (_HOT, _COLD, _ROTATING):
        of_way = outcome.under(shape=shape, buffers=way)
        if way == _ROTATING and buffers.refusal is not None:
            of_way.missing(_SENSITIVITY, buffers.refusal)
            continue
        seconds = float(np.median([turn[way] for turn in rounds])) / 1e9
        of_way.number("cache.call_time", seconds, count=len(rounds))
        if way == _HOT:
            continue
        versus = summarize_turns(np.asarray([(turn[way], turn[_HOT]) for turn in rounds]))
        of_way.speedup(_SENSITIVITY, versus)
        # The whole interval must lie above the limit: single cold calls scatter.
        if versus.low > limit("cache.sensitivity.warning", context.limits):
            of_way.above(_SENSITIVITY, versus.speedup, {"buffers": way})
    return outcome


class _Buffers:
    """An input of a shape, and enough copies of it to fill the cache twice before one is used again.

    ``refusal`` is the reason if there are no copies.
    """

    def __init__(self, context: StepContext, shape: str, *, cache_bytes: int) -> None:
        self._invoke = context.workload.invoke
        self._inputs = context.workload.pool(shape)[0]
        size = context.device.bytes_of(self._inputs)
        copies = -(-2 * cache_bytes // size) + 1 if size else 0
        self.refusal: Message | None = None
        if not copies:
            self.refusal = Message("system.no-tensor-inputs")
        elif copies > _MOST_COPIES:
            self.refusal = Message("system.too-many-copies", {"size": size, "needed": copies})
        made = self._copied(context, copies) if self.refusal is None else []
        self._copies = cycle(made)

    def _copied(self, context: StepContext, copies: int) -> list[Any]:
        """Copies of the input, none if it cannot be copied."""
        made = experiment(
            context, lambda: [copy.deepcopy(self._inputs) for _ in range(copies)], failing="system.inputs-not-copied"
        )
        if isinstance(made, FailedExperiment):
            self.refusal = made.reason
            return []
        return made

    def same(self) -> Any:
        """Make a call on the same input as always."""
        return self._invoke(self._inputs)

    def next(self) -> Any:
        """Make a call on the least recently used copy."""
        return self._invoke(next(self._copies))


def _rounds(context: StepContext, buffers: _Buffers, sweep: Callable[[], None]) -> list[dict[str, float]]:
    """Nanoseconds of a call in each way, once a round and in random order, so that disturbances affect all ways alike."""
    device, chance = context.device, random.Random(context.seed)
    find_steady_state(buffers.same, device, cap_seconds=context.seconds(quick=0.3, full=3.0))

    def cold() -> float:
        sweep()
        return float(timed_call(buffers.same, device))

    ways: dict[str, Callable[[], float]] = {_HOT: lambda: _repeated(buffers.same, device), _COLD: cold}
    if buffers.refusal is None:
        ways[_ROTATING] = lambda: _repeated(buffers.next, device)
    until = device.clock_ns() + int(context.seconds(quick=0.8, full=8.0) * 1e9)
    rounds: list[dict[str, float]] = []
    while len(rounds) < FEWEST_QUADS or (device.clock_ns() < until and len(rounds) < _MOST_ROUNDS):
        rounds.append({way: ways[way]() for way in chance.sample(list(ways), len(ways))})
    return rounds


def _repeated(call: Callable[[], Any], device: Device) -> float:
    """The median of some calls after an untimed one, because another way left its data in the cache."""
    timed_call(call, device)
    return float(np.median([timed_call(call, device) for _ in range(_TIMED_CALLS)]))


def _judge_traffic(outcome: StepOutcome, summary: DeviceSummary) -> None:
    """Memory reads and writes per second from the first to the last task of the steps; absent without counters."""
    window = busy_window(summary)
    mean_rates: list[float] = []
    for access, name in (("read", MEMORY_READ), ("write", MEMORY_WRITE)):
        readings = summary.timeline.readings.get(name)
        if readings is None or window is None:
            continue
        rate = add_rate(outcome.under(access=access), "cache.memory_traffic", readings, window)
        mean_rates += [] if rate is None else [rate]
    peak = limit("cache.memory_peak", outcome.limits)
    if peak > 0 and mean_rates:
        share = sum(mean_rates) / peak
        outcome.number("cache.memory_share", share)
        outcome.above("cache.memory_share", share, {"share": share, "traffic [B/s]": sum(mean_rates)})


Access = Literal["read", "write", "all"]
_ACCESSES: tuple[Access, ...] = ("read", "write")


def _hit_rates(kernels: KernelTable) -> list[tuple[str, Access, float, float]]:
    """The rate of each access of all kernels of a type, and their share of the time of all kernels, most time first.

    None if no cache counter was collected.
    """
    times: Counter[str] = Counter()
    types: dict[str, int] = {}
    # The number of the type of each group of identical kernels; -1 for collectives.
    type_of = []
    for kernel, _, total_ns in kernels.alike():
        op = kernel.type or kernel.name
        type_of.append(-1 if kernel.is_collective else types.setdefault(op, len(types)))
        times[op] += 0 if kernel.is_collective else total_ns
    total = sum(times.values()) or 1
    rates = _rates(kernels.counters, np.array(type_of, dtype=np.int64)[kernels.alike_number], len(types))
    rows = []
    for op in sorted(types, key=lambda op: (-times[op], op)):
        for access, rate in rates[types[op]].items():
            rows.append((op, access, rate, times[op] / total))
    return rows


def _rates(counters: CounterColumns, row: IntColumn, types: int) -> list[dict[Access, float]]:
    """The rates of each type; ``row`` is the number of each kernel's type."""

    def added_up(known: npt.NDArray[np.bool_], numbers: FloatColumn | None = None) -> FloatColumn:
        chosen = known & (row >= 0)
        weights = None if numbers is None else numbers[chosen]
        return np.bincount(row[chosen], weights, minlength=types).astype(np.float64)

    names = {name: column for name in counters.names if (column := _COLUMN.search(name))}
    accesses = {(str(access), result): np.zeros(types) for access, result in product(_ACCESSES, ("hit", "miss"))}
    for name, counts in counters.columns(*names).items():
        # Counts are integers written with decimals.
        accesses[names[name]["access"], names[name]["result"]] += added_up(~np.isnan(counts), np.rint(counts))
    rates: list[dict[Access, float]] = [{} for _ in range(types)]
    for access in _ACCESSES:
        hits, misses = accesses[access, "hit"], accesses[access, "miss"]
        for number in np.flatnonzero(hits + misses).tolist():
            rates[number][access] = float(hits[number] / (hits[number] + misses[number]))
    for rate in counters.columns(_RATE).values():
        known = (rate >= 0) & (rate <= 1)
        sums, numbers = added_up(known, rate), added_up(known)
        for number in np.flatnonzero(numbers).tolist():
            if not rates[number]:
                rates[number]["all"] = float(sums[number] / numbers[number])
    return rates
