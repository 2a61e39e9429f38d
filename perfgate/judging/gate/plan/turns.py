"""Whether the turns of a job are valid evidence: undisturbed and complete."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from perfgate.catalogue.names import ITL, NUMBER, RANKS_LOSS, TPOT
from perfgate.document.decision import Invalid, InvalidKind, Missing, MissingSide
from perfgate.document.job import JobNumber, JobRecord, RankCounts, Turn, turns_by_quad
from perfgate.document.message import Message
from perfgate.document.run import RunDocument, Side
from perfgate.job_settings import JobReference
from perfgate.judging.gate.evidence.executed_lines import FEWEST_COUNTED, counted_lines
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.validity import OUT_OF_TURN_SHARE
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.plan.jobs import (
    RequiredJob,
    is_on_device,
    quads_of_other_work,
    trusted_numbers,
    turns_without_output,
)
from perfgate.judging.gate.plan.missing import SIDES, one_a_piece
from perfgate.stats.summary import median

# If requests are sent later than this share of their own duration, the generator is measured.
LATE_SHARE = 0.1
_MOST_SHARE = 1e9


def invalid_turns(evidence: Evidence) -> list[Invalid]:
    """The jobs with times that prove nothing: a side was at work in the turns of the other, or the requests were sent late."""
    invalid = []
    for job in evidence.head.run.jobs:
        for kind, message in _disturbances(*evidence.turns(job.name)):
            invalid.append(Invalid(workload=job.name, shape="", kind=kind, message=message))
    return invalid


def _disturbances(base: Sequence[Turn], head: Sequence[Turn]) -> Iterator[tuple[InvalidKind, Message]]:
    used_by_base = [turn.out_of_turn for turn in base if turn.out_of_turn is not None]
    used_by_head = [turn.out_of_turn for turn in head if turn.out_of_turn is not None]
    if used_by_base and used_by_head:
        before, after = _typical(used_by_base), _typical(used_by_head)
        if abs(after - before) > OUT_OF_TURN_SHARE + min(before, after):
            busy, idle = ("head", "base") if after > before else ("base", "head")
            shares = {"share": rounded(max(before, after)), "other_share": rounded(min(before, after))}
            yield "out_of_turn", Message("gate.works-out-of-turn", {"busy": busy, "other": idle, **shares})
    late = [turn.late for turn in (*base, *head) if turn.late is not None]
    share = _typical(late) if late else 0.0
    if share > LATE_SHARE:
        yield "late", Message("gate.requests-late", {"share": rounded(share)})


def _typical(shares: Iterable[float]) -> float:
    """The median, with out-of-range shares counted as the largest possible one."""
    return median(np.clip(list(shares), 0.0, _MOST_SHARE))


def missing_turns(evidence: Evidence, required: Mapping[str, RequiredJob]) -> list[Missing]:
    """The missing evidence of a job: turns of a side, a number that other turns have, one that must gate, or the whole job."""
    base, head = evidence.runs
    failed = {failed.workload for failed in head.failed_pairs}
    names = [*required, *(job.name for job in (*base.jobs, *head.jobs)), *(turn.workload for turn in base.turns)]
    missing: list[Missing] = []
    for name in dict.fromkeys(names):
        if name not in failed:
            missing += _missing_of(name, evidence, required.get(name))
    return one_a_piece(missing)


def _missing_of(name: str, evidence: Evidence, required: RequiredJob | None) -> Iterator[Missing]:
    turns = dict(zip(SIDES, evidence.turns(name)))
    record, of_head = _job(evidence.base.run, name), _job(evidence.head.run, name)
    if not turns["base"] or record is None:
        yield Missing(workload=name, side="base")
    if not turns["head"] or of_head is None:
        yield Missing(workload=name, side="head")
    if not all(turns.values()) or record is None or of_head is None:
        return
    if record.numbers != of_head.numbers or not any(number.gating for number in record.numbers):
        yield Missing(workload=name, metric="job.numbers", side="base")
    elif record != of_head:
        yield Missing(workload=name, metric="job.settings", side="base", differs=True)
    yield from _incomplete(record, turns)
    yield from _other_requests(name, turns)
    declared = _declared_numbers(required)
    for number in record.numbers:
        if number.gating:
            is_count = number.metric.startswith(NUMBER) and number.metric not in declared and number.unit == "1"
            yield from _nothing_measured(name, number.metric, turns, may_be_zero=is_count)
    if required is not None:
        yield from _not_as_required(required, evidence, record)


def _job(run: RunDocument, name: str) -> JobRecord | None:
    return next((job for job in run.jobs if job.name == name), None)


def _declared_numbers(required: RequiredJob | None) -> set[str]:
    """The metrics of the numbers that the base's configuration declares."""
    if required is None:
        return set()
    return {f"{NUMBER}{key}" for key in required.reference.settings.numbers}


