"""The statuses of a checklist's steps in words."""

from __future__ import annotations

from perfgate.document.conditions import BUSY
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.words import Words, phrase, say

# Names of the statuses, the good ones first.
STATUS_NAMES = {
    "ok": phrase("ok"),
    "not_applicable": phrase("not applicable"),
    "unavailable": phrase("unavailable"),
    "attention": phrase("attention"),
    "invalid": phrase("invalid"),
    "error": phrase("error"),
    "left_out": phrase("not run"),
}


def busy_machine(waited: float | None) -> Words | None:
    """The mark of a step timed on a busy machine; it precedes the step's values and findings."""
    if waited is None or waited < BUSY:
        return None
    return say("busy machine: waited {share} of the time for a CPU", share=numbers.percent(waited))
