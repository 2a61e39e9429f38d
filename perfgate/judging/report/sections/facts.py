"""The two lines under the title: what moved and how it was measured; which base, and why that one."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.document.decision import Clock, DecisionDocument
from perfgate.judging.report import format as formats
from perfgate.judging.report.facts import base_line, counts_line
from perfgate.judging.report.section import KEEP
from perfgate.judging.report.summary import Summary
from perfgate.judging.report.words import Words


class Facts:
    """Counts and noise floor; base, head and testbed; the gate's warnings. A PASS shows them inside its first fold."""

    order = 20
    drop = KEEP
    title = "facts"
    template = "facts.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        """Return both lines."""
        warnings = summary.decision.warnings
        if summary.is_unread and not warnings:
            return None
        return {
            "unread": summary.is_unread,
            "waited": _waited(summary.decision),
            "clocks": _other_clocks(summary.decision),
            "counts": counts_line(summary, "markdown") if summary.is_measured else None,
            "base": base_line(summary, "markdown"),
            "warnings": warnings[:_SHOWN_WARNINGS],
            "more": max(0, len(warnings) - _SHOWN_WARNINGS),
            "fold": summary.verdict == "PASS",
        }


def _waited(decision: DecisionDocument) -> Words | None:
    """Return how long workers waited for CPUs, where it was long or made another clock than the wall decide."""
    if decision.waited and (_other_clocks(decision) or decision.waited >= _BUSY):
        return formats.percent(decision.waited)
    return None


def _other_clocks(decision: DecisionDocument) -> list[Clock]:
    return sorted({c.clock for c in decision.comparisons if c.metric in _BY_A_CLOCK and c.clock != "wall"})


_SHOWN_WARNINGS = 4
_BUSY = 0.1
_BY_A_CLOCK = ("latency.low", "preprocess.low")
SECTION = Facts()
