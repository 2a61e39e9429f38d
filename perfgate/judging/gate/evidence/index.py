"""The measurements of base and head, looked up once. Only this room and the doors know
it: the others take its tables.

Samples are unpacked and summarised on the first request for a place.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import cached_property
from itertools import chain
from typing import Protocol, TypeVar

from msgspec.structs import replace

from perfgate.document.job import JobRecord
from perfgate.document.run import (
    FROM_PROFILE,
    CallAccount,
    Checklist,
    CorrectnessResult,
    CounterSet,
    JobResults,
    KernelTimes,
    MeasuredPairs,
    OperatorRow,
    RunDocument,
    WorkloadRecord,
)
from perfgate.document.samples import Arm
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.blocks import Clocks, clock_shift, deciding_clocks
from perfgate.judging.gate.evidence.changed_code import HeadCode
from perfgate.judging.gate.evidence.checklist import PairedNumbers
from perfgate.judging.gate.evidence.effect import (
    ASSUMED,
    RESIDENT_LUCK,
    PairedEffect,
    StartLuck,
)
from perfgate.judging.gate.evidence.pairs import Pair, paired_effects, pairs_of
from perfgate.judging.gate.evidence.quads import JobOfSides

_Entry = TypeVar("_Entry", CounterSet, CallAccount, CorrectnessResult, KernelTimes)


class _OfWorkload(Protocol):
    @property
    def workload(self) -> str: ...


_Own = TypeVar("_Own", bound=_OfWorkload)


class RunIndex:
    """One run document, indexed by place. Only this room reads the document itself."""

    def __init__(self, run: RunDocument) -> None:
        self.run = run
        self.workloads = run.workloads
        self.records = run.jobs.records
        self.places = run.places
        self.correctness = run.checklist.correctness
        self.failed = run.pairs.failed
        self.coverage = run.source.coverage
        self.is_sealed = run.source.seal is not None
        self.device_kind = run.testbed.device_kind
        self.counters = _by_place(run.checklist.counters)
        self.accounts = _by_place(run.checklist.accounts)
        self.checks = _by_place(run.checklist.correctness)
        self.kernel_times = _by_place(run.checklist.kernel_times)
        self.harness = {harness.workload: harness for harness in run.source.harness}
        self.profiles = {profile.workload: profile for profile in run.jobs.profiles}
        self._records: dict[str, list[WorkloadRecord]] = {}
        for record in run.workloads:
            self._records.setdefault(record.name, []).append(record)
        self.steps = _by_workload(run.checklist.steps)
        self.turns = _by_workload(run.jobs.turns)
        # Of several jobs with one name the first counts.
        self.jobs: dict[str, JobRecord] = {}
        for job in run.jobs.records:
            self.jobs.setdefault(job.name, job)
        self.operators: dict[ShapePlace, dict[str, OperatorRow]] = {}
        for row in run.checklist.operators:
            self.operators.setdefault(row.place, {})[row.op] = row

    @property
    def is_empty(self) -> bool:
        """Whether nothing was measured."""
        return not (
            self.workloads
            or self.records
            or self.run.pairs.replicates
            or self.run.jobs.turns
        )

    @property
    def says_steady(self) -> bool:
        """Whether any counter lists its steady counts, as older perfgates do not."""
        return any(counted.steady for counted in self.run.checklist.counters)

    def records_of(self, workload: str) -> list[WorkloadRecord]:
        return self._records.get(workload, [])

    def broken(self, deciding: Set[int]) -> set[str]:
        """The workloads that failed to load, in a deciding step, or in their check."""
        names = set()
        for workload in self.workloads:
            if workload.error:
                names.add(workload.name)
        for step in self.run.checklist.steps:
            if step.error and step.number in deciding:
                names.add(step.workload)
        for check in self.correctness:
            if check.status == "error":
                names.add(check.workload)
        return names

    @property
    def subjects(self) -> set[str]:
        """The workloads that were timed, and the jobs."""
        subjects = set(self.jobs)
        for replicate in self.run.pairs.replicates:
            if replicate.arm == "ab":
                subjects.add(replicate.workload)
        return subjects


def _by_place(entries: Iterable[_Entry]) -> dict[ShapePlace, _Entry]:
    return {entry.place: entry for entry in entries}


def _by_workload(entries: Iterable[_Own]) -> dict[str, list[_Own]]:
    groups: dict[str, list[_Own]] = {}
    for entry in entries:
        groups.setdefault(entry.workload, []).append(entry)
    return groups


class Evidence:
    """The evidence of base and head; ``start_luck`` is what main's stored runs showed
    of it.
    """

    def __init__(
        self, base: RunDocument, head: RunDocument, start_luck: StartLuck = ASSUMED
    ) -> None:
        self.base = RunIndex(base)
        self.head = RunIndex(head)
        self._start_luck = start_luck
        self._clock_shifts: dict[ShapePlace, float | None] = {}
        self._effects: dict[tuple[ShapePlace, bool], dict[str, PairedEffect]] = {}

    @property
    def sides(self) -> tuple[RunIndex, RunIndex]:
        return self.base, self.head

    @property
    def runs(self) -> tuple[RunDocument, RunDocument]:
        return self.base.run, self.head.run

    @cached_property
    def places(self) -> list[ShapePlace]:
        return self.head.places

    @cached_property
    def code(self) -> HeadCode:
        return HeadCode.of(self.head.run)

    @property
    def has_accelerator(self) -> bool:
        """Whether a side's testbed is an accelerator."""
        return any(index.device_kind != "cpu" for index in self.sides)

    @cached_property
    def of_stacks(self) -> bool:
        """Whether one commit was measured on two software stacks."""
        return self.head.run.session.command == "upgrade"

    @cached_property
    def workload_names(self) -> list[str]:
        """The workloads that any part of a document is about."""
        names: dict[str, None] = {}
        for run in self.runs:
            names |= dict.fromkeys(workload.name for workload in run.workloads)
            listed = run.checklist
            entries: list[_OfWorkload] = [
                *run.pairs.replicates,
                *listed.counters,
                *listed.correctness,
                *listed.steps,
            ]
            names |= dict.fromkeys(entry.workload for entry in entries)
        return list(names)

    @cached_property
    def recorded(self) -> bool:
        """Whether these are recordings that were made separately."""
        return all(run.session.command == FROM_PROFILE for run in self.runs)

    @cached_property
    def clocks(self) -> Clocks:
        return deciding_clocks(
            self.base.run.pairs.replicates, self.head.run.pairs.replicates
        )

    @cached_property
    def on_device(self) -> set[ShapePlace]:
        """The places with calls that a device's own clock timed."""
        timed = set()
        for workload, pairs in self.pairs.items():
            for first, _ in pairs:
                for shape, columns in first.shapes.items():
                    if columns.times.cpu_source == "device":
                        timed.add(ShapePlace(workload, shape))
        return timed

    def clock_shift(self, place: ShapePlace) -> float | None:
        """The difference of the device's clock in all pairs of a shape together:
        readings are rarer than quads.
        """
        if place not in self._clock_shifts:
            self._clock_shifts[place] = clock_shift(
                self.pairs.get(place.workload, ()), place.shape
            )
        return self._clock_shifts[place]

    @cached_property
    def checklist(self) -> PairedNumbers:
        return PairedNumbers(*self.runs, self.clocks)

    @cached_property
    def unmoved(self) -> set[str]:
        """The workloads with a pair that kept its memory layout."""
        replicates = chain.from_iterable(run.pairs.replicates for run in self.runs)
        return {
            replicate.workload
            for replicate in replicates
            if replicate.worker.moved is False
        }

    @cached_property
    def pairs(self) -> dict[str, list[Pair]]:
        """The pairs of each workload, in the order of measuring."""
        return self._pairs("ab", self.head)

    @cached_property
    def stretches(self) -> dict[str, list[Pair]]:
        """The members of each workload's stretches, start by start."""
        return self._pairs("stretch", self.head)

    @cached_property
    def twins(self) -> dict[str, list[Pair]]:
        """The pairs of base against base."""
        return self._pairs("aa", self.base)

    @cached_property
    def timed_seconds(self) -> dict[str, float]:
        """The seconds that the pairs of each workload timed."""
        seconds: dict[str, float] = {}
        for workload, pairs in self.pairs.items():
            timed_ns = 0
            for replicate in chain.from_iterable(pairs):
                timed_ns += sum(
                    sum(blocks.worker.end_ns) - sum(blocks.worker.start_ns)
                    for _, blocks in replicate.lanes
                )
            seconds[workload] = timed_ns / 1e9
        return seconds

    def _pairs(self, arm: Arm, other: RunIndex) -> dict[str, list[Pair]]:
        return pairs_of(self.base.run.pairs.replicates, other.run.pairs.replicates, arm)

    def effects(
        self, place: ShapePlace, *, of_twins: bool = False
    ) -> dict[str, PairedEffect]:
        """The paired effects of each metric, of head against base or of base against
        itself.
        """
        if (place, of_twins) not in self._effects:
            pairs = self.twins if of_twins else self.pairs
            luck = self.start_luck(place.workload)
            effects = paired_effects(
                pairs.get(place.workload, ()), place, self.clocks, start_luck=luck
            )
            self._effects[place, of_twins] = effects
        return self._effects[place, of_twins]

    def start_luck(self, workload: str) -> float:
        """The luck of a start on an accelerator."""
        return self._start_luck.get(workload, RESIDENT_LUCK)

    @cached_property
    def jobs(self) -> dict[str, JobOfSides]:
        """The jobs of the head by name."""
        jobs = {}
        for name, record in self.head.jobs.items():
            jobs[name] = JobOfSides(
                record,
                self.base.turns.get(name, []),
                self.head.turns.get(name, []),
                self.base.profiles.get(name),
                self.head.profiles.get(name),
                self.code.at(ShapePlace(name, "")),
            )
        return jobs


# --- one workload of several

_Group = TypeVar("_Group", Checklist, MeasuredPairs, JobResults)


def of_workload(run: RunDocument, workload: str) -> RunDocument:
    """The run document without the data of other workloads and jobs."""

    def own(entries: Iterable[_Own]) -> list[_Own]:
        return [entry for entry in entries if entry.workload == workload]

    def own_of(group: _Group) -> _Group:
        """A group of lists of entries, each list without the entries of others."""
        names = group.__struct_fields__
        return replace(group, **{name: own(getattr(group, name)) for name in names})

    return replace(
        run,
        source=replace(run.source, harness=own(run.source.harness)),
        workloads=own(run.workloads),
        checklist=own_of(run.checklist),
        pairs=own_of(run.pairs),
        jobs=own_of(run.jobs),
    )
