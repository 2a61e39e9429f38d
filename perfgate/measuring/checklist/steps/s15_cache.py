"""Step 15: how much slower a call is on a cold cache; a benchmark loop always measures
a warm one.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.measuring.checklist.experiment import (
    FailedExperiment,
    experiment,
    outcome_of,
    own_call,
)
from perfgate.measuring.checklist.recorded import add_rate, busy_window, profiled
from perfgate.measuring.checklist.step import (
    RecordingContext,
    StepContext,
    StepOutcome,
    unavailable,
)
from perfgate.measuring.devices.device import Call, Device
from perfgate.measuring.timing.calls import (
    find_steady_state,
    summarize_turns,
    time_in_rounds,
    timed_call,
)
from perfgate.stats.arrays import Floats
from perfgate.system.garbage import quiet
from perfgate.trace.model.counters import CounterColumns
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.readings import MEMORY_READ, MEMORY_WRITE

_HOT, _COLD, _ROTATING = "hot", "cold", "rotating"
_SENSITIVITY = "cache.sensitivity"
_TIMED_CALLS = 3
# More copies than this take longer to make than to measure.
_MOST_COPIES = 4096
_TOP_RATES = 10
_HEAVY = 0.1
_NO_COUNTERS = Message("system.no-l2-counters")
# Columns of AiCMetrics.L2Cache: aic_r0_read_cache_hit, aiv_write_cache_miss_allocate
# (910B, sample msprof-910B-20cores-2608), aic_read_local_l2_hit and _miss (Ascend 950,
# msprof's documentation). Evictions (victim) are neither.
_COLUMN = re.compile(
    r"_(?P<access>read|write)_(?:cache|local_l2)_(?P<result>hit|miss)(?:_allocate)?$"
)
# The column that the reader fills from l2_cache.csv (910A, 310P), one rate per kernel.
_RATE = "l2_hit_rate"


class CacheStep:
    """The same call with hot, cold and rotating buffers, in turns; sweeping the cache
    is not timed.
    """

    card = card(15)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure the first shape; unavailable if the size of the cache is unknown."""
        shape = context.workload.shapes[0]
        with quiet():
            own_call(context, shape)
            # The sweep and the copies of the inputs take memory that the workload did
            # not ask for.
            return outcome_of(
                context, partial(_measure, context, shape), failing="system.cache-fails"
            )

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """The hit rates of the heaviest operators of every rank, and its memory
        traffic.
        """
        outcome = context.outcome()
        for summary in context.summaries:
            rank = outcome.under(**profiled(summary))
            rows = hit_rates(summary.kernels())[:_TOP_RATES]
            for row in rows:
                rank.under(op=row.op, access=row.access).number(
                    "cache.hit_rate", row.rate
                )
                if row.time_share >= _HEAVY and row.access != "write":
                    rank.below("cache.hit_rate", row.rate, {"op": row.op})
            if not rows:
                rank.missing("cache.hit_rate", _NO_COUNTERS)
            # Memory reads and writes per second from the first to the last task of the
            # steps; absent without counters.
            window = busy_window(summary)
            mean_rates = []
            for access, name in (("read", MEMORY_READ), ("write", MEMORY_WRITE)):
                readings = summary.timeline.readings.get(name)
                if readings is None or window is None:
                    continue
                rate = add_rate(
                    rank.under(access=access), "cache.memory_traffic", readings, window
                )
                if rate is not None:
                    mean_rates.append(rate)
            peak = rank.limit("cache.memory_peak")
            if peak > 0 and mean_rates:
                share = sum(mean_rates) / peak
                rank.number("cache.memory_share", share)
                rank.above(
                    "cache.memory_share",
                    share,
                    {"share": share, "traffic [B/s]": sum(mean_rates)},
                )
        return outcome.or_unavailable(_NO_COUNTERS)


STEP = CacheStep()


def _measure(context: StepContext, shape: str) -> StepOutcome:
    size, sweep = context.device.cache_bytes(), context.device.cache_sweeper()
    if size is None or sweep is None:
        return unavailable(Message("system.cache-unknown"))
    context.doing("hot and cold caches with inputs of shape {shape}", shape=shape)
    buffers = _Buffers(context, shape, cache_bytes=size)
    times = _time_ways(context, buffers, sweep)
    outcome = context.outcome()
    for way in (_HOT, _COLD, _ROTATING):
        of_way = outcome.under(shape=shape, buffers=way)
        if way == _ROTATING and buffers.refusal is not None:
            of_way.missing(_SENSITIVITY, buffers.refusal)
            continue
        seconds = float(np.median(times[way])) / 1e9
        of_way.number("cache.call_time", seconds, count=times[way].size)
        if way == _HOT:
            continue
        versus = summarize_turns(np.column_stack([times[way], times[_HOT]]))
        of_way.speedup(_SENSITIVITY, versus)
        # The whole interval must lie above the limit: single cold calls scatter.
        if versus.low > context.limit("cache.sensitivity.warning"):
            of_way.above(_SENSITIVITY, versus.speedup, {"buffers": way})
    return outcome


