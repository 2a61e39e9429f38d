"""The numbers of steps 1 and 2 that come from the samples of pairs.

The gate judges them only if a tolerance names them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import HOST_UTILIZATION, P90, STD, TAIL, THROUGHPUT
from perfgate.document.comparison import Clock
from perfgate.document.run import RunDocument
from perfgate.document.samples import BlockColumns, Replicate
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.blocks import (
    Clocks,
    TimedLane,
    awake_by_block,
    clean_pair,
    sum_by_block,
)
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.pairs import log_ratios, pairs_of, timing
from perfgate.judging.gate.evidence.process import SHORTEST, UsedBlocks, block_seconds
from perfgate.stats.arrays import Floats
from perfgate.stats.summary import median

SAMPLED = frozenset(name for name, entry in METRICS.items() if entry.origin.sampled)


def sampled_effects(
    base: RunDocument, head: RunDocument, place: ShapePlace, clocks: Clocks
) -> dict[str, PairedEffect]:
    """The numbers of a shape that all pairs recorded and that no metric of the gate
    has.

    P90, slowest tenth and standard deviation of its calls: in its long stretches, or
    without any in the pairs, by the deciding clock. The throughput of the median block
    of a process: items of a batch over seconds a call, by that clock, too. Without a
    clock that is fair to single calls pairs have none of these. And the CPU time of the
    process over its time awake and its CPUs.
    """
    clock = clocks.get(TimedLane(place, preprocess=False), "wall")
    batch_of_base = _batch(base, place)
    batch_of_head = _batch(head, place)
    calls = _BothSides()
    processes = _BothSides()
    pairs = pairs_of(base.pairs.replicates, head.pairs.replicates)[place.workload]
    for first, second in timing(pairs, place.shape):
        before = first.shapes[place.shape]
        after = second.shapes[place.shape]
        quads, _ = clean_pair(before, after)
        if quads is None:
            continue
        processes.add(
            _host_utilization(first, before, quads),
            _host_utilization(second, after, quads),
        )
        if clock is not None and clock != "awake":
            calls.add(
                _numbers_of_calls(before, quads, clock, batch_of_base),
                _numbers_of_calls(after, quads, clock, batch_of_head),
            )
    effects = calls.effects(clock or "wall") | processes.effects("awake")
    # Stretches hold the rare slow calls that the processes of pairs never reach.
    return effects | _tail_effects(base, head, place)


class _BothSides:
    """The logarithms of numbers of base and head, pair by pair or quad by quad."""

    def __init__(self) -> None:
        self._levels: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def add(self, base: Mapping[str, float], head: Mapping[str, float]) -> None:
        for name in base.keys() & head.keys():
            self._levels[name].append((base[name], head[name]))

    def effects(self, clock: Clock) -> dict[str, PairedEffect]:
        return {
            name: log_ratios(levels, clock=clock)
            for name, levels in self._levels.items()
        }


def _batch(run: RunDocument, place: ShapePlace) -> int:
    for workload in run.workloads:
        if workload.name == place.workload:
            return workload.batch
    return 0


def _numbers_of_calls(
    blocks: BlockColumns, quads: frozenset[int], clock: Clock, batch: int
) -> dict[str, float]:
    """The logarithms of the numbers of a process's calls in these quads."""
    used = UsedBlocks.of(blocks, quads)
    times = used.times(clock)
    numbers = _tail(times)
    if batch > 0:
        if clock == "wall":
            seconds = block_seconds(blocks)[used.is_used]
        else:
            seconds = sum_by_block(times, used.calls)
        calls_per_second = used.calls / np.maximum(seconds, SHORTEST)
        rate = np.log(median(calls_per_second))
        numbers[THROUGHPUT] = float(np.log(batch) + rate)
    return numbers


def _host_utilization(
    process: Replicate, blocks: BlockColumns, quads: frozenset[int]
) -> dict[str, float]:
    """The logarithm of CPU time over awake time and CPUs, in the blocks of these quads;
    empty if that is not known.
    """
    observed = blocks.conductor
    cpus = len(process.worker.cpus)
    if not observed.used_ns or not observed.seen_ns or not cpus:
        return {}
    awake = awake_by_block(blocks)
    used_ns = np.asarray(observed.used_ns, dtype=np.float64)
    is_known = np.isfinite(awake) & np.isin(blocks.quad, list(quads))
    cpu_seconds = float(used_ns[is_known].sum()) / 1e9
    awake_seconds = float(awake[is_known].sum())
    if min(cpu_seconds, awake_seconds) <= 0:
        return {}
    return {HOST_UTILIZATION: math.log(cpu_seconds / (awake_seconds * cpus))}


def _tail(times: Floats) -> dict[str, float]:
    """The logarithms of P90, slowest tenth and standard deviation of calls in seconds."""
    slowest = np.sort(times)[-max(1, times.size // 10) :]
    return {
        P90: float(np.log(float(np.quantile(times, 0.9)))),
        TAIL: float(np.log(max(SHORTEST, float(slowest.mean())))),
        STD: float(np.log(max(SHORTEST, float(np.std(times))))),
    }


def _tail_effects(
    base: RunDocument, head: RunDocument, place: ShapePlace
) -> dict[str, PairedEffect]:
    """P90, slowest tenth and standard deviation of calls without waits, one difference
    a quad of the long stretches.
    """
    replicates = base.pairs.replicates, head.pairs.replicates
    stretches = pairs_of(*replicates, "stretch")[place.workload]
    tails = _BothSides()
    for first, second in timing(stretches, place.shape):
        before = first.shapes[place.shape]
        after = second.shapes[place.shape]
        quads, _ = clean_pair(before, after)
        for quad in sorted(quads or ()):
            of_quad = frozenset({quad})
            tails.add(
                _tail(UsedBlocks.of(before, of_quad).wall),
                _tail(UsedBlocks.of(after, of_quad).wall),
            )
    return tails.effects("awake")
