"""The decision: two run documents, a policy and the stored history in, one decision document out.

A pure function: the same documents give the same bytes, on any machine, at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.catalogue.lookup import FAMILIES
from perfgate.catalogue.names import LOW_PRECISION_OPS
from perfgate.document.decision import (
    RULE_METHODS,
    Comparing,
    Comparison,
    DecisionDocument,
    Failure,
    HarnessChange,
    Invalid,
    Link,
    Missing,
    NoiseFloor,
    Policy,
    Procedure,
    SideSummary,
    StepSummary,
    TestbedDifference,
    Verdict,
)
from perfgate.document.files import content_sha256, read_decision, read_run
from perfgate.document.history import History, read_history
from perfgate.document.run import FROM_PROFILE, ErrorDetail, RunDocument, Side, Source
from perfgate.document.tolerances import judges_subroutines
from perfgate.errors import (
    EXIT_FAIL,
    EXIT_INCONCLUSIVE,
    EXIT_MEASURING,
    EXIT_PASS,
    DocumentError,
)
from perfgate.judging.gate.accepted import with_accepted
from perfgate.judging.gate.budgets import compare_budgets
from perfgate.judging.gate.clock import deciding_clocks
from perfgate.judging.gate.conditions import invalid_times, waited_share
from perfgate.judging.gate.contributions import explanations
from perfgate.judging.gate.counters import compare_counters
from perfgate.judging.gate.expected import compare_expected
from perfgate.judging.gate.explain import operator_changes
from perfgate.judging.gate.harness import harness_changes, hides, is_consequence, not_compared
from perfgate.judging.gate.kernel_times import compare_kernel_times, untimed_places
from perfgate.judging.gate.location import QUANTILE
from perfgate.judging.gate.operators import compare_operators, judge_subroutines, operator_times
from perfgate.judging.gate.policy import margins_for_unchanged
from perfgate.judging.gate.promises import compare_promises
from perfgate.judging.gate.recorded import are_recordings, recorded_times
from perfgate.judging.gate.required import Required, missing_evidence
from perfgate.judging.gate.rounding import rounded
from perfgate.judging.gate.stored import compare_stored
from perfgate.judging.gate.time import compare_time, noise_floors, unmoved
from perfgate.version import __version__

PROCEDURE = "sequential-signed-rank"
PROCEDURE_VERSION = 5
PROCEDURE_ALONE = "rules"
NOTHING_REQUIRED = Required()
_NO_CHECK = "the correctness check could not run"
_MUST_DECIDE = {metric for family in FAMILIES.values() if family.must_decide for metric in family.metrics}


def judge_folder(folder: Path, *, policy: Policy | None = None) -> DecisionDocument:
    """Judge the documents of a check folder again, as it says: for folders that are trusted.

    Without a policy the one recorded in its decision.json is used. Raises DocumentError when a document is missing or damaged.
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
    chosen_because: str | None = None,
    required: Required = NOTHING_REQUIRED,
) -> DecisionDocument:
    """Judge head against base; ``required`` is what the trusted side says that both must hold.

    Raises DocumentError when the two were not measured as the two sides of one session.
    """
    _check_sides(base, head)
    comparing = _comparing(base, head)
    differences = _testbed_differences(base, head)
    changes = harness_changes(base, head)
    comparisons, floors, invalid = _compared(base, head, policy)
    if differences and comparing == "code":
        comparisons = [_not_comparable(comparison) for comparison in comparisons]
    comparisons += not_compared(head, changes)
    comparisons = with_accepted(comparisons, head.source, history.accepted)
    recorded = are_recordings(base, head)
    if recorded and not differences:
        comparisons += recorded_times(base, head)
    failures = _failures(base, head)
    incomparable = bool(differences) and comparing == "code"
    tests = [] if incomparable else compare_operators(base, head, invalid=invalid)
    explained = [] if recorded else explanations(base, head, comparisons, tests, invalid=invalid)
    missing = missing_evidence(base, head, changes, required, policy, timed=not incomparable)
    not_timed = untimed_places(base, head, comparisons) if recorded else []
    judged = verdict_of(
        verdict_rules(comparisons, differences, invalid, failures, changes, missing, comparing, not_timed=not_timed)
    )
    return DecisionDocument(
        perfgate_version=__version__,
        project=head.project,
        comparing=comparing,
        verdict=judged.verdict,
        reasons=judged.reasons,
        base=side_of(base.source, chosen_because, sha256=content_sha256(base)),
        head=side_of(head.source, sha256=content_sha256(head)),
        device=head.testbed.comparable.get("device.name", head.testbed.device_kind),
        policy=policy,
        procedure=Procedure(name=PROCEDURE, version=PROCEDURE_VERSION, seed=head.session.seed, quantiles=[QUANTILE]),
        comparisons=comparisons,
        stored=compare_stored(head, history),
        noise_floors=floors,
        testbed_differences=differences,
        package_differences=_package_differences(base, head),
        harness_changes=changes,
        invalid=invalid,
        missing=missing,
        operator_tests=tests,
        operator_times=[] if incomparable else operator_times(base, head, tests, explained, invalid=invalid),
        operator_changes=operator_changes(base, head),
        explanations=explained,
        steps=_steps(head),
        failures=failures,
        links=_links(base, "base") + _links(head, "head"),
        warnings=_warnings(base, head),
        pairs=_pairs(head),
        waited=_waited(base, head),
        unmoved=unmoved(base, head),
        recorded=recorded,
        rounds=1 + max((replicate.round for replicate in head.replicates), default=0),
        duration=_duration(head),
    )


