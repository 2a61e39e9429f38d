"""Advice on what the steps of a run noticed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from perfgate.catalogue.lookup import RULE_ADVICE
from perfgate.catalogue.records import Advice
from perfgate.document.decision import Gain, Suggestion
from perfgate.document.run import FROM_PROFILE, Finding, RunDocument, StepResult
from perfgate.judging.advice.gains import gain_of

_COMPARED = ("ok", "attention")


def on_findings(run: RunDocument) -> Iterator[Suggestion]:
    """Yield what to try about every finding that advice knows of."""
    for step in run.steps:
        for finding in step.findings:
            advice = RULE_ADVICE.get(finding.rule)
            suggestion = _suggestion(run, step, finding, advice) if advice else None
            if suggestion is not None:
                yield suggestion


def is_new(suggestion: Suggestion, base: RunDocument) -> bool:
    """Whether the base's same step ran and did not notice this; what it could not measure is not known to be new.

    A step that only mentions something may do so by chance, so it takes a warning.
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
    tried = gain_of(advice.tried, run, step.workload, finding.evidence)
    in_vain = tried is not None and not _gains(tried)
    words = advice.instead if in_vain else advice.message
    if words is None:
        return None
    try:
        message, code = (text.format_map(finding.evidence) for text in (words, "" if in_vain else advice.code))
    except KeyError:  # a document of another version, whose evidence has other names
        return None
    measured = None if in_vain else tried
    line = finding.evidence.get("line")
    return Suggestion(
        rule=finding.rule,
        workload=step.workload,
        shape=_shape(finding),
        message=message,
        step=step.number,
        severity=finding.severity,
        line=None if line is None else str(line),
        evidence=finding.evidence,
        gain=measured or gain_of(advice.gain, run, step.workload, finding.evidence),
        code=code or None,
        command=_command(run, step.workload, advice.steps or (step.number,)),
    )


def _gains(measured: Gain) -> bool:
    return (measured.interval[0] if measured.interval else measured.speedup) > 1


def _shape(finding: Finding) -> str:
    return str(finding.evidence.get("shape", ""))


def _command(run: RunDocument, workload: str, steps: tuple[int, ...]) -> str | None:
    if run.session.command == FROM_PROFILE:
        return None
    return f"perfgate run --steps {','.join(map(str, steps))} --workload {shlex.quote(workload)}"
