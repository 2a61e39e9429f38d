"""All suggestions of a run or a decision, the most promising first.

A run's suggestions come from the findings of its steps.
"""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from perfgate.catalogue.lookup import RULE_ADVICE, RULES
from perfgate.catalogue.names import LATENCY_STALLS, P50
from perfgate.catalogue.records import Advice, EstimatedGain, MeasuredGain
from perfgate.document.decision import (
    DecisionDocument,
    Gain,
    JudgedFinding,
    Regression,
    Suggestion,
)
from perfgate.document.explanation import Cause
from perfgate.document.message import english, message_from
from perfgate.document.run import (
    FROM_PROFILE,
    Evidence,
    Finding,
    RunDocument,
    StepResult,
    Value,
)
from perfgate.judging.advice.advisor import on_advisories
from perfgate.judging.advice.changes import FAULTS, OF_STALLS, at_most, on_changes

_COMPARED = ("ok", "attention")
_KINDS = {"measured": 0, "estimated": 1}
# Two sides of rules with contradicting advice: smaller buckets of gradients, and larger
# buckets.
_SIDES = {
    **dict.fromkeys(("communication.exposed", "utilization.communication"), 0),
    **dict.fromkeys(("communication.small_packets", "communication.peak_share"), 1),
}
# A remedy for a smaller share of a call is not worth a try.
_NOTICEABLE = 0.005
_SEVERITIES = {"severe": 0, "warning": 1, "info": 2}


class _Subject(NamedTuple):
    """The subject of findings and of suggestions on them."""

    workload: str
    step: int | None
    rule: str
    shape: str


def suggestions(run: RunDocument) -> list[Suggestion]:
    advice: list[Suggestion] = []
    for step in run.checklist.steps:
        for finding in step.findings:
            if finding.rule in RULE_ADVICE:
                suggestion = _suggestion(run, step, finding, RULE_ADVICE[finding.rule])
                if suggestion:
                    advice.append(suggestion)
    return _ranked([*advice, *on_advisories(run)])


def shown_faster(suggestions: Iterable[Suggestion]) -> list[Suggestion]:
    """The suggestions that a step tried and found faster, by the whole interval:
    together they are the best that was tried.
    """
    faster = []
    for suggestion in suggestions:
        gain = suggestion.gain
        if gain is not None and gain.is_measured and gain.lowest > 1:
            faster.append(suggestion)
    return faster


def advised(
    decision: DecisionDocument, base: RunDocument, head: RunDocument
) -> DecisionDocument:
    """The decision with its suggestions; those on newly introduced problems are marked
    as such.

    A pure function of the documents. If the testbeds differ, findings of the head alone
    are not attributed to the change. Findings that the decision dropped give no
    suggestion.
    """
    comparable = decision.sides.are_comparable
    of_base = {
        (advisory.workload, advisory.category) for advisory in base.checklist.advisories
    }
    kept = _kept_findings(decision)
    advice = on_changes(decision)
    for suggestion in suggestions(head):
        subject = _Subject(
            suggestion.workload, suggestion.step, suggestion.rule, suggestion.shape
        )
        if suggestion.step is None:
            source = suggestion.workload, suggestion.rule
            is_new = bool(of_base) and source not in of_base
        elif subject in kept:
            is_new = _is_new(suggestion, kept[subject], base)
        else:
            continue
        introduced = comparable and is_new
        advice.append(msgspec.structs.replace(suggestion, introduced=introduced))
    return suggested(
        msgspec.structs.replace(
            decision,
            explained=msgspec.structs.replace(
                decision.explained, suggestions=_ranked(advice)
            ),
        )
    )


def _kept_findings(
    decision: DecisionDocument,
) -> Mapping[_Subject, list[JudgedFinding]]:
    """The findings that the decision kept, by subject."""
    kept: dict[_Subject, list[JudgedFinding]] = defaultdict(list)
    for step in decision.checklist.steps:
        for finding in step.findings:
            subject = _Subject(
                step.workload, step.number, finding.rule, _shape(finding)
            )
            kept[subject].append(finding)
    return kept


