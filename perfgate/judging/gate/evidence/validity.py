"""Reasons that make times worthless: a throttled or shared device, a clock below its
rate, a worker that breaks the rules.

User code runs in the process that times it: it could report false times, change
settings, or work while the other side is measured. The conductor's clock and the
kernel's accounting are outside its reach, so the worker's report is compared with them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from perfgate.document.decision import Invalid, InvalidKind
from perfgate.document.job import Turn
from perfgate.document.message import Message, MessageValue
from perfgate.document.samples import STOPPED, BlockColumns, Replicate, unpack
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.blocks import (
    LEAST_CLEAN,
    RATED_CLOCK_SHARE,
    Taint,
    clean_pair,
    sum_by_block,
)
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.kernel_blocks import counts_cycles
from perfgate.judging.gate.evidence.pairs import Pair
from perfgate.judging.gate.evidence.values import rounded
from perfgate.stats.arrays import Floats
from perfgate.stats.summary import median

# A worker's clock must show as much time as ours, less the waits of worker and
# conductor for a CPU by the kernel's account. Other waits (a hypervisor, memory) delay
# some blocks, a false clock shortens all: hence a low quantile, and a wide limit for
# the call that is made but not recorded: its caches are cold, its memory was given back
# (measured: up to 1.1 ms more than others).
CLOCK_QUANTILE = 0.25
CLOCK_SHARE = 0.2
FIRST_CALL_NS = 2_000_000
FEWEST_BLOCKS = 5
BUSY_SHARE = 0.2
# CPU time over the capacity of the granted CPUs: the kernel's accounting is exact,
# reading it takes a moment.
CPU_SHARE = 1.05
# CPU time out of turn, as a share of the time of the other side's turns, by which one
# side may exceed the other. A worker that waits for its next request uses 0.03 ms a
# block on both sides (measured: 0.07 % of blocks of 40 ms, 0.6 % of 5 ms). A framework
# may do so all the time on both sides: release_thread of torch_npu 2.13 polls with 7 to
# 17 % of a CPU, in bursts after a block, so that the side with longer blocks shows less
# of it. Up to as much again may therefore differ.
OUT_OF_TURN_SHARE = 0.02
STEADY_SHARE = 0.5  # of the pairs
# If requests are sent later than this share of their own duration, the generator is
# measured.
LATE_SHARE = 0.1
_MOST_SHARE = 1e9

_TAINTS: dict[Taint, Message] = {
    "throttled": Message("gate.throttled"),
    "slow_clock": Message("gate.slow-clock", {"share": RATED_CLOCK_SHARE}),
    "foreign_process": Message("gate.foreign-process"),
}


def invalid_times(evidence: Evidence) -> list[Invalid]:
    """The reasons why the times of a shape are not evidence, one entry a shape and
    kind.
    """
    entries = [
        *_changed_code(evidence),
        *_disturbed(evidence),
        *_different_clocks(evidence),
        *misconduct(evidence),
    ]
    first: dict[tuple[str, str, str], Invalid] = {}
    for entry in entries:
        first.setdefault((entry.workload, entry.shape, entry.kind), entry)
    return list(first.values())


def _invalid(place: ShapePlace, kind: InvalidKind, message: Message) -> Invalid:
    return Invalid(
        workload=place.workload, shape=place.shape, kind=kind, message=message
    )


def _changed_code(evidence: Evidence) -> Iterator[Invalid]:
    """Yield, for every place, that a side's code was changed during the run: no
    measurement shows which code it was.
    """
    is_broken = False
    files: dict[str, None] = {}
    for run in evidence.runs:
        if run.source.seal is not None and run.source.seal.broken:
            is_broken = True
            files |= dict.fromkeys(run.source.seal.changed)
    if not is_broken:
        return
    message = Message("gate.code-changed-somewhere")
    if files:
        message = Message("gate.code-changed", {"files": list(files)})
    jobs = [job.place for job in evidence.jobs.values()]
    for place in (*evidence.places, *jobs):
        yield _invalid(place, "code_changed", message)


# --- reports of the environment


def _disturbed(evidence: Evidence) -> Iterator[Invalid]:
    """Yield the shapes with too few pairs of undisturbed quads."""
    taints_of_pairs: dict[ShapePlace, list[Counter[Taint]]] = defaultdict(list)
    spoiled: Counter[ShapePlace] = Counter()
    for workload, replicates in (*evidence.pairs.items(), *evidence.stretches.items()):
        for first, second in replicates:
            for shape in first.shapes.keys() & second.shapes.keys():
                place = ShapePlace(workload, shape)
                quads, taints = clean_pair(first.shapes[shape], second.shapes[shape])
                taints_of_pairs[place].append(taints)
                spoiled[place] += quads is None
    for place, of_pairs in sorted(taints_of_pairs.items()):
        pairs = len(of_pairs)
        few = spoiled[place]
        if pairs - few < LEAST_CLEAN * pairs:
            kind, cause = _disturbance(of_pairs)
            message = Message(
                "gate.too-few-blocks", {"what": cause, "few": few, "pairs": pairs}
            )
            yield _invalid(place, kind, message)


def _disturbance(
    taints_of_pairs: Iterable[Counter[Taint]],
) -> tuple[InvalidKind, Message]:
    """The most frequent disturbance; it names the kind if it is behind most quads."""
    taints: Counter[Taint] = Counter()
    for of_pair in taints_of_pairs:
        taints.update(of_pair)
    if not taints:  # the sides have different blocks
        return "too_few_clean", Message("gate.other-blocks")
    most, times = taints.most_common(1)[0]
    if times > taints.total() / 2:
        return most, _TAINTS[most]
    return "too_few_clean", _TAINTS[most]


def _different_clocks(evidence: Evidence) -> Iterator[Invalid]:
    """Yield the shapes measured at different clocks on both sides, unless the cycles of
    their kernels compare.
    """
    for place in evidence.places:
        change = evidence.clock_shift(place)
        pairs = evidence.pairs.get(place.workload, ())
        if change and not counts_cycles(pairs, place.shape):
            message = Message("gate.clocks-differ", {"change": rounded(change)})
            yield _invalid(place, "clocks_differ", message)


# --- misconduct of workers


def misconduct(evidence: Evidence) -> Iterator[Invalid]:
    """Yield the misconduct of workers that makes their times worthless, worst first."""
    of_processes: list[Invalid] = []
    for side, run in zip(("base", "head"), evidence.runs):
        for replicate in run.pairs.replicates:
            process: dict[str, MessageValue] = {"side": side, "pair": replicate.pair}
            for shape, columns in replicate.lanes:
                if reason := _false_clock(columns):
                    place = ShapePlace(replicate.workload, shape)
                    message = Message("gate.wrong-clock", {**process, "what": reason})
                    yield _invalid(place, "worker_clock", message)
            of_processes += _more_cpus(replicate, side)
            if replicate.worker.settings.get(STOPPED, "0") != "0":
                message = Message("gate.was-stopped", process)
                of_processes += _every_shape(replicate, "stopped", message)
    yield from of_processes
    for pairs in (*evidence.pairs.values(), *evidence.stretches.values()):
        yield from _changed_settings(pairs)
        yield from _out_of_turn(pairs)
        yield from _unsteady(pairs)


def _false_clock(columns: BlockColumns) -> Message | None:
    """Compare a worker's own times of its blocks with the conductor's."""
    calls = np.asarray(columns.calls)
    wall = unpack(columns.times.wall)
    began = np.asarray(columns.worker.start_ns)
    spans = np.asarray(columns.worker.end_ns, dtype=np.float64) - began
    if (sum_by_block(wall, calls) > spans).any() or (spans <= 0).any():
        return Message("gate.calls-exceed-block")
    if (wall <= 0).any():
        return Message("gate.no-time")
    seen = np.asarray(columns.conductor.seen_ns, dtype=np.float64)
    if seen.size and (spans > seen).any():
        return Message("gate.block-exceeds-wait")
    if seen.size < FEWEST_BLOCKS:
        return None
    unseen = float(np.quantile(_unseen_shares(columns, spans), CLOCK_QUANTILE))
    if unseen <= max(CLOCK_SHARE, FIRST_CALL_NS / median(seen)):
        return None
    delays = _or_zeros(columns.conductor.run_delay_ns, seen.size)
    waited = float(delays.sum() / seen.sum())
    code = "gate.clock-misses-time"
    if waited >= BUSY_SHARE:
        # Caches that other processes emptied look the same.
        code = "gate.clock-misses-time-busy"
    return Message(code, {"share": rounded(unseen), "waited": rounded(waited)})


def _unseen_shares(columns: BlockColumns, spans: Floats) -> Floats:
    """The share of each block's time, without waits for a CPU, that the worker's clock
    does not show.

    Compared with the blocks, all of the worker's waiting is subtracted, because the
    share that fell to the call that is not recorded is unknown. Compared with its whole
    turn, only the waiting outside of that.
    """
    observed = columns.conductor
    worker = columns.worker
    blocks = len(observed.seen_ns)
    calls = np.asarray(columns.calls)
    delays = _or_zeros(observed.run_delay_ns, blocks)
    own_delays = _or_zeros(observed.conductor_delay_ns, blocks)
    awake = np.asarray(observed.seen_ns) - own_delays
    # One call of every block is made and not recorded.
    expected = spans * (calls + 1) / calls
    shares: Floats = 1 - expected / np.maximum(1, awake - delays)
    if worker.took_ns:
        outside = np.maximum(0, delays - _or_zeros(worker.took_delay_ns, blocks))
        took = np.asarray(worker.took_ns)
        of_turn = 1 - took / np.maximum(1, awake - outside)
        shares = np.maximum(shares, of_turn)
    return shares


def _or_zeros(column: list[int], blocks: int) -> Floats:
    return np.asarray(column or [0] * blocks, dtype=np.float64)


def _more_cpus(replicate: Replicate, side: str) -> Iterator[Invalid]:
    # CPU times are read before and after the conductor's clock, and the conductor may
    # have waited in between.
    seen = used = 0
    for _, columns in replicate.lanes:
        observed = columns.conductor
        seen += sum(observed.seen_ns) + sum(observed.conductor_delay_ns)
        used += sum(observed.used_ns)
    granted = len(replicate.worker.cpus)
    if seen and used > CPU_SHARE * granted * seen:
        message = Message(
            "gate.too-many-cpus",
            {
                "side": side,
                "pair": replicate.pair,
                "used": rounded(used / seen),
                "granted": granted,
            },
        )
        yield from _every_shape(replicate, "worker_changed", message)


def _changed_settings(pairs: list[Pair]) -> Iterator[Invalid]:
    for first, second in pairs:
        of_base = first.worker.settings
        of_head = second.worker.settings
        for name in sorted((of_base.keys() & of_head.keys()) - {STOPPED}):
            before = of_base[name]
            after = of_head[name]
            if before == after:
                continue
            message = Message(
                "gate.settings-differ",
                {"pair": first.pair, "name": name, "before": before, "after": after},
            )
            yield from _every_shape(first, "worker_changed", message)


def _out_of_turn(pairs: list[Pair]) -> Iterator[Invalid]:
    base, head = zip(*pairs)
    of_base = list(map(_out_of_turn_share, base))
    of_head = list(map(_out_of_turn_share, head))
    message = _works_out_of_turn(median(of_base), median(of_head))
    if message is not None:
        yield from _every_shape(pairs[0][0], "out_of_turn", message)


def _out_of_turn_share(member: Replicate) -> float:
    used = waited = 0
    for _, columns in member.lanes:
        used += sum(columns.conductor.out_of_turn_ns)
        waited += sum(columns.conductor.waited_ns)
    return used / max(1, waited)


def _works_out_of_turn(base: float, head: float) -> Message | None:
    """Which side worked in the turns of the other, if one did so more than the other by
    too much.
    """
    low = min(base, head)
    high = max(base, head)
    if high - low <= OUT_OF_TURN_SHARE + low:
        return None
    busy, idle = ("head", "base") if head > base else ("base", "head")
    return Message(
        "gate.works-out-of-turn",
        {
            "busy": busy,
            "other": idle,
            "share": rounded(high),
            "other_share": rounded(low),
        },
    )


def _unsteady(pairs: list[Pair]) -> Iterator[Invalid]:
    for side, members in zip(("base", "head"), zip(*pairs)):
        unsteady = sum(not member.worker.steady for member in members)
        if unsteady > STEADY_SHARE * len(members):
            message = Message(
                "gate.still-warming-up",
                {"side": side, "unsteady": unsteady, "members": len(members)},
            )
            yield from _every_shape(pairs[0][0], "not_steady", message)


def _every_shape(
    replicate: Replicate, kind: InvalidKind, message: Message
) -> Iterator[Invalid]:
    for shape in replicate.shapes:
        yield _invalid(ShapePlace(replicate.workload, shape), kind, message)


# --- turns of jobs


def invalid_turns(evidence: Evidence) -> list[Invalid]:
    """The jobs with times that are not evidence: a side was at work in the turns of the
    other, or the requests were sent late.
    """
    invalid = []
    for job in evidence.jobs.values():
        used_by_base = _out_of_turn_of(job.base)
        used_by_head = _out_of_turn_of(job.head)
        if used_by_base and used_by_head:
            message = _works_out_of_turn(_typical(used_by_base), _typical(used_by_head))
            if message is not None:
                invalid.append(_invalid(job.place, "out_of_turn", message))
        late = [turn.late for turn in (*job.base, *job.head) if turn.late is not None]
        if late and _typical(late) > LATE_SHARE:
            message = Message("gate.requests-late", {"share": rounded(_typical(late))})
            invalid.append(_invalid(job.place, "late", message))
    return invalid


def _out_of_turn_of(turns: Iterable[Turn]) -> list[float]:
    return [turn.out_of_turn for turn in turns if turn.out_of_turn is not None]


def _typical(shares: Iterable[float]) -> float:
    """The median, with out-of-range shares counted as the largest possible one."""
    return median(np.clip(list(shares), 0.0, _MOST_SHARE))
