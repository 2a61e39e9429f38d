"""Ranks that took turns: the ranks that do more on the head, their calls, and whether their losses agree."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.catalogue.names import (
    RANKS_COLLECTIVES,
    RANKS_CPU,
    RANKS_ELEMENTS,
    RANKS_EXPOSED,
    RANKS_LOSS,
    RANKS_MEMORY,
    RANKS_OPERATORS,
    RANKS_SKEW,
    RANKS_SYNCS,
)
from perfgate.document.comparison import Exact, Outcome, Paired
from perfgate.document.decision import Policy
from perfgate.document.explanation import Part
from perfgate.document.job import CollectiveCount, RankCounts, Turn
from perfgate.document.lines import number_in
from perfgate.document.message import Message
from perfgate.document.samples import unpack
from perfgate.judging.gate.compare.comparison import exact, informing
from perfgate.judging.gate.compare.judge import Tested, judge
from perfgate.judging.gate.compare.rule import Errors, p_slower
from perfgate.judging.gate.evidence.differences import Differences
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.numbers import LARGEST_RATIO
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.quads import Quad
from perfgate.judging.gate.evidence.tolerance import configured_tolerance
from perfgate.judging.gate.evidence.values import rounded
from perfgate.stats.summary import median

# The chance of naming a wrong rank, per job.
_WRONG_RANK = 0.01
# Starts a side from which longer exposed communication in every start of the head is significant: 1 in 20 for equal code.
_FEWEST_STARTS = 3
# Pairs of starts from which a difference of profiled times is tested: fewer give no interval of 95 %.
_STARTS_TO_TEST = 7
# Operators to name of those that run more or less often.
_NAMED_OPERATORS = 10

# The median of one number by rank.
_ByRank = dict[int, float]
# The counts of a step by name and rank.
_Counts = dict[tuple[str, int], float]


def rank_parts(name: str, quads: Sequence[Quad]) -> list[Part]:
    """The ranks with more growth in CPU seconds of a step, or bytes of memory, than the others, most first.

    By the wall clock all ranks take equally long, for they wait for the slowest; waiting takes no CPU time. A rank is named
    only if a test over quads and starts shows that it leads: a slowdown of all ranks is not the fault of one.
    """
    metric, unit = (RANKS_MEMORY, 1.0) if name == RANKS_MEMORY else (RANKS_CPU, 1e9)
    of_base = [_medians(quad.base, metric) for quad in quads]
    of_head = [_medians(quad.head, metric) for quad in quads]
    ranks = _ranks_of_all([*of_base, *of_head])
    if len(ranks) < 2:
        return []
    base, head = _table(of_base, ranks), _table(of_head, ranks)
    level = float(np.median(base))
    starts = [quad.start for quad in quads]
    grown = head - base
    parts = []
    for index, rank in enumerate(ranks):
        others = np.median(np.delete(grown, index, axis=1), axis=1)
        lead = Differences.of((grown[:, index] - others) / max(level, 1e-9), starts)
        if p_slower(lead, 0.0, (lead.size,)) <= _WRONG_RANK / len(ranks):
            before, after = median(base[:, index]) / unit, median(head[:, index]) / unit
            parts.append(Part(name=f"rank {rank}", base=rounded(before), head=rounded(after)))
    return sorted(parts, key=lambda part: part.base - part.head)


def _ranks_of_all(tables: Sequence[_ByRank]) -> list[int]:
    """The ranks that every table has, in order."""
    ranks = set(tables[0]) if tables else set()
    for table in tables:
        ranks &= table.keys()
    return sorted(ranks)


def _table(quads: Sequence[_ByRank], ranks: Sequence[int]) -> npt.NDArray[np.float64]:
    """The numbers of a side: a row for each quad, a column for each of two ranks or more."""
    row_of = itemgetter(*ranks)
    return np.array([row_of(by_rank) for by_rank in quads])


def _medians(turns: Iterable[Turn], metric: str) -> _ByRank:
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
        loss, loss_of_head = before.values.get(RANKS_LOSS), after.values.get(RANKS_LOSS)
        if loss is None or loss_of_head is None:
            continue
        if not math.isclose(loss, loss_of_head, rel_tol=tolerance):
            return True
    return False


# --- counts of profiled steps


def compare_counts(
    place: ShapePlace,
    base: Iterable[Turn],
    head: Iterable[Turn],
    policy: Policy,
    lines: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Exact | Paired]:
    """Compare the calls of ranks in profiled steps: exactly, with the differences by name and rank as parts.

    ``lines`` are the calling lines in the profile of the head.

    A count that differs between starts of one side is not exact. Its usual total must be the same on both sides, or nothing is
    decided.
    """
    of_base = [turn.counts for turn in base if turn.counts]
    of_head = [turn.counts for turn in head if turn.counts]
    if not of_base or not of_head or not all(map(_is_profiled, (*of_base, *of_head))):
        return
    for name, count in _COUNTS.items():
        before = [_counts_of_start(start, count) for start in of_base]
        after = [_counts_of_start(start, count) for start in of_head]
        if not (_agree(before) and _agree(after)):
            yield from _unsteady(place, name, before, after)
            continue
        parts: list[Part] = []
        if name == RANKS_OPERATORS:
            parts = _operator_parts(of_base[0], of_head[0])
        elif name in (RANKS_COLLECTIVES, RANKS_SYNCS):  # for elements the sum is enough
            parts = _differing(before[0], after[0])
        yield _compare_totals(place, name, before[0], after[0], policy, [_with_line(part, lines) for part in parts])
    for name, time_of in ((RANKS_EXPOSED, _exposed), (RANKS_SKEW, _skew)):
        yield _profiled_time(place, name, list(map(time_of, of_base)), list(map(time_of, of_head)), policy=policy)


def _is_profiled(start: Iterable[RankCounts]) -> bool:
    return all(count.steps for count in start)


def _counts_of_start(start: Iterable[RankCounts], count: Callable[[RankCounts], Iterable[_Pair]]) -> _Counts:
    counts: _Counts = {}
    for rank in start:
        counts.update(count(rank))
    return counts


def _agree(starts: Sequence[_Counts]) -> bool:
    return all(start == starts[0] for start in starts)


def _with_line(part: Part, lines: Mapping[str, str]) -> Part:
    """The part with the line that calls it, if it grew."""
    line = lines.get(part.name) if part.head > part.base else None
    return msgspec.structs.replace(part, line=line)


def _compare_totals(
    place: ShapePlace, name: str, before: _Counts, after: _Counts, policy: Policy, parts: Sequence[Part]
) -> Exact:
    base, head = sum(before.values()), sum(after.values())
    tolerated = configured_tolerance(policy, name, *place) or 0.0
    outcome: Outcome = "unchanged"
    if head > base * (1 + tolerated):
        outcome = "regressed"
    elif head < base:
        outcome = "improved"
    return exact(
        place,
        name,
        outcome,
        gating=True,
        base=rounded(base),
        head=rounded(head),
        allowed=tolerated,
        parts=parts,
    )


def _unsteady(place: ShapePlace, name: str, before: Sequence[_Counts], after: Sequence[_Counts]) -> Iterator[Exact]:
    base = statistics.median(sum(start.values()) for start in before)
    head = statistics.median(sum(start.values()) for start in after)
    if base != head:
        reason = Message("gate.starts-disagree")
        yield exact(place, name, "inconclusive", gating=True, base=rounded(base), head=rounded(head), reason=reason)


def _differing(base: _Counts, head: _Counts) -> list[Part]:
    """The counts that differ: one part if every rank has the same count, else one for each rank that differs."""
    parts = []
    ranks = sorted({rank for _, rank in (*base, *head)})
    for name in dict.fromkeys(name for name, _ in (*base, *head)):
        counts = {str(rank): (base.get((name, rank), 0.0), head.get((name, rank), 0.0)) for rank in ranks}
        if len(counts) > 1 and len(set(counts.values())) == 1:
            counts = {"each": next(iter(counts.values()))}
        for rank_name, (before, after) in counts.items():
            if before != after:
                parts.append(Part(name=name, ranks=rank_name, base=before, head=after))
    return parts


def _operator_parts(of_base: Iterable[RankCounts], of_head: Iterable[RankCounts]) -> list[Part]:
    """The operators with the largest differences over all ranks, without those that other counts name."""
    base, head = _operator_counts(of_base), _operator_counts(of_head)
    growth: dict[str, float] = defaultdict(float)
    for (name, _), times in base.items():
        growth[name] -= times
    for (name, _), times in head.items():
        growth[name] += times
    changed = [name for name in growth if growth[name]]
    most = sorted(changed, key=lambda name: (-abs(growth[name]), name))
    named = {name: number for number, name in enumerate(most[:_NAMED_OPERATORS])}
    parts = [part for part in _differing(base, head) if part.name in named]
    return sorted(parts, key=lambda part: named[part.name])


def _operator_counts(start: Iterable[RankCounts]) -> _Counts:
    counts: _Counts = {}
    for rank in start:
        for name, times in rank.by_name.items():
            if name != _SYNC:
                counts[name, rank.rank] = times / rank.steps
    return counts


def _of_collectives(value: Callable[[CollectiveCount], int]) -> Callable[[RankCounts], Iterator[_Pair]]:
    def count(rank: RankCounts) -> Iterator[_Pair]:
        for collective in rank.collectives:
            yield (collective.name, rank.rank), value(collective) / rank.steps

    return count


_Pair = tuple[tuple[str, int], float]
_SYNC = "aten::_local_scalar_dense"
# Per step, by counted name and rank.
_COUNTS: Mapping[str, Callable[[RankCounts], Iterable[_Pair]]] = {
    RANKS_COLLECTIVES: _of_collectives(lambda collective: collective.count),
    RANKS_ELEMENTS: _of_collectives(lambda collective: collective.elements),
    RANKS_OPERATORS: lambda rank: [(("operators", rank.rank), rank.operators / rank.steps)],
    RANKS_SYNCS: lambda rank: [((_SYNC, rank.rank), rank.syncs / rank.steps)],
}


# --- times of profiled steps


def _profiled_time(
    place: ShapePlace, name: str, base: Sequence[float], head: Sequence[float], *, policy: Policy
) -> Paired:
    """A time of profiled steps, start by start: tested over enough starts, otherwise it only informs."""
    old, new = statistics.median(base), statistics.median(head)
    pairs = list(zip(base, head))
    positive = min(min(pair) for pair in pairs) > 0
    ratios = [math.log(after) - math.log(before) for before, after in pairs] if positive else []
    if len(ratios) < _STARTS_TO_TEST or max(map(abs, ratios)) > LARGEST_RATIO:
        return informing(place, name, old, new)
    errors = Errors(alarm=policy.alpha, unchanged=policy.alpha_ok, looks=(len(pairs),))
    tested = Tested(
        place,
        name,
        PairedEffect.of(Differences.of(ratios), old, "quad"),
        tolerance=_PROFILED_MARGIN,
        margins=[_PROFILED_MARGIN],
        gating=False,
    )
    return judge(tested, errors, p_adjusted=None, tests=1)


# The variation of the profiler's own cost: the tolerance of a time under it, and the change that "unchanged" excludes.
_PROFILED_MARGIN = 0.1


def exposed_parts(base: Iterable[Turn], head: Iterable[Turn]) -> list[Part]:
    """The exposed communication of a step, if every start of the head has more of it than any of the base: less overlaps."""
    before, after = ([_exposed(turn.counts) for turn in turns if turn.counts] for turns in (base, head))
    if min(len(before), len(after)) < _FEWEST_STARTS or min(after) <= max(before):
        return []
    return [
        Part(
            name="exposed communication",
            base=rounded(statistics.median(before)),
            head=rounded(statistics.median(after)),
        )
    ]


def _exposed(counts: Iterable[RankCounts]) -> float:
    """The seconds of the rank with the least: any excess of the others is waiting for it."""
    return min(count.exposed for count in counts)


def _skew(counts: Sequence[RankCounts]) -> float:
    """The difference between the longest and the shortest wait of a rank."""
    return max(count.exposed for count in counts) - _exposed(counts)
