"""The decision: two run documents, a policy and the stored history in, one decision document out.

A pure function: the same documents give the same bytes, on any machine, at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from perfgate.catalogue.lookup import CARDS
from perfgate.document.comparison import Bound, Checked, Comparison
from perfgate.document.decision import (
    ChecklistRows,
    ComparedSides,
    Comparing,
    DecisionDocument,
    EvidenceGaps,
    Measurement,
    Policy,
    Procedure,
    SideSummary,
    Verdict,
)
from perfgate.document.explanation import OperatorDelta
from perfgate.document.files import content_sha256, read_decision, read_run
from perfgate.document.history import History, read_history
from perfgate.document.message import Message
from perfgate.document.run import FROM_PROFILE, RunDocument
from perfgate.document.testbed import IDENTITY
from perfgate.errors import DocumentError
from perfgate.judging.gate.compare.alpha import AlphaShares, subjects_of
from perfgate.judging.gate.compare.checklist import compare_checklist
from perfgate.judging.gate.compare.comparison import not_compared, with_accepted
from perfgate.judging.gate.compare.counters import notes_on_varying
from perfgate.judging.gate.compare.head_rules import compare_rules
from perfgate.judging.gate.compare.implied_numbers import waited_of_jobs
from perfgate.judging.gate.compare.jobs import compare_quantiles, notes_on_requests
from perfgate.judging.gate.compare.operators import compare_operators
from perfgate.judging.gate.compare.recordings import recorded_times, untimed_places
from perfgate.judging.gate.compare.settings import notes_on_settings
from perfgate.judging.gate.compare.sides import compare_sides, set_aside
from perfgate.judging.gate.compare.stored import compare_stored
from perfgate.judging.gate.evidence.bounds import deciding_steps
from perfgate.judging.gate.evidence.fast_path import QUANTILE
from perfgate.judging.gate.evidence.index import Evidence, RunIndex
from perfgate.judging.gate.evidence.operating_point import power_cap
from perfgate.judging.gate.evidence.start_luck import start_luck_of
from perfgate.judging.gate.evidence.trusted import Required, numbers_of_jobs
from perfgate.judging.gate.evidence.undisturbed import waited_share
from perfgate.judging.gate.evidence.unknown import unknown_note
from perfgate.judging.gate.evidence.values import rounded_if_known
from perfgate.judging.gate.explain.causes import with_causes
from perfgate.judging.gate.explain.contributions import explanations
from perfgate.judging.gate.explain.findings import with_findings
from perfgate.judging.gate.explain.operator_changes import operator_changes, replaced_operators
from perfgate.judging.gate.explain.operator_table import joined, operator_times
from perfgate.judging.gate.explain.profiles import explain_jobs, missing_profiles
from perfgate.judging.gate.explain.regressions import with_regressions
from perfgate.judging.gate.plan.harness import harness_changes
from perfgate.judging.gate.plan.missing import missing_evidence
from perfgate.judging.gate.sides import (
    duration_of,
    failures_of,
    failures_of_both,
    kept_files,
    notes_of_sides,
    package_differences,
    side_of,
    summarize_steps,
    testbed_differences,
)
from perfgate.judging.gate.unmeasured import unmeasured
from perfgate.judging.gate.verdict import VerdictBasis, verdict_of
from perfgate.version import __version__

PROCEDURE = "sequential-signed-rank"
PROCEDURE_VERSION = 1
PROCEDURE_ALONE = "rules"
# Of decisions without a measurement.
NO_PROCEDURE = "none"
NOTHING_REQUIRED = Required()


def judge_folder(folder: Path, *, policy: Policy | None = None) -> DecisionDocument:
    """Judge the documents of a check folder again, under its own settings: for trusted folders.

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
    """Judge head against base; ``required`` is the trusted side's requirements for both.

    Raises DocumentError if the two were not measured as the two sides of one session.
    """
    _check_session(base, head)
    settled = unmeasured(head, required.changed, policy)
    if settled is not None:
        return _unmeasured(base, head, policy, settled, chosen_because)
    evidence = Evidence(base, head, start_luck_of(history.series))
    comparing = _comparing(base, head)
    differences = testbed_differences(base, head)
    is_comparable = comparing == "stack" or not differences
    changes = harness_changes(base, head)
    missing = missing_evidence(evidence, changes, required, policy, timed=is_comparable)
    shares = AlphaShares.of_subjects(policy, subjects=subjects_of(head))
    session = compare_sides(evidence, policy, shares, numbers_of_jobs(evidence, required.jobs))
    comparisons = session.comparisons
    if not is_comparable:
        comparisons = _of_head_alone(comparisons)
    comparisons = [*comparisons, *not_compared(head, changes)]
    comparisons = with_accepted(comparisons, head.source, history.accepted)
    if evidence.recorded and not differences:
        comparisons += recorded_times(evidence)
    basis = VerdictBasis(
        comparing=comparing,
        comparisons=comparisons,
        failures=failures_of_both(base, head, deciding_steps(policy)),
        differences=differences,
        invalid=session.invalid,
        changes=changes,
        missing=missing,
        untimed=untimed_places(evidence, comparisons) if evidence.recorded else [],
        uncounted=_uncounted(base, head),
    )
    decision = _with_base(_document(head, policy, basis), evidence, chosen_because)
    decision = _with_operators(decision, evidence, timed=is_comparable)
    checklist = ChecklistRows(
        steps=decision.checklist.steps,
        numbers=compare_checklist(evidence, comparisons, policy, invalid=session.invalid),
        job_quantiles=compare_quantiles(evidence),
        stored=compare_stored(head, history),
    )
    measured = replace(decision.measured, noise_floors=session.floors)
    decision = replace(decision, checklist=checklist, measured=measured, warnings=_notes(evidence, decision))
    return with_findings(with_regressions(with_causes(decision, base, head)), base)


