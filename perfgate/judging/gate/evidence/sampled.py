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

# The logarithms of base and head, pair by pair and metric by metric.
_Levels = dict[str, list[tuple[float, float]]]


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
    if clock == "awake":
        clock = None
    items = np.array([_batch(base, place), _batch(head, place)])
    levels: _Levels = defaultdict(list)
    pairs = pairs_of(base.pairs.replicates, head.pairs.replicates)[place.workload]
    for first, second in timing(pairs, place.shape):
        quads, _ = clean_pair(first.shapes[place.shape], second.shapes[place.shape])
        if quads is not None:
            _add(
                levels,
                _sampled(first, place, quads, clock),
                _sampled(second, place, quads, clock),
            )
    effects = {}
    for name, of_pairs in levels.items():
        by: Clock = "awake"
        if clock is not None and name != HOST_UTILIZATION:
            by = clock
        if name != THROUGHPUT:
            effects[name] = log_ratios(of_pairs, clock=by)
        elif items.min() > 0:
            effects[name] = log_ratios(np.log(items) + of_pairs, clock=by)
    # Stretches hold the rare slow calls that the processes of pairs never reach.
    return effects | _tail_effects(base, head, place)


def _add(levels: _Levels, base: Mapping[str, float], head: Mapping[str, float]) -> None:
    for name in base.keys() & head.keys():
        levels[name].append((base[name], head[name]))


def _batch(run: RunDocument, place: ShapePlace) -> int:
    for workload in run.workloads:
        if workload.name == place.workload:
            return workload.batch
    return 0


def _sampled(
    process: Replicate, place: ShapePlace, quads: frozenset[int], clock: Clock | None
) -> dict[str, float]:
    """The logarithms of a process's numbers in these quads; without a ``clock`` it has
    none of its calls.
    """
    blocks = process.shapes[place.shape]
    numbers = {}
    utilization = _host_utilization(process, blocks, quads)
    if utilization is not None:
        numbers[HOST_UTILIZATION] = utilization
    if clock is not None:
        used = UsedBlocks.of(blocks, quads)
        times = used.times(clock)
        if clock == "wall":
            seconds = block_seconds(blocks)[used.is_used]
        else:
            seconds = sum_by_block(times, used.calls)
        # Calls a second in a block.
        rates = used.calls / np.maximum(seconds, SHORTEST)
        numbers |= {**_tail(times), THROUGHPUT: float(np.log(median(rates)))}
    return numbers


def _host_utilization(
    process: Replicate, blocks: BlockColumns, quads: frozenset[int]
) -> float | None:
    """The logarithm of CPU time over awake time and CPUs, in the blocks of these quads;
    None if that is not known.
    """
    if not (
        blocks.conductor.used_ns and blocks.conductor.seen_ns and process.worker.cpus
    ):
        return None
    awake = awake_by_block(blocks)
    used_ns = np.asarray(blocks.conductor.used_ns, dtype=np.float64)
    counts = np.isfinite(awake) & np.isin(blocks.quad, list(quads))
    cpu_seconds = float(used_ns[counts].sum()) / 1e9
    awake_seconds = float(awake[counts].sum())
    if min(cpu_seconds, awake_seconds) <= 0:
        return None
    return math.log(cpu_seconds / (awake_seconds * len(process.worker.cpus)))


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
    levels: _Levels = defaultdict(list)
    stretches = pairs_of(base.pairs.replicates, head.pairs.replicates, "stretch")[
        place.workload
    ]
    for first, second in timing(stretches, place.shape):
        before = first.shapes[place.shape]
        after = second.shapes[place.shape]
        quads, _ = clean_pair(before, after)
        for quad in sorted(quads or ()):
            of_quad = frozenset({quad})
            tail_of_base = _tail(UsedBlocks.of(before, of_quad).wall)
            _add(levels, tail_of_base, _tail(UsedBlocks.of(after, of_quad).wall))
    return {
        name: log_ratios(of_quads, clock="awake") for name, of_quads in levels.items()
    }
