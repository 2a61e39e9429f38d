"""Jobs: servers, ranks and commands of base and head that took turns, judged quad by quad and start by start.

A quad compares the mean logarithm of the turns of each side. Quads of one start share its luck, so another start is stronger
evidence than its quads alone (``stats/clusters.py``), and a single start shows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import numpy as np

from perfgate.catalogue.lookup import is_known, metric
from perfgate.catalogue.names import (
    JOB_HALVES,
    JOB_OUTPUT,
    JOB_WORK,
    RANKS_CPU,
    RANKS_LOSS,
    RANKS_MEMORY,
    RANKS_STEP,
    TTFT_P99,
)
from perfgate.document.comparison import Checked, Comparison, Paired
from perfgate.document.decision import Policy, QuantileComparison
from perfgate.document.explanation import Part
from perfgate.document.job import Fits, JobKind, JobNumber, JobRecord, Turn, sample_quantiles
from perfgate.document.message import Message, MessageValue
from perfgate.document.run import RunDocument
from perfgate.judging.gate.compare.answers import ComparedAnswers, compare_answers
from perfgate.judging.gate.compare.comparison import differing_output
from perfgate.judging.gate.compare.executed_lines import compare_lines
from perfgate.judging.gate.compare.implied_numbers import with_covered
from perfgate.judging.gate.compare.judge import Tested, judge
from perfgate.judging.gate.compare.rank_counts import compare_counts, exposed_parts
from perfgate.judging.gate.compare.ranks import losses_differ, rank_parts
from perfgate.judging.gate.compare.rule import Z_POWER, Errors, Limits, alarm_looks, answer, p_slower, spread
from perfgate.judging.gate.compare.servers import compare_counters_of_servers
from perfgate.judging.gate.evidence.differences import Differences
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.profiled_work import lines_with_more_calls
from perfgate.judging.gate.evidence.quads import Quad, quads_of, turns_of
from perfgate.judging.gate.evidence.stalls import stalls_of
from perfgate.judging.gate.evidence.tolerance import configured_tolerance
from perfgate.judging.gate.evidence.trusted import TrustedNumbers
from perfgate.judging.gate.evidence.values import rounded
from perfgate.stats.clusters import START_LUCK
from perfgate.stats.error_control import holm
from perfgate.stats.summary import median

# The numbers of quads after which a job may be decided. A quad of a command is two whole runs, one of the other kinds some
# seconds of turns.
LOOKS: Mapping[JobKind, tuple[int, ...]] = {
    "command": (10, 16, 24, 40, 64),
    "ranks": (8, 16, 32, 64, 128, 256),
    "server": (8, 16, 32, 64, 128, 256),
}
# The slowdown of a job that "unchanged" excludes: whole programs spread more than calls.
JOB_OK_MARGIN = 0.03
_Z_ALARM = 2.9  # of a look's share of 1 %


def looks_of(kind: JobKind, fits: Fits) -> tuple[int, ...]:
    """The numbers of quads after which a job may be decided; an alternate job, with one process a turn, counts as a command."""
    return LOOKS["command" if fits == "alternate" else kind]


class _Cell(NamedTuple):
    """One number of a job, quad by quad; for an ``undirected`` one only the documents state which direction is better.

    One of ``only_worse`` fails the gate if it regressed, and leaves no verdict open: the tail of few requests is weak evidence.
    """

    tested: Tested
    unit: str
    looks: tuple[int, ...]
    parts: list[Part]
    undirected: bool = False
    only_worse: bool = False


def compare_turns(
    evidence: Evidence,
    policy: Policy,
    alpha: float,
    numbers: Mapping[str, TrustedNumbers] = MappingProxyType({}),
) -> list[Comparison]:
    """Compare every number of every job; if the work differs, nothing else counts.

    All of a job that gate share ``alpha``. ``numbers`` are the trusted side's entries for the jobs that it knows,
    and replace those of the documents.
    """
    rows: list[Comparison] = []
    for record in evidence.head.run.jobs:
        trusted = numbers.get(record.name, TrustedNumbers(record.numbers))
        job = msgspec.structs.replace(record, numbers=trusted.numbers)
        measured = quads_of(evidence, job.name)
        place = ShapePlace(job.name, "")
        different = _other_work(place, measured)
        rows += different or _other_output(place, measured, policy)
        cells: list[_Cell] = []
        if not different:
            for number in job.numbers:
                is_undirected = number.metric in trusted.undirected
                cells += [cell._replace(undirected=is_undirected) for cell in _cells(job, number, measured, policy)]
            cells += _halves(job, measured)
            stalls = stalls_of(place, measured, policy) if job.kind == "server" else None
            if stalls is not None:
                cells.append(_Cell(stalls, "1", looks_of(job.kind, job.fits), parts=[], only_worse=True))
        rows += compare_counters_of_servers(place, *turns_of(measured.values()))
        if job.kind == "command":
            of_stacks = evidence.head.run.session.command == "upgrade"
            rows += compare_lines(place, *evidence.turns(job.name), policy, of_stacks=of_stacks)
        before, after = (next((one for one in run.profiles if one.workload == job.name), None) for run in evidence.runs)
        called_at = lines_with_more_calls(before, after, evidence.head.run.source.changes)
        rows += compare_counts(place, *turns_of(measured.values()), policy, called_at)
        answers = compare_answers(*evidence.turns(job.name))
        rows += _judge_job(place, cells, answers, policy, alpha, evidence.turns(job.name))
    return rows


def _judge_job(
    place: ShapePlace,
    cells: Sequence[_Cell],
    answers: ComparedAnswers | None,
    policy: Policy,
    alpha: float,
    turns: tuple[list[Turn], list[Turn]],
) -> Iterator[Comparison]:
    """Yield the comparisons of a job's numbers and answers, which share its ``alpha``."""
    gating = [cell for cell in cells if cell.tested.gating]
    p_values = [p_slower(cell.tested.worse, 0.0, alarm_looks(cell.looks)) for cell in gating]
    if answers is not None:
        p_values.append(answers.p_fewer(len(LOOKS["server"])))
    adjusted = holm(p_values)
    if answers is not None:
        yield from answers.rows(place, differs=adjusted[-1] <= alpha)
    by_cell = {id(cell): p for cell, p in zip(gating, adjusted)}
    errors = Errors(alarm=alpha, unchanged=policy.alpha_ok, looks=())
    judged = [_judge(cell, errors, by_cell.get(id(cell)), tests=len(gating)) for cell in cells]
    yield from with_covered(judged, *turns)


