"""Ranks that took turns: the ranks that do more on the head, and whether their losses agree."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from perfgate.catalogue.names import (
    RANKS_COLLECTIVES,
    RANKS_CPU,
    RANKS_ELEMENTS,
    RANKS_LOSS,
    RANKS_MEMORY,
    RANKS_OPERATORS,
    RANKS_SYNCS,
)
from perfgate.document.comparison import Exact
from perfgate.document.decision import Policy
from perfgate.document.explanation import Part
from perfgate.document.job import Turn
from perfgate.document.lines import number_in
from perfgate.document.message import Message
from perfgate.document.samples import unpack
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.comparison import compared
from perfgate.judging.gate.compare.counts import Count, Range
from perfgate.judging.gate.compare.grown_lines import most_grown
from perfgate.judging.gate.compare.rule import p_slower
from perfgate.judging.gate.evidence.effect import Differences
from perfgate.judging.gate.evidence.quads import Quad
from perfgate.judging.gate.evidence.tolerance import configured_tolerance
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.evidence.work import (
    OPERATOR_COUNT,
    RankOperator,
    StartWork,
    exposed,
    profiled_starts,
    work_of_start,
)
from perfgate.stats.arrays import Floats
from perfgate.stats.summary import median

# The chance of naming a wrong rank, per job.
_WRONG_RANK = 0.01
# Starts a side from which longer exposed communication in every start of the head is significant: 1 in 20 for equal code.
_FEWEST_STARTS = 3
# Operators to name of those that run more or less often.
_NAMED_OPERATORS = 10
_COUNTS = (RANKS_COLLECTIVES, RANKS_ELEMENTS, RANKS_OPERATORS, RANKS_SYNCS)


def rank_parts(name: str, quads: Sequence[Quad]) -> list[Part]:
    """The ranks with more growth in CPU seconds of a step, or bytes of memory, than the others, most first.

    By the wall clock all ranks take equally long, for they wait for the slowest; waiting takes no CPU time. A rank is named
    only if a test over quads and starts shows that it leads: a slowdown of all ranks is not the fault of one.
    """
    metric, unit = RANKS_CPU, 1e9
    if name == RANKS_MEMORY:
        metric, unit = RANKS_MEMORY, 1.0
    of_base = []
    of_head = []
    starts = []
    for quad in quads:
        of_base.append(_medians(quad.base, metric))
        of_head.append(_medians(quad.head, metric))
        starts.append(quad.start)
    ranks = _ranks_of_all([*of_base, *of_head])
    if len(ranks) < 2:
        return []
    base = _table(of_base, ranks)
    head = _table(of_head, ranks)
    grown = head - base
    level = max(float(np.median(base)), 1e-9)
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


def _ranks_of_all(tables: Sequence[Mapping[int, float]]) -> list[int]:
    """The ranks that every table has, in order."""
    if not tables:
        return []
    return sorted(set(tables[0]).intersection(*tables))


def _table(quads: Iterable[Mapping[int, float]], ranks: Sequence[int]) -> Floats:
    """The numbers of a side: a row for each quad, a column for each rank."""
    rows = []
    for by_rank in quads:
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


def losses_differ(base: Iterable[Turn], head: Iterable[Turn], tolerance: float) -> bool:
    """Whether the mean losses of turns with the same steps are further apart than ``tolerance``, as a share."""
    for before, after in zip(base, head):
        loss = before.values.get(RANKS_LOSS)
        loss_of_head = after.values.get(RANKS_LOSS)
        if loss is None or loss_of_head is None:
            continue
        if not math.isclose(loss, loss_of_head, rel_tol=tolerance):
            return True
    return False


# --- calls in profiled steps, and the communication that is exposed in them


def compare_counts(
    place: ShapePlace,
    base: Iterable[Turn],
    head: Iterable[Turn],
    policy: Policy,
    lines: Mapping[str, str],
) -> Iterator[Exact]:
    """Compare the calls of ranks in profiled steps: exactly, with the differences by name and rank as parts.

    ``lines`` are the calling lines in the profile of the head, for parts that grew.

    A count that differs between starts of one side is not exact. Its usual total must be the same on both sides, or the verdict
    is left open.
    """
    before = _Starts.of(base)
    after = _Starts.of(head)
    if not before or not after:
        return
    for name in _COUNTS:
        base_total = before.usual_total(name)
        head_total = after.usual_total(name)
        if before.agree(name) and after.agree(name):
            allowed = configured_tolerance(policy, name, place) or 0.0
            count = Count(
                place,
                name,
                Range(base_total, base_total),
                Range(head_total, head_total),
                allowed,
            )
            parts = []
            for part in _parts(name, before[0], after[0]):
                line: str | None = None
                if part.head > part.base:
                    line = lines.get(part.name)
                parts.append(replace(part, line=line))
            yield replace(count.comparison, parts=parts)
        elif base_total != head_total:
            reason = Message("gate.starts-disagree")
            yield compared(
                Exact, place, name, base=base_total, head=head_total, reason=reason
            )


class _Starts(list[StartWork]):
    """The profiled starts of one side."""

    @classmethod
    def of(cls, turns: Iterable[Turn]) -> _Starts:
        return cls(map(work_of_start, profiled_starts(turns)))

    def agree(self, name: str) -> bool:
        """Whether a count is the same in all starts."""
        return all(start[name] == self[0][name] for start in self)

    def usual_total(self, name: str) -> float:
        """The median over starts of a count of all ranks."""
        return rounded(statistics.median(sum(start[name].values()) for start in self))


def _parts(name: str, base: StartWork, head: StartWork) -> list[Part]:
    """The differences behind a count: of elements the sum is enough, and of operators the largest are named."""
    if name == RANKS_ELEMENTS:
        return []
    if name == RANKS_OPERATORS:
        return _operator_parts(base[OPERATOR_COUNT], head[OPERATOR_COUNT])
    return _differing(base[name], head[name])


def _differing(
    base: Mapping[RankOperator, float], head: Mapping[RankOperator, float]
) -> list[Part]:
    """The counts that differ: one part if every rank has the same count, else one for each rank that differs."""
    names: dict[str, None] = {}
    ranks = set()
    for operator, rank in (*base, *head):
        names[operator] = None
        ranks.add(rank)
    parts: list[Part] = []
    for name in names:
        amounts = set()
        of_name = []
        for rank in sorted(ranks):
            key = RankOperator(name, rank)
            part = Part(
                name=name,
                ranks=str(rank),
                base=base.get(key, 0.0),
                head=head.get(key, 0.0),
            )
            amounts.add((part.base, part.head))
            if part.base != part.head:
                of_name.append(part)
        if len(ranks) > 1 and len(amounts) == 1:
            of_name = [replace(part, ranks="each") for part in of_name[:1]]
        parts += of_name
    return parts


def _operator_parts(
    base: Mapping[RankOperator, float], head: Mapping[RankOperator, float]
) -> list[Part]:
    """The operators with the largest differences over all ranks, without those that other counts name."""
    growth: dict[str, float] = defaultdict(float)
    for key, times in base.items():
        growth[key.operator] -= times
    for key, times in head.items():
        growth[key.operator] += times
    differing = [name for name, more in growth.items() if more]
    most = sorted(differing, key=lambda name: (-abs(growth[name]), name))[
        :_NAMED_OPERATORS
    ]
    parts = [part for part in _differing(base, head) if part.name in most]
    return sorted(parts, key=lambda part: most.index(part.name))


def exposed_parts(base: Iterable[Turn], head: Iterable[Turn]) -> list[Part]:
    """The exposed communication of a step, if every start of the head has more of it than any of the base: less overlaps."""
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
