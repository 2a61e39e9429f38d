"""The kinds of sides that a job may have: how each is created, placed and given turns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

import msgspec

from perfgate.conductor.machine.cpus import cpu_list, granted_cpus, quietest_cpus
from perfgate.conductor.sides.alternating import AlternatingSide, Visit
from perfgate.conductor.sides.command.command import CommandSide
from perfgate.conductor.sides.job_turns import NAMES, SideName
from perfgate.conductor.sides.ranks.ranks import RanksSide
from perfgate.conductor.sides.server.server import ServerSide
from perfgate.conductor.sides.side import Side, SidePlace, SidePlan
from perfgate.conductor.sides.stacks.stacks import profiling_environment
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.config import device_kind
from perfgate.document.job import Fits, JobKind, JobRecord
from perfgate.errors import ConfigError
from perfgate.job_settings import JobReference

# The device that the job is measured on, for perfgate's own program in ranks.
DEVICE_VARIABLE = "PERFGATE_DEVICE"
# The devices that a process may use.
VISIBLE_DEVICES = {"npu": "ASCEND_RT_VISIBLE_DEVICES", "cuda": "CUDA_VISIBLE_DEVICES"}


SIDES: Mapping[JobKind, type[CommandSide] | type[RanksSide] | type[ServerSide]] = {
    "command": CommandSide,
    "ranks": RanksSide,
    "server": ServerSide,
}


def cpus_of(kind: JobKind, bench: Bench) -> list[int]:
    """The CPUs of a side: a command has a function's CPUs, ranks have all, a server all
    but the load generator's.
    """
    if kind == "command":
        return quietest_cpus(bench.config.pair_cpus())
    if bench.config.gate.cpus:
        return quietest_cpus(bench.config.gate.cpus)
    cpus = granted_cpus()
    if kind == "server" and len(cpus) > 1:
        del cpus[-1]
    return cpus


@contextmanager
def keep_off(cpus: list[int]) -> Iterator[None]:
    """Keep this process off these CPUs of the sides, if there are others."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before - set(cpus) or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def record_of(reference: JobReference) -> JobRecord:
    return JobRecord(
        name=reference.name,
        kind=reference.kind,
        reference=reference.settings.line,
        sha256=reference.sha256,
        rate=reference.rate,
    )


def with_numbers(record: JobRecord, side: Side) -> JobRecord:
    return msgspec.structs.replace(record, numbers=list(side.numbers))


def plan_of(reference: JobReference, fits: Fits) -> SidePlan:
    if fits == "alternate" and not reference.settings.command:
        return AlternatingSide.plan
    return SIDES[reference.kind].plan._replace(one_by_one=fits == "sleep")


def make_layouts(
    bench: Bench,
    reference: JobReference,
    checkouts: Mapping[SideName, Checkout],
    cpus: list[int],
    fits: Fits,
) -> list[dict[SideName, Side]]:
    """Both sides in their places: once, or for ``swap`` on either half of the devices,
    base first on the first.
    """
    # Fields that one side's server rejects are left out of requests to the other too.
    without: set[str] = set()

    def make(place: SidePlace) -> Side:
        return SIDES[reference.kind](reference, replace(place, without=without))

    if fits == "swap":
        layouts = []
        first, second = reference.settings.halves
        for halves in ((first, second), (second, first)):
            sides = {}
            for name, half in zip(NAMES, halves):
                sides[name] = make(
                    place_on_half(bench, reference, checkouts[name], name, half)
                )
            layouts.append(sides)
        return layouts
    sides = {}
    visit = Visit()
    for name, checkout in checkouts.items():
        place = place_of(bench, reference, checkout, name, cpus)
        if fits == "alternate" and not reference.settings.command:
            sides[name] = AlternatingSide(make(replace(place, alone=True)), visit)
        else:
            sides[name] = make(place)
    return [sides]


def make_side(
    bench: Bench,
    reference: JobReference,
    checkout: Checkout,
    name: str,
    cpus: list[int],
) -> Side:
    return SIDES[reference.kind](
        reference, place_of(bench, reference, checkout, name, cpus)
    )


def place_of(
    bench: Bench,
    reference: JobReference,
    checkout: Checkout,
    name: str,
    cpus: list[int],
) -> SidePlace:
    """The place of the side called ``name``, bound to ``cpus``; each process has one
    thread per CPU.
    """
    threads = max(1, len(cpus) // max(1, reference.settings.ranks))
    place = SidePlace(
        root=checkout.root,
        environment=bench.program_environment(checkout, threads=threads),
        log=bench.log(f"{reference.name}-{name}"),
        cpus=cpus,
        left_behind=bench.leftovers[checkout.root],
        harness=checkout.harness,
        room=bench.rooms.walls(bench.rooms.of(checkout)),
    )
    environment = profiling_environment(place.environment, place.profile)
    environment[DEVICE_VARIABLE] = bench.config.device
    return replace(place, environment=environment)


def place_on_half(
    bench: Bench, reference: JobReference, checkout: Checkout, name: str, half: str
) -> SidePlace:
    """The place of a side that sees one half of the devices; the halves of a CPU are
    CPUs.
    """
    kind = device_kind(bench.config.device)
    if kind == "cpu":
        return place_of(
            bench, reference, checkout, name, cpus_of_half(reference.name, half)
        )
    place = place_of(bench, reference, checkout, name, cpus_of(reference.kind, bench))
    return replace(
        place,
        environment={**place.environment, VISIBLE_DEVICES[kind]: half},
        alone=True,
    )


def cpus_of_half(job: str, half: str) -> list[int]:
    """The CPUs that a half names.

    Raises ConfigError for CPUs that were not granted to this process.
    """
    granted = granted_cpus()
    with suppress(ValueError):
        cpus = cpu_list(half)
        if set(cpus) <= set(granted):
            return cpus
    raise ConfigError(
        "[workloads.{job}] halves: {half!r} is not a list of the CPUs {granted}",
        job=job,
        half=half,
        granted=", ".join(map(str, granted)),
    )