class _Buffers:
    """An input of a shape, and enough copies of it to fill the cache twice before one
    is used again.

    ``refusal`` is the reason if there are no copies.
    """

    def __init__(self, context: StepContext, shape: str, *, cache_bytes: int) -> None:
        self._invoke = context.workload.invoke
        self._inputs = context.workload.pool(shape)[0]
        size = context.device.bytes_of(self._inputs)
        copies = 0
        if size:
            copies = -(-2 * cache_bytes // size) + 1
        self.refusal: Message | None = None
        if not copies:
            self.refusal = Message("system.no-tensor-inputs")
        elif copies > _MOST_COPIES:
            self.refusal = Message(
                "system.too-many-copies", {"size": size, "needed": copies}
            )
        inputs = []
        if self.refusal is None:
            inputs = self._copied(context, copies)
        self._copies = cycle(inputs)

    def _copied(self, context: StepContext, copies: int) -> list[Any]:
        """Copies of the input, none if it cannot be copied."""
        inputs = experiment(
            context,
            lambda: [copy.deepcopy(self._inputs) for _ in range(copies)],
            failing="system.inputs-not-copied",
        )
        if isinstance(inputs, FailedExperiment):
            self.refusal = inputs.reason
            return []
        return inputs

    def same(self) -> Any:
        """Make a call on the same input as always."""
        return self._invoke(self._inputs)

    def next(self) -> Any:
        """Make a call on the least recently used copy."""
        return self._invoke(next(self._copies))


def _time_ways(
    context: StepContext, buffers: _Buffers, sweep: Callable[[], None]
) -> dict[str, Floats]:
    """Nanoseconds of a call in each way, round by round."""
    device = context.device
    find_steady_state(
        buffers.same, device, cap_seconds=context.seconds(quick=0.3, full=3.0)
    )

    def cold() -> float:
        sweep()
        return float(timed_call(buffers.same, device))

    ways: dict[str, Callable[[], float]] = {
        _HOT: lambda: _repeated(buffers.same, device),
        _COLD: cold,
    }
    if buffers.refusal is None:
        ways[_ROTATING] = lambda: _repeated(buffers.next, device)
    seconds = context.seconds(quick=0.8, full=8.0)
    return time_in_rounds(ways, device, seconds=seconds, seed=context.seed, most=30)


def _repeated(call: Call, device: Device) -> float:
    """The median of some calls after an untimed one, because another way left its data
    in the cache.
    """
    timed_call(call, device)
    return float(np.median([timed_call(call, device) for _ in range(_TIMED_CALLS)]))


class HitRate(NamedTuple):
    """The hit rate of an access by all kernels of a type, and their share of the time
    of all kernels.
    """

    op: str
    access: str
    rate: float
    time_share: float


def hit_rates(kernels: KernelTable) -> list[HitRate]:
    """Most time first; empty if no cache counter was collected."""
    numbers: dict[str, list[int]] = {}
    for number, (kernel, _, _) in enumerate(kernels.alike()):
        if not kernel.is_collective:
            numbers.setdefault(kernel.type or kernel.name, []).append(number)
    rates: dict[str, dict[str, float]] = {}
    times: Counter[str] = Counter()
    for op, members in numbers.items():
        table = kernels.select(np.isin(kernels.alike_number, members))
        rates[op] = _rates(table.counters)
        times[op] = int(table.duration.sum())
    total_ns = times.total() or 1
    rows = []
    for op in sorted(times, key=lambda op: (-times[op], op)):
        for access, rate in rates[op].items():
            rows.append(HitRate(op, access, rate, times[op] / total_ns))
    return rows


def _rates(counters: CounterColumns) -> dict[str, float]:
    """The rate of each access by its counts, or the mean of the rates if the profiler
    recorded only those.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for name in counters.names:
        if match := _COLUMN.search(name):
            # Counts are integers written with decimals.
            counts[match["access"], match["result"]] += int(
                np.nansum(np.rint(counters.columns(name)[name]))
            )
    rates = {}
    for access in ("read", "write"):
        hits, misses = counts[access, "hit"], counts[access, "miss"]
        if hits + misses:
            rates[access] = hits / (hits + misses)
    for column in counters.columns(_RATE).values():
        rates_of_kernels = column[(column >= 0) & (column <= 1)]
        if rates_of_kernels.size and not rates:
            rates["all"] = float(rates_of_kernels.mean())
    return rates