def suggested(decision: DecisionDocument) -> DecisionDocument:
    """The decision with a suggestion for each regression: on a line or an operator of
    its causes, or on its stalls.
    """
    regressions = []
    for regression in decision.explained.regressions:
        first = _suggestion_for(regression, decision)
        regressions.append(msgspec.structs.replace(regression, suggestion=first))
    return msgspec.structs.replace(
        decision,
        explained=msgspec.structs.replace(decision.explained, regressions=regressions),
    )


def _suggestion_for(regression: Regression, decision: DecisionDocument) -> int | None:
    """The number of the first suggestion that fits: advice on a fault leads, then
    advice on the leading cause's operator.
    """
    causes = [decision.explained.causes[number] for number in regression.causes]
    leading = None
    if causes:
        leading = causes[0].op
    stalled = set()
    for at in regression.comparisons:
        if decision.comparisons[at].metric == LATENCY_STALLS:
            stalled.add(decision.comparisons[at].place)
    ranked = []
    for number, suggestion in enumerate(decision.explained.suggestions):
        is_on_stalls = (
            suggestion.rule in OF_STALLS.values() and suggestion.place in stalled
        )
        if suggestion.introduced and (is_on_stalls or _fits(suggestion, causes)):
            is_other = suggestion.evidence.get("op") != leading
            ranked.append((suggestion.rule not in FAULTS, is_other, number))
    if ranked:
        return min(ranked)[2]
    return None


def _fits(suggestion: Suggestion, causes: Sequence[Cause]) -> bool:
    if suggestion.line:
        return any(cause.line == suggestion.line for cause in causes)
    return any(cause.op == suggestion.evidence.get("op") for cause in causes)


def _ranked(suggestions: Iterable[Suggestion]) -> list[Suggestion]:
    """Each suggestion once, ordered by its certain gain, then its possible gain, then
    severity.

    Equal words on one line are the same advice, whichever rule, step, shape or rank
    gives it; the largest gain stays. Of advice that contradicts other advice for the
    same workload, the first stays.
    """
    once: dict[tuple[object, ...], Suggestion] = {}
    sides: dict[str, int] = {}
    for suggestion in sorted(suggestions, key=_rank):
        side = _SIDES.get(suggestion.rule)
        if side is not None and sides.setdefault(suggestion.workload, side) != side:
            continue
        words = english(suggestion.message)
        once.setdefault((suggestion.workload, words, suggestion.line), suggestion)
    return list(once.values())


def _rank(suggestion: Suggestion) -> tuple[int, float, int, bool, str, str]:
    kind = len(_KINDS)
    saved = 0.0
    if suggestion.gain:
        kind = _KINDS[suggestion.gain.kind]
        saved = suggestion.gain.saved
    return (
        kind,
        -saved,
        _SEVERITIES[suggestion.severity],
        suggestion.source != "perfgate",
        suggestion.workload,
        suggestion.rule,
    )


def _is_new(
    suggestion: Suggestion, findings: Iterable[JudgedFinding], base: RunDocument
) -> bool:
    """Whether the change brought the problem behind a suggestion.

    A rule with a number that is compared needs a finding that the comparison shows to
    be new. Of any other rule, the same step ran on the base without this finding; a
    value the base could not measure is not known to be new. An info-level finding may
    be chance, so only warnings and worse count.
    """
    if suggestion.severity == "info":
        return False
    operator = suggestion.evidence.get("op")
    rule = RULES[suggestion.rule]
    if rule.rests_on or rule.judges:
        return any(
            finding.standing == "new" and finding.evidence.get("op") == operator
            for finding in findings
        )
    own = suggestion.rule, suggestion.shape, operator
    ran = False
    for step in base.checklist.steps:
        is_same = (step.number, step.workload) == (suggestion.step, suggestion.workload)
        if is_same and step.status in _COMPARED:
            ran = True
            if any(
                (finding.rule, _shape(finding), finding.evidence.get("op")) == own
                for finding in step.findings
            ):
                return False
    return ran


