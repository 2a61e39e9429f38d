"""Measure the jobs of a check: base and head of a server, ranks or a command take turns until they decide."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from perfgate.conductor.machine.cpus import granted_cpus, quietest_cpus
from perfgate.conductor.sides.command import PLAN as COMMAND_PLAN
from perfgate.conductor.sides.command import CommandSide
from perfgate.conductor.sides.ranks import PLAN as RANKS_PLAN
from perfgate.conductor.sides.ranks import RanksSide
from perfgate.conductor.sides.server import PLAN as SERVER_PLAN
from perfgate.conductor.sides.server import ServerSide
from perfgate.conductor.sides.side import Side, SidePlace, SidePlan
from perfgate.conductor.sides.turns import FEWEST_STARTS, MeasuredJob, SideName, TurnTaker
from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.document.job import JobKind, JobNumber, JobRecord
from perfgate.job_settings import JobReference
from perfgate.judging.gate.turns import LOOKS
from perfgate.judging.report.text import format as formats

MINUTE = 60.0


class _Kind(NamedTuple):
    """How sides of a kind are made, and how they take turns."""

    side: Callable[[JobReference, SidePlace], Side]
    plan: SidePlan


KINDS: dict[JobKind, _Kind] = {
    "command": _Kind(CommandSide, COMMAND_PLAN),
    "ranks": _Kind(RanksSide, RANKS_PLAN),
    "server": _Kind(ServerSide, SERVER_PLAN),
}


def measure_job(
    bench: Bench,
    reference: JobReference,
    checkouts: dict[SideName, Checkout],
    measured: MeasuredJob,
    *,
    is_decided: Callable[[], bool],
    foresee: Callable[[int, int], float | None],
    deadline: float,
    note: Callable[[str], None],
) -> None:
    """Take the turns of a job into ``measured``.

    ``foresee`` gives the smallest slowdown that so many quads of so many starts would show; ``note`` is told the plan before
    the first quad and after the first few.
    """
    kind = KINDS[reference.kind]
    looks = LOOKS[reference.kind]
    cpus = _cpus(reference.kind, bench.config.gate.cpus, bench.config.pair_cpus())
    sides = {
        name: kind.side(reference, _place(bench, checkout, reference, name, cpus))
        for name, checkout in checkouts.items()
    }
    began = time.monotonic()
    budget = min(reference.settings.budget, deadline - began)

    def tell() -> None:
        measured.record = _with_numbers(measured.record, sides["base"])
        quads, starts = taker.reach()
        note(_told(reference, looks, taker, budget, foresee(quads, starts) if quads else None))

    def decided() -> bool:
        measured.record = _with_numbers(measured.record, sides["base"])
        return is_decided()

    taker = TurnTaker(
        sides,
        kind.plan,
        measured,
        looks,
        is_decided=decided,
        say=bench.say,
        tell=tell,
        ends=began + budget,
        seed=bench.config.measure.seed,
    )
    note(_plan(reference, kind.plan, looks, budget))
    with _beside(cpus):
        taker.take()
    measured.record = _with_numbers(measured.record, sides["base"])


def _cpus(kind: JobKind, wanted: int | None, of_pairs: int) -> list[int]:
    """What a side is bound to: a command as a function is, ranks to all CPUs, a server to all but that of the requests."""
    if kind == "command":
        return quietest_cpus(of_pairs)
    granted = granted_cpus()
    if wanted:
        return quietest_cpus(wanted)
    return granted if kind == "ranks" else granted[:-1] or granted


@contextmanager
def _beside(cpus: list[int]) -> Iterator[None]:
    """Keep this process off the CPUs of the sides, where there are others."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before - set(cpus) or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def record_of(reference: JobReference) -> JobRecord:
    return JobRecord(
        name=reference.name, kind=reference.kind, reference=reference.settings.line, sha256=reference.sha256
    )


def _with_numbers(record: JobRecord, side: Side) -> JobRecord:
    return JobRecord(
        name=record.name,
        kind=record.kind,
        reference=record.reference,
        sha256=record.sha256,
        numbers=list[JobNumber](side.numbers),
    )


def _place(bench: Bench, checkout: Checkout, reference: JobReference, name: SideName, cpus: list[int]) -> SidePlace:
    return SidePlace(
        root=checkout.root,
        environment=bench.program_environment(checkout, threads=max(1, len(cpus) // max(1, reference.settings.ranks))),
        log=bench.log(f"{reference.name}-{name}"),
        cpus=cpus,
    )


def _plan(reference: JobReference, plan: SidePlan, looks: tuple[int, ...], budget: float) -> str:
    unit = "runs of each side" if not plan.most else "quads of turns"
    starts = f", {FEWEST_STARTS} starts of both sides at least" if plan.most else ""
    return (
        f"{reference.name}: {looks[0]} to {looks[-1]} {unit}{starts}, at most {formats.quantity(budget, 's')}; "
        "after the first four it is known what they will show"
    )


def _told(
    reference: JobReference, looks: tuple[int, ...], taker: TurnTaker, budget: float, visible: float | None
) -> str:
    """What the first quads promise: how many there will be in the time, and what they will show."""
    quads, starts = taker.reach()
    minutes = f"{budget / MINUTE:.1f} min"
    if quads < looks[0]:
        return (
            f"{reference.name}: {minutes} are enough for {quads} quads, and {looks[0]} are the fewest that decide: set "
            "`budget` of the workload"
        )
    sees = "" if visible is None else f"; a slowdown of {visible:.1%} would show"
    much = f"{quads} runs of each side" if starts == quads else f"{quads} quads of {starts} starts"
    return f"{reference.name}: {much} in {minutes}{sees}"