def _cells(job: JobRecord, number: JobNumber, measured: Mapping[int, Quad], policy: Policy) -> Iterator[_Cell]:
    """Yield the number if all turns have it; missing values are reported elsewhere."""
    quads_of_job = list(measured.values())
    every_turn = [turn for quad in quads_of_job for turn in (*quad.base, *quad.head)]
    if not every_turn or any(number.metric not in turn.values for turn in every_turn):
        return
    base = np.array([_mean_log(quad.base, number.metric) for quad in quads_of_job])
    head = np.array([_mean_log(quad.head, number.metric) for quad in quads_of_job])
    if not (np.isfinite(base).all() and np.isfinite(head).all()):
        return
    starts = None if job.kind == "command" or job.fits == "alternate" else [quad.start for quad in quads_of_job]
    place = ShapePlace(job.name, "")
    allowed = _allowed(policy, number.metric, place)
    margin = JOB_OK_MARGIN * metric(number.metric).ok_margin_scale if policy.ok_margin is None else policy.ok_margin
    differences = Differences.of(head - base, starts)
    tested = Tested(
        place,
        number.metric,
        PairedEffect.of(differences, math.exp(median(base)), "quad"),
        tolerance=allowed,
        margins=[max(allowed, margin)],
        better=number.better,
        gating=number.gating or number.metric == TTFT_P99,
    )
    is_tail = number.metric == TTFT_P99 and not number.gating
    looks = looks_of(job.kind, job.fits)
    yield _Cell(tested, number.unit, looks, _parts(number.metric, quads_of_job), only_worse=is_tail)


