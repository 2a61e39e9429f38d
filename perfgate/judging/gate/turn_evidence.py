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
from perfgate.document.run import Side
from perfgate.job_settings import JobReference
from perfgate.judging.gate.comparison import rounded
from perfgate.judging.gate.evidence import Evidence
from perfgate.judging.gate.executed import FEWEST_COUNTED, counted_lines
from perfgate.judging.gate.missing import SIDES, one_a_piece
from perfgate.judging.gate.required_jobs import (
    RequiredJob,
    is_on_device,
    quads_of_other_work,
    trusted_numbers,
    turns_without_output,
)
from perfgate.judging.gate.validity import OUT_OF_TURN_SHARE
from perfgate.stats.summary import median

# If requests are sent later than this share of their own duration, the generator is measured.
LATE_SHARE = 0.1
_MOST_SHARE = 1e9


def invalid_turns(evidence: Evidence) -> list[Invalid]:
    """The jobs with times that prove nothing: a side was at work in the turns of the other, or the requests were sent late."""
    return [
        Invalid(workload=job.name, shape="", kind=kind, message=message)
        for job in evidence.head.run.jobs
        for kind, message in _disturbances(evidence.turns(job.name))
    ]


def _disturbances(turns: Sequence[Sequence[Turn]]) -> Iterator[tuple[InvalidKind, Message]]:
    used = [[turn.out_of_turn for turn in side if turn.out_of_turn is not None] for side in turns]
    if all(used):
        before, after = map(_typical, used)
        if abs(after - before) > OUT_OF_TURN_SHARE + min(before, after):
            busy, idle = ("head", "base") if after > before else ("base", "head")
            shares = {"share": rounded(max(before, after)), "other_share": rounded(min(before, after))}
            yield "out_of_turn", Message("gate.works-out-of-turn", {"busy": busy, "other": idle, **shares})
    late = [turn.late for side in turns for turn in side if turn.late is not None]
    if late and (share := _typical(late)) > LATE_SHARE:
        yield "late", Message("gate.requests-late", {"share": rounded(share)})


def _typical(shares: Iterable[float]) -> float:
    """The median, with out-of-range shares counted as the largest possible one."""
    return median(np.clip(list(shares), 0.0, _MOST_SHARE))


def missing_turns(evidence: Evidence, required: Mapping[str, RequiredJob]) -> list[Missing]:
    """The missing evidence of a job: turns of a side, a number that other turns have, one that must gate, or the whole job."""
    failed = {failed.workload for failed in evidence.head.run.failed_pairs}
    declared = (job.name for run in evidence.runs for job in run.jobs)
    names = dict.fromkeys([*required, *declared, *(turn.workload for turn in evidence.base.run.turns)])
    return one_a_piece(
        entry for name in names if name not in failed for entry in _missing_of(name, evidence, required.get(name))
    )


def _missing_of(name: str, evidence: Evidence, required: RequiredJob | None) -> Iterator[Missing]:
    turns = dict(zip(SIDES, evidence.turns(name)))
    record, of_head = (next((job for job in run.jobs if job.name == name), None) for run in evidence.runs)
    if not all(turns.values()) or record is None or of_head is None:
        records = dict(zip(SIDES, (record, of_head)))
        yield from (Missing(workload=name, side=side) for side in SIDES if not turns[side] or records[side] is None)
        return
    if record.numbers != of_head.numbers or not any(number.gating for number in record.numbers):
        yield Missing(workload=name, metric="job.numbers", side="base")
    elif record != of_head:
        yield Missing(workload=name, metric="job.settings", side="base", differs=True)
    yield from _incomplete(record, turns)
    yield from _other_requests(name, turns)
    declared = {f"{NUMBER}{key}" for key in required.reference.settings.numbers} if required else frozenset()
    for number in record.numbers:
        may_be_zero = number.metric.startswith(NUMBER) and number.metric not in declared and number.unit == "1"
        yield from _nothing_measured(name, number.metric, turns, may_be_zero=may_be_zero) if number.gating else ()
    if required is not None:
        yield from _not_as_required(required, evidence, record)


