"""The decision: two run documents, a policy and the stored history in, one decision document out.

A pure function: the same documents give the same bytes, on any machine, at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import datetime
from pathlib import Path

import msgspec

from perfgate.catalogue.lookup import CARDS, MUST_DECIDE
from perfgate.catalogue.names import LOW_PRECISION_OPS
from perfgate.document.budget import judges_subroutines
from perfgate.document.decision import (
    RULE_METHODS,
    Comparing,
    Comparison,
    DecisionDocument,
    Failure,
    Invalid,
    NoiseFloor,
    PackageDifference,
    Policy,
    Procedure,
    SideSummary,
    TestbedDifference,
    Verdict,
)
from perfgate.document.files import content_sha256, read_decision, read_run
from perfgate.document.history import History, read_history
from perfgate.document.message import Message
from perfgate.document.run import FROM_PROFILE, Artifact, ErrorDetail, FailedPair, RunDocument, Side, Source
from perfgate.document.testbed import Environment
from perfgate.errors import DocumentError
from perfgate.judging.gate.alpha import AlphaShares, subjects_of
from perfgate.judging.gate.causes import with_causes
from perfgate.judging.gate.checklist import compare_checklist
from perfgate.judging.gate.clean import waited_share
from perfgate.judging.gate.comparison import margins_for_unchanged, rounded, with_accepted, worsening
from perfgate.judging.gate.contributions import explanations
from perfgate.judging.gate.costless import fails_alone, with_costless
from perfgate.judging.gate.counters import (
    compare_counters,
    is_differing_count,
    notes_on_varying,
    operator_changes,
    replaced_operators,
)
from perfgate.judging.gate.covering import waited_of_jobs
from perfgate.judging.gate.evidence import Evidence, RunIndex, of_workload
from perfgate.judging.gate.findings import with_findings
from perfgate.judging.gate.harness import harness_changes, not_compared
from perfgate.judging.gate.operators import compare_operators, joined, judge_subroutines, operator_times
from perfgate.judging.gate.pairs import QUANTILE
from perfgate.judging.gate.profiles import explain_jobs, missing_profiles
from perfgate.judging.gate.recordings import compare_kernel_times, recorded_times, untimed_places
from perfgate.judging.gate.regressions import with_regressions
from perfgate.judging.gate.repeated import compare_repeated, repeated_metrics
from perfgate.judging.gate.required import Required, missing_evidence
from perfgate.judging.gate.required_jobs import TrustedNumbers, numbers_of_jobs
from perfgate.judging.gate.rule import MOST_PAIRS, leans_slower
from perfgate.judging.gate.rules import compare_rules, deciding_steps
from perfgate.judging.gate.servers import notes_on_requests
from perfgate.judging.gate.settings import compare_settings, notes_on_settings
from perfgate.judging.gate.steps import summarize_steps
from perfgate.judging.gate.stored import compare_stored
from perfgate.judging.gate.stretches import FAMILY as STRETCH
from perfgate.judging.gate.stretches import compare_stretches, more_calls_would_help
from perfgate.judging.gate.time import compare_time, noise_floors
from perfgate.judging.gate.turn_evidence import invalid_turns, missing_turns
from perfgate.judging.gate.turns import compare_quantiles, compare_turns
from perfgate.judging.gate.unknown import unknown_note
from perfgate.judging.gate.unmeasured import unmeasured
from perfgate.judging.gate.validity import invalid_times
from perfgate.judging.gate.verdict import verdict_of, verdict_rules
from perfgate.version import __version__

PROCEDURE = "sequential-signed-rank"
PROCEDURE_VERSION = 1
PROCEDURE_ALONE = "rules"
# Of decisions without a measurement.
NO_PROCEDURE = "none"
NOTHING_REQUIRED = Required()


def judge_folder(folder: Path, *, policy: Policy | None = None) -> DecisionDocument:
    """Judge the documents of a check folder again, under its own settings: for trusted folders.

    Without a policy the one recorded in its decision.json is used. Raises DocumentError if a document is missing or damaged.
    """
    recorded = read_decision(folder / "decision.json")
    history_path = folder / "history.json"
    history = read_history(history_path) if history_path.exists() else History()
    return decide(
        read_run(folder / "base" / "run.json"),
        read_run(folder / "head" / "run.json"),
        policy=policy or recorded.policy,
        history=history,
        chosen_because=recorded.base.chosen_because,
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
    if base.replicates and base.session.id != head.session.id:
        raise DocumentError(
            "the pairs of these two runs come from different sessions ({base}, {head}), so they were not measured "
            "side by side; judge the two run.json of one check folder",
            base=base.session.id,
            head=head.session.id,
        )
    not_measured = unmeasured(head, required.changed, policy)
    if not_measured is not None:
        verdict, reason = not_measured
        return _unmeasured(base, head, policy, verdict, reason, chosen_because)
    evidence, comparing = Evidence(base, head), _comparing(base, head)
    differences = _testbed_differences(base, head)
    incomparable = bool(differences) and comparing == "code"
    changes = harness_changes(base, head)
    shares = _shares(policy, subjects=subjects_of(head))
    comparisons, floors, invalid = _compare(evidence, policy, shares, numbers_of_jobs(evidence, required.jobs))
    if incomparable:
        reason = Message("gate.testbeds-differ")
        comparisons = [
            comparison
            if comparison.method in {"check", *RULE_METHODS}
            else msgspec.structs.replace(comparison, outcome="not_comparable", gating=False, reason=reason)
            for comparison in comparisons
        ]
    comparisons += not_compared(head, changes)
    comparisons = with_accepted(comparisons, head.source, history.accepted)
    if evidence.recorded and not differences:
        comparisons += recorded_times(evidence)
    deciding = deciding_steps(policy)
    failures = [*_failures(base, "base", deciding), *_failures(head, "head", deciding)]
    failures += [
        Failure(
            side=failed.side or "pair",
            workload=failed.workload,
            what=_what_failed(failed),
            error=failed.error,
        )
        for failed in head.failed_pairs
    ]
    tests = [] if incomparable else compare_operators(evidence, invalid=invalid)
    explained = [] if evidence.recorded else explanations(evidence, comparisons, tests, invalid=invalid)
    explained += explain_jobs(evidence, comparisons)
    missing = missing_evidence(evidence, changes, required, policy, timed=not incomparable)
    missing += missing_turns(evidence, {} if incomparable else required.jobs)
    not_timed = untimed_places(evidence, comparisons) if evidence.recorded else []
    verdict, reasons = verdict_of(
        verdict_rules(
            comparisons,
            differences,
            invalid,
            failures,
            changes,
            missing,
            comparing,
            not_timed=not_timed,
            # Why nothing was counted in a recording, by side.
            uncounted=[
                Message("verdict.about", {"place": side, "what": note})
                for side, run in (("head", head), ("base", base))
                for note in run.warnings
                if note.code == "notes.nothing-counted"
            ],
        )
    )
    waited = waited_share(columns for run in (base, head) for r in run.replicates for _, columns in r.lanes)
    waited = waited_of_jobs(evidence) if waited is None else waited
    decision = msgspec.structs.replace(
        _document(head, policy, comparing, verdict, reasons, comparisons, failures),
        base=side_of(base.source, chosen_because, sha256=content_sha256(base)),
        procedure=Procedure(name=PROCEDURE, version=PROCEDURE_VERSION, seed=head.session.seed, quantiles=[QUANTILE]),
        checklist=compare_checklist(evidence, comparisons, policy, invalid=invalid),
        quantiles=compare_quantiles(evidence),
        stored=compare_stored(head, history),
        noise_floors=floors,
        testbed_differences=differences,
        package_differences=_package_differences(base.environment, head.environment),
        harness_changes=changes,
        invalid=invalid,
        missing=missing,
        operators=joined(
            operator_changes(evidence),
            tests,
            [] if incomparable else operator_times(evidence, tests, explained, invalid=invalid),
        ),
        explanations=explained,
        links=_links(base, "base") + _links(head, "head"),
        warnings=[
            *unknown_note(base, head),
            *notes_on_settings(comparisons, verdict),
            *notes_on_varying(evidence),
            *_warnings(base, head),
            *notes_on_requests(evidence),
            *missing_profiles(evidence, comparisons),
        ],
        pairs=max(
            (
                sum(replicate.arm == "ab" and replicate.workload == workload.name for replicate in head.replicates)
                for workload in head.workloads
            ),
            default=0,
        ),
        waited=None if waited is None else rounded(waited),
        unmoved=sorted(evidence.kept_layout),
        recorded=evidence.recorded,
        replaced=replaced_operators(evidence),
        rounds=1 + max([len(head.earlier_sessions), *(replicate.round for replicate in head.replicates)]),
    )
    return with_findings(with_regressions(with_causes(decision, base, head)), base, head)


def _unmeasured(
    base: RunDocument,
    head: RunDocument,
    policy: Policy,
    verdict: Verdict,
    reason: Message,
    chosen_because: Message | None,
) -> DecisionDocument:
    """The decision on a change of which nothing was measured."""
    return msgspec.structs.replace(
        _document(head, policy, "code", verdict, [reason], [], []),
        base=side_of(base.source, chosen_because, sha256=content_sha256(base)),
        procedure=Procedure(name=NO_PROCEDURE, version=1, seed=head.session.seed, quantiles=[]),
        warnings=_warnings(base, head),
    )


def decide_alone(head: RunDocument, *, policy: Policy) -> DecisionDocument:
    """Judge one run, measured or recorded, by the rules without a base: its check, budgets, limits, expected kernels."""
    comparisons = compare_rules(None, RunIndex(head), policy)
    failures = _failures(head, "head", frozenset(CARDS))
    verdict, reasons = verdict_of(verdict_rules(comparisons, [], [], failures, [], [], "rules", not_timed=[]))
    return with_regressions(_document(head, policy, "rules", verdict, reasons, comparisons, failures))


def _document(
    head: RunDocument,
    policy: Policy,
    comparing: Comparing,
    verdict: Verdict,
    reasons: list[Message],
    comparisons: list[Comparison],
    failures: list[Failure],
) -> DecisionDocument:
    """The decision about a single run without a base."""
    commit = head.source.commit
    under_review = head.session.ci.head_sha if head.session.ci and commit else None
    reviewed = under_review if under_review != commit else None
    return DecisionDocument(
        perfgate_version=__version__,
        project=head.project,
        comparing=comparing,
        verdict=verdict,
        reasons=reasons,
        base=SideSummary(),
        head=msgspec.structs.replace(side_of(head.source, sha256=content_sha256(head)), reviewed=reviewed),
        device=head.testbed.comparable.get("device.name", head.testbed.device_kind),
        policy=policy,
        procedure=Procedure(name=PROCEDURE_ALONE, version=1, seed=head.session.seed, quantiles=[]),
        comparisons=comparisons,
        steps=summarize_steps(head),
        failures=failures,
        coverage=head.coverage,
        links=_links(head, "head"),
        warnings=head.warnings,
        recorded=head.session.command == FROM_PROFILE,
        in_ci=head.session.ci is not None,
        duration=_duration(head),
    )


def _compare(
    evidence: Evidence,
    policy: Policy,
    shares: AlphaShares,
    numbers: Mapping[str, TrustedNumbers],
    *,
    interim: bool = False,
) -> tuple[list[Comparison], list[NoiseFloor], list[Invalid]]:
    """Compare everything that one session measured on both sides; times that prove nothing are set aside.

    ``numbers`` are those of the jobs that the trusted side knows. At an ``interim`` look alarms are surer than at the end.
    """
    floors = noise_floors(evidence, policy)
    invalid = [*invalid_times(evidence), *_base_differs(floors), *invalid_turns(evidence)]
    turns = compare_turns(evidence, policy, shares.subject, numbers)
    reasons = {entry.place: entry.message for entry in invalid}
    times = [
        msgspec.structs.replace(time, outcome="not_comparable", gating=False, reason=reason)
        if (reason := reasons.get(time.place))
        else time
        for time in [
            *compare_time(evidence, policy, floors, shares, interim=interim),
            *compare_stretches(evidence, policy, shares),
            *(c for c in turns if c.method == "turns"),
            *([] if evidence.recorded else compare_repeated(evidence, policy, shares, interim=interim)),
        ]
    ]
    comparisons = [
        *compare_rules(evidence.base, evidence.head, policy),
        *compare_counters(evidence, policy),
        *compare_settings(evidence),
        *(compare_kernel_times(evidence, policy) if evidence.recorded else []),
        *times,
        *judge_subroutines(evidence, policy, shares.of_operators, invalid=invalid),
        *(c for c in turns if c.method != "turns"),
    ]
    return with_costless(comparisons, policy), floors, invalid


def _shares(policy: Policy, *, subjects: int) -> AlphaShares:
    return AlphaShares.of(policy, subjects=subjects, repeats=bool(repeated_metrics(policy)))


def _base_differs(floors: list[NoiseFloor]) -> list[Invalid]:
    """If the base differs from itself, a difference of the head proves nothing."""
    entries: dict[tuple[str, str], Invalid] = {}
    for floor in floors:
        if floor.differs:
            message = Message("gate.aa-differs", {"metric": floor.metric})
            entry = Invalid(workload=floor.workload, shape=floor.shape, kind="aa_differs", message=message)
            entries.setdefault(floor.place, entry)
    return list(entries.values())


# --- between two looks


class Look:
    """The documents' evidence on one workload or job while it is measured; others in them are not judged, only counted.

    ``to_come`` workloads and jobs are measured after this one: a result must still hold when all share the gate's alpha.
    """

    def __init__(
        self, base: RunDocument, head: RunDocument, policy: Policy, *, workload: str, to_come: int = 0
    ) -> None:
        shares = _shares(policy, subjects=1 + subjects_of(head, but=[workload]) + to_come)
        evidence = Evidence(of_workload(base, workload), of_workload(head, workload))
        self.comparisons, floors, invalid = _compare(evidence, policy, shares, {}, interim=True)
        self._policy = policy
        self._evidence = evidence
        self._moved = not evidence.kept_layout
        self._is_invalid = bool(invalid)
        # A difference of the head would prove nothing.
        self.base_differs = any(floor.differs for floor in floors)

    def regressed(self) -> list[str]:
        return [c.metric for c in self._regressed()]

    def differing_counts(self) -> list[str]:
        """The counts that differ between the sides, or between processes of the head alone."""
        return [c.metric for c in self.comparisons if is_differing_count(c)]

    def is_settled_by_counters(self) -> bool:
        """Whether counters fail the gate whatever the times are, each of those that regressed by itself."""
        regressed = self._regressed()
        return bool(regressed) and all(c.method == "exact" and fails_alone(c, self._policy) for c in regressed)

    def fails_for_certain(self) -> bool:
        """Whether the gate fails whatever the times are: by a count or a rule that none excuses.

        Lost precision may be why calls are faster, so their times must be known first.
        """
        return any(
            c.method in ("exact", "check", *RULE_METHODS)
            and c.metric != LOW_PRECISION_OPS
            and fails_alone(c, self._policy)
            for c in self._regressed()
        )

    def _regressed(self) -> list[Comparison]:
        return [c for c in self.comparisons if c.gating and c.outcome == "regressed"]

    def more_pairs_would_help(self) -> bool:
        """Whether the verdict hangs on a time comparison that more pairs could decide.

        Besides comparisons that must be decided, this includes any that looks worse than tolerated but is not yet shown to
        be. A time that must be decided is known well enough once the target slowdown is excluded, and not only a larger one,
        unless it leans towards a regression or looks like an improvement that no first look can show. A lean is worth 64 pairs,
        an undecided time every look. If a count fails the
        gate whatever the times are, they only show its cost: an interval that excludes "no change" is enough. A counter that
        only warns if calls are no slower is worth every look.
        """
        gating = [c for c in self.comparisons if c.gating and c.metric not in STRETCH.metrics]
        second_look = self._policy.looks[min(1, len(self._policy.looks) - 1)]
        paired = [c for c in gating if c.method == "paired"]
        measured = max((comparison.pairs or 0 for comparison in paired), default=0)
        failing = [c for c in gating if c.outcome == "regressed" and fails_alone(c, self._policy)]
        if failing and measured >= second_look:
            return False
        fails = any(c.method == "exact" for c in failing)
        undecided = [c for c in gating if c.method not in (*RULE_METHODS, "repeated") and self._is_undecided(c)]
        if fails:
            return any(c.metric in MUST_DECIDE and not c.excludes_no_change for c in undecided)
        undecided += [c for c in gating if c.excluded is not None and _leans_slower(c)]
        return any(c.metric in MUST_DECIDE or (c.outcome == "inconclusive" and _looks_worse(c)) for c in undecided)

    def pairs_needed(self) -> int | None:
        """About how many pairs would decide the open comparisons; None if that is not known."""
        paired = [c for c in self.comparisons if c.method == "paired" and c.metric not in STRETCH.metrics]
        open_ones = [c for c in paired if c.gating and c.outcome == "inconclusive"]
        known = [c.pairs_needed for c in open_ones if c.pairs_needed is not None]
        return max(known) if known and len(known) == len(open_ones) else None

    def more_calls_would_help(self) -> bool:
        """Whether the mean of calls, or their stalls, look worse and further stretches may show it.

        No stretch is worth its time for a gate that fails already.
        """
        return not self._regressed() and more_calls_would_help(self._evidence, self.comparisons)

    def repetitions_would_help(self) -> bool:
        """Whether a number of the checklist that a tolerance names is measured in turns and not yet decided."""
        return any(c.method == "repeated" and c.outcome == "inconclusive" and c.pairs for c in self.comparisons)

    def more_turns_would_help(self) -> bool:
        """Whether a number that the verdict of a job rests on is undecided.

        If the job fails already, by a number or a count, only numbers that look worse are waited for: they show its cost. The
        cost of different work or a wrong output does not matter.
        """
        return bool(self._open_turns())

    def quads_needed(self) -> int | None:
        """About how many quads of a job would decide all numbers that are waited for; None if no number of quads would."""
        needed = [c.pairs_needed for c in self._open_turns()]
        known = [quads for quads in needed if quads is not None and quads < MOST_PAIRS]
        return max(known) if known and len(known) == len(needed) else None

    def _open_turns(self) -> list[Comparison]:
        gating = [c for c in self.comparisons if c.gating]
        if any(c.method == "check" and c.outcome == "regressed" for c in gating):
            return []
        fails = any(c.outcome == "regressed" for c in gating)
        undecided = [c for c in gating if c.method == "turns" and c.outcome == "inconclusive"]
        return [c for c in undecided if not fails or _looks_worse(c)]

    def names_would_help(self) -> bool:
        """Whether operators are judged, or something moved or looks worse, so that its cause needs a name."""
        return judges_subroutines(self._policy.tolerances) or any(
            c.outcome in ("regressed", "improved") or (c.gating and c.outcome == "inconclusive" and _looks_worse(c))
            for c in self.comparisons
        )

    def rerun_would_help(self) -> bool:
        """Whether another job could add to this workload: it is undecided, or its times proved nothing."""
        return self._is_invalid or self.more_pairs_would_help() or self.more_calls_would_help()

    def _is_undecided(self, comparison: Comparison) -> bool:
        if comparison.excluded is None:
            return comparison.outcome == "inconclusive"
        place = comparison.place
        sought, _ = margins_for_unchanged(self._policy, comparison.metric, *place, moved=self._moved)
        return comparison.excluded > sought or (
            comparison.is_better and -worsening(comparison) > (comparison.tolerance or 0.0)
        )


def _leans_slower(comparison: Comparison) -> bool:
    return leans_slower(worsening(comparison), comparison.tolerance or 0.0, pairs=comparison.pairs or 0)


def _looks_worse(comparison: Comparison) -> bool:
    return worsening(comparison) > (comparison.tolerance or 0.0)


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


def _testbed_differences(base: RunDocument, head: RunDocument) -> list[TestbedDifference]:
    before, after = base.testbed.fingerprint, head.testbed.fingerprint
    if before == after:
        return []
    differing = _differing(base.testbed.comparable, head.testbed.comparable)
    fields = [TestbedDifference(field=field, base=old, head=new) for field, old, new in differing]
    return fields or [TestbedDifference(field="fingerprint", base=before, head=after)]


def _package_differences(base: Environment | None, head: Environment | None) -> list[PackageDifference]:
    if base is None or head is None:
        return []
    is_known = base.loaded is not None and head.loaded is not None
    loaded = {*(base.loaded or ()), *(head.loaded or ())}
    return [
        PackageDifference(field=name, base=before, head=after, loaded=not is_known or name in loaded)
        for name, before, after in _differing(base.packages, head.packages)
    ]


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> list[tuple[str, str | None, str | None]]:
    """The names with differing values, and both values."""
    values = [(name, before.get(name), after.get(name)) for name in sorted(before.keys() | after.keys())]
    return [(name, old, new) for name, old, new in values if old != new]


def _warnings(base: RunDocument, head: RunDocument) -> list[Message]:
    common = [note for note in base.warnings if note in head.warnings]
    return [
        *(Message("notes.both-sides", {"note": note}) for note in common),
        *(Message("notes.base", {"note": note}) for note in base.warnings if note not in common),
        *(Message("notes.head", {"note": note}) for note in head.warnings if note not in common),
    ]


def side_of(source: Source, chosen_because: Message | None = None, *, sha256: str | None = None) -> SideSummary:
    """One side of a decision; ``sha256`` is that of the run document's content, if it was measured."""
    side = msgspec.convert(source, SideSummary, from_attributes=True)
    return msgspec.structs.replace(side, chosen_because=chosen_because, sha256=sha256)