def _suggestion(
    run: RunDocument, step: StepResult, finding: Finding, advice: Advice
) -> Suggestion | None:
    evidence = finding.evidence
    tried = _gain(advice.tried, run, step.workload, evidence)
    name = f"advice.{finding.rule}"
    code = advice.code
    if tried is not None and tried.lowest <= 1:
        if advice.instead is None:
            return None
        name = f"{name}.instead"
        code = ""
        tried = None
    if isinstance(advice.gain, EstimatedGain):
        share = _reachable_share(advice.gain, run, step.workload, evidence)
        if share is not None and share < _NOTICEABLE:
            return None
    try:
        message = message_from(name, evidence)
        english(message)
        code = code.format_map(evidence)
    except (
        KeyError,
        ValueError,
        TypeError,
    ):  # a document of another version: its evidence differs in names or types
        return None
    line = evidence.get("line")
    command = None
    if run.session.command != FROM_PROFILE:
        steps = ",".join(map(str, advice.steps or (step.number,)))
        command = (
            f"perfgate run --steps {steps} --workload {shlex.quote(step.workload)}"
        )
    return Suggestion(
        rule=finding.rule,
        workload=step.workload,
        shape=_shape(finding),
        message=message,
        step=step.number,
        severity=finding.severity,
        line=None if line is None else str(line),
        evidence=evidence,
        gain=tried or _gain(advice.gain, run, step.workload, evidence),
        code=code or None,
        command=command,
    )


def _shape(finding: Finding) -> str:
    return str(finding.evidence.get("shape", ""))


# --- gains


def _gain(
    source: MeasuredGain | EstimatedGain | None,
    run: RunDocument,
    workload: str,
    evidence: Mapping[str, Evidence],
) -> Gain | None:
    if isinstance(source, MeasuredGain):
        return _measured(source, _value(run, source.metric, workload, evidence))
    if isinstance(source, EstimatedGain):
        share = _reachable_share(source, run, workload, evidence)
        if share is None:
            return None
        return at_most(share)
    return None


def _measured(source: MeasuredGain, value: Value | None) -> Gain | None:
    if value is None:
        return None
    speedup = _speedup(source, value.value)
    if speedup is None:
        return None
    interval = None
    if value.interval:
        low = _speedup(source, value.interval[0])
        high = _speedup(source, value.interval[1])
        if low is not None and high is not None:
            interval = (min(low, high), max(low, high))
    return Gain(kind="measured", speedup=speedup, of=source.of, interval=interval)


def _speedup(source: MeasuredGain, number: float | None) -> float | None:
    """A metric's value as the speed-up it implies, None if it implies none."""
    if number is None:
        return None
    ratio = number
    if source.loss:
        ratio = 1 - number
    if not (math.isfinite(ratio) and ratio > 0):
        return None
    if source.loss or source.inverse:
        return 1 / ratio
    return ratio


def _reachable_share(
    source: EstimatedGain,
    run: RunDocument,
    workload: str,
    evidence: Mapping[str, Evidence],
) -> float | None:
    """The share of a call that the remedy can shorten, None if it is unknown."""
    share = _number(evidence, source.share)
    if share is None:
        return None
    if source.seconds:
        call = _value(run, P50, workload, evidence)
        if call is None or not call.value:
            return None
        return share / call.value
    if source.stays:
        share *= 1 - (_number(evidence, source.stays) or 0.0)
    if source.of_busy:
        # Without the device's own figure, its busy share stands in for the call's
        # share, which is not larger.
        busy = _value(run, "utilization.busy", workload, evidence)
        if busy is not None and busy.value is not None:
            share *= busy.value
    return share


def _number(evidence: Mapping[str, Evidence], name: str) -> float | None:
    number = evidence.get(name)
    if isinstance(number, (int, float)) and math.isfinite(number):
        return float(number)
    return None


def _value(
    run: RunDocument, metric: str, workload: str, evidence: Mapping[str, Evidence]
) -> Value | None:
    for step in run.checklist.steps:
        if step.workload != workload:
            continue
        for value in step.values:
            of_finding = all(
                str(evidence.get(label, text)) == text
                for label, text in value.labels.items()
            )
            if value.metric == metric and value.value is not None and of_finding:
                return value
    return None
