"""What makes times worthless: a throttled or foreign-used device, a clock below its rate, a worker that breaks the rules.

Blocks are dropped for what the environment reported about them, never for how long they took; a block that is dropped
takes its whole quad on both sides with it, so that dropping cannot favour a side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple

from perfgate.document.decision import Invalid
from perfgate.document.run import BlockColumns, Replicate, RunDocument
from perfgate.judging.gate.conduct import misconduct

Taint = Literal["throttled", "slow_clock", "foreign_process"]

RATED_CLOCK_SHARE = 0.97
LEAST_CLEAN = 0.4  # of the quads of a pair, and of the pairs of a shape

_WORDS = {
    "throttled": "the device was throttled",
    "slow_clock": f"the clock stood below {RATED_CLOCK_SHARE:.0%} of its rate",
    "foreign_process": "another process used the device",
}


class CleanPair(NamedTuple):
    """The quads of a pair in which nothing disturbed either side; None where too few are left."""

    quads: frozenset[int] | None
    taints: Counter[Taint]


def clean_pair(first: BlockColumns, second: BlockColumns) -> CleanPair:
    """Return the quads that may be compared, and how many were dropped for what."""
    quads = set(first.quad) & set(second.quad)
    tainted: dict[int, Taint] = {}
    for columns in (first, second):
        for index, quad in enumerate(columns.quad):
            if taint := _taint(columns, index):
                tainted.setdefault(quad, taint)
    clean = frozenset(quads - tainted.keys())
    return CleanPair(clean if len(clean) >= LEAST_CLEAN * len(quads) else None, Counter(tainted.values()))


def _taint(columns: BlockColumns, index: int) -> Taint | None:
    if columns.throttled and columns.throttled[index]:
        return "throttled"
    clock_share = columns.clock_share[index] if columns.clock_share else None
    if clock_share is not None and clock_share < RATED_CLOCK_SHARE:
        return "slow_clock"
    if columns.foreign_processes and columns.foreign_processes[index]:
        return "foreign_process"
    return None


def invalid_times(base: RunDocument, head: RunDocument) -> list[Invalid]:
    """Return why the times of a shape prove nothing, one entry a shape and kind."""
    found: dict[tuple[str, str, str], Invalid] = {}
    for entry in [*_disturbed(base, head), *misconduct(base, head)]:
        found.setdefault((entry.workload, entry.shape, entry.kind), entry)
    return list(found.values())


def _disturbed(base: RunDocument, head: RunDocument) -> Iterable[Invalid]:
    heads = {(replicate.workload, replicate.pair): replicate for replicate in head.replicates}
    checked: dict[tuple[str, str], list[CleanPair]] = {}
    for first in base.replicates:
        second = heads.get((first.workload, first.pair)) if first.arm == "ab" else None
        if second is None:
            continue
        for shape in first.shapes.keys() & second.shapes.keys():
            pair = clean_pair(first.shapes[shape], second.shapes[shape])
            checked.setdefault((first.workload, shape), []).append(pair)
    for (workload, shape), pairs in sorted(checked.items()):
        kept = sum(pair.quads is not None for pair in pairs)
        if kept >= LEAST_CLEAN * len(pairs):
            continue
        taints: Counter[Taint] = sum((pair.taints for pair in pairs), Counter())
        (most, count), total = taints.most_common(1)[0], sum(taints.values())
        yield Invalid(
            workload=workload,
            shape=shape,
            kind=most if count > total / 2 else "too_few_clean",
            message=f"{_WORDS[most]}; {len(pairs) - kept} of {len(pairs)} pairs have too few undisturbed blocks",
        )


def waited_share(replicates: Iterable[Replicate]) -> float | None:
    """Return the share of the measured time in which workers waited for a CPU that another process had."""
    waited = seen = 0
    for replicate in replicates:
        for _, columns in replicate.lanes:
            if columns.run_delay_ns:
                waited += sum(columns.run_delay_ns)
                seen += sum(columns.seen_ns)
    return waited / seen if seen else None
