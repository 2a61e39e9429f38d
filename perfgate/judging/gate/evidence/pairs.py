"""From raw blocks to paired effects: one number a pair and metric, the logarithm of second over first.

The process, not the call, is the unit of evidence: calls of one process share its luck with memory layout and cache.

Calls are located by their fast path, which other processes hardly disturb. The effect is the median of three locations with
different errors: the 10th percentile of all calls, the same of every quad compared within the quad, and the fastest call of
every quad, also within the quad. Comparing within a quad cancels changes from second to second, such as a neighbour on the
other thread of a core; a quantile of all calls has more of them. On recorded pairs such effects spread less than any one
location's (benchmarks/gate/FINDINGS.md, section 6).

Calls are timed by the wall clock, or if other processes often had the CPUs, by a clock that does not count waiting: the
scheduler favours a side that sleeps, so that side would seem faster on the wall clock. The clock is chosen before the times are
examined: by the kernel's account of the workers' waits, and by whether the calls compute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import (
    GAP,
    HOST_UTILIZATION,
    INSTRUCTIONS,
    LATENCY,
    P50,
    P90,
    P99,
    PREPROCESSING,
    STD,
    TAIL,
    THROUGHPUT,
    TURNAROUND,
    WALL_TIME,
)
from perfgate.document.comparison import Clock
from perfgate.document.explanation import Part
from perfgate.document.run import RunDocument
from perfgate.document.samples import Arm, BlockColumns, PackedArray, Replicate, unpack
from perfgate.judging.gate.evidence.differences import Differences
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.undisturbed import LEAST_CLEAN, clean_pair, waited_share
from perfgate.judging.gate.evidence.values import rounded
from perfgate.stats.summary import linear_quantile, median

# The processor's counts of a block, by metric.
HARDWARE: dict[str, Literal["instructions", "cycles", "cache_misses"]] = {
    INSTRUCTIONS: "instructions",
    "hardware.cycles": "cycles",
    "hardware.cache_misses": "cache_misses",
}
QUANTILE = 0.1  # of the fast path
TURNAROUND_QUANTILES = (0.1, 0.2, 0.3)
GAP_QUANTILE = 0.1
# On an accelerator both sides stay loaded for several pairs. The assumed difference between two starts of equal code there, as
# the sd of a logarithm; the starts of a gate correct it as they become more.
RESIDENT_LUCK = 0.003
# Fewer calls have no P99 at all; pairs are pooled, in the order of measuring, until both sides have so many. A P99 of so few
# calls is inexact; that shows in its spread, and the test takes it into account; its value is not reported.
P99_CALLS = 100
# Difference between pairs beyond the spread within them, from layouts of memory. Weights with 0.4 to 1.5 % do equally well.
BETWEEN_PAIRS = 0.007
# sd of a median over that of a mean, of normal samples: sqrt(pi / 2)
_MEDIAN_ERROR = 1.25
# Of the measured time. On an idle machine workers wait for less than 0.1 % of it.
WAITED = 0.02
# The calling thread must compute for this share of the time in which it does not wait for a CPU, and on both sides alike: a
# call that sleeps, waits for a lock or a file, or leaves its work to other threads is timed right on the wall clock alone.
COMPUTES = 0.8
ALIKE = 0.1
# Of the computation of its calls, by their own account: the waiting of a block awake for less was counted twice.
LEAST_AWAKE = 0.95

# Numbers of steps 1 and 2 that the pairs give beside those that the gate judges.
SAMPLED = frozenset(name for name, entry in METRICS.items() if entry.sampled)
_SHORTEST = 1e-9  # seconds; a logarithm needs more than none
# The clocks that time every single call, beside the wall clock.
CPU_CLOCKS = frozenset({"cpu", "device"})

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


# --- clocks


class TimedLane(NamedTuple):
    """A timed activity: the calls of a shape, or their preprocessing."""

    place: ShapePlace
    preprocess: bool


# None if no clock is fair to both sides.
Clocks = Mapping[TimedLane, Clock | None]
ALL_BY_WALL: Clocks = {}


def deciding_clocks(base: RunDocument, head: RunDocument) -> Clocks:
    before, after = _blocks_by_lane(base), _blocks_by_lane(head)
    return {lane: deciding_clock(before[lane], after[lane]) for lane in before.keys() & after.keys()}


def deciding_clock(base: Sequence[BlockColumns], head: Sequence[BlockColumns]) -> Clock | None:
    """The clock that decides about these blocks of both sides: the CPU time of the calling thread if the host computes.

    Calls that sleep or leave their work to other threads are timed by how long their blocks were awake. None if that is
    unknown: a thread's CPU time would hide its waits, and the wall clock the scheduler's bias.
    """
    blocks = [*base, *head]
    if any(columns.seen_ns and awake_seconds(columns) is None for columns in blocks):
        return None
    if (waited_share(blocks) or 0.0) < WAITED:
        return "wall"
    if base[0].cpu_source == "device":
        return "device"
    if not all(columns.seen_ns for columns in blocks):
        return None
    before, after = _computing_share(base), _computing_share(head)
    return "cpu" if min(before, after) >= COMPUTES and abs(after - before) <= ALIKE else "awake"


def _blocks_by_lane(run: RunDocument) -> dict[TimedLane, list[BlockColumns]]:
    blocks: dict[TimedLane, list[BlockColumns]] = {}
    for replicate in run.replicates:
        if replicate.arm == "ab":
            for preprocess, lanes in ((False, replicate.shapes), (True, replicate.preprocess)):
                for shape, columns in lanes.items():
                    blocks.setdefault(TimedLane(ShapePlace(replicate.workload, shape), preprocess), []).append(columns)
    return blocks


def _computing_share(blocks: Sequence[BlockColumns]) -> float:
    """The share of the time awake that the calling thread computed, by the worker's own account of it."""
    computed = awake = 0.0
    for columns in blocks:
        calls, block_seconds = np.asarray(columns.calls), awake_by_block(columns)
        known = np.isfinite(block_seconds)
        # One call of every block is made and not recorded.
        computed += float((_by_block(unpack(columns.cpu), calls) * (calls + 1) / calls)[known].sum()) / 1e9
        awake += float(block_seconds[known].sum())
    return computed / awake