def _incomplete(record: JobRecord, turns: Mapping[Side, Sequence[Turn]]) -> Iterator[Missing]:
    """Yield the turns of quads, the fields and the numbers that a side lacks: every turn has the numbers of all others."""
    every_turn = [*turns["base"], *turns["head"]]
    numbers = range(max(turn.quad for turn in every_turn) + 1)
    expected = {number.metric for number in record.numbers}
    for turn in every_turn:
        expected |= turn.values.keys()
    turns_of_a_quad = sum(turn.quad == 0 for turn in turns["base"])
    for side, of_side in turns.items():
        quads = Counter(turn.quad for turn in of_side)
        absent = [number for number in numbers if quads[number] != turns_of_a_quad]
        if absent:
            yield Missing(workload=record.name, metric="job.turns", side=side, pairs=absent)
        lacking: set[str] = set()
        for turn in of_side:
            lacking |= expected - turn.values.keys()
        for metric in (*_unreported(record, of_side), *sorted(lacking)):
            yield Missing(workload=record.name, metric=metric, side=side)


def _other_requests(name: str, turns: Mapping[Side, Sequence[Turn]]) -> Iterator[Missing]:
    """Yield that the sides' requests differ, or that they went without different things, in the turns of a quad."""
    before, after = turns_by_quad(turns["base"], name), turns_by_quad(turns["head"], name)
    unlike = [quad for quad in before.keys() & after.keys() if _requests(before[quad]) != _requests(after[quad])]
    if unlike:
        yield Missing(workload=name, metric="job.requests", side="both", pairs=sorted(unlike), differs=True)


def _requests(turns: Iterable[Turn]) -> list[tuple[str | None, list[str]]]:
    """The hash of the requests of each turn, and what they went without."""
    return [(turn.requests, sorted(turn.without)) for turn in turns]


def _nothing_measured(
    job: str, metric: str, turns: Mapping[Side, Sequence[Turn]], *, may_be_zero: bool
) -> Iterator[Missing]:
    """Yield that a number is not above 0, as times, rates and amounts are: then it has no ratio, and is not compared.

    A program's count may be 0, and is then 0 in all turns of both sides.
    """
    every_turn = [*turns["base"], *turns["head"]]
    if may_be_zero and not any(turn.values.get(metric) for turn in every_turn):
        return
    for side, of_side in turns.items():
        values = [turn.values[metric] for turn in of_side if metric in turn.values]
        if not all(0 < value < math.inf for value in values):
            yield Missing(workload=job, metric=metric, side=side)


def _not_as_required(required: RequiredJob, evidence: Evidence, record: JobRecord) -> Iterator[Missing]:
    """Yield the trusted side's requirements for a job that the documents lack or contradict."""
    settings = required.measured_by(*evidence.runs)
    if settings is None or record.kind != settings.kind:
        yield _asked(record.name, "job.settings", differs=True)
        return
    before, after = evidence.turns(record.name)
    if not _shares_devices_as(settings, record, [*before, *after]):
        yield _asked(record.name, "job.fits", differs=True)
    trusted = trusted_numbers(required, settings, record, on_device=is_on_device(required, *evidence.runs))
    yield from _other_numbers(required, settings, record, trusted.numbers)
    yield from _unproven(required, settings, "base", before)
    yield from _unproven(required, settings, "head", after)


def _asked(
    job: str, metric: str, side: MissingSide = "both", *, differs: bool = False, pairs: Iterable[int] = ()
) -> Missing:
    quads = sorted(set(pairs))
    return Missing(workload=job, metric=metric, side=side, pairs=quads, named_by="configuration", differs=differs)