def _of_head_alone(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The comparisons of different testbeds: only the head's own rules hold."""
    reason = Message("gate.testbeds-differ")
    remaining: list[Comparison] = []
    for comparison in comparisons:
        if isinstance(comparison, (Bound, Checked)):
            remaining.append(comparison)
        else:
            remaining.append(set_aside(comparison, reason))
    return remaining


def _check_session(base: RunDocument, head: RunDocument) -> None:
    if base.pairs.replicates and base.session.id != head.session.id:
        raise DocumentError(
            "the pairs of these two runs come from different sessions ({base}, {head}), so they were not measured "
            "side by side; judge the two run.json of one check folder",
            base=base.session.id,
            head=head.session.id,
        )


def _uncounted(base: RunDocument, head: RunDocument) -> list[Message]:
    """The reasons that a recording has no counts, by side."""
    reasons = []
    for side, run in (("head", head), ("base", base)):
        for note in run.warnings:
            if note.code == "notes.nothing-counted":
                reasons.append(Message("verdict.about", {"place": side, "what": note}))
    return reasons


def _with_base(decision: DecisionDocument, evidence: Evidence, chosen_because: Message | None) -> DecisionDocument:
    """The decision with the base, and how both sides were measured."""
    base, head = evidence.runs
    sides = replace(
        decision.sides,
        base=side_of(base.source, chosen_because, sha256=content_sha256(base)),
        package_differences=package_differences(base.testbed.environment, head.testbed.environment),
    )
    rounds = [len(head.session.earlier), *(replicate.round for replicate in head.pairs.replicates)]
    measured = replace(
        decision.measured,
        links=kept_files(base, "base") + kept_files(head, "head"),
        pairs=_pairs(head),
        rounds=1 + max(rounds),
        waited=_waited(evidence),
        power_cap=power_cap(base.pairs.replicates, head.pairs.replicates),
        unmoved=sorted(evidence.kept_layout),
        recorded=evidence.recorded,
    )
    procedure = replace(decision.procedure, name=PROCEDURE, version=PROCEDURE_VERSION, quantiles=[QUANTILE])
    return replace(decision, sides=sides, measured=measured, procedure=procedure)


def _with_operators(decision: DecisionDocument, evidence: Evidence, *, timed: bool) -> DecisionDocument:
    """The decision with operators and explanations; their times only if the sides are comparable (``timed``)."""
    invalid = decision.gaps.invalid
    tests: list[OperatorDelta] = []
    if timed:
        tests = compare_operators(evidence, invalid=invalid)
    explained = explain_jobs(evidence, decision.comparisons)
    if not evidence.recorded:
        explained = [*explanations(evidence, decision.comparisons, tests, invalid=invalid), *explained]
    times: list[OperatorDelta] = []
    if timed:
        times = operator_times(evidence, tests, explained, invalid=invalid)
    explanation = replace(
        decision.explained,
        operators=joined(operator_changes(evidence), tests, times),
        explanations=explained,
        replaced=replaced_operators(evidence),
    )
    return replace(decision, explained=explanation)


def _notes(evidence: Evidence, decision: DecisionDocument) -> list[Message]:
    base, head = evidence.runs
    return [
        *unknown_note(base, head),
        *notes_on_settings(decision.comparisons, decision.verdict),
        *notes_on_varying(evidence),
        *notes_of_sides(base, head),
        *notes_on_requests(evidence),
        *missing_profiles(evidence, decision.comparisons),
    ]


def _pairs(head: RunDocument) -> int:
    """The pairs of the workload that has most."""
    pairs = Counter(replicate.workload for replicate in head.pairs.replicates if replicate.arm == "ab")
    return max([pairs[workload.name] for workload in head.workloads], default=0)


def _waited(evidence: Evidence) -> float | None:
    """The share of the measured time in which workers, or else threads of jobs, waited for a CPU."""
    blocks = []
    for run in evidence.runs:
        for replicate in run.pairs.replicates:
            blocks += [columns for _, columns in replicate.lanes]
    waited = waited_share(blocks)
    if waited is None:
        waited = waited_of_jobs(evidence)
    return rounded_if_known(waited)


def _unmeasured(
    base: RunDocument,
    head: RunDocument,
    policy: Policy,
    settled: tuple[Verdict, Message],
    chosen_because: Message | None,
) -> DecisionDocument:
    """The decision on a change that was not measured."""
    verdict, reason = settled
    decision = _document(head, policy, VerdictBasis("code"))
    return replace(
        decision,
        verdict=verdict,
        reasons=[reason],
        sides=replace(decision.sides, base=side_of(base.source, chosen_because, sha256=content_sha256(base))),
        procedure=replace(decision.procedure, name=NO_PROCEDURE),
        warnings=notes_of_sides(base, head),
    )


def decide_alone(head: RunDocument, *, policy: Policy) -> DecisionDocument:
    """Judge one run, measured or recorded, by the rules without a base: its check, budgets, limits, expected kernels."""
    comparisons = compare_rules(None, RunIndex(head), policy)
    failures = failures_of(head, "head", frozenset(CARDS))
    return with_regressions(_document(head, policy, VerdictBasis("rules", comparisons, failures)))


def _document(head: RunDocument, policy: Policy, basis: VerdictBasis) -> DecisionDocument:
    """The decision with its verdict and the fields about the head."""
    verdict, reasons = verdict_of(basis)
    commit = head.source.commit
    ci = head.session.ci
    reviewed = None
    if commit and ci is not None and ci.head_sha != commit:
        reviewed = ci.head_sha
    return DecisionDocument(
        perfgate_version=__version__,
        project=head.project,
        sides=ComparedSides(
            comparing=basis.comparing,
            base=SideSummary(),
            head=replace(side_of(head.source, sha256=content_sha256(head)), reviewed=reviewed),
            testbed_differences=basis.differences,
            harness_changes=basis.changes,
        ),
        verdict=verdict,
        reasons=reasons,
        measured=Measurement(
            device=head.testbed.comparable.get("device.name", head.testbed.device_kind),
            machine=head.testbed.observed.get(IDENTITY) or head.testbed.observed.get("host", ""),
            coverage=head.source.coverage,
            links=kept_files(head, "head"),
            recorded=head.session.command == FROM_PROFILE,
            in_ci=head.session.ci is not None,
            duration=duration_of(head),
        ),
        procedure=Procedure(name=PROCEDURE_ALONE, version=1, seed=head.session.seed, quantiles=[], policy=policy),
        comparisons=basis.comparisons,
        gaps=EvidenceGaps(invalid=basis.invalid, missing=basis.missing, failures=basis.failures),
        checklist=ChecklistRows(steps=summarize_steps(head)),
        warnings=head.warnings,
    )


def _comparing(base: RunDocument, head: RunDocument) -> Comparing:
    """The subject of the comparison: code, or in an upgrade report the stacks under the same code.

    Raises DocumentError if a document calls itself an upgrade report and its sides are of two commits: such a report cannot
    fail, so a change must not be able to hide in one.
    """
    if head.session.command != "upgrade":
        return "code"
    if base.source.commit is None or base.source.commit != head.source.commit or head.source.dirty:
        raise DocumentError(
            "an upgrade report has the same commit on both sides, and these are of two; use perfgate check"
        )
    return "stack"
