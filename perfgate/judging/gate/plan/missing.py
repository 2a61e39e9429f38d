"""The evidence that a verdict needs and the documents lack: the plan of every workload and job, less the rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from perfgate.document.budget import judges_subroutines
from perfgate.document.decision import HarnessChange, HarnessRemoval, Missing, Policy, UnfitHarness
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.job_rows import rows_of_job
from perfgate.judging.gate.evidence.rows import SEAL, Row, RowTable, SideTables, rows_of_workloads
from perfgate.judging.gate.evidence.trusted import Required, RequiredJob
from perfgate.judging.gate.plan.difference import EvidencePlan
from perfgate.judging.gate.plan.jobs import JobPlan, settings_of
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
    base, head = evidence.runs
    workloads = _workload_names(evidence, required.workloads)
    missing = _missing_seals(evidence, [*workloads, *_job_names(evidence, required.jobs)], required)
    reported = _reported_elsewhere(evidence, changes)
    # The verdict gives the reason why these have no times.
    untimed = {pair.workload for pair in head.pairs.failed if pair.error.lacks_time_for_pairs}
    profiles = judges_subroutines(policy.tolerances)
    of_base = rows_of_workloads(base, "base", profiles=profiles)
    of_head = rows_of_workloads(head, "head", profiles=profiles)
    for name in workloads:
        if name not in reported:
            plan = WorkloadPlan(name, evidence, SideTables(of_base[name], of_head[name]), required, policy)
            plan.require_evidence(timed=timed and name not in untimed)
            missing += plan.missing()
    failed = {pair.workload for pair in head.pairs.failed}
    trusted = required.jobs if timed else {}
    for name in _job_names(evidence, trusted):
        if name not in failed:
            missing += _missing_of_job(name, evidence, trusted.get(name))
    return missing


def _missing_of_job(name: str, evidence: Evidence, required: RequiredJob | None) -> list[Missing]:
    settings = settings_of(name, evidence, required)
    work = required.work if required is not None else ()
    base, head = evidence.runs
    tables = SideTables(rows_of_job(base, name, settings, work), rows_of_job(head, name, settings, work))
    plan = JobPlan(name, evidence, tables, required, settings)
    plan.require_evidence()
    return plan.missing()


def _workload_names(evidence: Evidence, required: Iterable[str]) -> list[str]:
    names = list(required)
    for run in evidence.runs:
        names += [workload.name for workload in run.workloads]
        names += [replicate.workload for replicate in run.pairs.replicates]
        names += [counters.workload for counters in run.checklist.counters]
        names += [check.workload for check in run.checklist.correctness]
        names += [step.workload for step in run.checklist.steps]
    return list(dict.fromkeys(names))


def _job_names(evidence: Evidence, required: Iterable[str]) -> list[str]:
    names = list(required)
    for run in evidence.runs:
        names += [job.name for job in run.jobs.records]
    names += [turn.workload for turn in evidence.base.run.jobs.turns]
    return list(dict.fromkeys(names))


def _reported_elsewhere(evidence: Evidence, changes: Sequence[HarnessChange]) -> set[str]:
    base, head = evidence.runs
    workloads = (*base.workloads, *head.workloads)
    listed = {workload.name for workload in workloads}
    reported = {workload.name for workload in workloads if workload.error}
    for change in changes:
        if isinstance(change, UnfitHarness) or (isinstance(change, HarnessRemoval) and change.workload not in listed):
            reported.add(change.workload)
    return reported


def _missing_seals(evidence: Evidence, names: Collection[str], required: Required) -> list[Missing]:
    """The seals that a side lacks, if it must prove that the code it ran stayed unchanged or the other side does."""
    has_any = any(run.source.seal is not None for run in evidence.runs)
    if evidence.recorded or not (required.sealed or has_any):
        return []
    plan = EvidencePlan(SideTables(RowTable(), RowTable()))
    for name in names:
        row = Row(name, "", SEAL)
        for table, run in zip(plan.tables, evidence.runs):
            if run.source.seal is not None:
                table.add(row)
        plan.require(row)
    return plan.missing()
