"""The trusted side: base's configuration and main's stored runs.

No artifact is trusted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import NUMBER
from perfgate.document.job import JobNumber, JobRecord
from perfgate.document.run import RunDocument
from perfgate.job_settings import UNITS, JobReference, is_gating
from perfgate.judging.gate.evidence.index import Evidence, RunIndex

# Every command has this number in addition to the numbers that it reports.
_COMMAND_CPU = "command.cpu"


@dataclass(frozen=True)
class RequiredJob:
    """A job of the base's configuration, with the numbers and counts of work of main's
    newest stored run of it.

    ``on_device`` is whether the configuration names an accelerator.
    """

    reference: JobReference
    numbers: Mapping[str, JobNumber] = field(default_factory=dict)
    work: frozenset[str] = frozenset()
    on_device: bool = False

    def measured_by(self, evidence: Evidence) -> JobReference | None:
        """The settings that the job was measured by, None if neither a trusted nor a
        reported source accounts for them.

        They are the base's own. If head changed the table, they are head's, which the
        documents report as a change.
        """
        name = self.reference.name
        own = self.reference
        hashes = {
            job.sha256
            for job in (*evidence.base.records, *evidence.head.records)
            if job.name == name
        }
        if hashes == {own.sha256}:
            return own
        before = evidence.base.harness.get(name)
        after = evidence.head.harness.get(name)
        if before is None or after is None or before.settings != own.written:
            return None
        changed = JobReference.from_written(
            name, after.settings, judged_by=own.settings
        )
        if changed is not None and hashes == {changed.sha256}:
            return changed
        return None

    def is_on_device(self, evidence: Evidence) -> bool:
        """Whether the ranks' memory is measured by an accelerator's allocator, by the
        configuration or else by a testbed.
        """
        return self.on_device or evidence.has_accelerator


@dataclass(frozen=True)
class Required:
    """The measurements that the trusted side requires; empty without a trusted side.

    ``workloads`` and ``jobs`` come from the base's configuration, and ``aa_pairs`` its
    pairs of base against base. ``stored`` are the newest stored runs of main that
    measured a workload file of the base; a workload uses the run that measured the same
    file. ``sealed`` is whether both sides must prove that their code and environment
    stayed unchanged. ``changed`` are the files of the change, None if only the
    documents name them.
    """

    workloads: tuple[str, ...] = ()
    jobs: Mapping[str, RequiredJob] = field(default_factory=dict)
    aa_pairs: int = 0
    stored: tuple[RunDocument, ...] = ()
    sealed: bool = False
    stretches: bool = False
    changed: frozenset[str] | None = None

    def newest_run(self, evidence: Evidence, workload: str) -> RunIndex | None:
        """Main's newest stored run that measured a workload by the file that both sides
        were measured by.
        """
        if evidence.recorded:
            return None
        records = evidence.base.records_of(workload) + evidence.head.records_of(
            workload
        )
        files = {record.sha256 for record in records}
        for run in self.stored:
            index = RunIndex(run)
            for record in index.records_of(workload):
                if not record.error and {record.sha256} == files:
                    return index
        return None


@dataclass(frozen=True)
class TrustedNumbers:
    """The numbers of a job as they are judged: with the unit, the direction and the
    gating of the trusted side.

    For those in ``undirected`` only the documents state which direction is better.
    """

    numbers: list[JobNumber]
    undirected: frozenset[str] = frozenset()


def trusted_numbers(
    required: RequiredJob,
    reference: JobReference,
    record: JobRecord,
    evidence: Evidence,
) -> TrustedNumbers:
    """The numbers of a job that was measured by the settings in ``reference``."""
    settings = reference.settings
    must_gate = set(reference.must_gate(on_device=required.is_on_device(evidence)))
    reported = {*required.numbers, *(number.metric for number in record.numbers)}
    if settings.command and not any(metric.startswith(NUMBER) for metric in reported):
        must_gate.add(_COMMAND_CPU)
    numbers = []
    undirected = set()
    for reported_number in record.numbers:
        number = reported_number
        metric = reported_number.metric
        gates = metric in must_gate
        plain = metric.removeprefix(NUMBER)
        declared = settings.numbers.get(plain)
        if metric in METRICS:
            better: Literal["lower", "higher"] = (
                "higher" if METRICS[metric].better == "higher" else "lower"
            )
            number = replace(
                number, unit=METRICS[metric].unit, better=better, gating=gates
            )
        elif declared:
            number = replace(
                number,
                unit=UNITS[declared.unit][0],
                better=declared.better,
                gating=gates,
            )
        elif metric.startswith(NUMBER):
            # A number named by the program: perfgate.toml decides at most whether it
            # gates.
            gates = not settings.numbers and is_gating(plain, settings.gates)
            number = replace(required.numbers.get(metric, number), gating=gates)
            if metric not in required.numbers:
                undirected.add(metric)
        # Any other is a number of a newer perfgate: it is unknown here, and decides
        # nothing.
        numbers.append(number)
    return TrustedNumbers(numbers, frozenset(undirected))


def numbers_of_jobs(
    evidence: Evidence, jobs: Mapping[str, RequiredJob]
) -> dict[str, TrustedNumbers]:
    """The numbers of every job that the trusted side knows, by its name.

    A job that was measured by unknown settings is missing evidence; it is compared by
    the base's settings all the same.
    """
    numbers = {}
    for name, job in evidence.jobs.items():
        required = jobs.get(name)
        if required is not None:
            settings = required.measured_by(evidence) or required.reference
            numbers[name] = trusted_numbers(required, settings, job.record, evidence)
    return numbers