def _incomplete(record: JobRecord, turns: Mapping[Side, Sequence[Turn]]) -> Iterator[Missing]:
    """Yield the turns of quads, the fields and the numbers that a side lacks: every turn has the numbers of all others."""
    quads = {side: Counter(turn.quad for turn in of_side) for side, of_side in turns.items()}
    numbers = range(max(quads["base"].keys() | quads["head"].keys()) + 1)
    expected = {number.metric for number in record.numbers}
    expected.update(metric for of_side in turns.values() for turn in of_side for metric in turn.values)
    for side, of_side in turns.items():
        if absent := [number for number in numbers if quads[side][number] != quads["base"][0]]:
            yield Missing(workload=record.name, metric="job.turns", side=side, pairs=absent)
        lacking = {metric for turn in of_side for metric in expected - turn.values.keys()}
        for metric in (*_unreported(record, of_side), *sorted(lacking)):
            yield Missing(workload=record.name, metric=metric, side=side)


def _other_requests(name: str, turns: Mapping[Side, Sequence[Turn]]) -> Iterator[Missing]:
    """Yield that the sides' requests differ, or that they went without different things, in the turns of a quad."""
    before, after = (
        {quad: [(turn.requests, sorted(turn.without)) for turn in of_quad] for quad, of_quad in quads.items()}
        for quads in (turns_by_quad(of_side, name) for of_side in turns.values())
    )
    if unlike := sorted(quad for quad in before.keys() & after.keys() if before[quad] != after[quad]):
        yield Missing(workload=name, metric="job.requests", side="both", pairs=unlike, differs=True)


def _nothing_measured(
    job: str, metric: str, turns: Mapping[Side, Sequence[Turn]], *, may_be_zero: bool
) -> Iterator[Missing]:
    """Yield that a number is not above 0, as times, rates and amounts are: then it has no ratio, and is not compared.

    A program's count may be 0, and is then 0 in all turns of both sides.
    """
    values = {
        side: [turn.values[metric] for turn in of_side if metric in turn.values] for side, of_side in turns.items()
    }
    if may_be_zero and not any(value for of_side in values.values() for value in of_side):
        return
    for side, of_side in values.items():
        if not all(0 < value < math.inf for value in of_side):
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
    for count, quads in quads_of_other_work(required, settings, turns).items():
        yield _asked(settings.name, f"work.{count}", side, pairs=quads)
    if unseen := list(turns_without_output(settings, turns)):
        yield _asked(settings.name, "job.output", side, pairs=unseen)
    if any(count.steps not in (0, settings.settings.steps) for turn in turns for count in turn.counts):
        yield _asked(settings.name, "counts.steps", side, differs=True)
    if any(TPOT in turn.values and all(entry.metric != ITL for entry in turn.samples) for turn in turns):
        yield _asked(settings.name, ITL, side)
    if settings.settings.loss_tolerance and any(RANKS_LOSS not in turn.values for turn in turns):
        yield _asked(settings.name, RANKS_LOSS, side)


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
    counted = {
        turn.start
        for turn in turns
        if turn.counts
        and {str(count.rank) for count in turn.counts} == {entry.labels.get("rank") for entry in turn.samples}
    }
    counts = [count for turn in turns for count in turn.counts]
    are_whole = all(_is_whole(count) for count in counts) and len({count.steps > 0 for count in counts}) == 1
    return are_whole and counted == {turn.start for turn in turns}


def _is_whole(count: RankCounts) -> bool:
    """Whether the collectives add up, and belong to steps that were profiled."""
    has_any = bool(count.operators or count.syncs or count.calls)
    return (count.steps > 0 or not has_any) and count.calls == sum(one.count for one in count.collectives)
