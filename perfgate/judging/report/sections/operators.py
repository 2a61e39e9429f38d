"""Operators that got slower by themselves, which the whole call may hardly show."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.judging.report.operators import slower_operators, worded_test
from perfgate.judging.report.summary import Summary

_SHOWN = 3


class Operators:
    """The slower operators with what they cost and how the whole call moved, whatever the verdict; none fails the gate."""

    order = 65
    drop = 15
    title = "slower operators"
    template = "operators.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        """The operators, most time lost first."""
        slower = slower_operators(summary)
        if not slower:
            return None
        most = min(_SHOWN, summary.detail)
        return {
            "operators": [worded_test(test, summary) for test in slower[:most]],
            "total": len(slower),
            "more": max(0, len(slower) - most),
            "pairs": max(test.pairs for test in slower),
            "tested": len(summary.decision.operator_tests),
        }


SECTION = Operators()
