"""The findings that a change brought and those that it removed, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perfgate.catalogue.lookup import CARDS
from perfgate.document.decision import JudgedFinding, StepSummary
from perfgate.document.run import Finding
from perfgate.judging.report.text.messages import word_findings
from perfgate.judging.report.text.names import place
from perfgate.judging.report.text.words import say
from perfgate.judging.report.view.blocks import listed_regressions
from perfgate.judging.report.view.summary import Summary


@dataclass(frozen=True)
class FindingView:
    """A new or gone finding; ``block`` is the number of the listed cause that it belongs to."""

    step: int
    title: str
    place: str
    words: str
    line: str | None
    block: int | None


def changed_findings(summary: Summary) -> tuple[list[FindingView], list[FindingView]]:
    """New and gone findings in the order of steps."""
    new: list[FindingView] = []
    gone: list[FindingView] = []
    for step in sorted(summary.decision.steps, key=lambda step: (step.number, step.workload)):
        new += _views(step, new_of(step), summary)
        gone += _views(step, step.gone, summary)
    return new, gone


def new_of(step: StepSummary) -> list[JudgedFinding]:
    return [finding for finding in step.findings if finding.standing == "new"]


def step_title(step: StepSummary) -> str:
    return say(CARDS[step.number].title) if step.number in CARDS else step.slug


def _views(step: StepSummary, findings: Iterable[Finding], summary: Summary) -> list[FindingView]:
    views = []
    for finding, words in word_findings(findings):
        line = finding.evidence.get("line")
        views.append(
            FindingView(
                step=step.number,
                title=step_title(step),
                place=place(step.workload, str(finding.evidence.get("shape") or "")),
                words=words,
                line=str(line) if line else None,
                block=_block_of(finding, summary),
            )
        )
    return views


def _block_of(finding: Finding, summary: Summary) -> int | None:
    """The number of the listed cause that is identical to the finding's own."""
    cause = finding.cause if isinstance(finding, JudgedFinding) else None
    if cause is None or cause >= len(summary.decision.causes):
        return None
    own = _group(cause, summary)
    for number, regression in enumerate(listed_regressions(summary), 1):
        if any(_group(at, summary) == own for at in regression.causes):
            return number
    return None


def _group(cause: int, summary: Summary) -> int:
    group = summary.decision.causes[cause].group
    return cause if group is None else group
