"""The evidence that a verdict needs and the documents lack: the plan of every workload and job, less the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from perfgate.document.budget import judges_subroutines
from perfgate.document.decision import HarnessChange, Missing, Policy
from perfgate.document.run import Side
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.job_rows import rows_of_job
from perfgate.judging.gate.evidence.rows import SEAL, Expected, Row, RowTable, rows_of_workloads
from perfgate.judging.gate.evidence.trusted import Required, RequiredJob
from perfgate.judging.gate.plan.difference import SIDES, Requirement, missing_rows, on_both_sides
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
    that the change removed, or that the base cannot run.
    """
    workloads = _workload_names(evidence, required)
    missing = _missing_seals(evidence, [*workloads, *_job_names(evidence, required)], required)
    elsewhere = _reported_elsewhere(evidence, changes)
    # The verdict gives the reason why these have no times.
    untimed = {pair.workload for pair in evidence.head.run.failed_pairs if pair.error.is_of_slow_calls}
    profiles = judges_subroutines(policy.tolerances)
    rows = [rows_of_workloads(run, side, profiles=profiles) for side, run in zip(SIDES, evidence.runs)]
    for name in workloads:
        if name not in elsewhere:
            tables: dict[Side, RowTable] = {side: of_side[name] for side, of_side in zip(SIDES, rows)}
            plan = WorkloadPlan(name, evidence, tables, required, policy)
            missing += missing_rows(plan.requirements(timed=timed and name not in untimed), tables)
    return missing + _missing_of_jobs(evidence, required, timed=timed)


def _missing_of_jobs(evidence: Evidence, required: Required, *, timed: bool) -> list[Missing]:
    """The missing rows of jobs. Turns that failed are reported as that."""
    missing: list[Missing] = []
    failed = {pair.workload for pair in evidence.head.run.failed_pairs}
    trusted = required.jobs if timed else {}
    for name in _job_names(evidence, required if timed else Required()):
        if name not in failed:
            missing += _missing_of_job(name, evidence, trusted.get(name))
    return missing


def _missing_of_job(name: str, evidence: Evidence, required: RequiredJob | None) -> list[Missing]:
    settings = settings_of(name, evidence, required)
    work = required.work if required is not None else ()
    tables = {side: rows_of_job(run, name, settings, work) for side, run in zip(SIDES, evidence.runs)}
    plan = JobPlan(name, evidence, tables, required, settings)
    return missing_rows(plan.requirements(), tables)


def _workload_names(evidence: Evidence, required: Required) -> list[str]:
    names = [*required.workloads]
    for run in evidence.runs:
        names += [workload.name for workload in run.workloads]
        names += [replicate.workload for replicate in run.replicates]
        names += [counters.workload for counters in run.counters]
        names += [check.workload for check in run.correctness]
        names += [step.workload for step in run.steps]
    return list(dict.fromkeys(names))


def _job_names(evidence: Evidence, required: Required) -> list[str]:
    names = [*required.jobs]
    for run in evidence.runs:
        names += [job.name for job in run.jobs]
    names += [turn.workload for turn in evidence.base.run.turns]
    return list(dict.fromkeys(names))


def _reported_elsewhere(evidence: Evidence, changes: Sequence[HarnessChange]) -> set[str]:
    base, head = evidence.runs
    workloads = [*base.workloads, *head.workloads]
    failed = {workload.name for workload in workloads if workload.error}
    not_comparable = {change.workload for change in changes if change.kind == "not_comparable"}
    removed = {change.workload for change in changes if change.kind == "removed"}
    return failed | not_comparable | (removed - {workload.name for workload in workloads})


def _missing_seals(evidence: Evidence, names: Iterable[str], required: Required) -> list[Missing]:
    """The seals that a side lacks, if it must prove that the code it ran stayed unchanged or the other side does."""
    has_any = any(run.seal is not None for run in evidence.runs)
    if evidence.recorded or not (required.sealed or has_any):
        return []
    tables: dict[Side, RowTable] = {"base": RowTable(), "head": RowTable()}
    rows = [Row(name, "", SEAL) for name in names]
    for table, run in zip(tables.values(), evidence.runs):
        for row in rows if run.seal is not None else ():
            table.add(row)
    return missing_rows(_all(rows), tables)


def _all(rows: Iterable[Row]) -> Iterator[Requirement]:
    for row in rows:
        yield from on_both_sides([Expected(row)])
