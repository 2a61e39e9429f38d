"""From raw blocks to paired effects: one number a pair and metric, the logarithm of
second over first.

The process, not the call, is the unit of evidence: calls of one process share its luck
with memory layout and cache.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.names import (
    BUSY,
    GAP,
    HOST,
    LATENCY,
    P50,
    P99,
    PREPROCESSING,
    TURNAROUND,
    WALL_TIME,
)
from perfgate.document.comparison import Clock
from perfgate.document.samples import Arm, BlockColumns, Replicate
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.blocks import (
    ALIKE,
    ALL_BY_WALL,
    CPU_CLOCKS,
    Clocks,
    TimedLane,
    clean_pair,
)
from perfgate.judging.gate.evidence.effect import (
    RESIDENT_LUCK,
    Differences,
    PairedEffect,
)
from perfgate.judging.gate.evidence.kernel_blocks import busy_effect, profiled_pairs
from perfgate.judging.gate.evidence.process import (
    HARDWARE,
    ProcessFastPath,
    Statistics,
    compare_fast_paths,
    statistics,
)
from perfgate.stats.arrays import Floats
from perfgate.stats.summary import median

# Fewer calls have no P99 at all; pairs are pooled, in the order of measuring, until
# both sides have this many. A P99 of few calls is inexact; that shows in its spread,
# and the test takes it into account; its value is not reported.
P99_CALLS = 100

# Two processes that took turns.
Pair = tuple[Replicate, Replicate]


class ProcessPair(NamedTuple):
    """The statistics of both members of an undisturbed pair."""

    first: Statistics
    second: Statistics


def pairs_of(
    first: Iterable[Replicate], second: Iterable[Replicate], arm: Arm = "ab"
) -> dict[str, list[Pair]]:
    """The pairs of an arm with both members, in the order of measuring, by workload."""
    firsts = _members(first, arm, "first")
    seconds = _members(second, arm, "second")
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for workload, number in sorted(firsts, key=itemgetter(1)):
        if (workload, number) in seconds:
            pairs[workload].append(
                (firsts[workload, number], seconds[workload, number])
            )
    return pairs


def _members(
    replicates: Iterable[Replicate], arm: Arm, member: str
) -> dict[tuple[str, int], Replicate]:
    """The members of pairs, by workload and the pair's number."""
    members = {}
    for replicate in replicates:
        if (replicate.arm, replicate.member) == (arm, member):
            members[replicate.workload, replicate.pair] = replicate
    return members


def timing(pairs: Iterable[Pair], shape: str) -> list[Pair]:
    """The pairs in which both members timed a shape."""
    return [
        pair for pair in pairs if shape in pair[0].shapes and shape in pair[1].shapes
    ]


def paired_effects(
    pairs_of_workload: Iterable[Pair],
    place: ShapePlace,
    clocks: Clocks = ALL_BY_WALL,
    *,
    start_luck: float = RESIDENT_LUCK,
) -> dict[str, PairedEffect]:
    """The effects per metric over all pairs in which both members have undisturbed
    samples of the shape.

    ``clocks`` gives the clock that decides about calls and preprocessing; the wall
    clock by default. ``start_luck`` is the luck of starts on an accelerator, where both
    sides stay loaded for several pairs.
    """
    shape = place.shape
    clock = clocks.get(TimedLane(place, preprocess=False), "wall")
    members = timing(pairs_of_workload, shape)
    on_device = False
    clean = []
    pairs = []
    for member, other in members:
        columns = member.shapes[shape]
        on_device = on_device or columns.times.cpu_source == "device"
        pair = _summary(columns, other.shapes[shape], clock)
        if pair is not None:
            clean.append((member, other))
            pairs.append(pair)
    if not pairs:
        return {}
    effects = (
        _times_of_calls(pairs, clock)
        | _tail(pairs, on_device=on_device)
        | _whole_blocks(pairs)
    )
    preprocess_clock = clocks.get(TimedLane(place, preprocess=True), "wall")
    preprocessed = []
    for before, after in preprocess_lanes(members, shape):
        pair = _summary(before, after, preprocess_clock)
        if pair is not None:
            preprocessed.append(pair)
    if preprocessed:
        effects[PREPROCESSING] = _calls(preprocessed, preprocess_clock)
    if on_device:
        effects |= _device_clocks(pairs, clean, shape)
    return _in_starts(effects, clean, shape, luck=start_luck)


