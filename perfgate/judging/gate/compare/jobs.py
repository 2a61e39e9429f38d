"""Jobs that took turns: equal work, equal output, and the slowdown that further turns
would show.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from perfgate.catalogue.names import (
    COMMAND_LINES,
    JOB_OUTPUT,
    JOB_WORK,
    RANKS_COLLECTIVES,
    RANKS_ELEMENTS,
    RANKS_LOSS,
    RANKS_OPERATORS,
    RANKS_SYNCS,
)
from perfgate.document.comparison import Checked, Comparison, Exact
from perfgate.document.decision import Policy, QuantileComparison
from perfgate.document.explanation import Part
from perfgate.document.job import Turn, sample_quantiles
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.comparison import (
    Count,
    Range,
    compared,
    differing_output,
)
from perfgate.judging.gate.compare.rule import Z_POWER, spread
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.numbers import Number, Rules
from perfgate.judging.gate.evidence.producers.quads import JobQuads
from perfgate.judging.gate.evidence.quads import (
    CACHED,
    FEWEST_COUNTED,
    JobOfSides,
    Quad,
    common_ratio,
    counted_lines,
)
from perfgate.judging.gate.evidence.tolerance import configured_tolerance, tolerance
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.evidence.work import (
    OPERATOR_COUNT,
    RankOperator,
    StartWork,
    lines_with_more_calls,
    profiled_starts,
    work_of_start,
)
from perfgate.stats.clusters import START_LUCK

# Keeping connections alive, among the names of HTTP features that requests go without.
_KEEP_ALIVE = "keep-alive"
# Allowed growth in the share of prompt tokens in the cache, from the first turns of a
# start to the later turns.
_DRIFT = 0.1

_Z_ALARM = 2.9  # of a look's share of 1 %
# Operators to name of those that run more or less often.
_NAMED_OPERATORS = 10
_COUNTS = (RANKS_COLLECTIVES, RANKS_ELEMENTS, RANKS_OPERATORS, RANKS_SYNCS)


def compare_job(
    job: JobOfSides, policy: Policy, *, of_stacks: bool
) -> Iterator[Comparison]:
    """Yield the checks and the exact counts of a job.

    Work that differs fails regardless of the times, and so does equal work with another
    output.
    """
    if job.other_work is not None:
        name, before, after = job.other_work
        reason = Message(
            "gate.other-work", {"what": name, "before": before, "after": after}
        )
        yield differing_output(job.place, JOB_WORK, reason)
    yield from _other_output(job, policy)
    if job.record.is_command:
        yield from _compare_lines(job, policy, of_stacks=of_stacks)
    yield from _compare_counts(job, policy)


def _other_output(job: JobOfSides, policy: Policy) -> Iterator[Checked]:
    """Yield a comparison that fails if equal work gave different output."""
    tolerated = configured_tolerance(policy, RANKS_LOSS, job.place) or 0.0
    # If a program checks a server's answers, only the first turns of a start have an
    # output.
    quads = list(filter(_has_output, job.quads))
    differing = sum(_outputs_differ(quad, tolerated) for quad in quads)
    if differing:
        values = {"count": differing, "quads": len(quads)}
        reason = Message("gate.other-output", values)
        yield differing_output(job.place, JOB_OUTPUT, reason)


def _has_output(quad: Quad) -> bool:
    turns = (*quad.base, *quad.head)
    return any(turn.output or RANKS_LOSS in turn.values for turn in turns)


def _outputs_differ(quad: Quad, tolerated: float) -> bool:
    outputs_of_base = {turn.output for turn in quad.base}
    outputs_of_head = {turn.output for turn in quad.head}
    return outputs_of_base != outputs_of_head or losses_differ(
        quad.base, quad.head, tolerated
    )


def losses_differ(base: Iterable[Turn], head: Iterable[Turn], tolerated: float) -> bool:
    """Whether the mean losses of turns with the same steps are further apart than
    ``tolerated``, as a share.
    """
    for before, after in zip(base, head):
        loss = before.values.get(RANKS_LOSS)
        loss_of_head = after.values.get(RANKS_LOSS)
        if loss is None or loss_of_head is None:
            continue
        if not math.isclose(loss, loss_of_head, rel_tol=tolerated):
            return True
    return False


def compare_quantiles(jobs: Iterable[JobOfSides]) -> list[QuantileComparison]:
    """The quantiles of all numbers with samples on both sides, each over all turns of
    its side.
    """
    rows = []
    for job in jobs:
        workload = job.record.name
        after = sample_quantiles(workload, job.head)
        for name, (base_count, of_base) in sample_quantiles(workload, job.base).items():
            if name not in after:
                continue
            head_count, of_head = after[name]
            row = QuantileComparison(
                workload=workload,
                metric=name,
                base=list(map(rounded, of_base)),
                head=list(map(rounded, of_head)),
                counts=(base_count, head_count),
            )
            rows.append(row)
    return rows


# --- before and between looks


def smallest_tolerance(
    policy: Policy, job: str, metrics: Iterable[str]
) -> float | None:
    """The smallest tolerance of these numbers, below which no verdict is about a
    slowdown; None without numbers.
    """
    return min(
        (tolerance(policy, name, ShapePlace(job, "")) for name in metrics), default=None
    )


def foreseen(
    job: JobOfSides, policy: Policy, *, quads: int, starts: int
) -> float | None:
    """The smallest slowdown of a number that ``quads`` quads of ``starts`` starts would
    show, by the spread so far.
    """
    numbers = JobQuads(job, Rules(policy)).reported_numbers()
    return min(
        (_foreseen(number, quads, starts) for number in numbers if number.gating),
        default=None,
    )


def _foreseen(number: Number, quads: int, starts: int) -> float:
    assert isinstance(number.values, PairedEffect)
    differences = number.values.differences
    error = spread(differences) * math.sqrt(math.pi / 3 / quads)
    if differences.starts is not None:
        error = math.hypot(error, START_LUCK / math.sqrt(starts))
    return math.expm1(
        max(_Z_ALARM * error, math.log1p(number.terms.tolerance)) + Z_POWER * error
    )


# --- the lines of Python that the runs of a command execute


def _compare_lines(
    job: JobOfSides, policy: Policy, *, of_stacks: bool
) -> Iterator[Comparison]:
    """Compare the two closest runs of base and head: any difference left is beyond
    their variation.

    Two sides that ran no Python are not compared. If one did, and the other did not or
    was not counted, the verdict is left open. If the runs of a side differ by more than
    is tolerated, the counts inform, and so do those ``of_stacks``: two Pythons or two
    versions of a library have other lines.
    """
    before = counted_lines(job.base)
    after = counted_lines(job.head)
    if min(len(before), len(after)) < FEWEST_COUNTED or not any((*before, *after)):
        return
    place = job.place
    if min(*before, *after) <= 0:
        yield compared(
            Exact, place, COMMAND_LINES, reason=Message("gate.lines-of-one-side")
        )
        return
    allowed = tolerance(policy, COMMAND_LINES, place)
    base = Range.of(map(rounded, before))
    head = Range.of(map(rounded, after))
    count = Count(place, COMMAND_LINES, base, head, allowed, fewer=allowed)
    variation = max(base.most / base.least, head.most / head.least) - 1
    reason: Message | None = None
    if of_stacks:
        reason = Message("gate.lines-of-stacks")
    elif variation > allowed:
        reason = Message("gate.lines-vary", {"spread": rounded(variation)})
    if reason is None:
        yield count.comparison
    else:
        yield replace(count.comparison, outcome="informs", gating=False, reason=reason)


# --- notes on how requests to servers had to be sent


def notes_on_requests(jobs: Iterable[JobOfSides]) -> Iterator[Message]:
    """Yield notes on how requests to servers had to be sent, and on a cache that made
    them easier from turn to turn.
    """
    for job in jobs:
        name = job.record.name
        without = set()
        for turn in (*job.base, *job.head):
            without.update(turn.without)
        if fields := sorted(without - {_KEEP_ALIVE}):
            yield Message("notes.fields-rejected", {"workload": name, "names": fields})
        if _KEEP_ALIVE in without:
            yield Message("notes.connections-closed", {"workload": name})
        base = sum(turn.resent for turn in job.base)
        head = sum(turn.resent for turn in job.head)
        if base or head:
            yield Message(
                "notes.requests-resent", {"workload": name, "base": base, "head": head}
            )
        shares = _cached_shares(job.base) or _cached_shares(job.head)
        if shares is not None:
            first, later = shares
            yield Message(
                "notes.cache-fills", {"workload": name, "first": first, "later": later}
            )


def _cached_shares(turns: list[Turn]) -> tuple[float, float] | None:
    """The shares of prompt tokens in the cache, in the first turn of the starts and
    after it, if they are far apart.
    """
    first: dict[int, Turn] = {}
    others = []
    for turn in turns:
        if first.setdefault(turn.start, turn) is not turn:
            others.append(turn)
    shares = common_ratio(CACHED, first.values(), others)
    if shares is None or shares[1] - shares[0] <= _DRIFT:
        return None
    return rounded(shares[0]), rounded(shares[1])


# --- calls of ranks in profiled steps


def _compare_counts(job: JobOfSides, policy: Policy) -> Iterator[Exact]:
    """Compare the calls of ranks in profiled steps: exactly, with the differences by
    name and rank as parts. Parts that grew have the calling line in the profile of the
    head.

    A count that differs between starts of one side is not exact. Its usual total must
    be the same on both sides, or the verdict is left open.
    """
    before, after = (
        list(map(work_of_start, profiled_starts(turns))) for turns in job.turns
    )
    if not before or not after:
        return
    lines = lines_with_more_calls(job.base_profile, job.head_profile, job.code)
    for name in _COUNTS:
        base = _usual_total(before, name)
        head = _usual_total(after, name)
        if _agree(before, name) and _agree(after, name):
            allowed = configured_tolerance(policy, name, job.place) or 0.0
            ranges = Range(base, base), Range(head, head)
            parts = []
            for part in _parts(name, before[0], after[0]):
                line = lines.get(part.name) if part.head > part.base else None
                parts.append(replace(part, line=line))
            count = Count(job.place, name, *ranges, allowed)
            yield replace(count.comparison, parts=parts)
        elif base != head:
            reason = Message("gate.starts-disagree")
            yield compared(Exact, job.place, name, base=base, head=head, reason=reason)


def _agree(starts: Sequence[StartWork], name: str) -> bool:
    """Whether a count is the same in all starts."""
    return all(start[name] == starts[0][name] for start in starts)


def _usual_total(starts: Sequence[StartWork], name: str) -> float:
    """The median over starts of a count of all ranks."""
    return rounded(statistics.median(sum(start[name].values()) for start in starts))


def _parts(name: str, base: StartWork, head: StartWork) -> list[Part]:
    """The differences behind a count: of elements the sum is enough, and of operators
    the largest are named.
    """
    if name == RANKS_ELEMENTS:
        return []
    if name == RANKS_OPERATORS:
        return _operator_parts(base[OPERATOR_COUNT], head[OPERATOR_COUNT])
    return _differing(base[name], head[name])


def _differing(
    base: Mapping[RankOperator, float], head: Mapping[RankOperator, float]
) -> list[Part]:
    """The counts that differ: one part if every rank has the same count, else one for
    each rank that differs.
    """
    keys = (*base, *head)
    ranks = sorted({key.rank for key in keys})
    parts: list[Part] = []
    for name in dict.fromkeys(key.operator for key in keys):
        of_name = [
            _part_of_rank(RankOperator(name, rank), base, head) for rank in ranks
        ]
        amounts = {(part.base, part.head) for part in of_name}
        differing = [part for part in of_name if part.base != part.head]
        if len(ranks) > 1 and len(amounts) == 1:
            differing = [replace(part, ranks="each") for part in differing[:1]]
        parts += differing
    return parts


def _part_of_rank(
    key: RankOperator,
    base: Mapping[RankOperator, float],
    head: Mapping[RankOperator, float],
) -> Part:
    return Part(
        name=key.operator,
        ranks=str(key.rank),
        base=base.get(key, 0.0),
        head=head.get(key, 0.0),
    )


def _operator_parts(
    base: Mapping[RankOperator, float], head: Mapping[RankOperator, float]
) -> list[Part]:
    """The operators with the largest differences over all ranks, without those that
    other counts name.
    """
    growth: dict[str, float] = defaultdict(float)
    for key, times in base.items():
        growth[key.operator] -= times
    for key, times in head.items():
        growth[key.operator] += times
    differing = [name for name, more in growth.items() if more]
    differing.sort(key=lambda name: (-abs(growth[name]), name))
    most = differing[:_NAMED_OPERATORS]
    parts = [part for part in _differing(base, head) if part.name in most]
    return sorted(parts, key=lambda part: most.index(part.name))