def awake_seconds(columns: BlockColumns, is_used: npt.NDArray[np.bool_] | None = None) -> Floats | None:
    """Seconds a call of the blocks with a known time awake; None if too few of these blocks have one."""
    seconds = awake_by_block(columns) / (np.asarray(columns.calls) + 1)
    seconds = seconds if is_used is None else seconds[is_used]
    known = seconds[np.isfinite(seconds)]
    return known if known.size >= LEAST_CLEAN * seconds.size else None


def awake_by_block(columns: BlockColumns) -> Floats:
    """The duration of each block as seen by the conductor, without its own and the worker's waits for a CPU taken by others.

    Both may have waited in the same moment. A block that seems shorter than its own computation is unknown, and becomes NaN.
    """
    awake = np.asarray(columns.seen_ns, dtype=np.float64)
    for delays in (columns.run_delay_ns, columns.conductor_delay_ns):
        if delays:
            awake = awake - np.asarray(delays)
    least = np.ones(awake.size)
    if columns.cpu_source == "thread_cpu":
        least = np.maximum(least, LEAST_AWAKE * _by_block(unpack(columns.cpu), np.asarray(columns.calls)))
    awake[awake < least] = np.nan
    return awake / 1e9


# --- the fast path


class ProcessFastPath(NamedTuple):
    """One process: log seconds of the 10th percentile of all calls, of each quad's calls, and of the fastest of each quad."""

    p10: float
    low: Floats
    fastest: Floats