def preprocess_lanes(
    pairs: Iterable[Pair], shape: str
) -> list[tuple[BlockColumns, BlockColumns]]:
    """The blocks of the preprocessing in pairs in which both members timed it."""
    lanes = []
    for first, second in pairs:
        if shape in first.preprocess and shape in second.preprocess:
            lanes.append((first.preprocess[shape], second.preprocess[shape]))
    return lanes


def _summary(
    first: BlockColumns, second: BlockColumns, clock: Clock | None
) -> ProcessPair | None:
    """The statistics of a pair's undisturbed quads; None if too few quads are
    undisturbed.
    """
    quads, _ = clean_pair(first, second)
    if quads is None:
        return None
    by = clock or "wall"
    return ProcessPair(
        statistics(first, quads, clock=by), statistics(second, quads, clock=by)
    )


def _of_members(
    pairs: Iterable[ProcessPair], number: Callable[[Statistics], float]
) -> Floats:
    """A number of both members, a row for each pair; NaN if it is unknown."""
    return np.array([(number(first), number(second)) for first, second in pairs])


# --- one metric


def _times_of_calls(
    pairs: Sequence[ProcessPair], clock: Clock | None
) -> dict[str, PairedEffect]:
    p50 = log_ratios(
        _of_members(pairs, lambda process: process.p50), clock=clock or "wall"
    )
    effects = {
        LATENCY: _calls(pairs, clock),
        P50: p50._replace(fair=clock is not None),
        GAP: _gaps(pairs),
    }
    if clock not in ("wall", None):  # the fast path by the wall informs
        by_wall = _compared_paths(
            [(first.wall_path, second.wall_path) for first, second in pairs], "wall"
        )
        effects[WALL_TIME] = by_wall._replace(fair=False)
    return effects


def _device_clocks(
    pairs: Sequence[ProcessPair], members: Sequence[Pair], shape: str
) -> dict[str, PairedEffect]:
    """The time of kernels of the pairs that have it, and the host's time if all have
    it.
    """
    effects = {}
    profiled = profiled_pairs(members, shape)
    if profiled:
        effects[BUSY] = busy_effect(profiled, shape)
    paths = []
    for first, second in pairs:
        if first.host_path is None or second.host_path is None:
            return effects
        paths.append((first.host_path, second.host_path))
    effects[HOST] = _compared_paths(paths, "wall")
    return effects


def _calls(pairs: Sequence[ProcessPair], clock: Clock | None) -> PairedEffect:
    """The effects on calls by the deciding clock: of the fast path, or of blocks if
    that clock does not see single calls.
    """
    turnarounds = _of_members(pairs, _turnaround)
    if clock == "awake" and np.isfinite(turnarounds).all():
        return log_ratios(turnarounds, clock=clock)
    by: Clock = "wall"
    if clock in CPU_CLOCKS:
        by = clock
    effect = _compared_paths(
        [(first.fast_path, second.fast_path) for first, second in pairs], by
    )
    return effect._replace(fair=clock == by)


def _compared_paths(
    paths: Sequence[tuple[ProcessFastPath, ProcessFastPath]], clock: Clock
) -> PairedEffect:
    effects = []
    weights = []
    levels = []
    for first, second in paths:
        effect, weight = compare_fast_paths(first, second)
        effects.append(effect)
        weights.append(weight)
        levels.append(first.p10)
    differences = Differences(np.array(effects), np.array(weights))
    return PairedEffect.of(
        differences,
        float(np.exp(median(levels))),
        "pair",
        pairs=len(paths),
        clock=clock,
    )


def log_ratios(levels: npt.ArrayLike, *, clock: Clock = "wall") -> PairedEffect:
    """The effect on numbers given as logarithms of first and second."""
    table = np.asarray(levels, dtype=np.float64)
    base = float(np.exp(median(table[:, 0])))
    differences = Differences.of(table[:, 1] - table[:, 0])
    return PairedEffect.of(
        differences, base, "pair", pairs=differences.size, clock=clock
    )


