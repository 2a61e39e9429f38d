"""The evidence that a verdict needs and the documents lack: the plan of every workload and job, less the rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from perfgate.document.budget import judges_subroutines
from perfgate.document.decision import HarnessChange, HarnessRemoval, Missing, Policy, UnfitHarness
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.rows import SEAL, Row, RowTable, SideTables, rows_of_workloads
from perfgate.judging.gate.evidence.trusted import Required, RequiredJob
from perfgate.judging.gate.plan.difference import EvidencePlan
from perfgate.judging.gate.plan.jobs import JobPlan
from perfgate.judging.gate.plan.workloads import WorkloadPlan


def missing_evidence(
    evidence: Evidence,
    changes: Sequence[HarnessChange],
    required: Required,
    policy: Policy,
    *,
    timed: bool,
) -> list[Missing]:
    """The missing rows of both documents, by name. Omitted evidence never improves a verdict.

    ``timed`` is False if the sides cannot be compared by time, which is reported elsewhere, as are workloads that fail to load,
    that the change removed, or that the base cannot run, and turns that failed.
    """
    workloads = list(dict.fromkeys([*required.workloads, *evidence.workload_names]))
    missing = _missing_seals(evidence, [*workloads, *_job_names(evidence, required.jobs)], required)
    reported = _reported_elsewhere(evidence, changes)
    failed = set()
    untimed = set()
    for pair in evidence.head.failed:
        failed.add(pair.workload)
        # The verdict gives the reason why these have no times.
        if pair.error.lacks_time_for_pairs:
            untimed.add(pair.workload)
    profiles = judges_subroutines(policy.tolerances)
    of_base = rows_of_workloads(evidence.base, "base", profiles=profiles)
    of_head = rows_of_workloads(evidence.head, "head", profiles=profiles)
    for name in workloads:
        if name not in reported:
            plan = WorkloadPlan(name, evidence, SideTables(of_base[name], of_head[name]), required, policy)
            plan.require_evidence(timed=timed and name not in untimed)
            missing += plan.missing()
    trusted: Mapping[str, RequiredJob] = {}
    if timed:
        trusted = required.jobs
    for name in _job_names(evidence, trusted):
        if name not in failed:
            plan_of_job = JobPlan(name, evidence, trusted.get(name))
            plan_of_job.require_evidence()
            missing += plan_of_job.missing()
    return missing


def _job_names(evidence: Evidence, required: Iterable[str]) -> list[str]:
    names = dict.fromkeys(required)
    for index in evidence.sides:
        names |= dict.fromkeys(job.name for job in index.records)
    names |= dict.fromkeys(evidence.base.turns)
    return list(names)


def _reported_elsewhere(evidence: Evidence, changes: Sequence[HarnessChange]) -> set[str]:
    listed = set()
    reported = set()
    for workload in (*evidence.base.workloads, *evidence.head.workloads):
        listed.add(workload.name)
        if workload.error:
            reported.add(workload.name)
    for change in changes:
        if isinstance(change, UnfitHarness) or (isinstance(change, HarnessRemoval) and change.workload not in listed):
            reported.add(change.workload)
    return reported


def _missing_seals(evidence: Evidence, names: Collection[str], required: Required) -> list[Missing]:
    """The seals that a side lacks, if it must prove that the code it ran stayed unchanged or the other side does."""
    plan = EvidencePlan(SideTables(RowTable(), RowTable()))
    is_sealed = required.sealed
    for table, index in zip(plan.tables, evidence.sides):
        if index.is_sealed:
            is_sealed = True
            for name in names:
                table.add(Row(name, "", SEAL))
    if evidence.recorded or not is_sealed:
        return []
    for name in names:
        plan.require(Row(name, "", SEAL))
    return plan.missing()
