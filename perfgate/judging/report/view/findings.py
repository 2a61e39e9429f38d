"""The findings that a change brought and those that it removed, in words."""

from __future__ import annotations

from collections.abc import Iterable

from perfgate.catalogue.lookup import CARDS
from perfgate.document.decision import JudgedFinding, StepSummary
from perfgate.document.run import Finding
from perfgate.judging.report.text.messages import word_findings
from perfgate.judging.report.text.names import place
from perfgate.judging.report.text.templates import Values
from perfgate.judging.report.text.words import say
from perfgate.judging.report.view.blocks import listed_regressions
from perfgate.judging.report.view.summary import Summary


def changed_findings(summary: Summary) -> tuple[list[Values], list[Values]]:
    """New and gone findings in the order of steps; ``block`` is the number of the listed cause that one belongs to."""
    steps = sorted(summary.decision.steps, key=lambda step: (step.number, step.workload))
    new = [view for step in steps for view in _views(step, new_of(step), summary)]
    gone = [view for step in steps for view in _views(step, step.gone, summary)]
    return new, gone


def new_of(step: StepSummary) -> list[JudgedFinding]:
    return [finding for finding in step.findings if finding.standing == "new"]


def _views(step: StepSummary, findings: Iterable[Finding], summary: Summary) -> list[Values]:
    return [
        {
            "step": step.number,
            "title": say(CARDS[step.number].title) if step.number in CARDS else step.slug,
            "place": place(step.workload, str(finding.evidence.get("shape") or "")),
            "words": words,
            "line": str(line) if (line := finding.evidence.get("line")) else None,
            "block": _block_of(finding, summary),
        }
        for finding, words in word_findings(findings)
    ]


def _block_of(finding: Finding, summary: Summary) -> int | None:
    """The number of the listed cause that is identical to the finding's own."""
    cause = finding.cause if isinstance(finding, JudgedFinding) else None
    causes = summary.decision.causes
    if cause is None or cause >= len(causes):
        return None
    own = cause if causes[cause].group is None else causes[cause].group
    for number, regression in enumerate(listed_regressions(summary), 1):
        if own in {at if causes[at].group is None else causes[at].group for at in regression.causes}:
            return number
    return None