def _halves(job: JobRecord, measured: Mapping[int, Quad]) -> Iterator[_Cell]:
    """Yield how much slower a side is on the second half of the devices than on the first, by the first number that gates."""
    number = next((number for number in job.numbers if number.gating), None)
    if job.fits != "swap" or number is None:
        return
    sign = -1.0 if number.better == "higher" else 1.0
    gains = []
    # A quad with fewer turns is missing evidence.
    whole = [quad for quad in measured.values() if min(len(quad.base), len(quad.head)) > 1]
    for quad in whole:
        # The head begins on the second half of the devices, and the base ends there.
        first_of_base, second_of_base = _mean_logs_of_halves(quad.base, number.metric)
        first_of_head, second_of_head = _mean_logs_of_halves(quad.head, number.metric)
        gains.append(sign * ((first_of_head - first_of_base) - (second_of_head - second_of_base)) / 2)
    if gains and np.isfinite(gains).all():
        differences = Differences.of(np.array(gains), [quad.start for quad in whole])
        tested = Tested(
            ShapePlace(job.name, ""),
            JOB_HALVES,
            PairedEffect.of(differences, 1.0, "quad"),
            tolerance=1.0,
            margins=[1.0],
            gating=False,
        )
        yield _Cell(tested, "1", looks_of(job.kind, job.fits), parts=[])


def _parts(name: str, quads: Iterable[Quad]) -> list[Part]:
    """The proven growth in a time of all ranks, most first: the CPU time of a rank, and communication that is exposed."""
    if name not in (RANKS_STEP, RANKS_CPU, RANKS_MEMORY):
        return []
    listed = list(quads)
    exposed = exposed_parts(*turns_of(listed)) if name == RANKS_STEP else []
    return sorted([*rank_parts(name, listed), *exposed], key=lambda part: part.base - part.head)


def _mean_log(turns: Iterable[Turn], name: str) -> float:
    values = [turn.values.get(name, math.nan) for turn in turns]
    return float(np.mean([math.log(value) if value > 0 else -math.inf for value in values]))


def _mean_logs_of_halves(turns: Sequence[Turn], name: str) -> tuple[float, float]:
    """The mean logarithm of a number in the first and in the second half of the turns."""
    half = len(turns) // 2
    return _mean_log(turns[:half], name), _mean_log(turns[half : 2 * half], name)


def _other_work(place: ShapePlace, measured: Mapping[int, Quad]) -> list[Checked]:
    """A comparison that fails if the two sides did not do the same work, whatever their times."""
    for quad in measured.values():
        before, after = _work_of(quad.base), _work_of(quad.head)
        if before != after:
            name = min(name for name in {**before, **after} if before.get(name) != after.get(name))
            values: dict[str, MessageValue] = {"what": name, "before": before.get(name, 0), "after": after.get(name, 0)}
            reason = Message("gate.other-work", values)
            return [differing_output(place, JOB_WORK, reason)]
    return []


def _other_output(place: ShapePlace, measured: Mapping[int, Quad], policy: Policy) -> list[Checked]:
    """A comparison that fails if equal work gave different output."""
    tolerated = configured_tolerance(policy, RANKS_LOSS, *place) or 0.0
    # If a program checks a server's answers, only the first turns of a start have an output.
    compared = [quad for quad in measured.values() if _has_output(quad)]
    differing = sum(_output_differs(quad, tolerated) for quad in compared)
    if not differing:
        return []
    reason = Message("gate.other-output", {"count": differing, "quads": len(compared)})
    return [differing_output(place, JOB_OUTPUT, reason)]


def _has_output(quad: Quad) -> bool:
    return any(turn.output or RANKS_LOSS in turn.values for turn in (*quad.base, *quad.head))