def fast_path(quads: Sequence[Floats]) -> ProcessFastPath:
    """Locate the calls of a process, given as seconds above 0 for every quad in the order of measuring."""
    return ProcessFastPath(
        p10=float(np.log(linear_quantile(np.concatenate(quads), QUANTILE))),
        low=np.array([np.log(linear_quantile(quad, QUANTILE)) for quad in quads]),
        fastest=np.array([np.log(quad.min()) for quad in quads]),
    )


def compare_fast_paths(first: ProcessFastPath, second: ProcessFastPath) -> tuple[float, float]:
    """Second over first, as a logarithm, and the weight of the pair, of two processes that ran the same quads.

    The weight is less if the quads disagree: 1 / sqrt(0.7 %^2 + se^2), se the standard error of the median over quads from
    their median absolute deviation. Swapping the sides changes only the sign of the effect.
    """
    low, fastest = second.low - first.low, second.fastest - first.fastest
    effect = median([second.p10 - first.p10, median(low), median(fastest)])
    quads = (low + fastest) / 2
    error = _MEDIAN_ERROR * 1.4826 * median(np.abs(quads - median(quads))) / math.sqrt(quads.size)
    return effect, 1 / math.sqrt(BETWEEN_PAIRS**2 + error**2)


# --- one process


class Statistics(NamedTuple):
    """One process and shape: its fast path by the deciding clock and by the wall clock, and other times of its calls.

    P50 is in log seconds, the gap in seconds, device or CPU time in seconds a call. ``turnaround`` is log seconds a call as the
    conductor saw its blocks, without waits for a CPU; None if the conductor did not look, or if the waits cannot be separated.
    By the clock ``awake``, P50 is of the same. ``hardware`` is the logarithm of the processor's counts a call, by metric, for
    the metrics that were counted.
    """

    fast_path: ProcessFastPath
    wall_path: ProcessFastPath
    p50: float
    cpu: Floats
    gap: float
    turnaround: float | None
    hardware: dict[str, float]


def statistics(blocks: BlockColumns, quads: frozenset[int] | None = None, *, clock: Clock = "wall") -> Statistics:
    """Summarise one process, or only these quads of it, by ``clock``: the metrics' entries have the formulas."""
    used = _used(blocks, quads)
    is_used, calls, wall, cpu = used
    quad_of_call = np.repeat(np.asarray(blocks.quad)[is_used], calls)
    wall_path = fast_path(_by_quad(wall, quad_of_call))
    block_seconds = awake_seconds(blocks, is_used) if blocks.seen_ns else None
    times = block_seconds if clock == "awake" and block_seconds is not None else used.times(clock)
    sums = _by_block(wall, calls)
    spans = _spans(blocks)[is_used]
    # One call of every block is made and not recorded. A count of 0 has no logarithm.
    counts = {
        metric: np.maximum(np.asarray(column, dtype=np.float64)[is_used], 1) / (calls + 1)
        for metric, name in HARDWARE.items()
        if (column := getattr(blocks, name))
    }
    turnaround = None
    if block_seconds is not None:
        low_seconds = [linear_quantile(block_seconds, share) for share in TURNAROUND_QUANTILES]
        turnaround = float(np.mean(np.log(low_seconds)))
    return Statistics(
        fast_path=fast_path(_by_quad(times, quad_of_call)) if clock in CPU_CLOCKS else wall_path,
        wall_path=wall_path,
        p50=float(np.log(linear_quantile(times, 0.5))),
        cpu=cpu,
        gap=linear_quantile((spans - sums) / calls, GAP_QUANTILE),
        turnaround=turnaround,
        hardware={metric: float(np.log(median(per_call))) for metric, per_call in counts.items()},
    )


class _Used(NamedTuple):
    """The blocks of a process that count, the number of calls of each, and the seconds of those calls by both clocks."""

    is_used: npt.NDArray[np.bool_]
    calls: npt.NDArray[np.int64]
    wall: Floats
    cpu: Floats

    def times(self, clock: Clock) -> Floats:
        return np.maximum(self.cpu, _SHORTEST) if clock in CPU_CLOCKS else self.wall


