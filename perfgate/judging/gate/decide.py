"""The decision: two run documents, a policy and the stored history in, one decision
document out.

A pure function: the same documents give the same bytes, on any machine, at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from perfgate.catalogue.lookup import CARDS
from perfgate.document.comparison import Comparison
from perfgate.document.decision import (
    ChecklistRows,
    DecisionDocument,
    EvidenceGaps,
    Explanations,
    Policy,
    Procedure,
    Verdict,
)
from perfgate.document.explanation import Cause
from perfgate.document.files import read_decision, read_run
from perfgate.document.history import History, read_history
from perfgate.document.message import Message
from perfgate.document.run import RunDocument
from perfgate.judging.gate.compare.checklist import compare_checklist
from perfgate.judging.gate.compare.counters import notes_on_settings, notes_on_varying
from perfgate.judging.gate.compare.head_rules import compare_rules
from perfgate.judging.gate.compare.jobs import compare_quantiles, notes_on_requests
from perfgate.judging.gate.compare.recordings import untimed_places
from perfgate.judging.gate.compare.session import SessionComparisons, compare_session
from perfgate.judging.gate.compare.stored import compare_stored
from perfgate.judging.gate.evidence.bounds import HeadNumbers, deciding_steps
from perfgate.judging.gate.evidence.changed_code import HeadCode
from perfgate.judging.gate.evidence.checklist import numbers_of_head
from perfgate.judging.gate.evidence.effect import start_luck_of
from perfgate.judging.gate.evidence.header import (
    DecisionHeader,
    check_session,
    failures_of,
    failures_of_both,
    header_of,
    header_of_head,
    header_of_unmeasured,
    uncounted,
    unknown_note,
)
from perfgate.judging.gate.evidence.index import Evidence, RunIndex
from perfgate.judging.gate.evidence.numbers import NumberTable, Rules
from perfgate.judging.gate.evidence.process import QUANTILE
from perfgate.judging.gate.evidence.session_rows import SessionRows
from perfgate.judging.gate.evidence.trusted import Required, numbers_of_jobs
from perfgate.judging.gate.evidence.work_table import WorkTable
from perfgate.judging.gate.explain.explain import changed_work, explain
from perfgate.judging.gate.explain.findings import Moves, judged_steps
from perfgate.judging.gate.explain.profiles import missing_profiles
from perfgate.judging.gate.paths import unmeasured
from perfgate.judging.gate.plan.harness import harness_changes
from perfgate.judging.gate.plan.missing import missing_evidence
from perfgate.judging.gate.verdict import VerdictBasis, verdict_of
from perfgate.version import __version__

PROCEDURE = "sequential-signed-rank"
PROCEDURE_VERSION = 1
PROCEDURE_ALONE = "rules"
# Of decisions without a measurement.
NO_PROCEDURE = "none"
NOTHING_REQUIRED = Required()


def judge_folder(folder: Path, *, policy: Policy | None) -> DecisionDocument:
    """Judge the documents of a check folder again, under its own settings: for trusted
    folders.

    Without a policy, the policy recorded in its decision.json is used.
    Raises DocumentError if a document is missing or damaged.
    """
    recorded = read_decision(folder / "decision.json")
    history = History()
    if (folder / "history.json").exists():
        history = read_history(folder / "history.json")
    return decide(
        read_run(folder / "base" / "run.json"),
        read_run(folder / "head" / "run.json"),
        policy=policy or recorded.procedure.policy,
        history=history,
        chosen_because=recorded.sides.base.chosen_because,
    )


def decide(
    base: RunDocument,
    head: RunDocument,
    *,
    policy: Policy,
    history: History,
    chosen_because: Message | None = None,
    required: Required = NOTHING_REQUIRED,
) -> DecisionDocument:
    """Judge head against base; ``required`` is the trusted side's requirements for
    both.

    Raises DocumentError if the two were not measured as the two sides of one session.
    """
    check_session(base, head)
    evidence = Evidence(base, head, start_luck_of(history.series))
    settled = unmeasured(evidence.head, required.changed, policy)
    if settled is not None:
        verdict, reason = settled
        return _document(
            header_of_unmeasured(base, head, chosen_because),
            policy,
            NO_PROCEDURE,
            verdict,
            [reason],
        )
    return _judge(
        evidence, header_of(evidence, chosen_because), policy, history, required
    )


def _judge(
    evidence: Evidence,
    header: DecisionHeader,
    policy: Policy,
    history: History,
    required: Required,
) -> DecisionDocument:
    """The decision on the evidence of both sides: what is missing, how they compare,
    why, and what follows.
    """
    numbers = NumberTable.of(
        evidence, Rules(policy, numbers_of_jobs(evidence, required.jobs))
    )
    work = WorkTable(evidence)
    rows = SessionRows(evidence, numbers, work, required, policy)

    deciding = deciding_steps(policy)
    broken = evidence.base.broken(deciding) - evidence.head.broken(deciding)
    sides = replace(
        header.sides,
        harness_changes=harness_changes(
            evidence.base.harness, evidence.head.harness, broken
        ),
    )
    missing = missing_evidence(
        rows, sides.harness_changes, required, policy, timed=sides.are_comparable
    )
    session = compare_session(numbers, work, sides, policy, history.accepted)
    comparisons = session.comparisons

    failures = failures_of_both(evidence, deciding)
    gaps = EvidenceGaps(failures=failures, invalid=session.invalid, missing=missing)
    untimed = untimed_places(work.recorded_places, comparisons)
    verdict, reasons = verdict_of(
        VerdictBasis(sides, comparisons, gaps, untimed, uncounted(evidence))
    )

    timeless = session.spoiled if sides.are_comparable else work.places
    is_acceptable = (
        verdict == "FAIL" and sides.comparing == "code" and not sides.head.dirty
    )
    changed = changed_work(work, comparisons, timeless)
    explained = explain(
        comparisons, changed, work.code, work.run_seconds, acceptable=is_acceptable
    )

    decision = _document(header, policy, PROCEDURE, verdict, reasons)
    return replace(
        decision,
        sides=sides,
        measured=replace(header.measured, noise_floors=session.floors),
        procedure=replace(decision.procedure, quantiles=[QUANTILE]),
        comparisons=explained.comparisons,
        gaps=gaps,
        checklist=_checklist(
            evidence, header, session, explained.record.causes, policy, history
        ),
        explained=explained.record,
        warnings=_notes(evidence, header, work, comparisons, verdict),
    )


def _checklist(
    evidence: Evidence,
    header: DecisionHeader,
    session: SessionComparisons,
    causes: Sequence[Cause],
    policy: Policy,
    history: History,
) -> ChecklistRows:
    numbers = compare_checklist(
        evidence.checklist, session.comparisons, policy, spoiled=session.spoiled
    )
    moves = Moves(numbers, session.comparisons, comparable=header.sides.are_comparable)
    return ChecklistRows(
        steps=judged_steps(header.steps, evidence.base.steps, numbers, moves, causes),
        numbers=numbers,
        job_quantiles=compare_quantiles(evidence.jobs.values()),
        stored=compare_stored(numbers_of_head(evidence.head.run), history),
    )


def _notes(
    evidence: Evidence,
    header: DecisionHeader,
    work: WorkTable,
    comparisons: Sequence[Comparison],
    verdict: Verdict,
) -> list[Message]:
    return [
        *unknown_note(evidence),
        *notes_on_settings(comparisons, verdict),
        *notes_on_varying(work.counters),
        *header.warnings,
        *notes_on_requests(work.jobs.values()),
        *missing_profiles(work.jobs.values(), comparisons),
    ]


def decide_alone(head: RunDocument, *, policy: Policy) -> DecisionDocument:
    """Judge one run, measured or recorded, by the rules without a base: its check,
    budgets, limits, expected kernels.
    """
    header = header_of_head(head)
    sides = replace(header.sides, comparing="rules")
    comparisons = compare_rules(
        HeadNumbers.of(None, RunIndex(head), policy), policy.kernels
    )
    gaps = EvidenceGaps(failures=failures_of(head, "head", frozenset(CARDS)))
    verdict, reasons = verdict_of(VerdictBasis(sides, comparisons, gaps))
    explained = explain(comparisons, Explanations(), HeadCode(), {}, acceptable=False)
    return replace(
        _document(header, policy, PROCEDURE_ALONE, verdict, reasons),
        sides=sides,
        comparisons=explained.comparisons,
        gaps=gaps,
        explained=explained.record,
    )


def _document(
    header: DecisionHeader,
    policy: Policy,
    procedure: str,
    verdict: Verdict,
    reasons: list[Message],
) -> DecisionDocument:
    """A decision without evidence."""
    return DecisionDocument(
        perfgate_version=__version__,
        project=header.project,
        verdict=verdict,
        reasons=reasons,
        sides=header.sides,
        measured=header.measured,
        procedure=Procedure(
            name=procedure,
            version=PROCEDURE_VERSION,
            seed=header.seed,
            quantiles=[],
            policy=policy,
        ),
        checklist=ChecklistRows(steps=header.steps),
        warnings=header.warnings,
    )