def decide_alone(head: RunDocument, *, policy: Policy) -> DecisionDocument:
    """Hold one run, measured or recorded, to the rules that need no base: its check, budgets, limits, expected kernels."""
    comparisons = compare_promises(None, head) + compare_budgets(None, head, policy) + compare_expected(head, policy)
    failures = _side_failures(head, "head")
    judged = verdict_of(verdict_rules(comparisons, [], [], failures, [], [], "rules", not_timed=[]))
    return DecisionDocument(
        perfgate_version=__version__,
        project=head.project,
        comparing="rules",
        verdict=judged.verdict,
        reasons=judged.reasons,
        base=SideSummary(),
        head=side_of(head.source, sha256=content_sha256(head)),
        device=head.testbed.comparable.get("device.name", head.testbed.device_kind),
        policy=policy,
        procedure=Procedure(name=PROCEDURE_ALONE, version=1, seed=head.session.seed, quantiles=[]),
        comparisons=comparisons,
        steps=_steps(head),
        failures=failures,
        links=_links(head, "head"),
        warnings=head.warnings,
        recorded=head.session.command == FROM_PROFILE,
        duration=_duration(head),
    )


class _Compared(NamedTuple):
    comparisons: list[Comparison]
    floors: list[NoiseFloor]
    invalid: list[Invalid]


def _compared(base: RunDocument, head: RunDocument, policy: Policy, *, to_come: int = 0) -> _Compared:
    """Compare everything that one session measured on both sides; times that prove nothing are set aside.

    ``to_come`` workloads are still to be measured, and will be corrected for together with these.
    """
    clocks = deciding_clocks(base, head)
    floors = noise_floors(base, policy, clocks, pairs=_pairs(head))
    invalid = invalid_times(base, head) + _base_differs(floors)
    times = compare_time(base, head, policy, clocks, floors, to_come=to_come)
    held = compare_budgets(base, head, policy) + compare_expected(head, policy)
    exact = compare_promises(base, head) + held + compare_counters(base, head, policy)
    profiled = compare_kernel_times(base, head, policy) if are_recordings(base, head) else []
    operators = judge_subroutines(base, head, policy, invalid=invalid)
    return _Compared(exact + profiled + _veto(times, invalid) + operators, floors, invalid)


def more_pairs_would_help(
    base: RunDocument, head: RunDocument, *, policy: Policy, workload: str, to_come: int = 0
) -> bool:
    """Return whether the verdict hangs on a time comparison of this workload that more pairs could decide.

    Besides those that must be decided, that is any which looks worse than tolerated and is not yet shown to be. A time that
    must be decided is known well enough once the slowdown that is sought is excluded, and not only a larger one. Where the
    gate fails already, a second look is still worth its seconds: whoever broke a counter wants to know what it costs.
    ``to_come`` workloads are measured after this one: what is shown must still be so when they are corrected for too.
    """
    gating = [
        c for c in _compared(base, head, policy, to_come=to_come).comparisons if c.gating and c.workload == workload
    ]
    second_look = policy.looks[min(1, len(policy.looks) - 1)]
    measured = max((comparison.pairs or 0 for comparison in gating), default=0)
    if any(comparison.outcome == "regressed" for comparison in gating) and measured >= second_look:
        return False
    moved = workload not in unmoved(base, head)
    open_ones = [c for c in gating if c.method not in RULE_METHODS and _is_open(c, policy, moved=moved)]
    return any(c.metric in _MUST_DECIDE or (c.outcome == "inconclusive" and _looks_worse(c)) for c in open_ones)


