"""The findings that a change brought and those that it removed.

A finding rests on a number, and a noisy number lies now above its limit and now below it. So a finding of one side alone is
called new or gone only if the comparison shows that its number moved: an exact count differs, of the metric or of an operator
that the finding names, or the interval of the difference excludes no change and lies on the finding's side. Every other finding
stands as measured, and a finding is dropped if its number, measured side by side, lies within the limit.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perfgate.catalogue.lookup import RULES
from perfgate.document.decision import DecisionDocument, StepComparison, StepSummary
from perfgate.document.explanation import Cause
from perfgate.document.run import Finding, RunDocument, Side, StepResult
from perfgate.judging.gate.explain.matched_findings import unmatched
from perfgate.judging.gate.explain.moves import Moves

replace = msgspec.structs.replace
_MEASURED = frozenset({"ok", "attention"})


def with_findings(decision: DecisionDocument, base: RunDocument) -> DecisionDocument:
    """The decision with the standing of every finding of the head, and the findings that are gone."""
    steps_of_base = {(step.workload, step.number): step for step in base.steps}
    moves = Moves(decision)
    steps: list[StepSummary] = []
    for step in decision.steps:
        numbers = [row for row in decision.checklist if row.workload == step.workload and row.is_side_by_side]
        remaining = _without_contradicted(step, numbers)
        before = steps_of_base.get((step.workload, step.number))
        if before is not None and {before.status, remaining.status} <= _MEASURED:
            remaining = _with_standing(remaining, before, numbers, moves, decision.causes)
        steps.append(remaining)
    return replace(decision, steps=steps)


def _without_contradicted(step: StepSummary, numbers: Sequence[StepComparison]) -> StepSummary:
    """The step without the findings that its numbers in pairs or turns contradict.

    The head's own measurement of a number is short, and the row that shows the finding shows the longer one.
    """
    findings = [finding for finding in step.findings if not _is_contradicted(finding, numbers, "head")]
    if len(findings) == len(step.findings):
        return step
    is_harmless = all(finding.severity == "info" for finding in findings)
    status = "ok" if step.status == "attention" and is_harmless else step.status
    return replace(step, findings=findings, status=status)


def _is_contradicted(finding: Finding, numbers: Sequence[StepComparison], side: Side) -> bool:
    """Whether the number that a finding rests on lies within its limit, by the numbers of one side."""
    rule, limit = RULES.get(finding.rule), finding.evidence.get("limit")
    if rule is None or rule.judges is None or not isinstance(limit, (int, float)):
        return False
    judged = rule.judges
    values: list[float | None] = []
    for row in numbers:
        is_judged = row.metric == judged.metric and judged.labels.items() <= row.labels.items()
        if is_judged and row.shape == finding.evidence.get("shape"):
            values.append(row.head if side == "head" else row.base)
    if not values:
        return False
    if judged.at_most:
        return all(value is not None and value <= limit for value in values)
    return all(value is not None and value >= limit for value in values)


def _with_standing(
    step: StepSummary,
    before: StepResult,
    numbers: Sequence[StepComparison],
    moves: Moves,
    causes: Sequence[Cause],
) -> StepSummary:
    of_base = [finding for finding in before.findings if not _is_contradicted(finding, numbers, "base")]
    only_base, only_head = unmatched(of_base, step.findings)
    alone = {id(finding) for finding in only_head}
    findings: list[Finding] = []
    for finding in step.findings:
        if id(finding) not in alone:
            findings.append(replace(finding, standing="unchanged"))
        elif moves.brought(finding, step.workload):
            cause = _cause_of(finding, step.workload, causes)
            findings.append(replace(finding, standing="new", cause=cause))
        else:
            findings.append(finding)
    gone = [finding for finding in only_base if moves.removed(finding, step.workload)]
    return replace(step, findings=findings, gone=gone)


def _cause_of(finding: Finding, workload: str, causes: Sequence[Cause]) -> int | None:
    """The number of the cause that changed the finding's line, else its operator, in the same place."""
    evidence = finding.evidence
    line, operator, shape = evidence.get("line"), evidence.get("op"), evidence.get("shape")
    by_operator: int | None = None
    for number, cause in enumerate(causes):
        if cause.workload != workload or shape not in (None, "", cause.shape):
            continue
        if line and line in (cause.line, *(site.line for site in cause.sites)):
            return number
        if operator and operator == cause.op and by_operator is None:
            by_operator = number
    return by_operator
