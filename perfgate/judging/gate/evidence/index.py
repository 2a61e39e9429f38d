"""The measurements of base and head, looked up once. Only this room and the doors know it: the others take its tables.

Samples are unpacked and summarised on the first request for a place.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import chain
from typing import Protocol, TypeVar

from msgspec.structs import replace

from perfgate.document.job import JobRecord, Turn
from perfgate.document.profile import JobProfile
from perfgate.document.run import (
    FROM_PROFILE,
    CallAccount,
    Checklist,
    CorrectnessResult,
    CounterSet,
    Harness,
    JobResults,
    KernelTimes,
    MeasuredPairs,
    OperatorRow,
    RunDocument,
    StepResult,
    WorkloadRecord,
)
from perfgate.document.samples import Arm
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.changed_code import HeadCode
from perfgate.judging.gate.evidence.checklist import PairedNumbers
from perfgate.judging.gate.evidence.clocks import Clocks, deciding_clocks
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.pairs import Pair, paired_effects
from perfgate.judging.gate.evidence.quads import MeasuredJob
from perfgate.judging.gate.evidence.start_luck import ASSUMED, RESIDENT_LUCK, StartLuck

_Entry = TypeVar("_Entry", CounterSet, CallAccount, CorrectnessResult, KernelTimes)


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

    @property
    def is_empty(self) -> bool:
        """Whether nothing was measured."""
        return not (self.workloads or self.records or self.run.pairs.replicates or self.run.jobs.turns)

    @property
    def says_steady(self) -> bool:
        """Whether any counter lists its steady counts, as older perfgates do not."""
        return any(counted.steady for counted in self.run.checklist.counters)

    def records_of(self, workload: str) -> list[WorkloadRecord]:
        return [record for record in self.workloads if record.name == workload]

    @cached_property
    def harness(self) -> dict[str, Harness]:
        return {harness.workload: harness for harness in self.run.source.harness}

    @cached_property
    def broken(self) -> set[str]:
        """The workloads that failed to load, in a step, or in their check."""
        names = set()
        for workload in self.workloads:
            if workload.error:
                names.add(workload.name)
        for step in self.run.checklist.steps:
            if step.error:
                names.add(step.workload)
        for check in self.correctness:
            if check.status == "error":
                names.add(check.workload)
        return names

    @cached_property
    def subjects(self) -> set[str]:
        """The workloads that were timed, and the jobs."""
        subjects = {job.name for job in self.records}
        for replicate in self.run.pairs.replicates:
            if replicate.arm == "ab":
                subjects.add(replicate.workload)
        return subjects

    @cached_property
    def timed_by_device(self) -> set[ShapePlace]:
        """The places with calls that a device's own clock timed, in pairs or stretches."""
        timed = set()
        for replicate in self.run.pairs.replicates:
            for shape, columns in replicate.shapes.items():
                if columns.times.cpu_source == "device":
                    timed.add(ShapePlace(replicate.workload, shape))
        return timed

    @cached_property
    def counters(self) -> dict[ShapePlace, CounterSet]:
        return _by_place(self.run.checklist.counters)

    @cached_property
    def accounts(self) -> dict[ShapePlace, CallAccount]:
        return _by_place(self.run.checklist.accounts)

    @cached_property
    def checks(self) -> dict[ShapePlace, CorrectnessResult]:
        return _by_place(self.run.checklist.correctness)

    @cached_property
    def profiles(self) -> dict[str, JobProfile]:
        return {profile.workload: profile for profile in self.run.jobs.profiles}

    @cached_property
    def jobs(self) -> dict[str, JobRecord]:
        """The jobs by name; of several with one name the first."""
        jobs: dict[str, JobRecord] = {}
        for job in self.run.jobs.records:
            jobs.setdefault(job.name, job)
        return jobs

    @cached_property
    def kernel_times(self) -> dict[ShapePlace, KernelTimes]:
        return _by_place(self.run.checklist.kernel_times)

    @cached_property
    def operators(self) -> dict[ShapePlace, dict[str, OperatorRow]]:
        rows: dict[ShapePlace, dict[str, OperatorRow]] = {}
        for row in self.run.checklist.operators:
            rows.setdefault(row.place, {})[row.op] = row
        return rows

    @cached_property
    def steps(self) -> dict[str, list[StepResult]]:
        """The steps of each workload."""
        steps: dict[str, list[StepResult]] = {}
        for step in self.run.checklist.steps:
            steps.setdefault(step.workload, []).append(step)
        return steps

    @cached_property
    def turns(self) -> dict[str, list[Turn]]:
        """The turns of each job."""
        turns: dict[str, list[Turn]] = {}
        for turn in self.run.jobs.turns:
            turns.setdefault(turn.workload, []).append(turn)
        return turns

    @cached_property
    def kept_layout(self) -> frozenset[str]:
        """The workloads with a pair that kept its memory layout."""
        return frozenset(
            replicate.workload for replicate in self.run.pairs.replicates if replicate.worker.moved is False
        )


def _by_place(entries: Iterable[_Entry]) -> dict[ShapePlace, _Entry]:
    return {entry.place: entry for entry in entries}


