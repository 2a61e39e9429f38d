"""The two lines under the title: what moved and how it was measured; which base, and why that one."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.judging.report.facts import base_line, busy_line, counts_line
from perfgate.judging.report.section import KEEP
from perfgate.judging.report.summary import Summary


class Facts:
    """Counts and noise floor; base, head and testbed; the gate's warnings. A PASS shows them inside its first fold."""

    order = 20
    drop = KEEP
    title = "facts"
    template = "facts.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        warnings = summary.decision.warnings
        if summary.is_unread and not warnings:
            return None
        return {
            "unread": summary.is_unread,
            "busy": busy_line(summary, "markdown"),
            "counts": counts_line(summary, "markdown") if summary.is_measured else None,
            "base": base_line(summary, "markdown"),
            "warnings": warnings[:_SHOWN_WARNINGS],
            "more": max(0, len(warnings) - _SHOWN_WARNINGS),
            "fold": summary.verdict == "PASS",
        }


_SHOWN_WARNINGS = 4
SECTION = Facts()
