"""The parts of a number that explain its change: lines at which an amount of work grew,
kernels, stages of the preprocessing, ranks, and exposed communication.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from perfgate.catalogue.names import (
    BUSY,
    PREPROCESSING,
    RANKS_CPU,
    RANKS_MEMORY,
    RANKS_STEP,
)
from perfgate.document.alignment import AlignedWork, Work, align
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.explanation import Part
from perfgate.document.job import Turn
from perfgate.document.lines import number_in, split_line
from perfgate.document.samples import unpack
from perfgate.judging.gate.compare.operators import MIN_PAIRS
from perfgate.judging.gate.compare.rule import p_slower
from perfgate.judging.gate.evidence.effect import Differences
from perfgate.judging.gate.evidence.quads import Quad
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.evidence.work import exposed
from perfgate.judging.gate.evidence.work_table import PairedTimes, WorkTable
from perfgate.stats.arrays import Floats
from perfgate.stats.signed_rank import estimate, lower_bound
from perfgate.stats.summary import median

MAX_LINES = 6
# Of the loss in the time of kernels; the interval of a kernel's growth, one-sided; and
# the kernels that are named.
LEAST_OF_LOSS = 0.2
_TAIL = 0.025
MOST_KERNELS = 5
# The chance of naming a wrong rank, per job.
_WRONG_RANK = 0.01
# Starts a side from which longer exposed communication in every start of the head is
# significant: 1 in 20 for equal code.
_FEWEST_STARTS = 3


def with_parts(
    comparisons: Iterable[Comparison], work: WorkTable
) -> Iterator[Comparison]:
    """Yield the comparisons; the paired numbers with their parts."""
    for comparison in comparisons:
        if isinstance(comparison, Paired):
            yield replace(comparison, parts=_parts(work, comparison))
        else:
            yield comparison


def _parts(work: WorkTable, comparison: Paired) -> list[Part]:
    name = comparison.metric
    if name == BUSY:
        return _grown_kernels(work.kernels(comparison.place), comparison)
    if name == PREPROCESSING:
        return work.stages(comparison.place)
    if comparison.is_of_job and name in (RANKS_STEP, RANKS_CPU, RANKS_MEMORY):
        job = work.jobs[comparison.workload]
        parts = rank_parts(name, job.quads)
        if name == RANKS_STEP:
            parts += exposed_parts(*job.turns)
        return most_grown(parts)
    return []


def most_grown(parts: Iterable[Part]) -> list[Part]:
    """The parts in the order of their growth, the largest first."""
    return sorted(parts, key=lambda part: part.base - part.head)


def _grown_kernels(pairs: PairedTimes, comparison: Paired) -> list[Part]:
    """The kernels that take longer without doubt and explain a good part of the loss,
    the largest first.
    """
    if not comparison.looks_worse or len(pairs) < MIN_PAIRS:
        return []
    loss = (comparison.head or 0.0) - (comparison.base or 0.0)
    parts = []
    for name in pairs.names:
        base, head = pairs.of_part(name).T
        added = estimate(head - base)
        if added >= LEAST_OF_LOSS * loss and lower_bound(head - base, _TAIL) > 0:
            before = median(base)
            after = before + added
            parts.append(Part(name=name, base=rounded(before), head=rounded(after)))
    return most_grown(parts)[:MOST_KERNELS]


# --- the lines of the head at which an amount of work grew


def grown_lines(
    before: Iterable[Work], after: Iterable[Work], base_code: Collection[str]
) -> list[Part]:
    """The lines of ``after`` with a higher amount, most relevant first.

    The same code on both sides is the same line, even if its number differs. A line of
    edited code replaces the line that was removed from there. ``base_code`` is the text
    of every known line of the base, even if it runs other operators: a line that the
    base has too was not added by the change, though it may behave differently now. So
    new code comes before it, unless it adds less than half the most.
    """
    grown = []
    for pair in _aligned_by_code(before, after, base_code):
        if pair.head and pair.delta > 0:
            grown.append(pair)
    most = max((pair.delta for pair in grown), default=0.0)

    def order(pair: AlignedWork) -> tuple[bool, float, str, int]:
        is_second = pair.row.code in base_code or pair.delta < most / 2
        return is_second, -pair.delta, *split_line(pair.row.line or "")

    parts = []
    for pair in sorted(grown, key=order):
        row = pair.row
        if row.line:
            base = rounded(row.amount - pair.delta)
            head = rounded(row.amount)
            parts.append(Part(line=row.line, base=base, head=head, tensor=row.inputs))
    return parts[:MAX_LINES]


def _aligned_by_code(
    before: Iterable[Work], after: Iterable[Work], base_code: Collection[str]
) -> list[AlignedWork]:
    """The rows of both sides, line by line: by their code, and removed lines with the
    new lines in their place.
    """
    old = _by_code(before)
    new = _by_code(after)
    pairs: list[AlignedWork] = []
    removed: list[Work] = []
    added: list[Work] = []
    for code in old.keys() | new.keys():
        if code in old and code in new:
            pairs += align(old[code], new[code])
        elif code in old:
            removed += old[code]
        elif code in base_code:
            pairs += [AlignedWork(None, row) for row in new[code]]
        else:
            added += new[code]
    return pairs + align(removed, added)


def _by_code(rows: Iterable[Work]) -> dict[str, list[Work]]:
    groups: dict[str, list[Work]] = defaultdict(list)
    for row in rows:
        groups[row.code or row.line or ""].append(row)
    return groups


# --- ranks


def rank_parts(name: str, quads: Sequence[Quad]) -> list[Part]:
    """The ranks with more growth in CPU seconds of a step, or bytes of memory, than the
    others, most first.

    By the wall clock all ranks take equally long, for they wait for the slowest;
    waiting takes no CPU time. A rank is named only if a test over quads and starts
    shows that it leads: a slowdown of all ranks is not the fault of one.
    """
    metric = RANKS_CPU
    unit = 1e9
    if name == RANKS_MEMORY:
        metric = RANKS_MEMORY
        unit = 1.0
    of_base = [_medians(quad.base, metric) for quad in quads]
    of_head = [_medians(quad.head, metric) for quad in quads]
    ranks = _common_ranks([*of_base, *of_head])
    if len(ranks) < 2:
        return []
    base = _by_quad_and_rank(of_base, ranks)
    head = _by_quad_and_rank(of_head, ranks)
    grown = head - base
    level = max(float(np.median(base)), 1e-9)
    starts = [quad.start for quad in quads]
    parts = []
    for column, rank in enumerate(ranks):
        others = np.median(np.delete(grown, column, axis=1), axis=1)
        lead = Differences.of((grown[:, column] - others) / level, starts)
        if p_slower(lead, 0.0, (lead.size,)) <= _WRONG_RANK / len(ranks):
            before = median(base[:, column]) / unit
            after = median(head[:, column]) / unit
            parts.append(
                Part(name=f"rank {rank}", base=rounded(before), head=rounded(after))
            )
    return most_grown(parts)


def _common_ranks(medians: Sequence[dict[int, float]]) -> list[int]:
    """The ranks that all turns of all quads have."""
    if not medians:
        return []
    return sorted(set(medians[0]).intersection(*medians))


def _by_quad_and_rank(
    medians: Iterable[dict[int, float]], ranks: Sequence[int]
) -> Floats:
    """A row for each quad, a column for each rank."""
    rows = []
    for by_rank in medians:
        rows.append([by_rank[rank] for rank in ranks])
    return np.array(rows)


def _medians(turns: Iterable[Turn], metric: str) -> dict[int, float]:
    """The median over turns of the samples of a metric, by rank."""
    samples: dict[int, list[int]] = defaultdict(list)
    for turn in turns:
        for entry in turn.samples:
            rank = number_in(entry.labels.get("rank", ""))
            if entry.metric == metric and rank is not None:
                samples[rank] += unpack(entry.samples).tolist()
    return {rank: median(values) for rank, values in samples.items() if values}


def exposed_parts(base: Iterable[Turn], head: Iterable[Turn]) -> list[Part]:
    """The exposed communication of a step, if every start of the head has more of it
    than any of the base: less overlaps.
    """
    before = [exposed(turn.counts) for turn in base if turn.counts]
    after = [exposed(turn.counts) for turn in head if turn.counts]
    if min(len(before), len(after)) < _FEWEST_STARTS or min(after) <= max(before):
        return []
    part = Part(
        name="exposed communication",
        base=rounded(statistics.median(before)),
        head=rounded(statistics.median(after)),
    )
    return [part]