def _failures(run: RunDocument, side: Side, deciding: Set[int]) -> list[Failure]:
    """The failures of a run, except of steps that decide nothing: the checklist shows those."""
    failed_to_load = {workload.name: workload.error for workload in run.workloads if workload.error}
    errors = [(name, "load", error) for name, error in failed_to_load.items()]
    for step in run.steps:
        if step.status == "error" and step.number in deciding and step.workload not in failed_to_load:
            message = step.reason or Message("gate.step-failed")
            errors.append((step.workload, step.slug, step.error or ErrorDetail(kind="exception", message=message)))
    for check in run.correctness:
        if check.status == "error":
            why = check.message or Message("gate.check-could-not-run")
            errors.append((check.workload, "correctness", ErrorDetail(kind="exception", message=why)))
    return [Failure(side=side, workload=workload, what=what, error=error) for workload, what, error in errors]


def _what_failed(failed: FailedPair) -> str:
    if failed.side:
        return "turns"
    return f"stretch {failed.pair}" if failed.arm == "stretch" else f"pair {failed.pair}"


def _links(run: RunDocument, side: Side) -> list[Artifact]:
    """The kept files of a side, by their paths in the check folder."""
    return [msgspec.structs.replace(file, path=f"{side}/{file.path}") for file in run.artifacts]


def _duration(head: RunDocument) -> float:
    # "Z" is read only from Python 3.11 on.
    times = (head.session.started_at, head.session.finished_at)
    try:
        started, finished = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in times)
        return round((finished - started).total_seconds(), 3)
    except (TypeError, ValueError) as error:  # TypeError: one of the two has a time zone
        raise DocumentError("the session's times are not ISO 8601 with a time zone: {error}", error=error) from error