class Evidence:
    """The evidence of base and head; ``start_luck`` is what main's stored runs showed of it."""

    def __init__(self, base: RunDocument, head: RunDocument, start_luck: StartLuck = ASSUMED) -> None:
        self.base = RunIndex(base)
        self.head = RunIndex(head)
        self._start_luck = start_luck
        # The differences of the device's clock between the sides, once they were asked for.
        self.clock_shifts: dict[ShapePlace, float | None] = {}
        self._effects: dict[tuple[ShapePlace, Arm], dict[str, PairedEffect]] = {}

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
            entries: list[_OfWorkload] = [*run.pairs.replicates, *listed.counters, *listed.correctness, *listed.steps]
            names |= dict.fromkeys(entry.workload for entry in entries)
        return list(names)

    @cached_property
    def recorded(self) -> bool:
        """Whether these are recordings that were made separately."""
        return all(run.session.command == FROM_PROFILE for run in self.runs)

    @cached_property
    def clocks(self) -> Clocks:
        return deciding_clocks(*self.runs)

    @cached_property
    def on_device(self) -> frozenset[ShapePlace]:
        """The places with calls that a device's own clock timed."""
        timed = set()
        for workload, pairs in self.pairs.items():
            for first, _ in pairs:
                for shape, columns in first.shapes.items():
                    if columns.times.cpu_source == "device":
                        timed.add(ShapePlace(workload, shape))
        return frozenset(timed)

    @cached_property
    def checklist(self) -> PairedNumbers:
        return PairedNumbers(*self.runs, self.clocks)

    @cached_property
    def kept_layout(self) -> frozenset[str]:
        return self.base.kept_layout | self.head.kept_layout

    @cached_property
    def pairs(self) -> dict[str, list[Pair]]:
        """The pairs of each workload, in the order of measuring."""
        return self._members("ab")

    @cached_property
    def stretches(self) -> dict[str, list[Pair]]:
        """The members of each workload's stretches, start by start."""
        return self._members("stretch")

    @cached_property
    def timed_seconds(self) -> dict[str, float]:
        """The seconds that the pairs of each workload timed."""
        seconds: dict[str, float] = {}
        for workload, pairs in self.pairs.items():
            timed_ns = 0
            for replicate in chain.from_iterable(pairs):
                timed_ns += sum(
                    sum(blocks.worker.end_ns) - sum(blocks.worker.start_ns) for _, blocks in replicate.lanes
                )
            seconds[workload] = timed_ns / 1e9
        return seconds

    def _members(self, arm: Arm) -> dict[str, list[Pair]]:
        """The processes of base and head that took turns in an arm, by workload."""
        heads = {}
        for replicate in self.head.run.pairs.replicates:
            if (replicate.arm, replicate.member) == (arm, "second"):
                heads[replicate.workload, replicate.pair] = replicate
        pairs: dict[str, list[Pair]] = {}
        for first in self.base.run.pairs.replicates:
            second = heads.get((first.workload, first.pair))
            if (first.arm, first.member) == (arm, "first") and second:
                pairs.setdefault(first.workload, []).append((first, second))
        return pairs

    def effects(self, place: ShapePlace, arm: Arm = "ab") -> dict[str, PairedEffect]:
        """The paired effects of each metric, of head against base or of base against itself."""
        if (place, arm) not in self._effects:
            second = self.head if arm == "ab" else self.base
            first, others = self.base.run.pairs.replicates, second.run.pairs.replicates
            luck = self.start_luck(place.workload)
            self._effects[place, arm] = paired_effects(first, others, place, arm, self.clocks, start_luck=luck)
        return self._effects[place, arm]

    def start_luck(self, workload: str) -> float:
        """The luck of a start on an accelerator."""
        return self._start_luck.get(workload, RESIDENT_LUCK)

    @cached_property
    def jobs(self) -> dict[str, MeasuredJob]:
        """The jobs of the head by name."""
        jobs = {}
        for name, record in self.head.jobs.items():
            jobs[name] = MeasuredJob(
                record,
                self.base.turns.get(name, []),
                self.head.turns.get(name, []),
                self.base.profiles.get(name),
                self.head.profiles.get(name),
                self.code.at(ShapePlace(name, "")),
            )
        return jobs


# --- one workload of several


class _OfWorkload(Protocol):
    @property
    def workload(self) -> str: ...


_Own = TypeVar("_Own", bound=_OfWorkload)


def of_workload(run: RunDocument, workload: str) -> RunDocument:
    """The run document without the data of other workloads and jobs."""

    def own(entries: Iterable[_Own]) -> list[_Own]:
        return [entry for entry in entries if entry.workload == workload]

    return replace(
        run,
        source=replace(run.source, harness=own(run.source.harness)),
        workloads=[record for record in run.workloads if record.name == workload],
        checklist=Checklist(
            steps=own(run.checklist.steps),
            correctness=own(run.checklist.correctness),
            counters=own(run.checklist.counters),
            operators=own(run.checklist.operators),
            kernel_times=own(run.checklist.kernel_times),
            accounts=own(run.checklist.accounts),
            advisories=own(run.checklist.advisories),
        ),
        pairs=MeasuredPairs(replicates=own(run.pairs.replicates), failed=own(run.pairs.failed)),
        jobs=JobResults(
            records=[job for job in run.jobs.records if job.name == workload],
            turns=own(run.jobs.turns),
            profiles=own(run.jobs.profiles),
        ),
    )
