"""The evidence that a verdict needs and the documents lack: the plan of every workload
and job, less the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from perfgate.document.decision import (
    HarnessChange,
    HarnessRemoval,
    Missing,
    MissingSide,
    Policy,
    UnfitHarness,
)
from perfgate.judging.gate.evidence.rows import SEAL
from perfgate.judging.gate.evidence.session_rows import SessionRows
from perfgate.judging.gate.evidence.trusted import Required, RequiredJob
from perfgate.judging.gate.plan.jobs import JobPlan
from perfgate.judging.gate.plan.workloads import WorkloadPlan


def missing_evidence(
    rows: SessionRows,
    changes: Sequence[HarnessChange],
    required: Required,
    policy: Policy,
    *,
    timed: bool,
) -> list[Missing]:
    """The missing rows of both documents, by name. Omitted evidence never improves a
    verdict.

    ``timed`` is False if the sides cannot be compared by time, which is reported
    elsewhere, as are workloads that fail to load, that the change removed, or that the
    base cannot run, and turns that failed.
    """
    missing = _missing_seals(
        rows, [*rows.workloads, *rows.jobs(required.jobs)], required
    )
    reported = _reported_elsewhere(rows, changes)
    failed = set()
    untimed = set()
    for pair in rows.failed:
        failed.add(pair.workload)
        # The verdict gives the reason why these have no times.
        if pair.error.lacks_time_for_pairs:
            untimed.add(pair.workload)
    for name in rows.workloads:
        if name not in reported:
            plan = WorkloadPlan(rows.workload(name), required, policy)
            plan.require_evidence(timed=timed and name not in untimed)
            missing += plan.missing()
    trusted: Mapping[str, RequiredJob] = {}
    if timed:
        trusted = required.jobs
    for name in rows.jobs(trusted):
        if name not in failed:
            job = trusted.get(name)
            plan_of_job = JobPlan(rows.job(name, job), job)
            plan_of_job.require_evidence()
            missing += plan_of_job.missing()
    return missing


def _reported_elsewhere(
    rows: SessionRows, changes: Sequence[HarnessChange]
) -> set[str]:
    listed = set()
    reported = set()
    for workload in rows.records:
        listed.add(workload.name)
        if workload.error:
            reported.add(workload.name)
    for change in changes:
        is_removed = (
            isinstance(change, HarnessRemoval) and change.workload not in listed
        )
        if is_removed or isinstance(change, UnfitHarness):
            reported.add(change.workload)
    return reported


def _missing_seals(
    rows: SessionRows, names: Collection[str], required: Required
) -> list[Missing]:
    """The seals that a side lacks, if it must prove that the code it ran stayed
    unchanged or the other side does.
    """
    if rows.provenance.is_recorded or not (required.sealed or any(rows.sealed)):
        return []
    side: MissingSide = "both"
    match rows.sealed:
        case (True, True):
            return []
        case (True, False):
            side = "head"
        case (False, True):
            side = "base"
    return [
        Missing(workload=name, metric=SEAL, side=side) for name in dict.fromkeys(names)
    ]
