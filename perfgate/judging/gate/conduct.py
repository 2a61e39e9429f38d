"""What a worker must not do if its times are to prove anything: lie about them, change what was set, work out of turn.

User code shares its process with what times it. What it cannot reach is seen from outside, by the conductor's clock and the
kernel's books, and held against what the worker says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.document.decision import Invalid, InvalidKind
from perfgate.document.run import BlockColumns, Replicate, RunDocument
from perfgate.document.samples import unpack

# A worker's clock must show what ours shows, but for what the kernel says that worker and conductor waited for a CPU. Other
# waits (a hypervisor, memory) delay some blocks, a false clock shortens all: hence a low quantile, and a wide limit for the
# call that is made but not recorded: it finds caches cold and memory given back (measured: up to 1.1 ms more than others).
CLOCK_QUANTILE = 0.25
CLOCK_SHARE = 0.2
FIRST_CALL_NS = 2_000_000
FEWEST_BLOCKS = 5
# CPU time over what the granted CPUs have: the kernel's books are exact, our reading of them takes a moment.
CPU_SHARE = 1.05
# CPU time out of turn, as a share of the time that was the other's, by which one side may exceed the other. A worker that
# waits for its next request uses 0.03 ms a block on both sides (measured: 0.07 % of blocks of 40 ms, 0.6 % of 5 ms). A
# framework may do so all the time on both sides: release_thread of torch_npu 2.13 polls with 7 to 17 % of a CPU, in bursts
# after a block, so that the side with longer blocks shows less of it. Up to as much again may therefore differ.
OUT_OF_TURN_SHARE = 0.02
STEADY_SHARE = 0.5  # of the pairs


Floats = npt.NDArray[np.float64]


class _Pair(NamedTuple):
    first: Replicate
    second: Replicate


def misconduct(base: RunDocument, head: RunDocument) -> Iterator[Invalid]:
    """Yield what workers did that makes their times worthless, worst first."""
    yield from _false_clocks(base, "base")
    yield from _false_clocks(head, "head")
    yield from _more_cpus(base, "base")
    yield from _more_cpus(head, "head")
    for pairs in _pairs_by_workload(base, head):
        yield from _changed(pairs)
        yield from _out_of_turn(pairs)
        yield from _unsteady(pairs)


def _pairs_by_workload(base: RunDocument, head: RunDocument) -> Iterable[list[_Pair]]:
    heads = {(replicate.workload, replicate.pair): replicate for replicate in head.replicates}
    found: dict[str, list[_Pair]] = {}
    for first in base.replicates:
        second = heads.get((first.workload, first.pair))
        if first.arm == "ab" and second:
            found.setdefault(first.workload, []).append(_Pair(first, second))
    return found.values()


def _false_clocks(run: RunDocument, side: str) -> Iterator[Invalid]:
    for replicate in run.replicates:
        for shape, columns in replicate.lanes:
            if wrong := _wrong_clock(columns):
                yield Invalid(
                    workload=replicate.workload,
                    shape=shape,
                    kind="worker_clock",
                    message=f"{side}, pair {replicate.pair}: {wrong}",
                )


def _wrong_clock(columns: BlockColumns) -> str | None:
    """Compare what a worker says its blocks took with what the conductor saw of them."""
    calls, wall = np.asarray(columns.calls), unpack(columns.wall)
    spans = np.asarray(columns.end_ns, dtype=np.float64) - np.asarray(columns.start_ns)
    sums = np.add.reduceat(wall, np.concatenate([[0], np.cumsum(calls)[:-1]]))
    if (sums > spans).any() or (spans <= 0).any():
        return "the calls of a block take longer than the block itself"
    if (wall <= 0).any():
        return "a call takes no time at all"
    seen = np.asarray(columns.seen_ns, dtype=np.float64)
    if seen.size and (spans > seen).any():
        return "a block takes longer by the worker's clock than the conductor waited for it"
    if seen.size < FEWEST_BLOCKS:
        return None
    unseen = float(np.quantile(_unseen_shares(columns, spans), CLOCK_QUANTILE))
    if unseen <= max(CLOCK_SHARE, FIRST_CALL_NS / float(np.median(seen))):
        return None
    return f"the worker's clock misses at least {unseen:.0%} of the time that passed outside it"


def _unseen_shares(columns: BlockColumns, spans: Floats) -> Floats:
    """Return the share of each block's time, without what was waited for a CPU, that the worker's clock does not show.

    Held against the blocks, all that the worker waited is subtracted, for nobody knows how much of it fell to the call that
    is not recorded. Held against its whole turn, only what it waited outside of that.
    """
    blocks = len(columns.seen_ns)
    calls, delays = np.asarray(columns.calls), _or_zero(columns.run_delay_ns, blocks)
    awake = np.asarray(columns.seen_ns) - _or_zero(columns.conductor_delay_ns, blocks)
    expected = spans * (calls + 1) / calls  # one call of every block is made and not recorded
    shares: Floats = 1 - expected / np.maximum(1, awake - delays)
    if columns.took_ns:
        outside = np.maximum(0, delays - _or_zero(columns.took_delay_ns, blocks))
        shares = np.maximum(shares, 1 - np.asarray(columns.took_ns) / np.maximum(1, awake - outside))
    return shares


def _or_zero(column: list[int], blocks: int) -> Floats:
    return np.asarray(column or [0] * blocks, dtype=np.float64)


def _more_cpus(run: RunDocument, side: str) -> Iterator[Invalid]:
    for replicate in run.replicates:
        # The books are read before and after the conductor's clock, and it may have waited between the two.
        seen = _seen_ns(replicate) + sum(sum(columns.conductor_delay_ns) for _, columns in replicate.lanes)
        used = sum(sum(columns.used_ns) for _, columns in replicate.lanes)
        if seen and used > CPU_SHARE * len(replicate.cpus) * seen:
            message = (
                f"{side}, pair {replicate.pair}: the worker used {used / seen:.1f} CPUs where {len(replicate.cpus)} "
                "were granted"
            )
            yield from _every_shape(replicate, "worker_changed", message)


def _changed(pairs: list[_Pair]) -> Iterator[Invalid]:
    for first, second in pairs:
        for name in sorted(first.settings.keys() & second.settings.keys()):
            before, after = first.settings[name], second.settings[name]
            if before != after:
                message = f"pair {first.pair}: the base ran with {name} {before}, the head with {after}"
                yield from _every_shape(first, "worker_changed", message)


def _out_of_turn(pairs: list[_Pair]) -> Iterator[Invalid]:
    shares = [(_idle_share(pair.first), _idle_share(pair.second)) for pair in pairs]
    base, head = np.median(np.array(shares), axis=0)
    if abs(head - base) <= OUT_OF_TURN_SHARE + min(base, head):
        return
    busy, other = ("head", "base") if head > base else ("base", "head")
    message = (
        f"the {busy} goes on working while the turn is the {other}'s, for {max(base, head):.0%} of that time "
        f"(the {other}: {min(base, head):.0%}); a thread or process of it slows the other side"
    )
    yield from _every_shape(pairs[0].first, "out_of_turn", message)


def _idle_share(replicate: Replicate) -> float:
    used = sum(sum(columns.out_of_turn_ns) for _, columns in replicate.lanes)
    waited = sum(sum(columns.waited_ns) for _, columns in replicate.lanes)
    # Documents of before waited_ns: turns of both sides were taken to be equally long.
    return used / max(1, waited or _seen_ns(replicate))


def _unsteady(pairs: list[_Pair]) -> Iterator[Invalid]:
    for side, members in (("base", [pair.first for pair in pairs]), ("head", [pair.second for pair in pairs])):
        unsteady = sum(not member.steady for member in members)
        if unsteady > STEADY_SHARE * len(members):
            message = (
                f"the {side} still got faster from block to block when its time to warm up was over, in {unsteady} of "
                f"{len(members)} pairs"
            )
            yield from _every_shape(pairs[0].first, "not_steady", message)


def _seen_ns(replicate: Replicate) -> int:
    return sum(sum(columns.seen_ns) for _, columns in replicate.lanes)


def _every_shape(replicate: Replicate, kind: InvalidKind, message: str) -> Iterator[Invalid]:
    for shape in replicate.shapes:
        yield Invalid(workload=replicate.workload, shape=shape, kind=kind, message=message)
