"""Jobs that took turns: equal work, equal output, and the slowdown that further turns would show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from perfgate.catalogue.names import COMMAND_LINES, JOB_OUTPUT, JOB_WORK, RANKS_LOSS
from perfgate.document.comparison import Checked, Comparison, Exact
from perfgate.document.decision import Policy, QuantileComparison
from perfgate.document.job import Turn, sample_quantiles
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.comparison import compared, differing_output
from perfgate.judging.gate.compare.counts import Count, Range
from perfgate.judging.gate.compare.ranks import compare_counts, losses_differ
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
    turns_of,
)
from perfgate.judging.gate.evidence.tolerance import configured_tolerance, tolerance
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.evidence.work import lines_with_more_calls
from perfgate.stats.clusters import START_LUCK

# Keeping connections alive, among the names of HTTP features that requests go without.
_KEEP_ALIVE = "keep-alive"
# Allowed growth in the share of prompt tokens in the cache, from the first turns of a start to the later turns.
_DRIFT = 0.1

_Z_ALARM = 2.9  # of a look's share of 1 %


def compare_job(
    job: JobOfSides, policy: Policy, *, of_stacks: bool
) -> Iterator[Comparison]:
    """Yield the checks and the exact counts of a job."""
    yield from _other_work(job)
    yield from _other_output(job.place, job.quads, policy)
    if job.record.is_command:
        yield from compare_lines(
            job.place, job.base, job.head, policy, of_stacks=of_stacks
        )
    lines = lines_with_more_calls(job.base_profile, job.head_profile, job.code)
    yield from compare_counts(job.place, *turns_of(job.quads), policy, lines)


def _other_work(job: JobOfSides) -> Iterator[Checked]:
    """Yield a comparison that fails if the two sides did not do the same work, regardless of
    their times.
    """
    other = job.other_work
    if other is not None:
        reason = Message(
            "gate.other-work",
            {"what": other.name, "before": other.base, "after": other.head},
        )
        yield differing_output(job.place, JOB_WORK, reason)


def _other_output(
    place: ShapePlace, quads: Sequence[Quad], policy: Policy
) -> Iterator[Checked]:
    """Yield a comparison that fails if equal work gave different output."""
    tolerated = configured_tolerance(policy, RANKS_LOSS, place) or 0.0
    compared = differing = 0
    for quad in quads:
        # If a program checks a server's answers, only the first turns of a start have an output.
        if any(
            turn.output or RANKS_LOSS in turn.values
            for turn in (*quad.base, *quad.head)
        ):
            compared += 1
            differing += _outputs(quad.base) != _outputs(quad.head) or losses_differ(
                quad.base, quad.head, tolerated
            )
    if differing:
        reason = Message("gate.other-output", {"count": differing, "quads": compared})
        yield differing_output(place, JOB_OUTPUT, reason)


def _outputs(turns: Iterable[Turn]) -> set[str | None]:
    return {turn.output for turn in turns}


def compare_quantiles(jobs: Iterable[JobOfSides]) -> list[QuantileComparison]:
    """The quantiles of all numbers with samples on both sides, each over all turns of its side."""
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
    """The smallest tolerance of these numbers, below which no verdict is about a slowdown; None without numbers."""
    return min(
        (tolerance(policy, name, ShapePlace(job, "")) for name in metrics), default=None
    )


def foreseen(
    job: JobOfSides, policy: Policy, *, quads: int, starts: int
) -> float | None:
    """The smallest slowdown of a number that ``quads`` quads of ``starts`` starts would show, by the spread so far."""
    numbers = JobQuads(job, Rules(policy)).reported_numbers()
    return min(
        (_foreseen(number, quads, starts) for number in numbers if number.gating),
        default=None,
    )


def _foreseen(number: Number, quads: int, starts: int) -> float:
    assert isinstance(number.units, PairedEffect)
    differences = number.units.differences
    error = spread(differences) * math.sqrt(math.pi / 3 / quads)
    if differences.starts is not None:
        error = math.hypot(error, START_LUCK / math.sqrt(starts))
    return math.expm1(
        max(_Z_ALARM * error, math.log1p(number.terms.tolerance)) + Z_POWER * error
    )


# --- the lines of Python that the runs of a command execute


def compare_lines(
    place: ShapePlace,
    base: Iterable[Turn],
    head: Iterable[Turn],
    policy: Policy,
    *,
    of_stacks: bool,
) -> Iterator[Comparison]:
    """Compare the two closest runs of base and head: any difference left is beyond their variation.

    Two sides that ran no Python are not compared. If one did, and the other did not or was not counted, the verdict is left
    open. If the runs of a side differ by more than is tolerated, the counts inform, and so do those ``of_stacks``: two Pythons
    or two versions of a library have other lines.
    """
    before = counted_lines(base)
    after = counted_lines(head)
    if min(len(before), len(after)) < FEWEST_COUNTED or not any((*before, *after)):
        return
    if min(*before, *after) <= 0:
        yield compared(
            Exact, place, COMMAND_LINES, reason=Message("gate.lines-of-one-side")
        )
        return
    allowed = tolerance(policy, COMMAND_LINES, place)
    base_range = Range.of(map(rounded, before))
    head_range = Range.of(map(rounded, after))
    count = Count(place, COMMAND_LINES, base_range, head_range, allowed, fewer=allowed)
    spread = max(
        base_range.most / base_range.least - 1, head_range.most / head_range.least - 1
    )
    row = count.comparison
    if of_stacks:
        row = replace(
            row, outcome="informs", gating=False, reason=Message("gate.lines-of-stacks")
        )
    elif spread > allowed:
        vary = Message("gate.lines-vary", {"spread": rounded(spread)})
        row = replace(row, outcome="informs", gating=False, reason=vary)
    yield row


# --- notes on how requests to servers had to be sent


def notes_on_requests(jobs: Iterable[JobOfSides]) -> Iterator[Message]:
    """Yield notes on how requests to servers had to be sent, and on a cache that made them easier from turn to turn."""
    for job in jobs:
        yield from _notes_on(job)


def _notes_on(job: JobOfSides) -> Iterator[Message]:
    name = job.record.name
    without = set()
    resent = {"base": 0, "head": 0}
    for side, turns in (("base", job.base), ("head", job.head)):
        for turn in turns:
            without.update(turn.without)
            resent[side] += turn.resent
    if fields := sorted(without - {_KEEP_ALIVE}):
        yield Message("notes.fields-rejected", {"workload": name, "names": fields})
    if _KEEP_ALIVE in without:
        yield Message("notes.connections-closed", {"workload": name})
    if any(resent.values()):
        yield Message("notes.requests-resent", {"workload": name, **resent})
    shares = _cached_shares(job.base) or _cached_shares(job.head)
    if shares is not None:
        yield Message(
            "notes.cache-fills",
            {"workload": name, "first": shares[0], "later": shares[1]},
        )


def _cached_shares(turns: list[Turn]) -> tuple[float, float] | None:
    """The shares of prompt tokens in the cache, in the first turn of the starts and after it, if they are far apart."""
    first: dict[int, Turn] = {}
    others = []
    for turn in turns:
        if first.setdefault(turn.start, turn) is not turn:
            others.append(turn)
    shares = common_ratio(CACHED, first.values(), others)
    if shares is None or shares[1] - shares[0] <= _DRIFT:
        return None
    return rounded(shares[0]), rounded(shares[1])