def _gaps(pairs: Sequence[ProcessPair]) -> PairedEffect:
    """The change of the gap as a share of the first side's call and gap together.

    A gap of near zero has no meaningful ratio, and a gap longer than the call may
    vanish altogether.
    """
    turns = []
    differences = []
    gaps = []
    for first, second in pairs:
        turn = float(np.exp(first.fast_path.p10)) + max(0.0, first.gap)
        turns.append(turn)
        differences.append(np.log1p(max(-0.99, (second.gap - first.gap) / turn)))
        gaps.append(first.gap)
    effect = Differences.of(differences)
    base = median(gaps)
    head = base + math.expm1(effect.estimate) * median(turns)
    return PairedEffect(effect, base, head, "pair", pairs=len(pairs))


def _whole_blocks(pairs: Sequence[ProcessPair]) -> dict[str, PairedEffect]:
    """The turnaround and the processor's counts, if all pairs have them."""
    effects = {}
    for name in (TURNAROUND, *HARDWARE):
        number = partial(_whole_block, name=name)
        table = _of_members(pairs, number)
        if np.isfinite(table).all():
            effects[name] = log_ratios(table)
    return effects


def _whole_block(process: Statistics, name: str) -> float:
    if name == TURNAROUND:
        return _turnaround(process)
    return process.hardware.get(name, math.nan)


def _turnaround(process: Statistics) -> float:
    if process.turnaround is None:
        return math.nan
    return process.turnaround


# --- the tail


def _tail(pairs: Sequence[ProcessPair], *, on_device: bool) -> dict[str, PairedEffect]:
    """P99, if all pairs together have enough calls."""
    pools = pool_pairs((first.cpu, second.cpu) for first, second in pairs)
    if not pools:
        return {}
    tails = [(_log_p99(first), _log_p99(second)) for first, second in pools]
    clock: Clock = "device" if on_device else "cpu"
    effect = log_ratios(tails, clock=clock)
    fair = on_device or _compute_alike(pairs)
    return {P99: effect._replace(pairs=len(pairs), fair=fair)}


def pool_pairs(pairs: Iterable[tuple[Floats, Floats]]) -> list[tuple[Floats, Floats]]:
    """Join the calls of consecutive pairs until both sides have enough for a P99; a
    remainder with too few is left out.
    """
    pools = []
    of_first = []
    of_second = []
    for first, second in pairs:
        of_first.append(first)
        of_second.append(second)
        pool = np.concatenate(of_first), np.concatenate(of_second)
        if min(pool[0].size, pool[1].size) >= P99_CALLS:
            pools.append(pool)
            of_first = []
            of_second = []
    return pools


def _log_p99(seconds: Floats) -> float:
    return float(np.log(max(float(np.quantile(seconds, 0.99)), 1e-9)))


def _compute_alike(pairs: Sequence[ProcessPair]) -> bool:
    """Whether both sides compute for similar shares of their time: otherwise CPU time
    does not measure how long calls take.
    """
    # Of a call; NaN if the time awake of a process is unknown.
    shares = _of_members(
        pairs,
        lambda process: median(process.cpu) / math.exp(_turnaround(process)),
    )
    known = shares[np.isfinite(shares).all(axis=1)]
    if not known.size:
        return True
    base, head = np.median(known, axis=0)
    return bool(abs(base - head) <= ALIKE)


# --- starts


def _in_starts(
    effects: dict[str, PairedEffect], pairs: Sequence[Pair], shape: str, *, luck: float
) -> dict[str, PairedEffect]:
    """The effects, with the starts of pairs if all processes stayed loaded; a P99 pools
    pairs of several starts.
    """
    starts_of_all = _starts(pairs)
    if len(starts_of_all) < len(pairs):
        return effects
    for name, effect in effects.items():
        differences = effect.differences
        starts = starts_of_all
        if name == BUSY:
            starts = _starts(profiled_pairs(pairs, shape))
        if differences.size == len(starts):
            clustered = differences.in_starts(starts, luck=luck)
            effects[name] = effect._replace(differences=clustered)
    return effects


def _starts(pairs: Iterable[Pair]) -> list[int]:
    """The starts of pairs of processes that stayed loaded."""
    return [first.start for first, _ in pairs if first.start is not None]
