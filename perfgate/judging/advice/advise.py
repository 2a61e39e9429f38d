"""All suggestions of a run or a decision, the most promising first; those of a run come from the findings of its steps."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from perfgate.catalogue.lookup import RULE_ADVICE
from perfgate.catalogue.names import LATENCY_STALLS, P50
from perfgate.catalogue.records import Advice, EstimatedGain, MeasuredGain
from perfgate.document.decision import DecisionDocument, Gain, Suggestion
from perfgate.document.explanation import Cause
from perfgate.document.message import english, message_from
from perfgate.document.run import FROM_PROFILE, Evidence, Finding, RunDocument, StepResult, Value
from perfgate.judging.advice.advisor import on_advisories
from perfgate.judging.advice.changes import FAULTS, OF_STALLS, at_most, on_changes

_COMPARED = ("ok", "attention")
_KINDS = {"measured": 0, "estimated": 1}
# Rules whose advice contradicts that of the other side: smaller buckets of gradients, and larger ones.
_SIDES = {
    **dict.fromkeys(("communication.exposed", "utilization.communication"), 0),
    **dict.fromkeys(("communication.small_packets", "communication.peak_share"), 1),
}
_SEVERITIES = {"severe": 0, "warning": 1, "info": 2}


def suggestions(run: RunDocument) -> list[Suggestion]:
    found = [(step, finding) for step in run.steps for finding in step.findings if finding.rule in RULE_ADVICE]
    on_findings = (_suggestion(run, step, finding, RULE_ADVICE[finding.rule]) for step, finding in found)
    return _ranked([*filter(None, on_findings), *on_advisories(run)])


def shown_faster(suggestions: Iterable[Suggestion]) -> list[Suggestion]:
    """The suggestions that a step tried and found faster, by the whole interval: together they are the best that was tried."""
    return [suggestion for suggestion in suggestions if suggestion.gain is not None and _is_faster(suggestion.gain)]


def _is_faster(gain: Gain) -> bool:
    if gain.kind != "measured":
        return False
    lowest = gain.speedup if gain.interval is None else gain.interval[0]
    return lowest > 1


def advised(decision: DecisionDocument, base: RunDocument, head: RunDocument) -> DecisionDocument:
    """The decision with its suggestions; those on newly introduced problems are marked as such.

    A pure function of the documents. If the testbeds differ, findings of the head alone are not attributed to the change.
    Findings that the decision dropped give no suggestion.
    """
    comparable = not decision.testbed_differences or decision.comparing == "stack"
    of_base = {(advisory.workload, advisory.category) for advisory in base.advisories}
    standing = {
        (step.workload, step.number, finding.rule, _shape(finding))
        for step in decision.steps
        for finding in step.findings
    }
    advice = on_changes(decision)
    for suggestion in suggestions(head):
        if suggestion.step is None:
            new = bool(of_base) and (suggestion.workload, suggestion.rule) not in of_base
        elif (suggestion.workload, suggestion.step, suggestion.rule, suggestion.shape) in standing:
            new = _is_new(suggestion, base)
        else:
            continue
        advice.append(msgspec.structs.replace(suggestion, introduced=comparable and new))
    return suggested(msgspec.structs.replace(decision, suggestions=_ranked(advice)))


def suggested(decision: DecisionDocument) -> DecisionDocument:
    """The decision with a suggestion for each regression: on a line or an operator of its causes, or on its stalls."""

    def fits(suggestion: Suggestion, causes: Sequence[Cause]) -> bool:
        if suggestion.line:
            return suggestion.line in {cause.line for cause in causes}
        return suggestion.evidence.get("op") in {cause.op for cause in causes}

    regressions = []
    for regression in decision.regressions:
        causes = [decision.causes[number] for number in regression.causes]
        stalled = {c.place for at in regression.comparisons if (c := decision.comparisons[at]).metric == LATENCY_STALLS}
        fitting = [
            at
            for at, one in enumerate(decision.suggestions)
            if one.introduced and (fits(one, causes) or (one.rule in OF_STALLS.values() and one.place in stalled))
        ]
        leading = causes[0].op if causes else None

        def order(at: int, leading: str | None = leading) -> tuple[bool, bool]:
            suggestion = decision.suggestions[at]
            return suggestion.rule not in FAULTS, suggestion.evidence.get("op") != leading

        first = min(fitting, key=order, default=None)
        regressions.append(msgspec.structs.replace(regression, suggestion=first))
    return msgspec.structs.replace(decision, regressions=regressions)


def _ranked(suggestions: Iterable[Suggestion]) -> list[Suggestion]:
    """Each suggestion once, ordered by its certain gain, then its possible gain, then severity.

    Equal words on one line are the same advice, whichever rule, step, shape or rank gives it; the largest gain stays. Of advice
    that contradicts other advice for the same workload, the first stays.
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
    gain = suggestion.gain
    return (
        _KINDS[gain.kind] if gain else len(_KINDS),
        -gain.saved if gain else 0.0,
        _SEVERITIES[suggestion.severity],
        suggestion.source != "perfgate",
        suggestion.workload,
        suggestion.rule,
    )