def _is_open(comparison: Comparison, policy: Policy, *, moved: bool) -> bool:
    """Return whether a comparison is undecided, or decided for a larger margin than is sought."""
    if comparison.excluded is None:
        return comparison.outcome == "inconclusive"
    sought = margins_for_unchanged(policy, comparison.metric, comparison.workload, comparison.shape, moved=moved).sought
    return comparison.excluded > sought


def base_differs(base: RunDocument, head: RunDocument, policy: Policy, *, workload: str) -> bool:
    """Return whether base against base differs in a workload, so that what the head differs by would prove nothing."""
    floors = noise_floors(base, policy, deciding_clocks(base, head), pairs=_pairs(head))
    return any(floor.differs for floor in floors if floor.workload == workload)


def names_would_help(base: RunDocument, head: RunDocument, *, policy: Policy, workload: str) -> bool:
    """Return whether operators are judged, or something of this workload moved or looks worse: then one asks which it was."""
    if judges_subroutines(policy.tolerances):
        return True
    comparisons = [c for c in _compared(base, head, policy).comparisons if c.workload == workload]
    return any(
        c.outcome in ("regressed", "improved") or (c.gating and c.outcome == "inconclusive" and _looks_worse(c))
        for c in comparisons
    )


def _looks_worse(comparison: Comparison) -> bool:
    return (comparison.delta or 0.0) > (comparison.tolerance or 0.0)


def regressed_so_far(base: RunDocument, head: RunDocument, *, policy: Policy, workload: str) -> list[str]:
    """Return the metrics of a workload that regressed by what is measured, whatever more pairs say."""
    found = _compared(base, head, policy).comparisons
    return [c.metric for c in found if c.workload == workload and c.gating and c.outcome == "regressed"]


def rerun_would_help(base: RunDocument, head: RunDocument, *, policy: Policy, workload: str) -> bool:
    """Return whether another job could add to this workload: it is undecided, or its times proved nothing."""
    if any(entry.workload == workload for entry in _compared(base, head, policy).invalid):
        return True
    return more_pairs_would_help(base, head, policy=policy, workload=workload)


def exit_code(decision: DecisionDocument) -> int:
    """Return the documented exit code: an error is not a verdict, so a failed measurement has its own."""
    if decision.verdict == "FAIL":
        return EXIT_FAIL
    if decision.verdict == "INCONCLUSIVE":
        failed = any(not is_consequence(failure, decision.harness_changes) for failure in decision.failures)
        return EXIT_MEASURING if failed or decision.invalid else EXIT_INCONCLUSIVE
    return EXIT_PASS


class VerdictRule(NamedTuple):
    """A verdict, the code of its reason, and what it applies to: it gives the verdict where ``names`` holds anything."""

    verdict: Verdict
    reason: str
    names: list[str]


class _Judged(NamedTuple):
    verdict: Verdict
    reasons: list[str]


def verdict_of(rules: list[VerdictRule]) -> _Judged:
    """Return the verdict of the first rule that applies; its reasons are codes and names, the report words them."""
    for rule in rules:
        if rule.names:
            return _Judged(rule.verdict, [f"{rule.reason}: {name}" for name in rule.names])
    return _Judged("PASS", [])