def _used(blocks: BlockColumns, quads: frozenset[int] | None) -> _Used:
    is_used = np.array([quads is None or quad in quads for quad in blocks.quad])
    calls = np.asarray(blocks.calls)
    used_calls = np.repeat(is_used, calls)
    # validity.py rejects a worker with calls that take no time; until then the logarithm needs a positive time.
    wall = np.maximum(unpack(blocks.wall)[used_calls], 1) / 1e9
    return _Used(is_used, calls[is_used], wall, unpack(blocks.cpu)[used_calls] / 1e9)


def _by_block(seconds: Floats | Ints, calls: npt.NDArray[np.int64]) -> Floats:
    sums: Floats = np.add.reduceat(seconds.astype(np.float64), np.concatenate([[0], np.cumsum(calls)[:-1]]))
    return sums


def _spans(blocks: BlockColumns) -> Floats:
    spans: Floats = (np.asarray(blocks.end_ns) - np.asarray(blocks.start_ns)) / 1e9
    return spans


def _by_quad(seconds: Floats, quad_of_call: npt.NDArray[np.int64]) -> list[Floats]:
    return [seconds[quad_of_call == quad] for quad in np.unique(quad_of_call)]


# --- pairs


_Lanes = tuple[BlockColumns, BlockColumns]
_StatisticsPair = tuple[Statistics, Statistics]


def paired_effects(
    first: Iterable[Replicate],
    second: Iterable[Replicate],
    *,
    workload: str,
    shape: str,
    arm: Arm,
    clocks: Clocks = ALL_BY_WALL,
) -> dict[str, PairedEffect]:
    """The effects per metric over all pairs in which both members have undisturbed samples of the shape.

    ``clocks`` gives the clock that decides about calls and preprocessing; the wall clock by default.
    """
    place = ShapePlace(workload, shape)
    clock, preprocess_clock = (clocks.get(TimedLane(place, preprocess), "wall") for preprocess in (False, True))
    members = _by_pair(first, second, place, arm)
    pairs = _summarise_pairs([(a.shapes[shape], b.shapes[shape]) for a, b in members], clock)
    if not pairs:
        return {}
    p50 = _log_ratios([(a.p50, b.p50) for a, b in pairs], pairs=len(pairs), clock=clock or "wall")
    effects = {
        LATENCY: _calls(pairs, clock),
        P50: p50._replace(fair=clock is not None),
        GAP: _gap_effects(pairs),
    }
    if clock not in ("wall", None):  # the fast path by the wall, beside the clock that decides
        by_wall = _fast_path_effects([(a.wall_path, b.wall_path) for a, b in pairs], "wall")
        effects[WALL_TIME] = by_wall._replace(fair=False)
    if pools := pool_pairs((a.cpu, b.cpu) for a, b in pairs):
        on_device = any(a.shapes[shape].cpu_source == "device" for a, _ in members)
        tails = [(_log_p99(first_pool), _log_p99(second_pool)) for first_pool, second_pool in pools]
        tail = _log_ratios(tails, pairs=len(pairs), clock="device" if on_device else "cpu")
        effects[P99] = tail._replace(fair=on_device or _compute_alike(pairs))
    seen = [(a.turnaround, b.turnaround) for a, b in pairs if a.turnaround is not None and b.turnaround is not None]
    if len(seen) == len(pairs):
        effects[TURNAROUND] = _log_ratios(seen, pairs=len(pairs))
    for metric in HARDWARE:
        counts = [
            (a.hardware[metric], b.hardware[metric]) for a, b in pairs if metric in a.hardware and metric in b.hardware
        ]
        if len(counts) == len(pairs):
            effects[metric] = _log_ratios(counts, pairs=len(pairs))
    if preprocessed := _summarise_pairs(_preprocess_lanes(members, shape), preprocess_clock):
        effects[PREPROCESSING] = _calls(preprocessed, preprocess_clock)
    return _in_starts(effects, [(first, second) for first, second in members if _is_clean(first, second, shape)])


