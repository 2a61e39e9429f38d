"""Whether the turns of a job prove anything: nothing disturbed them, and nothing of them is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import numpy as np

from perfgate.document.decision import Invalid, InvalidKind, Missing, MissingSide
from perfgate.document.job import JobRecord, Turn, turns_by_quad
from perfgate.document.message import Message
from perfgate.document.run import RunDocument
from perfgate.judging.gate.comparison import rounded
from perfgate.judging.gate.validity import OUT_OF_TURN_SHARE

# Requests that are sent later than this share of the time that they take measure the generator.
LATE_SHARE = 0.1


def invalid_turns(base: RunDocument, head: RunDocument) -> list[Invalid]:
    """The jobs whose times prove nothing: a side was at work in the turns of the other, or the requests were sent late."""
    return [
        Invalid(workload=job.name, shape="", kind=kind, message=message)
        for job in head.jobs
        for kind, message in _disturbances(job.name, base, head)
    ]


def _disturbances(name: str, base: RunDocument, head: RunDocument) -> Iterator[tuple[InvalidKind, Message]]:
    turns = [[turn for turn in run.turns if turn.workload == name] for run in (base, head)]
    used = [[turn.out_of_turn for turn in side if turn.out_of_turn is not None] for side in turns]
    if all(used):
        before, after = (float(np.median(side)) for side in used)
        if abs(after - before) > OUT_OF_TURN_SHARE + min(before, after):
            busy, idle = ("head", "base") if after > before else ("base", "head")
            shares = {"share": rounded(max(before, after)), "other_share": rounded(min(before, after))}
            yield "out_of_turn", Message("gate.works-out-of-turn", {"busy": busy, "other": idle, **shares})
    late = [turn.late for side in turns for turn in side if turn.late is not None]
    if late and float(np.median(late)) > LATE_SHARE:
        yield "late", Message("gate.requests-late", {"share": rounded(float(np.median(late)))})


def missing_turns(base: RunDocument, head: RunDocument, required: Mapping[str, Iterable[str]]) -> list[Missing]:
    """What the turns of a job lack: turns of a side, a number that other turns have, one that must gate, or the whole job."""
    failed = {failed.workload for failed in head.failed_pairs}
    names = dict.fromkeys(
        [*required, *(job.name for run in (base, head) for job in run.jobs), *(t.workload for t in base.turns)]
    )
    return [
        entry for name in names if name not in failed for entry in _missing_of(name, base, head, required.get(name, ()))
    ]


def _missing_of(name: str, base: RunDocument, head: RunDocument, must_gate: Iterable[str]) -> Iterator[Missing]:
    records = [next((job for job in run.jobs if job.name == name), None) for run in (base, head)]
    before, after = (turns_by_quad(run.turns, name) for run in (base, head))
    if not before or not after or records[0] is None or records[1] is None:
        lacks: MissingSide = "both" if not before and not after else "head" if before else "base"
        yield Missing(workload=name, side=lacks)
        return
    gating = {number.metric for number in records[0].numbers if number.gating}
    if records[0].numbers != records[1].numbers or not gating:
        yield Missing(workload=name, metric="job.numbers", side="base")
    numbers = range(max(before.keys() | after.keys()) + 1)
    named = {name for turns in (*before.values(), *after.values()) for turn in turns for name in turn.values}
    sides: list[tuple[MissingSide, dict[int, list[Turn]]]] = [("base", before), ("head", after)]
    for side, turns in sides:
        absent = [number for number in numbers if len(turns.get(number, ())) != len(before.get(0, ()))]
        if absent:
            yield Missing(workload=name, metric="job.turns", side=side, pairs=absent)
        yield from (Missing(workload=name, metric=metric, side=side) for metric in _unreported(records[0], turns))
        lacking = {m for of_quad in turns.values() for turn in of_quad for m in named - turn.values.keys()}
        yield from (Missing(workload=name, metric=metric, side=side) for metric in sorted(lacking))
    for number in records[0].numbers:
        if not any(number.metric in turn.values for turns in before.values() for turn in turns):
            yield Missing(workload=name, metric=number.metric, side="both")
    for asked in must_gate:
        if asked not in gating:
            yield Missing(workload=name, metric=asked, side="both", named_by="configuration")


def _unreported(job: JobRecord, turns: Mapping[int, list[Turn]]) -> Iterator[str]:
    """Yield what turns should report and do not, such as what the side did before them or how late its requests were sent."""
    listed = list(chain.from_iterable(turns.values()))
    # The first turn of a start has none before it, on either half of the devices.
    first = len({turn.start for turn in listed}) * (2 if job.fits == "swap" else 1)
    has_processes = job.kind != "command" and job.fits != "alternate"
    if has_processes and sum(turn.out_of_turn is None for turn in listed) > first:
        yield "out_of_turn"
    if job.kind == "ranks" and not _are_counted(listed):
        yield "counts"
    if job.kind == "server" and any(turn.late is None for turn in listed):
        yield "late"


def _are_counted(turns: Iterable[Turn]) -> bool:
    """Whether a turn of every start has the counts of all ranks that have times."""
    listed = list(turns)
    counted = {
        turn.start
        for turn in listed
        if turn.counts
        and {str(count.rank) for count in turn.counts} == {entry.labels.get("rank") for entry in turn.samples}
    }
    return counted == {turn.start for turn in listed}