def _is_new(suggestion: Suggestion, base: RunDocument) -> bool:
    """Whether the same step ran on the base without this finding; a value the base could not measure is not known to be new.

    An info-level finding may be chance, so only warnings and worse count.
    """
    if suggestion.severity == "info":
        return False
    same = [
        step
        for step in base.steps
        if (step.number, step.workload) == (suggestion.step, suggestion.workload) and step.status in _COMPARED
    ]
    before = {(finding.rule, _shape(finding), finding.evidence.get("op")) for step in same for finding in step.findings}
    return bool(same) and (suggestion.rule, suggestion.shape, suggestion.evidence.get("op")) not in before


def _suggestion(run: RunDocument, step: StepResult, finding: Finding, advice: Advice) -> Suggestion | None:
    evidence = finding.evidence
    tried = _gain(advice.tried, run, step.workload, evidence)
    in_vain = tried is not None and (tried.interval[0] if tried.interval else tried.speedup) <= 1
    if in_vain and advice.instead is None:
        return None
    try:
        message = message_from(f"advice.{finding.rule}.instead" if in_vain else f"advice.{finding.rule}", evidence)
        english(message)
        code = "" if in_vain else advice.code.format_map(evidence)
    except (KeyError, ValueError, TypeError):  # a document of another version: its evidence differs in names or types
        return None
    line = evidence.get("line")
    command = None
    if run.session.command != FROM_PROFILE:
        steps = ",".join(map(str, advice.steps or (step.number,)))
        command = f"perfgate run --steps {steps} --workload {shlex.quote(step.workload)}"
    return Suggestion(
        rule=finding.rule,
        workload=step.workload,
        shape=_shape(finding),
        message=message,
        step=step.number,
        severity=finding.severity,
        line=None if line is None else str(line),
        evidence=evidence,
        gain=(None if in_vain else tried) or _gain(advice.gain, run, step.workload, evidence),
        code=code or None,
        command=command,
    )


def _shape(finding: Finding) -> str:
    return str(finding.evidence.get("shape", ""))


# --- gains


def _gain(
    source: MeasuredGain | EstimatedGain | None, run: RunDocument, workload: str, evidence: Mapping[str, Evidence]
) -> Gain | None:
    if isinstance(source, MeasuredGain):
        return _measured(source, _value(run, source.metric, workload, evidence))
    if isinstance(source, EstimatedGain):
        return _estimated(source, run, workload, evidence)
    return None


def _measured(source: MeasuredGain, value: Value | None) -> Gain | None:
    speedup = _speedup(source, value.value if value else None)
    if speedup is None or value is None:
        return None
    low, high = (_speedup(source, end) for end in value.interval or (None, None))
    interval = None if low is None or high is None else (min(low, high), max(low, high))
    return Gain(kind="measured", speedup=speedup, of=source.of, interval=interval)


def _speedup(source: MeasuredGain, number: float | None) -> float | None:
    """A metric's value as the speed-up it implies, None if it implies none."""
    if number is None:
        return None
    ratio = 1 - number if source.loss else number
    if not (math.isfinite(ratio) and ratio > 0):
        return None
    return 1 / ratio if source.loss or source.inverse else ratio


def _estimated(source: EstimatedGain, run: RunDocument, workload: str, evidence: Mapping[str, Evidence]) -> Gain | None:
    share = _number(evidence, source.share)
    if share is None:
        return None
    if source.seconds:
        call = _value(run, P50, workload, evidence)
        return at_most(share / call.value) if call is not None and call.value else None
    if source.rest:
        share = 1 - share
    if source.stays:
        share *= 1 - (_number(evidence, source.stays) or 0.0)
    if source.of_busy:
        # Without the device's own figure, its busy share stands in for the call's share, which is not larger.
        busy = _value(run, "utilization.busy", workload, evidence)
        share *= busy.value if busy is not None and busy.value is not None else 1.0
    return at_most(share)


def _number(evidence: Mapping[str, Evidence], name: str) -> float | None:
    number = evidence.get(name)
    return float(number) if isinstance(number, (int, float)) and math.isfinite(number) else None


def _value(run: RunDocument, metric: str, workload: str, evidence: Mapping[str, Evidence]) -> Value | None:
    for value in (value for step in run.steps if step.workload == workload for value in step.values):
        of_finding = all(str(evidence.get(label, text)) == text for label, text in value.labels.items())
        if value.metric == metric and value.value is not None and of_finding:
            return value
    return None