def verdict_rules(
    comparisons: list[Comparison],
    differences: list[TestbedDifference],
    invalid: list[Invalid],
    failures: list[Failure],
    changes: list[HarnessChange],
    missing: list[Missing],
    comparing: Comparing,
    *,
    not_timed: list[str],
) -> list[VerdictRule]:
    """Return every rule in the order in which they are asked.

    A PASS without pairs is one of recordings, and ``not_timed`` are the places that have no time of kernels either.

    An upgrade report judges a stack, which no commit can be blamed for: what got slower is a warning.
    """
    gating = [comparison for comparison in comparisons if comparison.gating]
    regressed = [_name(comparison) for comparison in gating if comparison.outcome == "regressed"]
    undecided = [
        _name(c)
        for c in gating
        if c.outcome == "inconclusive"
        and c.method not in RULE_METHODS
        and (c.metric in _MUST_DECIDE or c.method in ("exact", "profiled"))
    ]
    promised = [
        _name(c)
        for c in comparisons
        if c.method in {"check", *RULE_METHODS} and not c.gating and c.outcome == "inconclusive"
    ]
    unjudged = [_name(c) for c in gating if c.method in RULE_METHODS and c.outcome == "inconclusive"]
    # Full precision where less had been asked for may be meant, and then it is faster or merged with this warning.
    dropped = [
        _name(c)
        for c in comparisons
        if c.metric == LOW_PRECISION_OPS and c.outcome == "regressed" and not _faster(c, gating)
    ]
    # A count that only the head's calls disagree about cannot be held to the base's: it must not hide behind that.
    unsteady = [
        f"{_name(c)}: {c.reason}"
        for c in comparisons
        if c.method == "exact" and c.outcome == "inconclusive" and not c.gating
    ]
    failed = {f"{f.side} {f.workload} {f.what}" for f in failures if not is_consequence(f, changes)}
    slower = VerdictRule("WARN" if comparing == "stack" else "FAIL", "regressed", regressed)
    unmeasured = [
        VerdictRule("INCONCLUSIVE", "failed", sorted(failed)),
        VerdictRule(
            "INCONCLUSIVE", "harness", [_change_name(change) for change in changes if change.kind == "not_comparable"]
        ),
        VerdictRule("INCONCLUSIVE", "testbed", [d.field for d in differences] if comparing == "code" else []),
        VerdictRule(
            "INCONCLUSIVE", "invalid", [f"{entry.workload}/{entry.shape} {entry.message}" for entry in invalid]
        ),
        # What was left out may be what shows a regression, so nothing below counts without it.
        VerdictRule("INCONCLUSIVE", "missing", [_missing_name(entry) for entry in missing]),
        VerdictRule("INCONCLUSIVE", "not judged", unjudged),
    ]
    return [
        *([*unmeasured, slower] if comparing == "stack" else [slower, *unmeasured]),
        VerdictRule(
            "INCONCLUSIVE",
            "nothing compared",
            [] if gating or any(c.accepted for c in comparisons) else ["no comparison could be made"],
        ),
        VerdictRule("INCONCLUSIVE", "undecided", undecided),
        VerdictRule("INCONCLUSIVE", "untimed", not_timed),
        VerdictRule("WARN", "harness", [_change_name(change) for change in changes if hides(change)]),
        VerdictRule("WARN", "doubtful", promised + dropped),
        VerdictRule("WARN", "unsteady", unsteady),
        VerdictRule("WARN", "accepted", [f"{_name(c)} by {c.accepted}" for c in comparisons if c.accepted]),
    ]


def _missing_name(entry: Missing) -> str:
    place = f"{entry.workload}/{entry.shape}" if entry.shape else entry.workload
    return " ".join(part for part in (place, entry.metric, f"({entry.side})") if part)


def _change_name(change: HarnessChange) -> str:
    return f"{change.workload}: {change.message}"


def _name(comparison: Comparison) -> str:
    place = f"{comparison.workload}/{comparison.shape}" if comparison.shape else comparison.workload
    return f"{place} {comparison.limit or comparison.metric}"


def _faster(counted: Comparison, gating: list[Comparison]) -> bool:
    """Return whether the pairs show that calls of this place take less time."""
    here = (c for c in gating if (c.workload, c.shape, c.method) == (counted.workload, counted.shape, "paired"))
    return any(c.unit == "s" and c.outcome == "improved" for c in here)


def _check_sides(base: RunDocument, head: RunDocument) -> None:
    if base.replicates and base.session.id != head.session.id:
        raise DocumentError(
            f"the pairs of these two runs come from different sessions ({base.session.id}, {head.session.id}), so they "
            "were not measured side by side; judge the two run.json of one check folder"
        )