def _in_starts(
    effects: Mapping[str, PairedEffect], pairs: Sequence[tuple[Replicate, Replicate]]
) -> dict[str, PairedEffect]:
    """The effects, with the starts of pairs whose processes stayed loaded; a P99 pools pairs of several starts."""
    starts = [first.start for first, _ in pairs if first.start is not None]
    if len(starts) < len(pairs):
        return dict(effects)
    clustered = dict(effects)
    for name, effect in effects.items():
        differences = effect.differences
        if differences.size == len(starts):
            clustered[name] = effect._replace(differences=differences.in_starts(starts, luck=RESIDENT_LUCK))
    return clustered


def _is_clean(first: Replicate, second: Replicate, shape: str) -> bool:
    quads, _ = clean_pair(first.shapes[shape], second.shapes[shape])
    return quads is not None


def _compute_alike(pairs: Sequence[_StatisticsPair]) -> bool:
    """Whether both sides compute for similar shares of their time: otherwise CPU time does not measure how long calls take."""
    shares = np.asarray([(_computed_share(first), _computed_share(second)) for first, second in pairs])
    known = shares[np.isfinite(shares).all(axis=1)]
    return not known.size or bool(abs(np.subtract(*np.median(known, axis=0))) <= ALIKE)


def _computed_share(process: Statistics) -> float:
    """The share of a call that its thread computed; NaN if its time awake is unknown."""
    return math.nan if process.turnaround is None else median(process.cpu) / math.exp(process.turnaround)


def _calls(pairs: Sequence[_StatisticsPair], clock: Clock | None) -> PairedEffect:
    """The effects on calls by the deciding clock: of the fast path, or of blocks if that clock does not see single calls."""
    awake = [(a.turnaround, b.turnaround) for a, b in pairs if a.turnaround is not None and b.turnaround is not None]
    if clock == "awake" and len(awake) == len(pairs):
        return _log_ratios(awake, pairs=len(pairs), clock=clock)
    by = clock if clock in CPU_CLOCKS else "wall"
    effects = _fast_path_effects([(a.fast_path, b.fast_path) for a, b in pairs], by)
    return effects._replace(fair=clock == by)


def sampled_effects(base: RunDocument, head: RunDocument, place: ShapePlace, clocks: Clocks) -> dict[str, PairedEffect]:
    """The numbers of a shape that all pairs recorded and that no metric of the gate has.

    P90, slowest tenth and standard deviation of its calls: in its long stretches, or without any in the pairs, by the deciding
    clock. The throughput of the median block of a process: items of a batch over seconds a call, by that clock, too. Without
    a clock that is fair to single calls pairs have none of these. And the CPU time of the process over its time awake and its
    CPUs.
    """
    items = [
        next((workload.batch for workload in run.workloads if workload.name == place.workload), 0)
        for run in (base, head)
    ]
    clock = clocks.get(TimedLane(place, preprocess=False), "wall")
    of_calls = None if clock == "awake" else clock
    tables: dict[str, list[tuple[float, float]]] = {}
    for first, second in _by_pair(base.replicates, head.replicates, place, "ab"):
        lanes = first.shapes[place.shape], second.shapes[place.shape]
        if (quads := clean_pair(*lanes)[0]) is None:
            continue
        before, after = (_host_utilization(one, lane, quads) for one, lane in zip((first, second), lanes))
        if of_calls is not None:
            before, after = (
                {**one, **_distribution(lane, quads, of_calls)} for one, lane in zip((before, after), lanes)
            )
        for name in before.keys() & after.keys():
            tables.setdefault(name, []).append((before[name], after[name]))
    if min(items) > 0 and THROUGHPUT in tables:
        shown = math.log(items[0]), math.log(items[1])
        tables[THROUGHPUT] = [(shown[0] + before, shown[1] + after) for before, after in tables[THROUGHPUT]]
    else:
        tables.pop(THROUGHPUT, None)
    effects = {
        name: _log_ratios(table, pairs=len(table), clock="awake" if name == HOST_UTILIZATION else of_calls or "awake")
        for name, table in tables.items()
    }
    # Stretches hold the rare slow calls that the processes of pairs never reach.
    return {**effects, **_tail_effects(base, head, place)}