def _output_differs(quad: Quad, tolerated: float) -> bool:
    if {turn.output for turn in quad.base} != {turn.output for turn in quad.head}:
        return True
    return losses_differ(quad.base, quad.head, tolerated)


def _work_of(turns: Iterable[Turn]) -> dict[str, int]:
    total: dict[str, int] = {}
    for turn in turns:
        for name, count in turn.work.items():
            total[name] = total.get(name, 0) + count
    return total


def _judge(cell: _Cell, errors: Errors, p_adjusted: float | None, *, tests: int) -> Paired:
    errors = errors._replace(looks=cell.looks)
    tested, starts = cell.tested, cell.tested.effect.differences.starts
    compared = judge(tested, errors, p_adjusted=p_adjusted, tests=max(1, tests))
    compared = msgspec.structs.replace(
        compared,
        unit=cell.unit,
        starts=compared.pairs if starts is None else int(np.unique(starts).size),
        parts=cell.parts,
    )
    if cell.only_worse and compared.outcome != "regressed":
        return msgspec.structs.replace(compared, gating=False, pairs_needed=None)
    if not is_known(tested.metric):
        return _undecided(compared, Message("gate.unknown-metric"))
    if cell.undirected and compared.outcome in ("improved", "unchanged"):
        limits = Limits(math.log1p(tested.tolerance), math.log1p(tested.margins[0]))
        if answer(-tested.worse, limits, errors) != "unchanged":
            return _undecided(compared, Message("gate.direction-unknown", {"job": tested.place.workload}))
    return compared


def _undecided(compared: Paired, reason: Message) -> Paired:
    return msgspec.structs.replace(compared, outcome="inconclusive", reason=reason, pairs_needed=None, excluded=None)


def compare_quantiles(evidence: Evidence) -> list[QuantileComparison]:
    """The quantiles of all numbers with samples on both sides, each over all turns of its side."""
    rows = []
    for job in evidence.head.run.jobs:
        before, after = (sample_quantiles(job.name, run.turns) for run in evidence.runs)
        for name in before:
            if name in after:
                (base_count, base), (head_count, head) = before[name], after[name]
                rows.append(
                    QuantileComparison(
                        workload=job.name,
                        metric=name,
                        base=[rounded(seconds) for seconds in base],
                        head=[rounded(seconds) for seconds in head],
                        counts=(base_count, head_count),
                    )
                )
    return rows


def _allowed(policy: Policy, name: str, place: ShapePlace) -> float:
    configured = configured_tolerance(policy, name, *place)
    return (metric(name).tolerance or 0.0) if configured is None else configured


def smallest_tolerance(policy: Policy, job: str, metrics: Iterable[str]) -> float | None:
    """The smallest tolerance of these numbers, below which no verdict is about a slowdown; None without numbers."""
    return min((_allowed(policy, name, ShapePlace(job, "")) for name in metrics), default=None)


def foreseen(
    base: RunDocument, head: RunDocument, policy: Policy, job: str, *, quads: int, starts: int
) -> float | None:
    """The smallest slowdown of a number that ``quads`` quads of ``starts`` starts would show, by the spread so far."""
    record = next(record for record in head.jobs if record.name == job)
    measured = quads_of(Evidence(base, head), job)
    cells = [cell for number in record.numbers for cell in _cells(record, number, measured, policy)]
    shown = [_foreseen(cell, quads, starts) for cell in cells if cell.tested.gating]
    return min(shown, default=None)


def _foreseen(cell: _Cell, quads: int, starts: int) -> float:
    error = spread(cell.tested.effect.differences) * math.sqrt(math.pi / 3 / quads)
    if cell.tested.effect.differences.starts is not None:
        error = math.hypot(error, START_LUCK / math.sqrt(starts))
    return math.expm1(max(_Z_ALARM * error, math.log1p(cell.tested.tolerance)) + Z_POWER * error)