def _other_numbers(
    required: RequiredJob, settings: JobReference, record: JobRecord, trusted: Sequence[JobNumber]
) -> Iterator[Missing]:
    """Yield the numbers that must gate and do not, that have another unit or direction, or that only main's stored run has."""
    for stated, number in zip(trusted, record.numbers):
        if stated.unit != number.unit:
            yield _asked(record.name, f"{number.metric}.unit", differs=True)
        if stated.better != number.better:
            yield _asked(record.name, f"{number.metric}.better", differs=True)
    gating = {number.metric for number in record.numbers if number.gating}
    must_gate = {*settings.must_gate, *(number.metric for number in trusted if number.gating)}
    yield from (_asked(record.name, metric) for metric in sorted(must_gate - gating))
    listed = {number.metric for number in record.numbers}
    if settings.settings.file and not any(metric.startswith(NUMBER) for metric in listed):
        yield _asked(record.name, "job.numbers")
    for metric in sorted(required.numbers.keys() - listed):
        yield Missing(workload=record.name, metric=metric, side="both", named_by="store")


def _unproven(
    required: RequiredJob, settings: JobReference, side: MissingSide, turns: Sequence[Turn]
) -> Iterator[Missing]:
    """Yield the missing proof that the turns of a side are comparable with those of the other: their work and their output."""
    for work, quads in quads_of_other_work(required, settings, turns).items():
        yield _asked(settings.name, f"work.{work}", side, pairs=quads)
    without_output = list(turns_without_output(settings, turns))
    if without_output:
        yield _asked(settings.name, "job.output", side, pairs=without_output)
    counts = [count for turn in turns for count in turn.counts]
    if any(count.steps not in (0, settings.settings.steps) for count in counts):
        yield _asked(settings.name, "counts.steps", side, differs=True)
    if not all(map(_has_token_times, turns)):
        yield _asked(settings.name, ITL, side)
    if settings.settings.loss_tolerance and any(RANKS_LOSS not in turn.values for turn in turns):
        yield _asked(settings.name, RANKS_LOSS, side)


def _has_token_times(turn: Turn) -> bool:
    """Whether a turn with a time per output token has the times between tokens that it is the mean of."""
    return TPOT not in turn.values or any(entry.metric == ITL for entry in turn.samples)


def _shares_devices_as(settings: JobReference, record: JobRecord, turns: Iterable[Turn]) -> bool:
    """Whether the sides shared the devices as set, and the starts of their turns agree."""
    wanted = settings.settings.fits
    if record.fits not in (("resident", "alternate") if wanted == "auto" else (wanted,)):
        return False
    has_own_processes = settings.kind == "command" or record.fits == "alternate"
    return not has_own_processes or all(turn.start == turn.quad for turn in turns)


def _unreported(job: JobRecord, turns: Sequence[Turn]) -> Iterator[str]:
    """Yield the fields that turns should report and do not, such as a side's earlier activity or the delay of its requests."""
    # The first turn of a start has no turn before it, on either half of the devices.
    first = len({turn.start for turn in turns}) * (2 if job.fits == "swap" else 1)
    has_processes = job.kind != "command" and job.fits != "alternate"
    if has_processes and sum(turn.out_of_turn is None for turn in turns) > first:
        yield "out_of_turn"
    if job.kind == "ranks" and not _are_counted(turns):
        yield "counts"
    if job.kind == "server" and any(turn.late is None for turn in turns):
        yield "late"
    if job.kind == "server" and not all(turn.requests for turn in turns):
        yield "job.requests"
    if job.kind == "command" and len(counted_lines(turns)) < FEWEST_COUNTED:
        yield "counters"
    with_texts = {turn.start for turn in turns if turn.texts}
    # Starts are counted from 0: with other numbers, a side's answers would match no start of the other side.
    if with_texts and (with_texts < {turn.start for turn in turns} or min(with_texts) < 0):
        yield "texts"


def _are_counted(turns: Sequence[Turn]) -> bool:
    """Whether a turn of every start has whole counts of all ranks that have times, or no rank could be profiled."""
    counts = [count for turn in turns for count in turn.counts]
    if not all(map(_is_whole, counts)) or len({count.steps > 0 for count in counts}) != 1:
        return False
    counted = {turn.start for turn in turns if _counts_every_rank(turn)}
    return counted == {turn.start for turn in turns}


def _counts_every_rank(turn: Turn) -> bool:
    ranks = {str(count.rank) for count in turn.counts}
    return bool(ranks) and ranks == {entry.labels.get("rank") for entry in turn.samples}


def _is_whole(count: RankCounts) -> bool:
    """Whether the collectives add up, and belong to steps that were profiled."""
    has_any = bool(count.operators or count.syncs or count.calls)
    return (count.steps > 0 or not has_any) and count.calls == sum(one.count for one in count.collectives)
