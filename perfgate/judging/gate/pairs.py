"""From raw blocks to paired effects: one number a pair and metric, the logarithm of second over first.

The process, not the call, is the unit of evidence: calls of one process share its luck with memory layout and cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.names import GAP, INSTRUCTIONS, LATENCY, P50, P99, PREPROCESSING, TURNAROUND, WALL_TIME
from perfgate.document.decision import Clock
from perfgate.document.run import Arm, BlockColumns, Replicate
from perfgate.document.samples import Packed, unpack
from perfgate.judging.gate.clock import BY_THE_WALL, Clocks, TimedLane, awake_ns
from perfgate.judging.gate.conditions import clean_pair
from perfgate.judging.gate.location import QUANTILE, FastPath, compare_fast_paths, fast_path
from perfgate.judging.gate.rule import Differences

# What the processor counts of a block, by its metric.
HARDWARE: dict[str, Literal["instructions", "cycles", "cache_misses"]] = {
    INSTRUCTIONS: "instructions",
    "hardware.cycles": "cycles",
    "hardware.cache_misses": "cache_misses",
}
TURNAROUND_QUANTILES = (0.1, 0.2, 0.3)
GAP_QUANTILE = 0.1
# Fewer calls have no P99 at all; pairs are taken together, in the order of measuring, until both sides have so many. What a
# P99 of so few is worth shows in how it spreads, and the test takes that into account; its value is not reported.
P99_CALLS = 100

Floats = npt.NDArray[np.float64]


class Statistics(NamedTuple):
    """One process and shape: its fast path and log seconds of P50; gap in seconds; seconds of device or CPU time a call.

    ``turnaround`` is log seconds a call as the conductor saw its blocks, without what was waited for a CPU; None where it did
    not look. ``hardware`` is the logarithm of what the processor counted a call, by metric, of those that were counted.
    """

    fast_path: FastPath
    p50: float
    cpu: Floats
    gap: float
    turnaround: float | None
    hardware: dict[str, float]


class Effects(NamedTuple):
    """Paired effects of one metric and shape: one log ratio a pair, in the order of measuring.

    ``level`` is the first side's median of the metric in seconds, ``call_level`` that of its call (for the gap: of call and
    gap together, of which its effect is a share). ``pairs`` process pairs went in, of which a tail joins several to one
    difference. ``clock`` is what the calls were timed by.
    """

    differences: Differences
    level: float
    call_level: float
    pairs: int
    clock: Clock = "wall"


def statistics(blocks: BlockColumns, quads: frozenset[int] | None = None, *, clock: Clock = "wall") -> Statistics:
    """Summarise one process, or only these quads of it, its fast path and P50 by ``clock``: the metrics have the formulas."""
    kept = np.array([quads is None or quad in quads for quad in blocks.quad])
    calls = np.asarray(blocks.calls)
    of_kept = np.repeat(kept, calls)
    # A call of no time is a lie that the conduct of the worker is judged by; its logarithm must exist until then.
    wall = np.maximum(unpack(blocks.wall)[of_kept], 1) / 1e9
    cpu = unpack(blocks.cpu)[of_kept] / 1e9
    times = wall if clock == "wall" else np.maximum(cpu, 1e-9)
    calls = calls[kept]
    sums = np.add.reduceat(wall, np.concatenate([[0], np.cumsum(calls)[:-1]]))
    spans = (np.asarray(blocks.end_ns) - np.asarray(blocks.start_ns))[kept] / 1e9
    return Statistics(
        fast_path=fast_path(_by_quad(times, np.repeat(np.asarray(blocks.quad)[kept], calls))),
        p50=float(np.log(np.quantile(times, 0.5))),
        cpu=cpu,
        gap=float(np.quantile((spans - sums) / calls, GAP_QUANTILE)),
        turnaround=_turnaround(awake_ns(blocks)[kept] / 1e9, calls) if blocks.seen_ns else None,
        hardware={
            metric: _counted(np.asarray(column, dtype=np.float64)[kept], calls)
            for metric, name in HARDWARE.items()
            if (column := getattr(blocks, name))
        },
    )


def _by_quad(wall: Floats, quad_of_call: npt.NDArray[np.int64]) -> list[Floats]:
    return [wall[quad_of_call == quad] for quad in np.unique(quad_of_call)]


def _turnaround(seen: Floats, calls: npt.NDArray[np.int64]) -> float:
    # One call of every block is made and not recorded.
    return float(np.mean(np.log(np.quantile(seen / (calls + 1), TURNAROUND_QUANTILES))))


def _counted(counts: Floats, calls: npt.NDArray[np.int64]) -> float:
    # One call of every block is made and not recorded. A count of none has no logarithm.
    return float(np.log(np.median(np.maximum(counts, 1) / (calls + 1))))


def paired_effects(
    first: Iterable[Replicate],
    second: Iterable[Replicate],
    *,
    workload: str,
    shape: str,
    arm: Arm,
    clocks: Clocks = BY_THE_WALL,
) -> dict[str, Effects]:
    """Return the effects per metric over all pairs in which both members have undisturbed samples of the shape.

    ``clocks`` says what decides about calls and preprocessing: the wall where it says nothing.
    """
    clock, of_preprocessing = (clocks.get(TimedLane(workload, shape, lane), "wall") for lane in (False, True))
    firsts = _by_pair(first, workload, shape, arm, "first")
    seconds = _by_pair(second, workload, shape, arm, "second")

    def summarised(by: Clock) -> list[tuple[Statistics, Statistics]]:
        return [
            pair
            for number in sorted(firsts.keys() & seconds.keys())
            if (pair := _summarised(firsts[number].shapes[shape], seconds[number].shapes[shape], by))
        ]

    pairs = summarised(clock)
    if not pairs:
        return {}
    effects = {
        LATENCY: _fast_path(pairs)._replace(clock=clock),
        P50: _log_ratio([(a.p50, b.p50) for a, b in pairs], pairs=len(pairs))._replace(clock=clock),
        GAP: _gap(pairs),
    }
    if clock != "wall":  # the fast path by the wall, beside the clock that decides
        effects[WALL_TIME] = _fast_path(summarised("wall"))
    if tails := _tails(pairs):
        on_device = any(members[shape].cpu_source == "device" for members in (one.shapes for one in firsts.values()))
        tail = _log_ratio(tails, pairs=len(pairs))
        effects[P99] = tail._replace(clock="device" if on_device else "cpu")
    seen = [(a.turnaround, b.turnaround) for a, b in pairs if a.turnaround is not None and b.turnaround is not None]
    if len(seen) == len(pairs):
        effects[TURNAROUND] = _log_ratio(seen, pairs=len(pairs))
    for metric in HARDWARE:
        counts = [
            (a.hardware[metric], b.hardware[metric]) for a, b in pairs if metric in a.hardware and metric in b.hardware
        ]
        if len(counts) == len(pairs):
            effects[metric] = _log_ratio(counts, pairs=len(pairs))
    preprocessed = [
        pair
        for first, second in _lanes_of_preprocessing(firsts, seconds, shape)
        if (pair := _summarised(first, second, of_preprocessing))
    ]
    if preprocessed:
        effects[PREPROCESSING] = _fast_path(preprocessed)._replace(clock=of_preprocessing)
    return effects


def _by_pair(replicates: Iterable[Replicate], workload: str, shape: str, arm: Arm, member: str) -> dict[int, Replicate]:
    return {
        replicate.pair: replicate
        for replicate in replicates
        if replicate.workload == workload
        and replicate.arm == arm
        and replicate.member == member
        and shape in replicate.shapes
    }


def _lanes_of_preprocessing(
    firsts: Mapping[int, Replicate], seconds: Mapping[int, Replicate], shape: str
) -> Iterator[tuple[BlockColumns, BlockColumns]]:
    """Yield the blocks of preprocessing of every pair that has them on both sides."""
    for number in sorted(firsts.keys() & seconds.keys()):
        first, second = firsts[number].preprocess.get(shape), seconds[number].preprocess.get(shape)
        if first is not None and second is not None:
            yield first, second


def _summarised(first: BlockColumns, second: BlockColumns, clock: Clock) -> tuple[Statistics, Statistics] | None:
    quads = clean_pair(first, second).quads
    if quads is None:
        return None
    return statistics(first, quads, clock=clock), statistics(second, quads, clock=clock)


def _tails(pairs: Sequence[tuple[Statistics, Statistics]]) -> list[tuple[float, float]]:
    groups = taken_together([(a.cpu, b.cpu) for a, b in pairs])
    return [(_p99(first), _p99(second)) for first, second in groups]


class StageTime(NamedTuple):
    """Seconds of one stage of the preprocessing on both sides, and where its function starts."""

    name: str
    first: float
    second: float
    line: str | None


def stage_times(
    first: Iterable[Replicate], second: Iterable[Replicate], *, workload: str, shape: str
) -> list[StageTime]:
    """Return the stages that both sides have: the median over pairs of the 10th percentile of the calls of a process."""
    firsts = _by_pair(first, workload, shape, "ab", "first")
    seconds = _by_pair(second, workload, shape, "ab", "second")
    levels: dict[str, list[tuple[float, float]]] = {}
    lines: dict[str, str | None] = {}
    for lanes in _lanes_of_preprocessing(firsts, seconds, shape):
        before = {stage.name: stage for stage in lanes[0].stages}
        for stage in lanes[1].stages:
            if stage.name in before:
                levels.setdefault(stage.name, []).append((_low(before[stage.name].wall), _low(stage.wall)))
                lines[stage.name] = stage.line
    medians = {name: np.median(np.array(pairs), axis=0) for name, pairs in levels.items()}
    return [StageTime(name, float(both[0]), float(both[1]), lines[name]) for name, both in medians.items()]


def _low(wall: Packed) -> float:
    return float(np.quantile(unpack(wall), QUANTILE)) / 1e9


def taken_together(pairs: Iterable[tuple[Floats, Floats]]) -> list[tuple[Floats, Floats]]:
    """Join the calls of consecutive pairs until both sides have enough for a P99; a rest that has not is left out."""
    groups, group = list[tuple[Floats, Floats]](), list[tuple[Floats, Floats]]()
    for pair in pairs:
        group.append(pair)
        first, second = (np.concatenate([members[side] for members in group]) for side in (0, 1))
        if min(first.size, second.size) >= P99_CALLS:
            groups.append((first, second))
            group = []
    return groups


def _p99(seconds: Floats) -> float:
    return float(np.log(max(float(np.quantile(seconds, 0.99)), 1e-9)))


def _fast_path(pairs: Sequence[tuple[Statistics, Statistics]]) -> Effects:
    compared = [compare_fast_paths(a.fast_path, b.fast_path) for a, b in pairs]
    differences = Differences(np.array([one.effect for one in compared]), np.array([one.weight for one in compared]))
    return Effects(differences, _call_level(pairs), _call_level(pairs), len(pairs))


def _call_level(pairs: Sequence[tuple[Statistics, Statistics]]) -> float:
    return float(np.exp(np.median([a.fast_path.p10 for a, _ in pairs])))


def _log_ratio(levels: list[tuple[float, float]], *, pairs: int) -> Effects:
    table = np.array(levels)
    level = float(np.exp(np.median(table[:, 0])))
    return Effects(Differences.of(table[:, 1] - table[:, 0]), level, level, pairs)


def _gap(pairs: Sequence[tuple[Statistics, Statistics]]) -> Effects:
    """Return the change of the gap as a share of the first side's call and gap together.

    A gap of near zero has no meaningful ratio of its own, and one that is longer than the call may go altogether.
    """
    turns = [float(np.exp(a.fast_path.p10)) + max(0.0, a.gap) for a, _ in pairs]
    differences = [np.log1p(max(-0.99, (b.gap - a.gap) / turn)) for (a, b), turn in zip(pairs, turns)]
    level = float(np.median([a.gap for a, _ in pairs]))
    return Effects(Differences.of(differences), level, float(np.median(turns)), len(pairs))
