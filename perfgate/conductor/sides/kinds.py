"""The kinds of sides that a job may have: how each is made, where it runs, and how it takes turns."""

from __future__ import annotations

import os
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
from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.document.job import JobKind, JobRecord
from perfgate.job_settings import JobReference


class Kind(NamedTuple):
    """How sides of a kind are made, and how they take turns."""

    side: Callable[[JobReference, SidePlace], Side]
    plan: SidePlan


KINDS: dict[JobKind, Kind] = {
    "command": Kind(CommandSide, COMMAND_PLAN),
    "ranks": Kind(RanksSide, RANKS_PLAN),
    "server": Kind(ServerSide, SERVER_PLAN),
}


def cpus_of(kind: JobKind, bench: Bench) -> list[int]:
    """What a side is bound to: a command as a function is, ranks to all CPUs, a server to all but that of the requests."""
    if kind == "command":
        return quietest_cpus(bench.config.pair_cpus())
    granted = granted_cpus()
    if bench.config.gate.cpus:
        return quietest_cpus(bench.config.gate.cpus)
    return granted if kind == "ranks" else granted[:-1] or granted


@contextmanager
def beside(cpus: list[int]) -> Iterator[None]:
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


def with_numbers(record: JobRecord, side: Side) -> JobRecord:
    return JobRecord(
        name=record.name,
        kind=record.kind,
        reference=record.reference,
        sha256=record.sha256,
        numbers=list(side.numbers),
    )


def make_side(bench: Bench, reference: JobReference, checkout: Checkout, name: str, cpus: list[int]) -> Side:
    """The side called ``name``, bound to ``cpus``; its threads are as many as each of its processes has of them."""
    place = SidePlace(
        root=checkout.root,
        environment=bench.program_environment(checkout, threads=max(1, len(cpus) // max(1, reference.settings.ranks))),
        log=bench.log(f"{reference.name}-{name}"),
        cpus=cpus,
    )
    return KINDS[reference.kind].side(reference, place)