def _tail_effects(base: RunDocument, head: RunDocument, place: ShapePlace) -> dict[str, PairedEffect]:
    """P90, slowest tenth and standard deviation of calls without waits, one difference a quad of the long stretches."""
    tables: dict[str, list[tuple[float, float]]] = {}
    for first, second in _by_pair(base.replicates, head.replicates, place, "stretch"):
        lanes = first.shapes[place.shape], second.shapes[place.shape]
        quads, _ = clean_pair(*lanes)
        for quad in sorted(quads or ()):
            before, after = (_tail(_used(lane, frozenset({quad})).wall) for lane in lanes)
            for name in before:
                tables.setdefault(name, []).append((before[name], after[name]))
    return {name: _log_ratios(table, pairs=len(table), clock="awake") for name, table in tables.items()}


def _host_utilization(replicate: Replicate, blocks: BlockColumns, quads: frozenset[int]) -> dict[str, float]:
    """The logarithm of CPU time over awake time and CPUs, in the blocks of these quads; empty if that is not known."""
    if not (blocks.used_ns and blocks.seen_ns and replicate.cpus):
        return {}
    awake, used_ns = awake_by_block(blocks), np.asarray(blocks.used_ns, dtype=np.float64)
    counts = np.isfinite(awake) & np.isin(blocks.quad, list(quads))
    cpu_seconds, awake_seconds = float(used_ns[counts].sum()) / 1e9, float(awake[counts].sum())
    if min(cpu_seconds, awake_seconds) <= 0:
        return {}
    return {HOST_UTILIZATION: math.log(cpu_seconds / (awake_seconds * len(replicate.cpus)))}


def _distribution(blocks: BlockColumns, quads: frozenset[int], clock: Clock) -> dict[str, float]:
    """Logarithms of the tail of a process's calls in seconds, and of calls a second in a block."""
    used = _used(blocks, quads)
    times = used.times(clock)
    block_seconds = _spans(blocks)[used.is_used] if clock == "wall" else _by_block(times, used.calls)
    rates = used.calls / np.maximum(block_seconds, _SHORTEST)
    return {**_tail(times), THROUGHPUT: float(np.log(median(rates)))}


