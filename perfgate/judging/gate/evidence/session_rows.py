"""The rows of both documents, job by job and workload by workload, and everything else
that the plan of them rests on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perfgate.document.budget import judges_subroutines
from perfgate.document.decision import Policy
from perfgate.document.job import JobRecord
from perfgate.document.run import Harness
from perfgate.document.samples import unpack
from perfgate.job_settings import JobReference
from perfgate.judging.gate.evidence.blocks import awake_by_block, clean_pair
from perfgate.judging.gate.evidence.bounds import BoundedNumber
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.job_rows import rows_of_job
from perfgate.judging.gate.evidence.numbers import NumberTable
from perfgate.judging.gate.evidence.rows import RowTable, SideTables, rows_of_workloads
from perfgate.judging.gate.evidence.stretches import are_in_turns
from perfgate.judging.gate.evidence.trusted import (
    Required,
    RequiredJob,
    TrustedNumbers,
    trusted_numbers,
)
from perfgate.judging.gate.evidence.work_table import WorkTable
from perfgate.protocol import SLOW_CALL_SECONDS
from perfgate.stats.summary import median

# Warming up may time a call as slower than the pairs do.
CERTAINLY_FAST = 0.8
# Kinds of devices that report the times of kernels.
_KINDS_WITH_KERNELS = frozenset({"cuda", "npu"})


class Provenance(NamedTuple):
    """How the documents came about: whether two profilers recorded them, and on which
    kind of device they were measured.

    ``says_steady`` is whether any counter lists its steady counts, as older perfgates
    do not.
    """

    is_recorded: bool
    on_accelerator: bool
    reports_kernels: bool
    says_steady: bool

    @classmethod
    def of(cls, evidence: Evidence) -> Provenance:
        kinds = {evidence.base.device_kind, evidence.head.device_kind}
        return cls(
            is_recorded=evidence.recorded,
            on_accelerator=evidence.has_accelerator,
            reports_kernels=not _KINDS_WITH_KERNELS.isdisjoint(kinds),
            says_steady=evidence.base.says_steady or evidence.head.says_steady,
        )


@dataclass(frozen=True)
class WorkloadRows:
    """The rows of a workload on both sides and in main's ``stored`` run, and how they
    came about.

    ``failed_pairs`` are numbers of pairs, ``usable_quads`` counts the quads of
    stretches by shape. ``incomplete_bounds`` are the bounds of each shape with numbers
    that lack a value. ``is_edited`` is whether code of the workload file changed.
    ``work`` is of the whole session.
    """

    name: str
    tables: SideTables
    stored: RowTable
    harness_of_base: Harness | None
    harness_of_head: Harness | None
    failed_pairs: Collection[int]
    has_failed_stretch: bool
    expects_stretches: bool
    usable_quads: Mapping[str, int]
    incomplete_bounds: Mapping[str, Sequence[str]]
    work: WorkTable
    is_edited: bool
    provenance: Provenance


@dataclass(frozen=True)
class JobRows:
    """The rows of a job on both sides, and its record by the base.

    Both sides measured it by ``settings``, which give the ``trusted`` numbers; None if
    the trusted side does not know them. Ranks ``on_device`` have their memory from an
    accelerator's allocator.
    """

    name: str
    tables: SideTables
    record: JobRecord | None
    settings: JobReference | None
    trusted: TrustedNumbers | None
    on_device: bool


class SessionRows:
    """The rows of a session, under what the trusted side requires."""

    def __init__(
        self,
        evidence: Evidence,
        numbers: NumberTable,
        work: WorkTable,
        required: Required,
        policy: Policy,
    ) -> None:
        self._evidence = evidence
        self._work = work
        self._required = required
        self._incomplete_bounds = _incomplete_bounds(numbers.of_head.bounded)
        self.provenance = Provenance.of(evidence)
        self.sealed = (evidence.base.is_sealed, evidence.head.is_sealed)
        self.failed = evidence.head.failed
        self.records = [*evidence.base.workloads, *evidence.head.workloads]
        self.workloads = list(
            dict.fromkeys([*required.workloads, *evidence.workload_names])
        )
        profiles = judges_subroutines(policy.tolerances)
        self._of_base = rows_of_workloads(evidence.base, "base", profiles=profiles)
        self._of_head = rows_of_workloads(evidence.head, "head", profiles=profiles)

    def jobs(self, required: Iterable[str]) -> list[str]:
        """The names of these jobs, and of those in the documents."""
        names = dict.fromkeys(required)
        for index in self._evidence.sides:
            names |= dict.fromkeys(job.name for job in index.records)
        names |= dict.fromkeys(self._evidence.base.turns)
        return list(names)

    def workload(self, name: str) -> WorkloadRows:
        evidence = self._evidence
        run = self._required.newest_run(evidence, name)
        stored = RowTable()
        provenance = self.provenance
        if run is not None:
            stored = rows_of_workloads(run, "base")[name]
            provenance = provenance._replace(
                says_steady=provenance.says_steady or run.says_steady
            )
        failed_pairs = set()
        has_failed_stretch = False
        for pair in evidence.head.failed:
            if pair.workload == name and pair.arm == "stretch":
                has_failed_stretch = True
            elif pair.workload == name:
                failed_pairs.add(pair.pair)
        files = set()
        for record in evidence.head.records_of(name):
            files.add(record.reference.rpartition(":")[0])
        return WorkloadRows(
            name=name,
            tables=SideTables(self._of_base[name], self._of_head[name]),
            stored=stored,
            harness_of_base=evidence.base.harness.get(name),
            harness_of_head=evidence.head.harness.get(name),
            failed_pairs=failed_pairs,
            has_failed_stretch=has_failed_stretch,
            expects_stretches=self._required.stretches
            and _has_fast_calls_in_turns(evidence, name),
            usable_quads=_usable_quads(evidence, name),
            incomplete_bounds=self._incomplete_bounds.get(name, {}),
            work=self._work,
            is_edited=any(change.file in files for change in evidence.code.changes),
            provenance=provenance,
        )

    def job(self, name: str, required: RequiredJob | None) -> JobRows:
        base, head = self._evidence.sides
        record = base.jobs.get(name)
        settings: JobReference | None = None
        work: frozenset[str] = frozenset()
        if required is not None:
            work = required.work
            settings = required.measured_by(self._evidence)
            kinds = {
                job.kind for job in (*base.records, *head.records) if job.name == name
            }
            if settings is not None and kinds != {settings.kind}:
                settings = None
        trusted: TrustedNumbers | None = None
        if required is not None and settings is not None and record is not None:
            trusted = trusted_numbers(required, settings, record, self._evidence)
        of_base = rows_of_job(base, name, settings, work)
        tables = SideTables(of_base, rows_of_job(head, name, settings, work))
        on_device = required is not None and required.is_on_device(self._evidence)
        return JobRows(name, tables, record, settings, trusted, on_device)


def _incomplete_bounds(
    bounded: Iterable[BoundedNumber],
) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """The bounds with numbers that lack a value, by workload and shape."""
    names: dict[str, dict[str, list[str]]] = {}
    for number in bounded:
        if number.lacks_values:
            shapes = names.setdefault(number.place.workload, {})
            shapes.setdefault(number.place.shape, []).append(number.bound.name)
    return names


def _has_fast_calls_in_turns(evidence: Evidence, workload: str) -> bool:
    """Whether the sides took turns in a pair, and calls of the base are certainly fast
    enough for stretches, by its pairs.

    It is the trusted side. Whole processes that follow each other have no stretches.
    """
    takes_turns = False
    seconds: dict[str, list[float]] = {}
    for first, second in evidence.pairs.get(workload, ()):
        for shape, columns in first.shapes.items():
            seconds.setdefault(shape, []).append(
                median(unpack(columns.times.wall)) / 1e9
            )
            if shape in second.shapes and are_in_turns(columns, second.shapes[shape]):
                takes_turns = True
    return (
        takes_turns
        and sum(map(median, seconds.values())) < CERTAINLY_FAST * SLOW_CALL_SECONDS
    )


def _usable_quads(evidence: Evidence, workload: str) -> dict[str, int]:
    """The number of undisturbed quads of stretches in which every block was timed, by
    shape.
    """
    usable: dict[str, int] = {}
    for first, second in evidence.stretches.get(workload, ()):
        for shape in first.shapes.keys() & second.shapes.keys():
            before = first.shapes[shape]
            after = second.shapes[shape]
            clean, _ = clean_pair(before, after)
            quads = set(clean or ())
            for columns in (before, after):
                if not columns.conductor.seen_ns:
                    quads.clear()
                else:
                    untimed = np.isnan(awake_by_block(columns))
                    quads -= set(np.asarray(columns.quad)[untimed])
            usable[shape] = usable.get(shape, 0) + len(quads)
    return usable