def _comparing(base: RunDocument, head: RunDocument) -> Comparing:
    """Return what is compared: code, or in an upgrade report the stacks under the same code.

    Raises DocumentError when a document calls itself an upgrade report and its sides are of two commits: such a report
    cannot fail, so a change must not be able to hide in one.
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
    fields = _differences(base.testbed.comparable, head.testbed.comparable)
    return fields or [TestbedDifference(field="fingerprint", base=before, head=after)]


def _package_differences(base: RunDocument, head: RunDocument) -> list[TestbedDifference]:
    if base.environment is None or head.environment is None:
        return []
    return _differences(base.environment.packages, head.environment.packages)


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[TestbedDifference]:
    return [
        TestbedDifference(field=field, base=before.get(field), head=after.get(field))
        for field in sorted(before.keys() | after.keys())
        if before.get(field) != after.get(field)
    ]


def _not_comparable(comparison: Comparison) -> Comparison:
    if comparison.method in {"check", *RULE_METHODS}:
        return comparison
    return msgspec.structs.replace(
        comparison, outcome="not_comparable", gating=False, reason="the testbeds differ between base and head"
    )


def _base_differs(floors: list[NoiseFloor]) -> list[Invalid]:
    """Where the base differs from itself, a difference of the head proves nothing."""
    found: dict[tuple[str, str], Invalid] = {}
    for floor in floors:
        if floor.differs:
            message = f"base against base differs in {floor.metric}"
            entry = Invalid(workload=floor.workload, shape=floor.shape, kind="aa_differs", message=message)
            found.setdefault((floor.workload, floor.shape), entry)
    return list(found.values())


def _veto(comparisons: list[Comparison], invalid: list[Invalid]) -> list[Comparison]:
    reasons = {(entry.workload, entry.shape): entry.message for entry in invalid}
    return [
        msgspec.structs.replace(comparison, outcome="not_comparable", gating=False, reason=reason)
        if (reason := reasons.get((comparison.workload, comparison.shape)))
        else comparison
        for comparison in comparisons
    ]


def _pairs(head: RunDocument) -> int:
    counts = [
        sum(replicate.arm == "ab" and replicate.workload == workload.name for replicate in head.replicates)
        for workload in head.workloads
    ]
    return max(counts, default=0)


def _waited(base: RunDocument, head: RunDocument) -> float | None:
    share = waited_share([*base.replicates, *head.replicates])
    return None if share is None else rounded(share)


def _warnings(base: RunDocument, head: RunDocument) -> list[str]:
    """Return the warnings of both sides; what both say is said once."""
    common = [text for text in base.warnings if text in head.warnings]
    return [
        *(f"base and head: {text}" for text in common),
        *(f"base: {text}" for text in base.warnings if text not in common),
        *(f"head: {text}" for text in head.warnings if text not in common),
    ]


def side_of(source: Source, chosen_because: str | None = None, *, sha256: str | None = None) -> SideSummary:
    """Return one side of a decision; ``sha256`` is that of the run document's content, where it was measured."""
    return SideSummary(
        commit=source.commit,
        branch=source.branch,
        subject=source.subject,
        committed_at=source.committed_at,
        dirty=source.dirty,
        chosen_because=chosen_because,
        sha256=sha256,
    )


def _failures(base: RunDocument, head: RunDocument) -> list[Failure]:
    return [*_side_failures(base, "base"), *_side_failures(head, "head"), *_pair_failures(head)]


def _side_failures(run: RunDocument, side: Side) -> list[Failure]:
    failed_to_load = {workload.name: workload.error for workload in run.workloads if workload.error}
    failures = [Failure(side=side, workload=name, what="load", error=error) for name, error in failed_to_load.items()]
    failures += [
        Failure(
            side=side, workload=step.workload, what=step.slug, error=step.error or _error(step.reason or "it failed")
        )
        for step in run.steps
        if step.status == "error" and step.workload not in failed_to_load
    ]
    failures += [
        Failure(side=side, workload=check.workload, what="correctness", error=_error(check.message or _NO_CHECK))
        for check in run.correctness
        if check.status == "error"
    ]
    return failures


def _error(message: str) -> ErrorDetail:
    return ErrorDetail(kind="exception", message=message)


def _pair_failures(head: RunDocument) -> list[Failure]:
    return [
        Failure(side="pair", workload=failed.workload, what=f"pair {failed.pair}", error=failed.error)
        for failed in head.failed_pairs
    ]


def _steps(head: RunDocument) -> list[StepSummary]:
    return [
        StepSummary(
            number=step.number,
            slug=step.slug,
            workload=step.workload,
            status=step.status,
            reason=step.reason,
            findings=step.findings,
            waited=step.waited,
        )
        for step in head.steps
    ]


def _links(run: RunDocument, side: Side) -> list[Link]:
    return [
        Link(side=side, kind=artifact.kind, path=f"{side}/{artifact.path}", bytes=artifact.bytes)
        for artifact in run.artifacts
    ]


def _duration(head: RunDocument) -> float:
    try:
        started = _time(head.session.started_at)
        finished = _time(head.session.finished_at)
    except ValueError as error:
        raise DocumentError(f"the session's times are not ISO 8601: {error}") from error
    return round((finished - started).total_seconds(), 3)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))  # "Z" is read only from Python 3.11 on
