"""The head's checklist, folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from perfgate.catalogue.lookup import CARDS
from perfgate.document.decision import StepSummary
from perfgate.judging.report import format as formats
from perfgate.judging.report.messages import word_finding
from perfgate.judging.report.summary import Summary
from perfgate.judging.report.view import StepView
from perfgate.judging.report.words import Words, phrase, say, translated

# The good ones first, and what they are called.
STATUS_NAMES = {
    "ok": phrase("ok"),
    "not_applicable": phrase("not applicable"),
    "unavailable": phrase("unavailable"),
    "attention": phrase("to look at"),
    "invalid": phrase("invalid"),
    "error": phrase("error"),
}


# From this share of waiting for a CPU on, what a step says of times says as much of the machine.
_BUSY = 0.1


class Checklist:
    """Every step with its status, and what it noticed."""

    order = 100
    drop = 70
    title = "checklist"
    template = "checklist.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        """The steps in number order."""
        steps = sorted(summary.decision.steps, key=lambda step: (step.number, step.workload))
        if not steps:
            return None
        listed = steps[: summary.detail]
        return {
            "tally": tally(steps),
            "steps": [worded_step(step) for step in listed],
            "more": len(steps) - len(listed),
        }


def tally(steps: list[StepSummary]) -> list[Words]:
    """How many steps have which status, the good ones first: ``14 ok``, ``2 to look at``."""
    counts = Counter(step.status for step in steps)
    return [
        say("{count} {status}", count=Words(f"{counts[status]:,}"), status=say(name))
        for status, name in STATUS_NAMES.items()
        if counts[status]
    ]


def worded_step(step: StepSummary) -> StepView:
    # Every shape may notice the same.
    notes = list(dict.fromkeys(word_finding(finding) for finding in step.findings))
    return StepView(
        number=step.number,
        title=translated(CARDS[step.number].title) if step.number in CARDS else step.slug,
        workload=step.workload,
        status=say(STATUS_NAMES[step.status]) if step.status in STATUS_NAMES else step.status,
        key=Words(step.status) if step.status in STATUS_NAMES else Words("unknown"),
        busy=busy_machine(step.waited),
        notes=notes[:3],
        more=say("{count} more", count=len(notes) - 3) if len(notes) > 3 else None,
        reason=step.reason,
    )


def busy_machine(waited: float | None) -> Words | None:
    """The mark of a step whose times are also those of a busy machine: it stands before its values and findings."""
    if waited is None or waited < _BUSY:
        return None
    share = formats.percent(waited)
    return say(
        "measured on a busy machine: the worker waited {share} of the time for a CPU that others had", share=share
    )


SECTION = Checklist()