def _tail(times: Floats) -> dict[str, float]:
    """Logarithms of P90, slowest tenth and standard deviation."""
    slowest = np.sort(times)[-max(1, times.size // 10) :]
    return {
        P90: float(np.log(np.quantile(times, 0.9))),
        TAIL: float(np.log(max(_SHORTEST, float(slowest.mean())))),
        STD: float(np.log(max(_SHORTEST, float(np.std(times))))),
    }


def _by_pair(
    first: Iterable[Replicate], second: Iterable[Replicate], place: ShapePlace, arm: Arm
) -> list[tuple[Replicate, Replicate]]:
    """The pairs in which both members timed the shape, in the order of measuring."""
    firsts = _members_by_pair(first, place, arm, "first")
    seconds = _members_by_pair(second, place, arm, "second")
    return [(firsts[number], seconds[number]) for number in sorted(firsts.keys() & seconds.keys())]


def _members_by_pair(replicates: Iterable[Replicate], place: ShapePlace, arm: Arm, member: str) -> dict[int, Replicate]:
    members = {}
    for replicate in replicates:
        is_meant = (replicate.workload, replicate.arm, replicate.member) == (place.workload, arm, member)
        if is_meant and place.shape in replicate.shapes:
            members[replicate.pair] = replicate
    return members


def _preprocess_lanes(pairs: Iterable[tuple[Replicate, Replicate]], shape: str) -> list[_Lanes]:
    return [
        (first.preprocess[shape], second.preprocess[shape])
        for first, second in pairs
        if shape in first.preprocess and shape in second.preprocess
    ]


def _summarise_pairs(lanes: Iterable[_Lanes], clock: Clock | None) -> list[_StatisticsPair]:
    pairs = []
    for first, second in lanes:
        quads, _ = clean_pair(first, second)
        if quads is not None:
            by = clock or "wall"
            pairs.append((statistics(first, quads, clock=by), statistics(second, quads, clock=by)))
    return pairs


def pool_pairs(pairs: Iterable[tuple[Floats, Floats]]) -> list[tuple[Floats, Floats]]:
    """Join the calls of consecutive pairs until both sides have enough for a P99; a remainder with too few is left out."""
    pools, members = list[tuple[Floats, Floats]](), list[tuple[Floats, Floats]]()
    for pair in pairs:
        members.append(pair)
        first = np.concatenate([calls for calls, _ in members])
        second = np.concatenate([calls for _, calls in members])
        if min(first.size, second.size) >= P99_CALLS:
            pools.append((first, second))
            members = []
    return pools


def _log_p99(seconds: Floats) -> float:
    return float(np.log(max(float(np.quantile(seconds, 0.99)), 1e-9)))


def _fast_path_effects(pairs: Sequence[tuple[ProcessFastPath, ProcessFastPath]], clock: Clock) -> PairedEffect:
    effects, weights = np.array([compare_fast_paths(first, second) for first, second in pairs]).T
    base = float(np.exp(median([first.p10 for first, _ in pairs])))
    return PairedEffect.of(Differences(effects, weights), base, "pair")._replace(pairs=len(pairs), clock=clock)


def _log_ratios(levels: list[tuple[float, float]], *, pairs: int, clock: Clock = "wall") -> PairedEffect:
    table = np.array(levels)
    effect = PairedEffect.of(Differences.of(table[:, 1] - table[:, 0]), float(np.exp(median(table[:, 0]))), "pair")
    return effect._replace(pairs=pairs, clock=clock)


def _gap_effects(pairs: Sequence[_StatisticsPair]) -> PairedEffect:
    """The change of the gap as a share of the first side's call and gap together.

    A gap of near zero has no meaningful ratio of its own, and a gap longer than the call may vanish altogether.
    """
    turns = [float(np.exp(a.fast_path.p10)) + max(0.0, a.gap) for a, _ in pairs]
    differences = [np.log1p(max(-0.99, (b.gap - a.gap) / turn)) for (a, b), turn in zip(pairs, turns)]
    effect, base = Differences.of(differences), median([a.gap for a, _ in pairs])
    head = base + math.expm1(effect.estimate) * median(turns)
    return PairedEffect(effect, base, head, "pair", pairs=len(pairs))


# --- stages of the preprocessing


def stage_times(first: Iterable[Replicate], second: Iterable[Replicate], *, workload: str, shape: str) -> list[Part]:
    """The stages that both sides have, each with the line at which its function starts.

    Their times are the median over pairs of the 10th percentile of the calls of a process.
    """
    pairs = _by_pair(first, second, ShapePlace(workload, shape), "ab")
    levels: dict[str, list[tuple[float, float]]] = {}
    lines: dict[str, str | None] = {}
    for before, after in _preprocess_lanes(pairs, shape):
        stages = {stage.name: stage for stage in before.stages}
        for stage in after.stages:
            if stage.name in stages:
                levels.setdefault(stage.name, []).append((_low(stages[stage.name].wall), _low(stage.wall)))
                lines[stage.name] = stage.line
    medians = {name: np.median(np.array(both), axis=0) for name, both in levels.items()}
    return [
        Part(name=name, base=rounded(float(both[0])), head=rounded(float(both[1])), line=lines[name])
        for name, both in medians.items()
    ]


def _low(wall: PackedArray) -> float:
    return float(np.quantile(unpack(wall), QUANTILE)) / 1e9
